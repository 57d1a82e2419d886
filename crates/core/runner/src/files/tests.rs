use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;

use astrabox_runner_protocol::WriteFileOptions;
use tempfile::TempDir;

use super::*;

/// A tree like a box's, with a secret beside it, and links that try to reach it.
struct Tree {
    outer: TempDir,
    root: fs::File,
    policy: FilePolicy,
}

impl Tree {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        for directory in ["workspace", "home/agent", "tmp", "etc", "usr/lib"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(outer.path().join("secret"), "host").unwrap();
        fs::write(root.join("etc/hostname"), "box\n").unwrap();
        let root = fs::File::open(&root).unwrap();
        Self {
            outer,
            root,
            policy: FilePolicy {
                mounts: None,
                file_bytes: 1 << 20,
            },
        }
    }

    fn files(&self) -> Files<'_> {
        Files::new(self.root.as_fd(), &self.policy)
    }

    fn host(&self, path: &str) -> std::path::PathBuf {
        self.outer
            .path()
            .join("root")
            .join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> Result<String> {
        let (_, mut reading) = self.files().read(path, 0, 0)?;
        let mut content = Vec::new();
        loop {
            let data = reading.next()?;
            if data.is_empty() {
                return Ok(String::from_utf8(content).unwrap());
            }
            content.extend_from_slice(&data);
        }
    }

    fn write(&self, path: &str, content: &str, options: WriteFileOptions) -> Result<FileInfo> {
        let mut writing = self.files().write(path, options)?;
        writing.append(content.as_bytes())?;
        writing.finish()
    }

    fn remove(&self, path: &str, recursive: bool) -> Result<()> {
        if let Some(mut removal) = self.files().remove(path, recursive)? {
            while !removal.step()? {}
        }
        Ok(())
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> RunnerErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn no_link_and_no_dots_lead_out_of_the_box() {
    let tree = Tree::new();
    let secret = tree.outer.path().join("secret");
    symlink(&secret, tree.host("workspace/absolute")).unwrap();
    symlink("../../secret", tree.host("workspace/relative")).unwrap();
    symlink(
        "../../../../../../../../etc/passwd",
        tree.host("workspace/passwd"),
    )
    .unwrap();
    symlink("/", tree.host("workspace/top")).unwrap();
    symlink("/proc/self/root", tree.host("workspace/magic")).unwrap();
    for path in [
        "/workspace/absolute",
        "/workspace/relative",
        "/workspace/passwd",
        "/workspace/magic/etc/passwd",
    ] {
        assert_eq!(kind(tree.read(path)), RunnerErrorKind::NotFound, "{path}");
    }
    assert_eq!(tree.read("/workspace/top/etc/hostname").unwrap(), "box\n");
    for path in [
        "/workspace/../../secret",
        "workspace/x",
        "",
        "//etc",
        "/workspace/./x",
        "/a\0b",
    ] {
        assert_eq!(
            kind(tree.read(path)),
            RunnerErrorKind::InvalidArgument,
            "{path}"
        );
        let written = tree.write(path, "x", WriteFileOptions::default());
        assert_eq!(kind(written), RunnerErrorKind::InvalidArgument, "{path}");
    }
    // A write follows links only inside the box, and never out of it.
    let options = WriteFileOptions::default();
    symlink(tree.outer.path(), tree.host("workspace/outside")).unwrap();
    let written = tree.write("/workspace/outside/planted", "x", options);
    assert_eq!(kind(written), RunnerErrorKind::NotFound);
    assert!(!tree.outer.path().join("planted").exists());
    assert_eq!(fs::read_to_string(secret).unwrap(), "host");
}

#[test]
fn only_the_three_writable_trees_can_be_written() {
    let tree = Tree::new();
    let options = WriteFileOptions {
        create_parents: true,
        ..Default::default()
    };
    for path in [
        "/etc/x",
        "/usr/lib/x",
        "/x",
        "/workspace",
        "/workspacex/y",
        "/home/x",
    ] {
        let denied = RunnerErrorKind::PathDenied;
        assert_eq!(kind(tree.write(path, "x", options)), denied, "{path}");
        assert_eq!(kind(tree.remove(path, true)), denied, "{path}");
        assert_eq!(
            kind(tree.files().rename("/workspace/a", path, false)),
            denied,
            "{path}"
        );
        assert_eq!(
            kind(tree.files().rename(path, "/workspace/a", false)),
            denied,
            "{path}"
        );
        assert_eq!(
            kind(tree.files().make_dir(path, 0, false)),
            denied,
            "{path}"
        );
    }
    for path in ["/workspace/a/b/c", "/home/agent/.x/y", "/tmp/z"] {
        tree.write(path, path, options).unwrap();
        assert_eq!(tree.read(path).unwrap(), path);
    }
}

#[test]
fn a_link_to_another_mount_makes_it_not_writable() {
    let mut tree = Tree::new();
    // As if the workspace were a mount that /etc is not on.
    tree.policy.mounts = Some([u64::MAX; 3]);
    let written = tree.write("/workspace/x", "x", WriteFileOptions::default());
    assert_eq!(kind(written), RunnerErrorKind::PathDenied);
    let refused = FilePolicy::new(tree.root.as_fd(), 1);
    assert_eq!(kind(refused), RunnerErrorKind::Internal);
}

#[test]
fn a_file_appears_whole_with_its_mode_or_not_at_all() {
    let tree = Tree::new();
    let options = WriteFileOptions {
        mode: 0o4750,
        sync: true,
        ..Default::default()
    };
    let info = tree
        .write("/workspace/run.sh", "#!/bin/sh\n", options)
        .unwrap();
    assert_eq!(
        (info.kind, info.size, info.mode),
        (FileKind::File, 10, 0o750)
    );
    assert_eq!(info.name, "run.sh");

    let mut cut = tree.files().write("/workspace/run.sh", options).unwrap();
    cut.append(b"half").unwrap();
    drop(cut);
    assert_eq!(tree.read("/workspace/run.sh").unwrap(), "#!/bin/sh\n");

    let exclusive = WriteFileOptions {
        exclusive: true,
        ..Default::default()
    };
    let again = tree.write("/workspace/run.sh", "other", exclusive);
    assert_eq!(kind(again), RunnerErrorKind::FileExists);
    tree.write("/workspace/run.sh", "other", WriteFileOptions::default())
        .unwrap();
    assert_eq!(tree.read("/workspace/run.sh").unwrap(), "other");

    fs::create_dir(tree.host("workspace/dir")).unwrap();
    let over_dir = tree.write("/workspace/dir", "x", WriteFileOptions::default());
    assert_eq!(kind(over_dir), RunnerErrorKind::WrongFileKind);
    let too_long = "x".repeat((1 << 20) + 1);
    let too_long = tree.write("/workspace/long", &too_long, WriteFileOptions::default());
    assert_eq!(kind(too_long), RunnerErrorKind::DiskFull);
    assert_eq!(
        fs::read_dir(tree.host("workspace")).unwrap().count(),
        2,
        "nothing unfinished is left"
    );
}

#[test]
fn reading_takes_a_range_of_regular_files_only_and_never_blocks() {
    let tree = Tree::new();
    let content: String = ('a'..='z').cycle().take(200_000).collect();
    fs::write(tree.host("workspace/long"), &content).unwrap();
    assert_eq!(tree.read("/workspace/long").unwrap(), content);
    let (info, mut reading) = tree.files().read("/workspace/long", 199_990, 4).unwrap();
    assert_eq!(info.size, 200_000);
    assert_eq!(
        reading.next().unwrap(),
        &content.as_bytes()[199_990..199_994]
    );
    assert!(reading.next().unwrap().is_empty());

    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        tree.host("workspace/fifo"),
        Mode::from(0o600),
    )
    .unwrap();
    let _socket = UnixListener::bind(tree.host("workspace/socket")).unwrap();
    for path in ["/workspace/fifo", "/workspace/socket", "/workspace"] {
        assert_eq!(
            kind(tree.read(path)),
            RunnerErrorKind::WrongFileKind,
            "{path}"
        );
    }
}

#[test]
fn proc_is_no_content() {
    let root = fs::File::open("/").unwrap();
    let policy = FilePolicy {
        mounts: None,
        file_bytes: 1,
    };
    let read = Files::new(root.as_fd(), &policy)
        .read("/proc/self/comm", 0, 0)
        .map(drop);
    assert_eq!(kind(read), RunnerErrorKind::PathDenied);
}

#[test]
fn a_listing_tells_kinds_and_link_targets() {
    let tree = Tree::new();
    for number in 0..600 {
        fs::write(tree.host(&format!("workspace/{number}")), "x").unwrap();
    }
    symlink("/nowhere", tree.host("workspace/link")).unwrap();
    let mut listing = tree.files().list("/workspace").unwrap();
    let mut entries = Vec::new();
    loop {
        let batch = listing.next().unwrap();
        if batch.is_empty() {
            break;
        }
        entries.extend(batch);
    }
    assert_eq!(entries.len(), 601);
    let link = entries.iter().find(|entry| entry.name == "link").unwrap();
    assert_eq!(link.link_target.as_deref(), Some("/nowhere"));
    assert_eq!(
        kind(tree.files().list("/workspace/1")),
        RunnerErrorKind::WrongFileKind
    );
    let link = tree.files().stat("/workspace/link", true).unwrap();
    assert_eq!(
        (link.kind, link.link_target.as_deref()),
        (FileKind::Symlink, Some("/nowhere"))
    );
    assert_eq!(
        kind(tree.files().stat("/workspace/link", false)),
        RunnerErrorKind::NotFound
    );
}

#[test]
fn directories_are_made_with_their_mode_whatever_the_umask() {
    let tree = Tree::new();
    tree.files()
        .make_dir("/workspace/a/b", 0o777, true)
        .unwrap();
    tree.files()
        .make_dir("/workspace/a/b", 0o777, true)
        .unwrap();
    tree.files().make_dir("/workspace", 0, true).unwrap();
    let mode = |path: &str| tree.host(path).metadata().unwrap().mode() & 0o777;
    assert_eq!((mode("workspace/a"), mode("workspace/a/b")), (0o755, 0o777));
    let again = tree.files().make_dir("/workspace/a", 0, false);
    assert_eq!(kind(again), RunnerErrorKind::FileExists);
    let orphan = tree.files().make_dir("/workspace/x/y", 0, false);
    assert_eq!(kind(orphan), RunnerErrorKind::NotFound);
}

#[test]
fn a_tree_goes_away_whatever_its_depth_and_never_through_a_link() {
    let tree = Tree::new();
    let kept = tree.outer.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "x").unwrap();
    let mut deep = tree.host("workspace/tree");
    for _ in 0..300 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    for number in 0..1000 {
        fs::write(tree.host(&format!("workspace/tree/{number}")), "").unwrap();
    }
    symlink(&kept, tree.host("workspace/tree/link")).unwrap();
    let refused = tree.remove("/workspace/tree", false);
    assert_eq!(kind(refused), RunnerErrorKind::WrongFileKind);
    tree.remove("/workspace/tree", true).unwrap();
    assert!(!tree.host("workspace/tree").exists());
    assert!(kept.join("file").exists());
    assert_eq!(
        kind(tree.remove("/workspace/tree", true)),
        RunnerErrorKind::NotFound
    );
}

#[test]
fn rename_replaces_unless_told_not_to() {
    let tree = Tree::new();
    let write = |path: &str| tree.write(path, path, WriteFileOptions::default()).unwrap();
    write("/workspace/a");
    write("/workspace/b");
    let taken = tree.files().rename("/workspace/a", "/workspace/b", true);
    assert_eq!(kind(taken), RunnerErrorKind::FileExists);
    tree.files()
        .rename("/workspace/a", "/workspace/b", false)
        .unwrap();
    assert_eq!(tree.read("/workspace/b").unwrap(), "/workspace/a");
    assert_eq!(kind(tree.read("/workspace/a")), RunnerErrorKind::NotFound);
}
