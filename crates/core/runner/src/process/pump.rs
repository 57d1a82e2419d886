//! The tasks that move a process's bytes: one for each stream.

use std::sync::Arc;
use std::time::Duration;

use astrabox_runner_protocol::OutputStream;

use super::Process;
use crate::{output, stdin};

/// How long to wait before the disk is tried again.
const DISK_RETRY: Duration = Duration::from_millis(250);

/// Moves one output until its pipe is closed. `trouble` hears of a disk that refuses bytes.
pub(crate) async fn output(
    process: Arc<Process>,
    stream: OutputStream,
    mut trouble: impl FnMut(&std::io::Error),
) {
    let mut changes = process.changes();
    loop {
        changes.mark_unchanged();
        let step = process.step_output(stream);
        let wait = async {
            match step {
                output::Step::Progress => tokio::task::yield_now().await,
                output::Step::Starved(pipe) => {
                    tokio::select! {
                        // An error here comes again from the read.
                        _ = pipe.readable() => {}
                        _ = changes.changed() => {}
                    }
                }
                // The sender lives in the process, which this task holds: it cannot be gone.
                output::Step::Full => drop(changes.changed().await),
                output::Step::DiskTrouble(error) => {
                    trouble(&error);
                    tokio::time::sleep(DISK_RETRY).await;
                }
                output::Step::Finished => return false,
            }
            true
        };
        tokio::select! {
            more = wait => if !more { return },
            () = process.stop.cancelled() => return,
        }
    }
}

/// Moves stdin until its pipe is closed.
pub(crate) async fn stdin(process: Arc<Process>) {
    let mut changes = process.changes();
    loop {
        changes.mark_unchanged();
        let step = process.step_stdin();
        let wait = async {
            match step {
                stdin::Step::Progress => tokio::task::yield_now().await,
                stdin::Step::Blocked(pipe) => {
                    tokio::select! {
                        _ = pipe.writable() => {}
                        _ = changes.changed() => {}
                    }
                }
                stdin::Step::Idle => drop(changes.changed().await),
                stdin::Step::Finished => return false,
            }
            true
        };
        tokio::select! {
            more = wait => if !more { return },
            () = process.stop.cancelled() => return,
        }
    }
}
