//! SB14: an exit has a stated reason.

use std::time::Duration;

use astrabox_sandbox::{ErrorKind, ExitReason, Signal, SignalScope, Workload};

use super::reading::Reading;
use super::{Probe, SandboxBench};
use crate::case::{check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        an_exit_has_its_code [SB14],
        a_killed_process_says_so [SB14],
        a_signal_for_the_sandbox_ends_every_process [SB14],
        a_process_that_lived_too_long_says_so [SB14],
        an_ended_process_takes_no_input [SB12 SB14],
    ]
}

async fn an_exit_has_its_code(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    for code in [0, 1, 42, 255] {
        let spec = bench.process(&Probe::Say {
            stdout: String::new(),
            stderr: String::new(),
            code,
        })?;
        let name = spec.name.clone();
        let done = bench.run_spec(&*sandbox.workload, spec).await?;
        check_eq!(done.exit.code, Some(code), "the code");
        check_eq!(done.exit.signal, None, "the signal");
        check_eq!(done.exit.reason, ExitReason::Exited, "the reason");
        let status = sandbox.workload.status(&name).await.doing("status")?;
        let told = status.and_then(|status| status.exit);
        check_eq!(told, Some(done.exit), "the exit in the status");
    }
    Ok(())
}

async fn a_killed_process_says_so(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    for (signal, number) in [
        (Signal::Kill, 9),
        (Signal::Terminate, 15),
        (Signal::Interrupt, 2),
    ] {
        for scope in [SignalScope::Process, SignalScope::Group] {
            let process = bench.start(&*sandbox.workload, &Probe::Wait).await?;
            sandbox
                .workload
                .signal(&process, signal, scope)
                .await
                .doing(format!("{signal:?} for the {scope:?}"))?;
            let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
            let exit = reading.until_end().await?;
            check_eq!(exit.signal, Some(number), "the signal of {signal:?}");
            check_eq!(exit.code, None, "the code of {signal:?}");
            check_eq!(exit.reason, ExitReason::Killed, "the reason of {signal:?}");
        }
    }
    Ok(())
}

async fn a_signal_for_the_sandbox_ends_every_process(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let one = bench.start(&*sandbox.workload, &Probe::Wait).await?;
    let other = bench.start(&*sandbox.workload, &Probe::Tick).await?;
    sandbox
        .workload
        .signal(&one, Signal::Kill, SignalScope::Sandbox)
        .await
        .doing("kill everything")?;
    for process in [one, other] {
        let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
        let exit = reading.until_end().await?;
        check_eq!(exit.reason, ExitReason::Killed, "the reason of {process}");
    }
    let done = bench.run(&*sandbox.workload, &Probe::say("next")).await?;
    check_eq!(done.stdout, "next", "what the sandbox prints afterwards");
    Ok(())
}

async fn a_process_that_lived_too_long_says_so(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let mut spec = bench.process(&Probe::Wait)?;
    spec.wall_limit = Some(Duration::from_millis(300));
    let done = bench.run_spec(&*sandbox.workload, spec).await?;
    check_eq!(done.exit.reason, ExitReason::WallTime, "the reason");
    let mut spec = bench.process(&Probe::say("in time"))?;
    spec.wall_limit = Some(Duration::from_secs(60));
    let done = bench.run_spec(&*sandbox.workload, spec).await?;
    check_eq!(done.exit.reason, ExitReason::Exited, "the reason in time");
    Ok(())
}

async fn an_ended_process_takes_no_input(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let spec = bench.process(&Probe::say(""))?;
    let name = spec.name.clone();
    bench.run_spec(&*sandbox.workload, spec).await?;
    let workload: &dyn Workload = &*sandbox.workload;
    let written = workload.write_stdin(&name, 0, "x".into()).await;
    let kinds = [ErrorKind::WrongState];
    refused(written, &kinds, "writing to an ended process")?;
    let signalled = workload
        .signal(&name, Signal::Kill, SignalScope::Process)
        .await;
    // It may be an error or nothing; the exit that was told stays.
    drop(signalled);
    let status = workload.status(&name).await.doing("status")?;
    let reason = status
        .and_then(|status| status.exit)
        .map(|exit| exit.reason);
    check_eq!(reason, Some(ExitReason::Exited), "the reason afterwards");
    Ok(())
}
