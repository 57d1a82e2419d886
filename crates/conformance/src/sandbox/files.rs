//! SB15: files are read and written as asked, inside the sandbox.

use astrabox_sandbox::{ErrorKind, FileKind, WriteOptions};
use bytes::Bytes;

use super::bench::path;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        a_file_is_read_as_it_was_written[SB15],
        a_write_replaces_the_whole_file[SB15],
        an_exclusive_write_replaces_nothing[SB15],
        a_private_file_is_for_its_owner_only[SB15],
        a_directory_is_listed_in_name_order[SB15],
        a_file_is_moved_over_another[SB15],
        removing_takes_a_whole_tree_and_may_be_repeated[SB15],
        what_is_not_there_is_not_found[SB15],
        the_base_cannot_be_written[SB15],
        a_program_and_the_platform_see_the_same_files[SB15],
    ]
}

const PLAIN: WriteOptions = WriteOptions {
    private: false,
    executable: false,
    exclusive: false,
    durable: false,
};

async fn a_file_is_read_as_it_was_written(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for (name, content) in [
        ("/workspace/empty", Bytes::new()),
        ("/workspace/deep/er/bytes \u{fc}", Bytes::from(all)),
        ("/home/agent/.file", Bytes::from_static(b"x")),
        ("/tmp/file", Bytes::from_static(b"y")),
    ] {
        let file = path(name);
        let options = WriteOptions {
            durable: true,
            ..PLAIN
        };
        workload
            .write_file(&file, content.clone(), options)
            .await
            .doing(format!("write {name}"))?;
        let info = workload.stat(&file).await.doing("stat")?;
        check_eq!(info.kind, FileKind::File, "the kind of {name}");
        check_eq!(info.size, content.len() as u64, "the size of {name}");
        check_eq!(Some(&*info.name), name.rsplit('/').next(), "the name");
        let end = content.len();
        for (offset, limit) in [
            (0, end + 10),
            (0, 1),
            (end / 2, 100),
            (end, 10),
            (end + 5, 10),
        ] {
            let read = workload.read_file(&file, offset as u64, limit as u64).await;
            let wanted =
                content.slice(offset.min(end)..(offset + limit).min(end).max(offset.min(end)));
            let read = read.doing(format!("read {name} from {offset}"))?;
            // A read may give less than asked for, but never nothing before the end.
            check!(
                wanted.starts_with(&read) && read.is_empty() == wanted.is_empty(),
                "{} bytes of {name} from {offset} are other ones than {} wanted",
                read.len(),
                wanted.len()
            );
        }
    }
    Ok(())
}

async fn a_write_replaces_the_whole_file(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let file = path("/workspace/file");
    for text in ["a long text", "short", ""] {
        let written = sandbox.workload.write_file(&file, text.into(), PLAIN).await;
        written.doing("write")?;
        let read = sandbox.workload.read_file(&file, 0, 100).await;
        check_eq!(read.doing("read")?, text, "what is in the file");
    }
    Ok(())
}

async fn an_exclusive_write_replaces_nothing(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let file = path("/workspace/file");
    let options = WriteOptions {
        exclusive: true,
        ..PLAIN
    };
    let first = workload.write_file(&file, "first".into(), options).await;
    first.doing("write")?;
    let second = workload.write_file(&file, "second".into(), options).await;
    refused(
        second,
        &[ErrorKind::AlreadyExists],
        "an exclusive write over a file",
    )?;
    let read = workload.read_file(&file, 0, 100).await.doing("read")?;
    check_eq!(read, "first", "what is in the file");
    Ok(())
}

async fn a_private_file_is_for_its_owner_only(bench: &SandboxBench) -> Checked {
    let probe = Probe::Script("cd /workspace && stat -c '%a %n' private open run".to_owned());
    bench.process(&probe)?;
    let sandbox = bench.create().await?;
    for (name, options) in [
        (
            "private",
            WriteOptions {
                private: true,
                ..PLAIN
            },
        ),
        ("open", PLAIN),
        (
            "run",
            WriteOptions {
                executable: true,
                ..PLAIN
            },
        ),
    ] {
        let file = path(&format!("/workspace/{name}"));
        let written = sandbox
            .workload
            .write_file(&file, "x".into(), options)
            .await;
        written.doing(format!("write {name}"))?;
    }
    let done = bench.run(&*sandbox.workload, &probe).await?;
    check_eq!(done.stdout, "600 private\n644 open\n755 run\n", "the modes");
    Ok(())
}

