//! The provider: makes, finds, probes and destroys sandboxes.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_egress::EgressPolicy;
use astrabox_types::{AssignmentId, PermissionLevel, SandboxId, SessionId, Timestamp, VolumeId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Capabilities, CreateSpec, Error, Result, Workload};

/// Makes and keeps sandboxes. See the crate's clauses.
///
/// Implementations are naive: the platform owns claims, retries, deadlines and order.
#[async_trait]
pub trait SandboxProvider: Send + Sync + 'static {
    /// What this provider can do. Constant for its lifetime.
    fn capabilities(&self) -> Capabilities;

    /// The sandbox that carries this assignment, if one does (SB1).
    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>>;

    /// Makes a sandbox and returns it running (SB2).
    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox>;

    /// Reaches a sandbox that runs (SB3). Also gives its egress listener to the gate again.
    async fn connect(&self, id: SandboxId) -> Result<Sandbox>;

    /// Looks whether the sandbox is there (SB4).
    async fn probe(&self, id: SandboxId) -> Probe;

    /// Stops all processes of the sandbox without ending them.
    async fn pause(&self, id: SandboxId) -> Result<()>;

    /// Lets a paused sandbox go on.
    async fn resume(&self, id: SandboxId) -> Result<()>;

    /// Seals the volume of the sandbox as it is now.
    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot>;

    /// Moves the time at which the sandbox would expire by itself.
    async fn renew(&self, id: SandboxId, until: Timestamp) -> Result<()>;

    /// Changes what the sandbox may reach, also for open connections.
    async fn update_egress(&self, id: SandboxId, policy: EgressPolicy) -> Result<()>;

    /// Asks for the end of the sandbox (SB5). An unknown id is not an error.
    async fn destroy(&self, id: SandboxId) -> Result<()>;

    /// Proves the end of the sandbox (SB5, SB6).
    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof>;

    /// The ownership metadata as it is stored with the sandbox, also of one that does not answer (SB9).
    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>>;

    /// Every sandbox of this provider's root, living or dead (SB9).
    async fn list(&self) -> Result<Vec<SandboxInfo>>;

    /// One sandbox.
    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo>;

    /// What helps a person to understand why a sandbox does not work.
    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics>;

    /// What the running sandbox enforces (SB10).
    async fn security_posture(&self, id: SandboxId) -> Result<Posture>;

    /// Removes a session's volume (SB7). An unknown id is not an error; a volume in use is.
    async fn delete_volume(&self, volume: VolumeId) -> Result<()>;
}

/// A sandbox that runs, as the platform holds it.
#[derive(Clone)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// What an engine may do inside.
    pub workload: Arc<dyn Workload>,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a look at a sandbox told (SB4).
#[derive(Debug)]
pub enum Probe {
    /// It runs and answers.
    Ok,
    /// It is gone; the provider has proof.
    NotFound,
    /// Nothing is known.
    ProbeFailed(Error),
}

/// What is known about the end of a sandbox (SB5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestroyProof {
    /// Two observations show that nothing of it is left.
    Gone,
    /// Something of it is left; ask again.
    StillThere,
}

/// Whose a sandbox is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The session.
    pub session_id: SessionId,
    /// The assignment.
    pub assignment_id: AssignmentId,
    /// The volume inside.
    pub volume_id: VolumeId,
}

/// A sandbox as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub claim: Claim,
    /// Where it stands.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: Timestamp,
    /// The image's name.
    pub image: Option<String>,
    /// Labels from its creation.
    pub labels: BTreeMap<String, String>,
}

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// It runs.
    Running,
    /// It is paused.
    Paused,
    /// It ended by itself; what it left is still to be removed.
    Dead,
    /// Nothing is known; it did not answer.
    Unknown,
}

/// A sealed volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The provider's name for it.
    pub name: String,
    /// Its size, bytes, compressed.
    pub bytes: u64,
    /// When it was sealed.
    pub at: Timestamp,
}

/// What helps to understand a sandbox; plain text, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// A few lines.
    pub summary: String,
    /// The last part of the provider's own log of this sandbox.
    pub log: String,
}

/// What a running sandbox enforces, measured (SB10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posture {
    /// The technology, as `namespaces`.
    pub technology: String,
    /// The user id outside that the sandbox's user has.
    pub host_uid: u32,
    /// Whether the provider runs without root.
    pub rootless: bool,
    /// How much of the kernel it may use.
    pub permission_level: PermissionLevel,
    /// Whether a system call filter is on.
    pub seccomp: bool,
    /// Whether gaining privileges by executing is off.
    pub no_new_privileges: bool,
    /// Capabilities left to its processes.
    pub capabilities: Vec<String>,
    /// Whether loopback is its only network.
    pub loopback_only: bool,
    /// Memory.
    pub memory: LimitState,
    /// Processes.
    pub pids: LimitState,
    /// CPU.
    pub cpu: LimitState,
    /// Disk.
    pub disk: LimitState,
    /// Weaknesses a person should know, one a line.
    pub notes: Vec<String>,
}

/// How a limit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitState {
    /// The kernel keeps it.
    Hard,
    /// It is kept by looking from time to time.
    Soft,
    /// It is not kept.
    None,
}
