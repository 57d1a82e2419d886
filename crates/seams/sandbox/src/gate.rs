//! How a provider's sandbox meets the egress proxy.

use std::os::fd::OwnedFd;

use astrabox_egress::EgressPolicy;
use astrabox_types::{SandboxId, SessionId};
use async_trait::async_trait;

use crate::Result;

/// Who speaks through a listener. The listener is the identity: nothing inside a sandbox can claim another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressWorkload {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The session, for audit.
    pub session_id: SessionId,
}

/// A listening TCP socket inside the sandbox's network, made and kept by the provider's side of the sandbox.
pub type EgressListener = OwnedFd;

/// The egress proxy as a provider sees it.
///
/// * **GT1** After `open` returns, connections to the listener are answered by the policy given.
/// * **GT2** `open` for a workload that is open replaces listener and policy; it is how a provider adopts again.
/// * **GT3** `update` holds for connections that are open as well: those that the new policy denies are closed.
/// * **GT4** After `close` returns, no connection of the workload is open. An unknown workload is not an error.
#[async_trait]
pub trait EgressGate: Send + Sync + 'static {
    /// Begins to answer on the listener.
    async fn open(
        &self,
        workload: EgressWorkload,
        policy: EgressPolicy,
        listener: EgressListener,
    ) -> Result<()>;

    /// Changes the policy.
    async fn update(&self, sandbox_id: SandboxId, policy: EgressPolicy) -> Result<()>;

    /// Ends all connections and forgets the workload.
    async fn close(&self, sandbox_id: SandboxId) -> Result<()>;
}
