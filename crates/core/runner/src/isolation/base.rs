//! The read-only part of a box: its programs, and a made-up `/etc` in place of the host's.
//!
//! Of the host's `/etc` a box gets what programs need to run at all: the linker's cache, the file types,
//! and, as read-only views, the public certificates and the names that `/usr/bin` points to. Views
//! instead of copies, because copying their 600 links took 3 ms of an 8 ms start, and because a box
//! that lives long should see a revoked certificate go.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::error::{SetupError, SetupStep};
use super::mounts::{self, DATA, PROGRAMS, READ_ONLY};
use super::spec::{BOX_ID, Base};

/// Where an agent program's tree is in every box.
const IMAGE: &str = "opt/astrabox/image";

/// The directories of the skeleton, parents first.
const DIRS: &[&str] = &[
    "dev",
    "etc",
    "etc/ssl",
    "home",
    "home/agent",
    "opt",
    "opt/astrabox",
    IMAGE,
    "proc",
    "run",
    "tmp",
    "usr",
    "var",
    "workspace",
];

/// Links of the skeleton, as target and name.
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/mounts", "etc/mtab"),
    ("/usr/share/zoneinfo/Etc/UTC", "etc/localtime"),
    ("../usr/lib/os-release", "etc/os-release"),
    ("/run", "var/run"),
    ("/tmp", "var/tmp"),
];

/// Top-level names that are links into `/usr` on a merged system and directories on others.
const USR_NAMES: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Single files of the host's `/etc` that a box gets a copy of.
const ETC_COPIES: &[&str] = &["ld.so.cache", "mime.types", "ssl/openssl.cnf"];

/// Directories of the host's `/etc` that a box gets a view of.
const ETC_VIEWS: &[&str] = &[
    "alternatives",
    "ca-certificates",
    // Where Debian and Fedora keep what a Java runtime cannot start without.
    "java",
    "java-8-openjdk",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "ssl/certs",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
];

/// No single copied file is larger, unless something is very wrong.
const COPY_LIMIT: u64 = 4 << 20;

/// The root directory of a new box, attached over a directory that nobody else looks into.
pub(super) struct Root {
    pub(super) dir: OwnedFd,
    /// Whether the mount table shows no path of base and image.
    pub(super) paths_hidden: bool,
}

/// The host's directories that a box shows, opened before anything covers them.
pub(super) struct Sources {
    base: Option<OwnedFd>,
    image: Option<OwnedFd>,
}

impl Sources {
    pub(super) fn open(base: &Base, image: Option<&Path>) -> Result<Self, SetupError> {
        let base = match base {
            Base::Host => None,
            Base::Dir(tree) => Some(open_dir(tree).setup("open the base")?),
        };
        let image = image.map(open_dir).transpose().setup("open the image")?;
        Ok(Self { base, image })
    }
}

/// Builds base and image at `over`. What has to be mounted afterwards finds its directories there.
pub(super) fn build(sources: &Sources, hostname: &str, over: &Path) -> Result<Root, SetupError> {
    let skeleton = skeleton(sources, hostname)?;
    mounts::attach(&skeleton, CWD, over).setup("attach the root")?;
    let mut root = Root {
        dir: skeleton,
        paths_hidden: true,
    };
    match &sources.base {
        None => {
            host_programs(root.dir.as_fd())?;
            host_etc(root.dir.as_fd())?;
        }
        Some(tree) => {
            let stack = mounts::stack(&[root.dir.as_fd(), tree.as_fd()], PROGRAMS)
                .setup("mount the base")?;
            mounts::attach(&stack, CWD, over).setup("attach the base")?;
            root.dir = stack;
        }
    }
    if let Some(image) = &sources.image {
        root.paths_hidden = mount_image(root.dir.as_fd(), image)?;
    }
    Ok(root)
}

/// A small file system with what no base brings: mount points, identities, names.
fn skeleton(sources: &Sources, hostname: &str) -> Result<OwnedFd, SetupError> {
    let options = [
        ("source", "tmpfs"),
        ("size", "16m"),
        ("nr_inodes", "4096"),
        ("mode", "0755"),
    ];
    let root = mounts::filesystem("tmpfs", &options, DATA).setup("mount the root")?;
    for dir in DIRS {
        mkdirat(&root, *dir, Mode::from_raw_mode(0o755)).setup("make the root's directories")?;
    }
    for (target, name) in LINKS {
        symlinkat(*target, &root, *name).setup("make the root's links")?;
    }
    let shell = shell_of(sources);
    let id = BOX_ID;
    let files = [
        (
            "etc/passwd",
            format!(
                "root:x:0:0:root:/root:/usr/sbin/nologin\n\
                 agent:x:{id}:{id}:agent:/home/agent:{shell}\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        (
            "etc/group",
            format!("root:x:0:\nagent:x:{id}:\nnogroup:x:65534:\n"),
        ),
        (
            "etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n".into(),
        ),
        (
            "etc/hosts",
            format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n"),
        ),
        ("etc/hostname", format!("{hostname}\n")),
        ("etc/timezone", "Etc/UTC\n".into()),
        // No name server can be reached: names are the egress proxy's business.
        ("etc/resolv.conf", String::new()),
    ];
    for (name, content) in files {
        write_file(root.as_fd(), name, content.as_bytes()).setup("write the root's files")?;
    }
    Ok(root)
}

fn shell_of(sources: &Sources) -> &'static str {
    let tree = sources.base.as_ref().map_or(CWD, AsFd::as_fd);
    let name = if sources.base.is_some() {
        "usr/bin/bash"
    } else {
        "/usr/bin/bash"
    };
    if accessat(tree, name, Access::EXISTS, AtFlags::empty()).is_ok() {
        "/bin/bash"
    } else {
        "/bin/sh"
    }
}

