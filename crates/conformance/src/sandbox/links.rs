//! SB15: no link that a program makes leads a file operation outside.

use astrabox_sandbox::{ErrorKind, FileKind, Sandbox, WriteOptions};

use super::bench::path;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        a_link_to_a_host_file_reads_nothing_of_it[SB15],
        a_link_to_a_host_directory_writes_nothing_there[SB15],
        removing_a_link_leaves_what_it_points_to[SB15],
        a_link_inside_the_sandbox_is_followed[SB15],
        a_link_to_itself_is_an_error[SB15],
    ]
}

const PLAIN: WriteOptions = WriteOptions {
    private: false,
    executable: false,
    exclusive: false,
    durable: false,
};

async fn link(bench: &SandboxBench, sandbox: &Sandbox, target: &str, at: &str) -> Checked {
    let probe = Probe::Link {
        target: target.to_owned(),
        path: at.to_owned(),
    };
    let done = bench.run(&*sandbox.workload, &probe).await?;
    check_eq!(done.exit.code, Some(0), "making a link at {at}");
    Ok(())
}

/// A directory of this host with a file in it that no sandbox has.
fn on_the_host() -> Result<(tempfile::TempDir, String), Stop> {
    let directory = tempfile::tempdir().doing("a directory on the host")?;
    std::fs::write(directory.path().join("treasure"), "of the host")?;
    let text = directory.path().to_string_lossy().into_owned();
    Ok((directory, text))
}

/// The ways in which a link can say a path.
fn ways(target: &str) -> [String; 3] {
    let up = "../".repeat(24);
    [
        target.to_owned(),
        format!("{up}{}", target.trim_start_matches('/')),
        format!("/proc/1/root{target}"),
    ]
}

async fn a_link_to_a_host_file_reads_nothing_of_it(bench: &SandboxBench) -> Checked {
    let (_kept, directory) = on_the_host()?;
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    for (number, way) in ways(&directory).iter().enumerate() {
        let (file, parent) = (
            format!("/workspace/f{number}"),
            format!("/workspace/d{number}"),
        );
        link(bench, &sandbox, &format!("{way}/treasure"), &file).await?;
        link(bench, &sandbox, way, &parent).await?;
        for name in [file, format!("{parent}/treasure")] {
            let read = workload.read_file(&path(&name), 0, 100).await;
            check!(read.is_err(), "{name} -> {way} reads {read:?}");
        }
        let listed = workload.list_files(&path(&parent)).await;
        check!(listed.is_err(), "{parent} -> {way} lists {listed:?}");
    }
    Ok(())
}

async fn a_link_to_a_host_directory_writes_nothing_there(bench: &SandboxBench) -> Checked {
    let (kept, directory) = on_the_host()?;
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    for (number, way) in ways(&directory).iter().enumerate() {
        let name = format!("/workspace/d{number}");
        link(bench, &sandbox, way, &name).await?;
        let inner = path(&format!("{name}/treasure"));
        // Each may be an error, or happen inside; outside nothing may change.
        let _ = workload.write_file(&inner, "taken".into(), PLAIN).await;
        let _ = workload.make_dir(&path(&format!("{name}/made"))).await;
        let _ = workload.rename(&inner, &path("/workspace/moved")).await;
        let _ = workload.remove(&inner).await;
        let _ = workload.remove(&path(&name)).await;
    }
    let text = std::fs::read_to_string(kept.path().join("treasure"));
    check_eq!(
        text.doing("read on the host")?,
        "of the host",
        "the host's file"
    );
    let names = std::fs::read_dir(kept.path())?.count();
    check_eq!(names, 1, "how many files the host's directory has");
    Ok(())
}

async fn removing_a_link_leaves_what_it_points_to(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let file = path("/workspace/real/file");
    workload
        .write_file(&file, "x".into(), PLAIN)
        .await
        .doing("write")?;
    link(bench, &sandbox, "real", "/workspace/link").await?;
    let seen = workload.stat(&path("/workspace/link")).await;
    check_eq!(seen.doing("stat")?.kind, FileKind::Symlink, "the kind");
    workload
        .remove(&path("/workspace/link"))
        .await
        .doing("remove")?;
    let read = workload.read_file(&file, 0, 1).await.doing("read")?;
    check_eq!(read, "x", "what it pointed to");
    let gone = workload.stat(&path("/workspace/link")).await;
    refused(gone, &[ErrorKind::NotFound], "looking at the removed link")?;
    Ok(())
}

async fn a_link_inside_the_sandbox_is_followed(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let file = path("/workspace/real/file");
    workload
        .write_file(&file, "inside".into(), PLAIN)
        .await
        .doing("write")?;
    link(bench, &sandbox, "/workspace/real", "/home/agent/link").await?;
    let read = workload
        .read_file(&path("/home/agent/link/file"), 0, 100)
        .await;
    check_eq!(read.doing("read")?, "inside", "what is behind the link");
    Ok(())
}

async fn a_link_to_itself_is_an_error(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    link(bench, &sandbox, "loop", "/workspace/loop").await?;
    let read = workload.read_file(&path("/workspace/loop"), 0, 1).await;
    check!(read.is_err(), "a link to itself reads {read:?}");
    let listed = workload.list_files(&path("/workspace/loop")).await;
    check!(listed.is_err(), "a link to itself lists {listed:?}");
    Ok(())
}
