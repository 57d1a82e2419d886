//! Calls that wait for a server that is away.

use std::future::Future;
use std::time::Duration;

use astrabox_client::ClientError;
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a command that follows a session tries again when the server is away.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Reconnect {
    /// How long to try again when the server is away, seconds
    #[arg(long = "reconnect", value_name = "SECONDS", default_value_t = 60)]
    seconds: u32,
}

impl Reconnect {
    pub(crate) fn within(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

/// Makes a call, and again while the server is away, at most for `within`. A call that changes something has to have
/// its idempotency key, so that it is one deed however often it is made.
pub(crate) async fn again<T, C>(
    within: Duration,
    mut call: impl FnMut() -> C,
) -> Result<T, ClientError>
where
    C: Future<Output = Result<T, ClientError>>,
{
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match call().await {
            Err(error) if is_away(&error) && begun.elapsed() + pause <= within => {}
            answer => return answer,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the server is not there, or about to go.
fn is_away(error: &ClientError) -> bool {
    error.is_unreachable() || error.reason == "DRAINING"
}
