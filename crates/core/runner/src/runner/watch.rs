//! What is watched while the box lives: its first process, its soft limits, the age of its processes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use astrabox_runner_protocol::{ExitReason, ProcessState};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Runner;
use crate::isolation::{IsolatedBox, IsolationError, LimitBreach};
use crate::process::Process;

/// How often soft limits are looked at.
const SOFT_LIMITS: Duration = Duration::from_millis(250);

/// How often a process that has lived too long is killed.
const KILL_RETRY: Duration = Duration::from_secs(1);

/// Hears what the first process of the box says, until it is gone.
pub(crate) async fn first_process(runner: Arc<Runner>, fd: OwnedFd) -> std::io::Result<()> {
    let fd = watched(fd)?;
    loop {
        let mut ready = tokio::select! {
            ready = fd.readable() => ready?,
            () = runner.stop.cancelled() => return Ok(()),
        };
        let heard = runner
            .sandbox
            .ask_any("hear", |isolated| match isolated.read_messages() {
                // Said before; nothing follows.
                Err(IsolationError::InitGone) => Ok(None),
                messages => messages.map(Some),
            });
        // The messages were read to the last, so the next one makes the descriptor ready again.
        ready.clear_ready();
        match heard {
            Ok(Some(messages)) => messages
                .into_iter()
                .for_each(|message| runner.handle(message)),
            // Gone, or being destroyed: whoever does that ends the processes.
            Ok(None) => return Ok(()),
            Err(_) if runner.sandbox.gone().is_some() => return Ok(()),
            Err(error) => {
                runner
                    .log
                    .line(format_args!("cannot hear the box: {error}"));
                return Ok(());
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "tokio registers foreign descriptors by an unsafe function only"
)]
fn watched(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the value that is registered, so it stays open until it is
    // deregistered, and it is not changed meanwhile.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    Ok(fd)
}

/// Looks at the limits that the kernel does not keep, until the runner stops.
pub(crate) async fn soft_limits(runner: Arc<Runner>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SOFT_LIMITS) => {}
            () = runner.stop.cancelled() => return,
        }
        let (reason, used, limit) = match runner.sandbox.breach() {
            None => continue,
            Some(LimitBreach::Memory { used, limit }) => (ExitReason::MemoryLimit, used, limit),
            Some(LimitBreach::Disk { used, limit }) => (ExitReason::DiskLimit, used, limit),
        };
        if !runner.has_living_process() {
            continue;
        }
        runner.log.line(format_args!(
            "{reason:?}: {used} bytes in use, {limit} allowed"
        ));
        if let Err(error) = runner.kill_all(Some(reason)) {
            runner
                .log
                .line(format_args!("cannot end the processes: {error}"));
        }
    }
}

/// Ends the process group when it has lived for `limit`, not counting the time that the box was frozen.
pub(super) async fn wall_time(runner: Arc<Runner>, process: Arc<Process>, limit: Duration) {
    let mut frozen = runner.sandbox.frozen();
    let mut left = limit;
    loop {
        let is_frozen = *frozen.borrow_and_update();
        let since = Instant::now();
        let over = async {
            if is_frozen {
                std::future::pending().await
            } else {
                tokio::time::sleep(left).await
            }
        };
        tokio::select! {
            () = over => break,
            () = ended(&process) => return,
            () = process.stop.cancelled() => return,
            // The sender lives as long as the runner.
            _ = frozen.changed() => {
                if !is_frozen {
                    left = left.saturating_sub(since.elapsed());
                }
            }
        }
    }
    process.set_cause(ExitReason::WallTime);
    loop {
        let (_, pid) = process.state();
        let kill = |isolated: &mut IsolatedBox| isolated.signal(pid, libc::SIGKILL, true);
        // Refused while the box is frozen or swamped; then it is asked again.
        if let Err(error) = runner.sandbox.ask("signal", kill) {
            runner
                .log
                .line(format_args!("{} has to end: {error}", process.name));
        }
        tokio::select! {
            () = tokio::time::sleep(KILL_RETRY) => {}
            () = ended(&process) => return,
            () = process.stop.cancelled() => return,
        }
    }
}

async fn ended(process: &Process) {
    let mut changes = process.changes();
    loop {
        changes.mark_unchanged();
        if process.state().0 == ProcessState::Ended {
            return;
        }
        // The sender lives in the process.
        drop(changes.changed().await);
    }
}

impl Runner {
    fn has_living_process(&self) -> bool {
        self.processes()
            .iter()
            .any(|process| process.state().0 != ProcessState::Ended)
    }
}
