//! What a new sandbox shall be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use astrabox_egress::EgressPolicy;
use astrabox_types::{
    AssignmentId, PermissionLevel, ResourceLimits, SandboxId, SessionId, VolumeId,
};

/// What a new sandbox shall be. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSpec {
    /// The new sandbox's id, chosen by the platform.
    pub sandbox_id: SandboxId,
    /// The session that it is for.
    pub session_id: SessionId,
    /// The decision that it carries out; written into the sandbox's metadata (SB1).
    pub assignment_id: AssignmentId,
    /// The session's writable volume; made when it does not exist.
    pub volume_id: VolumeId,
    /// The program tree at [`crate::IMAGE_ROOT`]; none for a bare sandbox.
    pub image: Option<ImageRef>,
    /// Limits.
    pub limits: ResourceLimits,
    /// How much of the kernel it may use.
    pub permission_level: PermissionLevel,
    /// What it may reach.
    pub egress: EgressPolicy,
    /// Labels for people, at most 16.
    pub labels: BTreeMap<String, String>,
}

/// An image that is there: a directory tree with one agent program at a pinned version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRef {
    /// Its name, as `codex:0.169.0-1a2b3c4d`.
    pub name: String,
    /// Where the tree is on the server's host.
    pub root: PathBuf,
}
