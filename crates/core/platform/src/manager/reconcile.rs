//! What runs and nobody owns is removed.

use astrabox_sandbox::{DestroyProof, SandboxProvider};
use astrabox_types::SandboxId;

use super::Manager;

/// How often the end of a sandbox is looked for.
const PROOF_TRIES: u32 = 100;
/// How long between two looks.
const PROOF_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

impl Manager {
    /// Destroys the sandboxes of this server's root for which the store shows no holder. A provider that does
    /// not answer is left alone: its sandboxes are looked at with the next start.
    pub(crate) async fn remove_orphans(&self) {
        for (name, provider) in &self.parts.sandboxes {
            let sandboxes = match provider.list().await {
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
    if let Err(error) = provider.destroy(id).await {
        tracing::warn!(sandbox = %id, %error, "destroying a sandbox failed");
    }
    for _ in 0..PROOF_TRIES {
        match provider.confirm_destroyed(id).await {
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
