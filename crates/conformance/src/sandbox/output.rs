//! SB11: output has offsets, is kept until it is acknowledged, and no reader is needed.

use astrabox_sandbox::{ErrorKind, ExitReason, ProcessName};

use super::reading::Reading;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        both_streams_come_whole_and_apart [SB11],
        output_is_read_from_any_offset [SB11],
        reading_again_gives_the_same_bytes [SB11],
        losing_a_reader_loses_nothing [SB11],
        two_readers_see_the_same [SB11],
        a_program_needs_no_reader [SB11],
        a_large_output_comes_whole [SB11],
        acknowledged_output_is_freed_and_the_rest_kept [SB11],
        an_offset_beyond_the_output_is_refused [SB11],
        an_unknown_process_is_not_found [SB11 SB13],
    ]
}

/// The output of `Probe::Count`.
fn lines(count: u32) -> String {
    (1..=count).map(|line| format!("line {line}\n")).collect()
}

async fn both_streams_come_whole_and_apart(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let probe = Probe::Say {
        stdout: "to the one\n\u{fc}".to_owned(),
        stderr: "to the other".to_owned(),
        code: 0,
    };
    let done = bench.run(&*sandbox.workload, &probe).await?;
    check_eq!(done.stdout, "to the one\n\u{fc}", "standard output");
    check_eq!(done.stderr, "to the other", "standard error");
    Ok(())
}

async fn output_is_read_from_any_offset(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let process = bench
        .start(&*sandbox.workload, &Probe::Count { lines: 200 })
        .await?;
    let all = lines(200);
    Reading::at(&*sandbox.workload, &process, 0, 0)
        .await?
        .until_end()
        .await?;
    for offset in [0, 1, 7, all.len() / 2, all.len() - 1, all.len()] {
        let mut reading = Reading::at(&*sandbox.workload, &process, offset as u64, 0).await?;
        reading.until_end().await?;
        check_eq!(reading.text(), all[offset..], "output from {offset} on");
        check_eq!(reading.next_stdout(), all.len() as u64, "the end of it");
    }
    Ok(())
}

async fn reading_again_gives_the_same_bytes(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let probe = Probe::Say {
        stdout: "out".to_owned(),
        stderr: "err".to_owned(),
        code: 3,
    };
    let process = bench.start(&*sandbox.workload, &probe).await?;
    for time in 1..=3 {
        let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
        let exit = reading.until_end().await?;
        check_eq!(
            reading.stdout(),
            b"out",
            "standard output at reading {time}"
        );
        check_eq!(reading.stderr(), b"err", "standard error at reading {time}");
        check_eq!(exit.code, Some(3), "the exit code at reading {time}");
    }
    Ok(())
}

async fn losing_a_reader_loses_nothing(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let process = bench.start(&*sandbox.workload, &Probe::Tick).await?;
    let (mut seen, mut stderr) = (Vec::new(), 0);
    for _ in 0..4 {
        let at = seen.len() as u64;
        let mut reading = Reading::at(&*sandbox.workload, &process, at, stderr).await?;
        reading.until(|bytes| bytes.len() > 15).await?;
        seen.extend_from_slice(reading.stdout());
        stderr = reading.next_stderr();
    }
    let text = String::from_utf8_lossy(&seen).into_owned();
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    let counts: Vec<u64> = whole.lines().map_while(|line| line.parse().ok()).collect();
    check!(
        counts.iter().copied().eq(1..=counts.len() as u64) && counts.len() > 10,
        "four readers one after another saw {text:?}"
    );
    Ok(())
}

async fn two_readers_see_the_same(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let process = bench.start(&*sandbox.workload, &Probe::Copy).await?;
    let mut one = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    let mut other = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    sandbox
        .workload
        .write_stdin(&process, 0, "shared\n".into())
        .await
        .doing("write")?;
    sandbox
        .workload
        .close_stdin(&process)
        .await
        .doing("close stdin")?;
    for reading in [&mut one, &mut other] {
        let exit = reading.until_end().await?;
        check_eq!(reading.text(), "shared\n", "what a reader saw");
        check_eq!(exit.reason, ExitReason::Exited, "the end that it saw");
    }
    Ok(())
}

