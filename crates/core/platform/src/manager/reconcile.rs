//! What runs and nobody owns is removed.

use std::future::Future;
use std::time::Duration;

use astrabox_sandbox::{DestroyProof, Error, ErrorKind, SandboxProvider};
use astrabox_types::SandboxId;
use tokio::time::Instant;

use super::Manager;

/// How long a provider may take for a call that makes nothing.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// How long the end of a sandbox is waited for.
const PROOF_WITHIN: Duration = Duration::from_secs(10);
/// How long between two looks.
const PROOF_PAUSE: Duration = Duration::from_millis(100);

/// A call to a provider, which may hang: it has no deadlines of its own.
pub(crate) async fn timed<T>(
    operation: &'static str,
    call: impl Future<Output = astrabox_sandbox::Result<T>>,
) -> astrabox_sandbox::Result<T> {
    tokio::time::timeout(CALL_WITHIN, call)
        .await
        .unwrap_or_else(|_| {
            let text = "the sandbox provider did not answer in time";
            Err(Error::new(ErrorKind::DeadlineExceeded, operation, text))
        })
}

impl Manager {
    /// Destroys the sandboxes of this server's root for which the store shows no holder. A provider that does
    /// not answer is left alone: its sandboxes are looked at with the next start.
    pub(crate) async fn remove_orphans(&self) {
        for (name, provider) in &self.parts.sandboxes {
            let sandboxes = match timed("list sandboxes", provider.list()).await {
                Ok(sandboxes) => sandboxes,
                Err(error) => {
                    tracing::warn!(provider = name, %error, "listing sandboxes failed; no orphan is removed");
                    continue;
                }
            };
            for info in sandboxes {
                match self
                    .store()
                    .holder_of(info.id, info.claim.assignment_id.as_str())
                    .await
                {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        tracing::info!(provider = name, sandbox = %info.id, "removing a sandbox that no session holds");
                        destroy_proven(provider.as_ref(), info.id).await;
                    }
                    Err(error) => {
                        tracing::warn!(sandbox = %info.id, %error, "the holder of a sandbox is not known")
                    }
                }
            }
        }
    }
}

/// Destroys a sandbox and waits for the proof; tells whether it is gone.
pub(crate) async fn destroy_proven(provider: &dyn SandboxProvider, id: SandboxId) -> bool {
    if let Err(error) = timed("destroy", provider.destroy(id)).await {
        tracing::warn!(sandbox = %id, %error, "destroying a sandbox failed");
    }
    let until = Instant::now() + PROOF_WITHIN;
    while Instant::now() < until {
        match timed("confirm the end", provider.confirm_destroyed(id)).await {
            Ok(DestroyProof::Gone) => return true,
            Ok(DestroyProof::StillThere) => {}
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "the end of a sandbox is not proven yet")
            }
        }
        tokio::time::sleep(PROOF_PAUSE).await;
    }
    false
}
