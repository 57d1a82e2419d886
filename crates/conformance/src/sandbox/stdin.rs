//! SB12: standard input has offsets, so that a repeated write is not written twice.

use astrabox_sandbox::{ErrorKind, ProcessName, Sandbox, Stdio, Workload};
use bytes::Bytes;

use super::reading::Reading;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        written_bytes_arrive_in_order [SB12],
        a_repeated_write_is_not_written_twice [SB12],
        an_overlapping_write_adds_only_what_is_new [SB12],
        a_gap_is_refused [SB12],
        other_bytes_at_an_accepted_offset_never_arrive [SB12],
        a_restarted_server_repeats_a_write_without_harm [SB12 SB3],
        a_large_write_arrives_whole [SB12],
        a_process_without_standard_input_takes_none [SB12],
    ]
}

async fn copying(bench: &SandboxBench) -> Result<(Sandbox, ProcessName), Stop> {
    let sandbox = bench.create().await?;
    let process = bench.start(&*sandbox.workload, &Probe::Copy).await?;
    Ok((sandbox, process))
}

async fn write(
    workload: &dyn Workload,
    process: &ProcessName,
    offset: u64,
    text: &str,
) -> Result<u64, Stop> {
    workload
        .write_stdin(process, offset, Bytes::from(text.to_owned()))
        .await
        .doing(format!("write {text:?} at {offset}"))
}

/// Closes standard input; what was copied must be exactly this.
async fn arrived(workload: &dyn Workload, process: &ProcessName, wanted: &str) -> Checked {
    workload.close_stdin(process).await.doing("close stdin")?;
    let mut reading = Reading::at(workload, process, 0, 0).await?;
    let exit = reading.until_end().await?;
    check_eq!(exit.code, Some(0), "the end at the end of input");
    check_eq!(reading.text(), wanted, "what arrived");
    Ok(())
}

async fn written_bytes_arrive_in_order(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    let workload = &*sandbox.workload;
    let next = write(workload, &process, 0, "one ").await?;
    check_eq!(next, 4, "the next offset");
    let next = write(workload, &process, next, "two ").await?;
    check_eq!(next, 8, "the next offset");
    let status = workload.status(&process).await.doing("status")?;
    let told = status.map(|status| status.stdin_offset);
    check_eq!(told, Some(8), "the next offset in the status");
    arrived(workload, &process, "one two ").await
}

async fn a_repeated_write_is_not_written_twice(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    let workload = &*sandbox.workload;
    for _ in 0..3 {
        let next = write(workload, &process, 0, "once\n").await?;
        check_eq!(next, 5, "the next offset");
    }
    arrived(workload, &process, "once\n").await
}

async fn an_overlapping_write_adds_only_what_is_new(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    let workload = &*sandbox.workload;
    write(workload, &process, 0, "abc").await?;
    let next = write(workload, &process, 1, "bcdef").await?;
    check_eq!(next, 6, "the next offset");
    arrived(workload, &process, "abcdef").await
}

async fn a_gap_is_refused(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    let workload = &*sandbox.workload;
    write(workload, &process, 0, "ab").await?;
    let beyond = workload.write_stdin(&process, 3, "d".into()).await;
    refused(beyond, &[ErrorKind::OutOfRange], "a write beyond a gap")?;
    arrived(workload, &process, "ab").await
}

async fn other_bytes_at_an_accepted_offset_never_arrive(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    let workload = &*sandbox.workload;
    write(workload, &process, 0, "first").await?;
    // Whether it is an error is the provider's choice; that it is not delivered is not.
    let _ = workload.write_stdin(&process, 0, "other".into()).await;
    arrived(workload, &process, "first").await
}

async fn a_restarted_server_repeats_a_write_without_harm(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    write(&*sandbox.workload, &process, 0, "said ").await?;
    let restarted = bench.restarted().await?;
    let again = restarted.connect(sandbox.id).await.doing("connect")?;
    write(&*again.workload, &process, 0, "said ").await?;
    write(&*again.workload, &process, 5, "once").await?;
    arrived(&*again.workload, &process, "said once").await
}

async fn a_large_write_arrives_whole(bench: &SandboxBench) -> Checked {
    let (sandbox, process) = copying(bench).await?;
    let workload = &*sandbox.workload;
    // Larger than a pipe and than a message, with a program that answers while it reads.
    let text = "0123456789abcde\n".repeat(64 << 10);
    let next = write(workload, &process, 0, &text).await?;
    check_eq!(next, text.len() as u64, "the next offset");
    workload.close_stdin(&process).await.doing("close stdin")?;
    let mut reading = Reading::at(workload, &process, 0, 0).await?;
    reading.until_end().await?;
    check!(
        reading.text() == text,
        "{} of {} bytes came back, or others",
        reading.stdout().len(),
        text.len()
    );
    Ok(())
}

async fn a_process_without_standard_input_takes_none(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let mut spec = bench.process(&Probe::Copy)?;
    spec.stdin = Stdio::Null;
    let done = bench.run_spec(&*sandbox.workload, spec).await?;
    check_eq!(done.exit.code, Some(0), "the end of a reader of nothing");
    check_eq!(done.stdout, "", "what it read");
    let mut spec = bench.process(&Probe::Wait)?;
    spec.stdin = Stdio::Null;
    let process = spec.name.clone();
    sandbox.workload.spawn(spec).await.doing("spawn")?;
    let written = sandbox.workload.write_stdin(&process, 0, "x".into()).await;
    refused(
        written,
        &[ErrorKind::WrongState],
        "writing to no standard input",
    )?;
    Ok(())
}