async fn a_directory_is_listed_in_name_order(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    for name in ["b", "a", "C", "z/inner", "a b"] {
        let file = path(&format!("/workspace/list/{name}"));
        workload
            .write_file(&file, "x".into(), PLAIN)
            .await
            .doing("write")?;
    }
    let made = path("/workspace/list/made/deep");
    for _ in 0..2 {
        workload.make_dir(&made).await.doing("make a directory")?;
    }
    let listed = workload.list_files(&path("/workspace/list")).await;
    let listed = listed.doing("list")?;
    let names: Vec<_> = listed.iter().map(|info| info.name.as_str()).collect();
    check_eq!(names, ["C", "a", "a b", "b", "made", "z"], "the names");
    let kinds: Vec<_> = listed.iter().map(|info| info.kind).collect();
    let directories = kinds.iter().filter(|kind| **kind == FileKind::Directory);
    check_eq!(directories.count(), 2, "how many are directories");
    let on_file = workload.list_files(&path("/workspace/list/a")).await;
    check!(on_file.is_err(), "a file can be listed");
    Ok(())
}

async fn a_file_is_moved_over_another(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let (from, to) = (path("/workspace/from"), path("/workspace/to"));
    workload
        .write_file(&from, "new".into(), PLAIN)
        .await
        .doing("write")?;
    workload
        .write_file(&to, "old".into(), PLAIN)
        .await
        .doing("write")?;
    workload.rename(&from, &to).await.doing("rename")?;
    let read = workload.read_file(&to, 0, 10).await.doing("read")?;
    check_eq!(read, "new", "what is there now");
    refused(
        workload.stat(&from).await,
        &[ErrorKind::NotFound],
        "looking where it was",
    )?;
    refused(
        workload.rename(&from, &to).await,
        &[ErrorKind::NotFound],
        "moving nothing",
    )?;
    Ok(())
}

async fn removing_takes_a_whole_tree_and_may_be_repeated(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let tree = path("/workspace/tree");
    for name in ["a", "b/c/d", "b/e"] {
        let file = tree.join(name)?;
        workload
            .write_file(&file, "x".into(), PLAIN)
            .await
            .doing("write")?;
    }
    for time in ["remove", "remove again"] {
        workload.remove(&tree).await.doing(time)?;
    }
    let left = workload.stat(&tree).await;
    refused(left, &[ErrorKind::NotFound], "looking at a removed tree")?;
    Ok(())
}

async fn what_is_not_there_is_not_found(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let nothing = path("/workspace/no/thing");
    let kinds = [ErrorKind::NotFound];
    refused(workload.read_file(&nothing, 0, 1).await, &kinds, "reading")?;
    refused(workload.stat(&nothing).await, &kinds, "stat")?;
    refused(workload.list_files(&nothing).await, &kinds, "listing")?;
    Ok(())
}

async fn the_base_cannot_be_written(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    for name in [
        "/etc/passwd",
        "/usr/bin/new",
        "/new",
        "/opt/astrabox/image/x",
    ] {
        let written = workload.write_file(&path(name), "x".into(), PLAIN).await;
        check!(written.is_err(), "{name} was written");
    }
    for name in ["/etc", "/usr"] {
        let removed = workload.remove(&path(name)).await;
        check!(removed.is_err(), "{name} was removed");
    }
    let moved = workload
        .rename(&path("/etc"), &path("/workspace/etc"))
        .await;
    check!(moved.is_err(), "/etc was moved");
    Ok(())
}

async fn a_program_and_the_platform_see_the_same_files(bench: &SandboxBench) -> Checked {
    let mark = |name: &str| Probe::Mark {
        path: name.to_owned(),
    };
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let file = path("/workspace/shared");
    workload
        .write_file(&file, "from outside ".into(), PLAIN)
        .await
        .doing("write")?;
    bench.start(workload, &mark("/workspace/shared")).await?;
    super::bench::wait_until(super::reading::PATIENCE, || async {
        let read = workload.read_file(&file, 0, 100).await.doing("read")?;
        Ok(read == "from outside x")
    })
    .await
    .doing("the program's write did not show")
}
