//! The boundary at which a start of the seed contract ends: a provider that records and refuses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{
    Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, Error, ErrorKind, Posture, Probe,
    Result, Sandbox, SandboxInfo, SandboxProvider, Snapshot,
};
use astrabox_types::{AssignmentId, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;

/// Everything that a start asked for, in order: members of the platform and operations of the provider.
#[derive(Clone, Default)]
pub struct BoundaryLog(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    calls: Vec<String>,
    created: Vec<CreateSpec>,
}

impl BoundaryLog {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self, call: impl Into<String>) {
        self.entries().calls.push(call.into());
    }

    /// The calls, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.entries().calls.clone()
    }

    /// The sandboxes that were asked for.
    #[must_use]
    pub fn created(&self) -> Vec<CreateSpec> {
        self.entries().created.clone()
    }
}

/// Stands around a provider, whichever it is: finding by assignment is recorded and finds nothing, creating is
/// recorded and refused, and every other operation is recorded and an error, because a start has no use for it.
pub struct Boundary {
    provider: String,
    log: BoundaryLog,
}

impl Boundary {
    /// A boundary around the provider of this name.
    #[must_use]
    pub fn around(provider: &str, log: BoundaryLog) -> Self {
        Self {
            provider: provider.to_owned(),
            log,
        }
    }

    /// The error with which it refuses to create: no two boundaries say the same, and retryable against its kind, so
    /// that any change on its way is seen.
    #[must_use]
    pub fn refusal(provider: &str) -> Error {
        let text = format!("the boundary around `{provider}`");
        Error::new(ErrorKind::Refused, "provider boundary", text).with_retryable(true)
    }

    fn beyond<T>(&self, operation: &'static str) -> Result<T> {
        self.log.record(format!("{}.{operation}", self.provider));
        let text = "a start does not ask this of a provider";
        Err(Error::new(ErrorKind::Internal, operation, text))
    }
}

#[async_trait]
impl SandboxProvider for Boundary {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        self.log.record(format!(
            "{}.find_sandbox_by_assignment({assignment})",
            self.provider
        ));
        Ok(None)
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        self.log.record(format!("{}.create_sandbox", self.provider));
        self.log.entries().created.push(spec);
        Err(Self::refusal(&self.provider))
    }

    async fn connect(&self, _id: SandboxId) -> Result<Sandbox> {
        self.beyond("connect")
    }

    async fn probe(&self, _id: SandboxId) -> Probe {
        match self.beyond("probe") {
            Ok(()) => Probe::Ok,
            Err(error) => Probe::ProbeFailed(error),
        }
    }

    async fn pause(&self, _id: SandboxId) -> Result<()> {
        self.beyond("pause")
    }

    async fn resume(&self, _id: SandboxId) -> Result<()> {
        self.beyond("resume")
    }

    async fn snapshot(&self, _id: SandboxId) -> Result<Snapshot> {
        self.beyond("snapshot")
    }

    async fn renew(&self, _id: SandboxId, _until: Timestamp) -> Result<()> {
        self.beyond("renew")
    }

    async fn update_egress(&self, _id: SandboxId, _policy: EgressPolicy) -> Result<()> {
        self.beyond("update_egress")
    }

    async fn destroy(&self, _id: SandboxId) -> Result<()> {
        self.beyond("destroy")
    }

    async fn confirm_destroyed(&self, _id: SandboxId) -> Result<DestroyProof> {
        self.beyond("confirm_destroyed")
    }

    async fn claim_of(&self, _id: SandboxId) -> Result<Option<Claim>> {
        self.beyond("claim_of")
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        self.beyond("list")
    }

    async fn describe(&self, _id: SandboxId) -> Result<SandboxInfo> {
        self.beyond("describe")
    }

    async fn diagnostics(&self, _id: SandboxId) -> Result<Diagnostics> {
        self.beyond("diagnostics")
    }

    async fn security_posture(&self, _id: SandboxId) -> Result<Posture> {
        self.beyond("security_posture")
    }

    async fn delete_volume(&self, _volume: VolumeId) -> Result<()> {
        self.beyond("delete_volume")
    }
}