fn host_programs(root: BorrowedFd<'_>) -> Result<(), SetupError> {
    let usr = mounts::view_of_host("/usr", PROGRAMS, true).setup("view /usr")?;
    mounts::attach(&usr, root, "usr").setup("attach /usr")?;
    // A link would lead nowhere in the box, so there would be nothing to cover.
    if fs::symlink_metadata("/usr/local").is_ok_and(|found| found.is_dir()) {
        // What was installed by hand is the host's own and can hold anything.
        let options = [
            ("source", "tmpfs"),
            ("size", "4k"),
            ("nr_inodes", "1"),
            ("mode", "0755"),
        ];
        let nothing = mounts::filesystem("tmpfs", &options, READ_ONLY).setup("cover /usr/local")?;
        mounts::attach(&nothing, root, "usr/local").setup("cover /usr/local")?;
    }
    for name in USR_NAMES {
        let host = Path::new("/").join(name);
        match fs::symlink_metadata(&host) {
            Ok(found) if found.is_symlink() => {
                let target = fs::read_link(&host).setup("read a link of the root")?;
                symlinkat(&target, root, *name).setup("make a link of the root")?;
            }
            Ok(found) if found.is_dir() => {
                mkdirat(root, *name, Mode::from_raw_mode(0o755))
                    .setup("make a program directory")?;
                let view = mounts::view_of_host(&host, PROGRAMS, true)
                    .setup("view a program directory")?;
                mounts::attach(&view, root, name).setup("attach a program directory")?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn host_etc(root: BorrowedFd<'_>) -> Result<(), SetupError> {
    let etc = Path::new("/etc");
    for name in ETC_COPIES {
        let from = etc.join(name);
        let small =
            fs::metadata(&from).is_ok_and(|file| file.is_file() && file.len() <= COPY_LIMIT);
        if small {
            let content = fs::read(&from).setup("read a file of /etc")?;
            write_file(root, &format!("etc/{name}"), &content).setup("copy a file of /etc")?;
        }
    }
    for name in ETC_VIEWS {
        let from = etc.join(name);
        if !from.is_dir() {
            continue;
        }
        let target = format!("etc/{name}");
        make_parents(root, &target).setup("make the directories of /etc")?;
        let view = mounts::view_of_host(&from, READ_ONLY, true).setup("view a part of /etc")?;
        mounts::attach(&view, root, &target).setup("attach a part of /etc")?;
    }
    Ok(())
}

/// Mounts the image; true if no path of the host shows.
fn mount_image(root: BorrowedFd<'_>, tree: &OwnedFd) -> Result<bool, SetupError> {
    // A stack needs a second layer: the empty directory that it is going to cover.
    let below = openat(root, IMAGE, O_PATH_DIR, Mode::empty()).setup("open the image's place")?;
    let stacked = mounts::stack(&[tree.as_fd(), below.as_fd()], PROGRAMS);
    let (mount, hidden) = match stacked {
        Ok(mount) => (mount, true),
        // No overlay here, or none over this file system: the same tree, but its path shows.
        Err(Errno::NODEV | Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP) => (
            mounts::view(tree.as_fd(), "", PROGRAMS, true).setup("view the image")?,
            false,
        ),
        Err(error) => return Err(error).setup("mount the image"),
    };
    mounts::attach(&mount, root, IMAGE).setup("attach the image")?;
    Ok(hidden)
}

const O_PATH_DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, O_PATH_DIR, Mode::empty())?)
}

fn make_parents(root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .chain([path.len()]);
    for end in ends {
        match mkdirat(root, &path[..end], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_file(dir: BorrowedFd<'_>, name: &str, content: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::from_raw_mode(0o644))?;
    fs::File::from(file).write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_children() {
        for (index, dir) in DIRS.iter().enumerate() {
            if let Some((parent, _)) = dir.rsplit_once('/') {
                assert!(DIRS[..index].contains(&parent), "{dir}");
            }
        }
    }

    #[test]
    fn nothing_of_etc_but_the_public_parts_is_taken() {
        let taken: Vec<_> = ETC_COPIES.iter().chain(ETC_VIEWS).collect();
        for secret in [
            "shadow",
            "ssl",
            "ssl/private",
            "passwd",
            "ssh",
            "pki",
            "pki/tls",
        ] {
            assert!(!taken.contains(&&secret), "{secret}");
        }
    }
}
