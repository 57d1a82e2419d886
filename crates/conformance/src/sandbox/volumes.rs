//! SB6 and SB7: what outlives a sandbox, and what does not.

use astrabox_sandbox::{CreateSpec, ErrorKind, WriteOptions};
use astrabox_types::{SandboxId, VolumeId};

use super::SandboxBench;
use super::bench::path;
use crate::case::{check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        a_volume_outlives_its_sandbox[SB7],
        what_is_not_on_the_volume_ends_with_the_sandbox[SB6],
        a_volume_is_in_one_sandbox_at_a_time[SB7],
        a_volume_in_use_is_not_deleted[SB7],
        a_deleted_volume_is_gone[SB7],
        deleting_a_volume_that_was_never_made_is_no_error[SB7],
    ]
}

/// The same volume in the next sandbox.
fn next(spec: &CreateSpec, bench: &SandboxBench) -> CreateSpec {
    CreateSpec {
        sandbox_id: SandboxId::new(),
        assignment_id: bench.spec().assignment_id,
        ..spec.clone()
    }
}

const KEPT: [&str; 2] = ["/workspace/kept/a", "/home/agent/.kept/b"];

/// Writes these files in a new sandbox and ends it.
async fn write_and_end(bench: &SandboxBench, spec: &CreateSpec, files: &[&str]) -> Checked {
    let sandbox = bench.create_with(spec.clone()).await?;
    for file in files {
        let options = WriteOptions {
            durable: true,
            ..WriteOptions::default()
        };
        sandbox
            .workload
            .write_file(&path(file), (*file).to_owned().into(), options)
            .await
            .doing(format!("write {file}"))?;
    }
    bench.destroy(&**bench.provider(), sandbox.id).await
}

async fn a_volume_outlives_its_sandbox(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    write_and_end(bench, &spec, &KEPT).await?;
    let sandbox = bench.create_with(next(&spec, bench)).await?;
    for file in KEPT {
        let read = sandbox.workload.read_file(&path(file), 0, 100).await;
        check_eq!(read.doing(format!("read {file}"))?, file, "what it holds");
    }
    Ok(())
}

async fn what_is_not_on_the_volume_ends_with_the_sandbox(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    write_and_end(bench, &spec, &["/tmp/passing"]).await?;
    let sandbox = bench.create_with(next(&spec, bench)).await?;
    let read = sandbox
        .workload
        .read_file(&path("/tmp/passing"), 0, 1)
        .await;
    refused(
        read,
        &[ErrorKind::NotFound],
        "reading an old temporary file",
    )?;
    Ok(())
}

async fn a_volume_is_in_one_sandbox_at_a_time(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    bench.create_with(spec.clone()).await?;
    let second = next(&spec, bench);
    bench.remember(bench.provider(), &second);
    let made = bench.provider().create_sandbox(second).await;
    let kinds = [
        ErrorKind::WrongState,
        ErrorKind::AlreadyExists,
        ErrorKind::Refused,
    ];
    refused(made, &kinds, "a second sandbox with one volume")?;
    Ok(())
}

async fn a_volume_in_use_is_not_deleted(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    let deleted = bench.provider().delete_volume(spec.volume_id).await;
    let kinds = [ErrorKind::WrongState, ErrorKind::Refused];
    refused(deleted, &kinds, "deleting a volume in use")?;
    sandbox
        .workload
        .write_file(&path("/workspace/a"), "a".into(), WriteOptions::default())
        .await
        .doing("write to the volume that was not deleted")
}

async fn a_deleted_volume_is_gone(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    write_and_end(bench, &spec, &KEPT).await?;
    for time in ["delete the volume", "delete the volume again"] {
        let deleted = bench.provider().delete_volume(spec.volume_id).await;
        deleted.doing(time)?;
    }
    let sandbox = bench.create_with(next(&spec, bench)).await?;
    for file in KEPT {
        let read = sandbox.workload.read_file(&path(file), 0, 100).await;
        refused(
            read,
            &[ErrorKind::NotFound],
            "reading from a deleted volume",
        )?;
    }
    Ok(())
}

async fn deleting_a_volume_that_was_never_made_is_no_error(bench: &SandboxBench) -> Checked {
    bench
        .provider()
        .delete_volume(VolumeId::new())
        .await
        .doing("delete no volume")
}
