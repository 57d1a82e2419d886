//! How a provider's sandbox meets the egress proxy.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use astrabox_egress::{CredentialPlan, EgressPolicy};
use astrabox_types::{SandboxId, Secret, SessionId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

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

/// The values of credentials, by credential id. It has no Debug and no Serialize.
#[derive(Default)]
pub struct CredentialValues(BTreeMap<String, Secret>);

impl CredentialValues {
    /// Adds a value.
    pub fn insert(&mut self, credential_id: impl Into<String>, value: Secret) {
        self.0.insert(credential_id.into(), value);
    }

    /// Every value with its credential's id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.0.iter().map(|(id, value)| (id.as_str(), value))
    }
}

/// The egress proxy as the platform sees it: what may be put into the requests of a workload.
///
/// Apart from [`EgressGate`], so that no provider ever holds a value.
///
/// * **GT5** After `set_credentials` returns, every request that begins is judged by the new plan and gets the new
///   values, on connections that are open as well; connections to destinations that only the old plan allowed are
///   closed. It may come before the workload is opened, and outlives its opening again. An empty plan takes all away.
/// * **GT6** A workload that is closed has no credentials any more.
/// * **GT7** No value is ever on a disk, in a log, in an error or in an audit event.
#[async_trait]
pub trait EgressCredentials: Send + Sync + 'static {
    /// Replaces the credentials of a workload, open or to be opened.
    async fn set_credentials(
        &self,
        sandbox_id: SandboxId,
        plan: CredentialPlan,
        values: CredentialValues,
    ) -> Result<()>;

    /// What the boundary lets a workload do, asked of the boundary itself; nothing for one that is not open.
    async fn state(&self, sandbox_id: SandboxId) -> Result<Option<BoundaryState>>;

    /// The certificate, as PEM, that signs for the hosts at which TLS is ended to put credentials in. Workloads have
    /// to trust it; nobody else should.
    async fn authority(&self) -> Result<String>;
}

/// What the boundary lets a workload do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundaryState {
    /// Whether its policy holds; nothing is let through when it does not.
    pub in_force: bool,
    /// Whether every public host is allowed besides.
    pub unrestricted: bool,
    /// The destinations that its policy allows.
    pub allowed: Vec<String>,
    /// Its credentials: what each is for, its id, and the destinations that it may go to. Never a value.
    pub credentials: Vec<String>,
}
