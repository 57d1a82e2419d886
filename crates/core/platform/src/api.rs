//! The values that go in and out of the platform.

use std::collections::BTreeMap;

use astrabox_types::{
    AgentId, ApprovalRule, ContentPart, Interaction, InteractionState, JournalEvent, McpServer,
    Networking, PermissionLevel, ProgramSpec, Repository, ResourceLimits, SandboxId, Session,
    Skill, TurnId, VaultId,
};

/// A caller's key for a mutating operation, with a digest of the whole request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key, 1 to 128 printable ASCII characters.
    pub key: String,
    /// SHA-256 of operation name and request, hexadecimal.
    pub digest: String,
}

/// Which page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// How many, 1 to 1000; 0 means 100.
    pub size: u32,
    /// The token of the page before, if any.
    pub token: Option<String>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Its items.
    pub items: Vec<T>,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
}

/// Changes to an environment; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentUpdate {
    /// The stored version that the caller knows.
    pub version: Option<u32>,
    /// See `EnvironmentSpec`.
    pub description: Option<String>,
    /// The image; `Some(None)` means the engine's own.
    pub image: Option<Option<String>>,
    /// The sandbox provider; empty means the default.
    pub sandbox: Option<String>,
    /// The model provider; empty means the default.
    pub model_provider: Option<String>,
    /// See `EnvironmentSpec`.
    pub networking: Option<Networking>,
    /// See `EnvironmentSpec`.
    pub permission_level: Option<PermissionLevel>,
    /// See `EnvironmentSpec`; zeros mean defaults.
    pub limits: Option<ResourceLimits>,
    /// See `EnvironmentSpec`; `Some(None)` means none.
    pub program: Option<Option<ProgramSpec>>,
}

/// A new agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentDraft {
    /// See `AgentSpec`.
    pub name: String,
    /// See `AgentSpec`.
    pub description: String,
    /// The environment, by id or name.
    pub environment: String,
    /// See `AgentSpec`.
    pub model: String,
    /// See `AgentSpec`.
    pub system: String,
    /// Block name to JSON text.
    pub engine_options: BTreeMap<String, String>,
    /// See `AgentSpec`.
    pub permission_mode: Option<String>,
    /// See `AgentSpec`.
    pub repository: Option<Repository>,
    /// See `AgentSpec`.
    pub mcp_servers: Vec<McpServer>,
    /// See `AgentSpec`.
    pub skills: Vec<Skill>,
    /// See `AgentSpec`.
    pub approval_rules: Vec<ApprovalRule>,
    /// See `AgentSpec`.
    pub vault_ids: Vec<VaultId>,
    /// See `AgentSpec`.
    pub metadata: BTreeMap<String, String>,
}

/// Changes to an agent; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentUpdate {
    /// The stored version that the caller knows.
    pub version: Option<u32>,
    /// See `AgentDraft`.
    pub name: Option<String>,
    /// See `AgentDraft`.
    pub description: Option<String>,
    /// See `AgentDraft`.
    pub environment: Option<String>,
    /// See `AgentDraft`.
    pub model: Option<String>,
    /// See `AgentDraft`.
    pub system: Option<String>,
    /// See `AgentDraft`.
    pub engine_options: Option<BTreeMap<String, String>>,
    /// See `AgentDraft`; `Some(None)` means the engine's default.
    pub permission_mode: Option<Option<String>>,
    /// See `AgentDraft`; the inner nothing takes it away.
    pub repository: Option<Option<Repository>>,
    /// See `AgentDraft`.
    pub mcp_servers: Option<Vec<McpServer>>,
    /// See `AgentDraft`.
    pub skills: Option<Vec<Skill>>,
    /// See `AgentDraft`.
    pub approval_rules: Option<Vec<ApprovalRule>>,
    /// See `AgentDraft`.
    pub vault_ids: Option<Vec<VaultId>>,
    /// See `AgentDraft`.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// A new session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDraft {
    /// The agent.
    pub agent_id: AgentId,
    /// Its version; the latest when `None`.
    pub agent_version: Option<u32>,
    /// At most 256 bytes.
    pub title: String,
    /// At most 16; keys to 64 bytes, values to 512.
    pub metadata: BTreeMap<String, String>,
    /// The permission mode; the agent's when `None`.
    pub permission_mode: Option<String>,
    /// The first input; may be empty.
    pub content: Vec<ContentPart>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only of this agent.
    pub agent_id: Option<AgentId>,
    /// Also archived ones.
    pub include_archived: bool,
}

/// A session as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// The session.
    pub session: Session,
    /// Its engine's kind.
    pub engine: String,
    /// The sandbox that it has now.
    pub sandbox_id: Option<SandboxId>,
}

/// An interaction and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InteractionRecord {
    /// What is asked.
    pub interaction: Interaction,
    /// Where it stands.
    pub state: InteractionState,
    /// The turn.
    pub turn_id: Option<TurnId>,
}

/// One thing that a watcher gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchItem {
    /// A durable event.
    Event(JournalEvent),
    /// A piece of a message.
    Delta(astrabox_types::Delta),
    /// Everything that was durable at the begin of the watch was given.
    CaughtUp {
        /// The last sequence number given.
        seq: u64,
    },
}

/// An engine as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineView {
    /// Its kind.
    pub kind: &'static str,
    /// What it declares.
    pub capabilities: astrabox_engine::EngineCapabilities,
    /// Its image's name.
    pub image: String,
    /// Whether the image is built here.
    pub image_built: bool,
    /// The command that builds it.
    pub build_command: String,
}

/// A sandbox as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxView {
    /// The provider's name.
    pub provider: &'static str,
    /// What the provider tells.
    pub info: astrabox_sandbox::SandboxInfo,
}
