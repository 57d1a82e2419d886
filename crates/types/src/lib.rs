//! Ids, resources, journal events, state tables and error kinds that every crate shares.
//!
//! Invariant: knows no runtime, no I/O, no wire format and no database; everything here is plain data.

mod content;
mod error;
mod event;
mod feature;
mod id;
mod interaction;
mod json;
mod reason;
mod resource;
mod secret;
mod session_state;
mod tooling;
mod vault;

pub use content::{ContentPart, ImageMediaType, MAX_INPUT_BYTES};
pub use error::{SeamError, SeamErrorKind};
pub use event::{
    ChildRun, ChildRunId, ChildRunState, Delta, DeltaChannel, EventPayload, FileChangeKind,
    JournalEvent, MessageKind, TurnFailure, TurnOrigin, TurnOutcome, Usage,
};
pub use feature::EngineFeature;
pub use id::{
    AgentId, AssignmentId, CredentialId, EnvironmentId, EventId, InputId, InteractionId,
    ParseIdError, SandboxId, SessionId, TurnId, VaultId, VolumeId,
};
pub use interaction::{
    Choice, Interaction, InteractionAnswer, InteractionState, Presentation, Question,
};
pub use json::Json;
pub use reason::{ErrorKind, ErrorReason};
pub use resource::{
    Agent, AgentSpec, ApprovalDecision, ApprovalRule, Environment, EnvironmentSpec, Networking,
    PermissionLevel, ProgramSpec, ResourceLimits, Session, SessionKind,
};
pub use secret::Secret;
pub use session_state::{SessionState, TRANSITIONS, may_go};
pub use tooling::{MAX_SKILL_BYTES, McpServer, McpTransport, Repository, Skill};
pub use vault::{
    AllowedRequests, ClientAuthMethod, CredentialNetworking, CredentialSecret, CredentialSpec,
    InjectionLocation, MAX_AGENT_VAULTS, MAX_VAULT_CREDENTIALS, ModelKeyKind, OauthRefresh, Vault,
    VaultCredential,
};

/// A point in time, UTC, with nanosecond resolution.
pub use jiff::Timestamp;
