//! What an engine asks for before it starts, and what it gets when it does.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_model::{ModelWire, ResolvedModelAccess};
use astrabox_sandbox::Workload;
use astrabox_types::{AgentSpec, PermissionLevel, ProgramSpec, SessionId, SessionKind};

use crate::Checkpoint;

/// What is known when an engine is asked what it needs of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRequestContext {
    /// What the session is for.
    pub session_kind: SessionKind,
    /// The environment's permission level.
    pub permission_level: PermissionLevel,
    /// The program that the environment names, for an engine that declares `names_program`.
    pub program: Option<ProgramSpec>,
}

/// What an engine needs of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRequest {
    /// Whether the program must be able to call the platform back.
    pub needs_callback: bool,
    /// The wire that it speaks to the model.
    pub model_wire: ModelWire,
    /// The methods and paths of the model endpoint that it uses; a model credential is good for these only.
    pub model_paths: Vec<ModelPath>,
}

/// One call of the model's API, below the endpoint's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelPath {
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
}

/// What an engine must be given at a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupMaterialRequest {
    /// The native state that a resume needs.
    pub native_state: NativeStateSpec,
    /// Secrets, by name, that the engine needs besides the model's.
    pub secrets: Vec<String>,
}

/// Which files of the home directory are the native state: the smallest set that resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeStateSpec {
    /// The directory below the home directory, searched to any depth. Empty for a program that the environment names:
    /// the environment says then.
    pub directory: &'static str,
    /// The kinds of files that belong to it; every other file is left out.
    pub files: &'static [StateFiles],
    /// Whether only files belong to the conversation whose names, or the name of a directory above them, hold the
    /// native key.
    pub named_by_key: bool,
}

/// One kind of file of a native state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateFiles {
    /// How the files' names end.
    pub suffix: &'static str,
    /// What the files are made of.
    pub format: RecordFormat,
}

impl NativeStateSpec {
    /// What a file of this name is made of; `None` when it is none of the kinds.
    #[must_use]
    pub fn format_of(&self, name: &str) -> Option<RecordFormat> {
        let kind = self.files.iter().find(|kind| name.ends_with(kind.suffix));
        kind.map(|kind| kind.format)
    }
}

/// What a state file is made of, so that a torn tail is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// JSON values, each ended by a line feed.
    JsonLines,
    /// A whole SQLite database in one file, as the program's own copy of it: nothing of it is in a log beside it, and
    /// a newer copy takes its place in one step. A torn one is none.
    Sqlite,
    /// Anything; taken as it is.
    Opaque,
}

/// A sandbox that no session has yet.
#[derive(Clone)]
pub struct PrepareContext {
    /// The sandbox.
    pub workload: Arc<dyn Workload>,
    /// The environment that its processes begin with.
    pub env: BTreeMap<String, String>,
}

/// Everything that an engine gets when it starts. Holds placeholders, never a credential.
#[derive(Clone)]
pub struct EngineStartupContext {
    /// The session.
    pub session_id: SessionId,
    /// Counts the activations of this session; part of native request ids, so that two never meet.
    pub epoch: u64,
    /// What the session is for.
    pub session_kind: SessionKind,
    /// The agent.
    pub agent: AgentSpec,
    /// The program that the environment names, for an engine that declares `names_program`.
    pub program: Option<ProgramSpec>,
    /// The permission mode, by native name.
    pub permission_mode: Option<String>,
    /// The sandbox's permission level.
    pub permission_level: PermissionLevel,
    /// The model.
    pub model: ResolvedModelAccess,
    /// What the program holds in place of the model's key.
    pub model_placeholder: String,
    /// The headers with which the agent's MCP servers on the network are spoken to; placeholders stand in them.
    pub mcp_headers: Vec<McpHeader>,
    /// The sandbox.
    pub workload: Arc<dyn Workload>,
    /// The environment that its processes begin with: home, path, proxy, certificates.
    pub env: BTreeMap<String, String>,
    /// The conversation.
    pub conversation: Conversation,
}

/// A header of every request to one MCP server of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpHeader {
    /// The server's name in the agent.
    pub server: String,
    /// The header's name.
    pub name: String,
    /// Its value, with a placeholder in the credential's place.
    pub value: String,
}

impl McpHeader {
    /// The headers of one server, by name.
    #[must_use]
    pub fn of(all: &[Self], server: &str) -> BTreeMap<String, String> {
        let own = all.iter().filter(|header| header.server == server);
        own.map(|header| (header.name.clone(), header.value.clone()))
            .collect()
    }
}

/// Which conversation a start is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversation {
    /// A new one.
    New,
    /// A stored one; its native state is in place.
    Resume {
        /// Its native key.
        native_key: String,
    },
    /// One whose program runs: reach it and go on from the checkpoint.
    Attach {
        /// Its native key.
        native_key: String,
        /// Where it stands.
        checkpoint: Checkpoint,
    },
}