async fn a_program_needs_no_reader(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let process = bench
        .start(&*sandbox.workload, &Probe::Count { lines: 20_000 })
        .await?;
    ended(bench, &sandbox, &process).await?;
    let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    reading.until_end().await?;
    check!(
        reading.text() == lines(20_000),
        "{} bytes came, {} were printed",
        reading.stdout().len(),
        lines(20_000).len()
    );
    Ok(())
}

/// Waits for the end of a process without reading it.
async fn ended(
    _bench: &SandboxBench,
    sandbox: &astrabox_sandbox::Sandbox,
    process: &ProcessName,
) -> Checked {
    super::bench::wait_until(super::reading::PATIENCE, || async {
        let status = sandbox.workload.status(process).await.doing("status")?;
        Ok(status.is_some_and(|status| status.exit.is_some()))
    })
    .await
    .doing("the process did not end without a reader")
}

async fn a_large_output_comes_whole(bench: &SandboxBench) -> Checked {
    const LINES: u32 = 120_000;
    let sandbox = bench.create().await?;
    let process = bench
        .start(&*sandbox.workload, &Probe::Count { lines: LINES })
        .await?;
    let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    reading.until_end().await?;
    check!(
        reading.text() == lines(LINES),
        "{} bytes came, or others",
        reading.stdout().len()
    );
    Ok(())
}

async fn acknowledged_output_is_freed_and_the_rest_kept(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let process = bench
        .start(workload, &Probe::Count { lines: 120_000 })
        .await?;
    Reading::at(workload, &process, 0, 0)
        .await?
        .until_end()
        .await?;
    let all = lines(120_000);
    let acknowledged = all.len() - 9;
    for time in ["acknowledge", "acknowledge again"] {
        let done = workload.acknowledge(&process, acknowledged as u64, 0).await;
        done.doing(time)?;
    }
    // A lower offset changes nothing.
    workload
        .acknowledge(&process, 5, 0)
        .await
        .doing("acknowledge less")?;
    let mut reading = Reading::at(workload, &process, acknowledged as u64, 0).await?;
    reading.until_end().await?;
    check_eq!(reading.text(), all[acknowledged..], "what was kept");
    let status = workload.status(&process).await.doing("status")?;
    let kept = status.map_or(0, |status| status.stdout_kept);
    check!(
        kept > 0 && kept <= acknowledged as u64,
        "{acknowledged} bytes were acknowledged, output is kept from {kept} on"
    );
    let below = workload.attach(&process, kept - 1, 0).await;
    refused(
        below,
        &[ErrorKind::OutOfRange],
        "attaching below what is kept",
    )?;
    Ok(())
}

async fn an_offset_beyond_the_output_is_refused(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let workload = &*sandbox.workload;
    let process = bench.start(workload, &Probe::say("four")).await?;
    Reading::at(workload, &process, 0, 0)
        .await?
        .until_end()
        .await?;
    let attached = workload.attach(&process, 5, 0).await;
    refused(
        attached,
        &[ErrorKind::OutOfRange],
        "attaching beyond the end",
    )?;
    let acknowledged = workload.acknowledge(&process, 5, 0).await;
    refused(
        acknowledged,
        &[ErrorKind::OutOfRange],
        "acknowledging what was never written",
    )?;
    Ok(())
}

async fn an_unknown_process_is_not_found(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let name = ProcessName::new("nobody")?;
    let attached = sandbox.workload.attach(&name, 0, 0).await;
    refused(attached, &[ErrorKind::NotFound], "attaching to nobody")?;
    let status = sandbox.workload.status(&name).await.doing("status")?;
    check_eq!(status, None, "the status of nobody");
    let written = sandbox.workload.write_stdin(&name, 0, "x".into()).await;
    refused(written, &[ErrorKind::NotFound], "writing to nobody")?;
    Ok(())
}
