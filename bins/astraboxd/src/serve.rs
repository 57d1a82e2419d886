//! Serving, until a signal comes.

use std::process::ExitCode;

use anyhow::Context as _;
use astrabox_server::{App, Shutdown};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a process that a signal ended exits with, as shells count it (128 and the signal's number).
const ENDED_BY_SIGNAL: u8 = 128 + 15;

/// Starts the App and serves until SIGTERM, SIGINT or SIGHUP; then drains. A second signal ends the process at once;
/// what is durable stays, and running turns are adopted by the next start.
pub(crate) fn until_signalled(app: App) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime does not start")?;
    let code = runtime.block_on(run(app));
    // After a second signal there are tasks that nobody waits for.
    runtime.shutdown_background();
    code
}

async fn run(app: App) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let running = tokio::select! {
        started = app.spawn() => started?,
        () = signals.next() => return Ok(ExitCode::from(ENDED_BY_SIGNAL)),
    };
    signals.next().await;
    tokio::select! {
        shutdown = running.shutdown() => Ok(match shutdown {
            Shutdown::Complete => ExitCode::SUCCESS,
            Shutdown::Cut => ExitCode::from(crate::FAILED),
        }),
        () = signals.next() => Ok(ExitCode::from(ENDED_BY_SIGNAL)),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be listened for");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
