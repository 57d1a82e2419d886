//! The resources that clients make: environments, agents, sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AgentId, EnvironmentId, Json, McpServer, Repository, SessionId, SessionState, Skill, Timestamp,
    TurnId, VaultId,
};

/// Where agents run: which engine, in which sandbox, with which limits and network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Its id.
    pub id: EnvironmentId,
    /// What it says.
    pub spec: EnvironmentSpec,
    /// Counts its writes from 1.
    pub version: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// What an environment says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentSpec {
    /// Unique name, 1 to 64 of `[a-z0-9-]`.
    pub name: String,
    /// A text for people, at most 2048 bytes.
    pub description: String,
    /// The engine's kind, as `codex`.
    pub engine: String,
    /// The sandbox provider's name, as `local`.
    pub sandbox: String,
    /// The image's name; the engine's own image when absent.
    pub image: Option<String>,
    /// The model endpoint provider's name, as `direct`.
    pub model_provider: String,
    /// What the sandbox may reach.
    pub networking: Networking,
    /// How much of the kernel the sandbox may use.
    pub permission_level: PermissionLevel,
    /// How much of the machine the sandbox may use.
    pub limits: ResourceLimits,
    /// The program, for an engine that runs any program of its protocol.
    #[serde(default)]
    pub program: Option<ProgramSpec>,
}

/// A program that an environment names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// The program inside the sandbox: an absolute path, or a name that is looked up there.
    pub command: String,
    /// Its arguments, at most 64.
    pub arguments: Vec<String>,
    /// Variables that it has besides the sandbox's own, at most 64. Not for secrets: those are credentials of a vault.
    pub env: BTreeMap<String, String>,
    /// The wire that it speaks to models, by the engine's names, as `anthropic_messages`.
    pub model_wire: String,
    /// The directory below the home directory whose files are the conversation; without one a conversation is not
    /// resumed in another sandbox.
    pub state_directory: Option<String>,
}

/// What a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Networking {
    /// Nothing but these hosts and the model endpoint.
    Limited {
        /// Exact names, addresses, a leftmost `*.` or ranges of addresses, each with an optional `:port`.
        allowed_hosts: Vec<String>,
        /// Whether the agent's own MCP servers may be reached without standing in `allowed_hosts`.
        #[serde(default)]
        allow_mcp_servers: bool,
    },
    /// Every public address.
    Unrestricted,
}

/// How much of the kernel a sandbox may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionLevel {
    /// No namespaces, no mounts.
    #[default]
    Default,
    /// User namespaces and mounts inside the sandbox, for programs that bring a sandbox of their own.
    Advanced,
}

/// How much of the machine a sandbox may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// Memory, bytes, swap and /tmp included.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// CPU time, thousandths of one core.
    pub cpu_millis: u32,
    /// The volume, bytes.
    pub disk_bytes: u64,
    /// How long one engine process may live, seconds; 0 means no limit.
    pub wall_seconds: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            pids: 512,
            cpu_millis: 4000,
            disk_bytes: 10 << 30,
            wall_seconds: 0,
        }
    }
}

/// What to run, as one version of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Its id, the same for every version.
    pub id: AgentId,
    /// This version, from 1.
    pub version: u32,
    /// What it says.
    pub spec: AgentSpec,
    /// Whether it takes no new sessions.
    pub archived: bool,
    /// When its first version was made.
    pub created_at: Timestamp,
    /// When this version was made.
    pub updated_at: Timestamp,
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// A name for people, 1 to 256 bytes, not unique.
    pub name: String,
    /// A text for people, at most 2048 bytes.
    pub description: String,
    /// The environment that it runs in.
    pub environment_id: EnvironmentId,
    /// The model, by the name that the model endpoint provider knows.
    pub model: String,
    /// Instructions, at most 100,000 bytes; how they reach the program is the engine's affair.
    pub system: String,
    /// Blocks of native options, by the block names that the engine declares.
    pub engine_options: BTreeMap<String, Json>,
    /// The permission mode that its sessions begin with, by native name; the engine's default when absent.
    pub permission_mode: Option<String>,
    /// What an empty workspace begins with.
    #[serde(default)]
    pub repository: Option<Repository>,
    /// The MCP servers that its program uses, at most 32.
    #[serde(default)]
    pub mcp_servers: Vec<McpServer>,
    /// The skills that its program has, at most 64.
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// What is done about approvals without asking a person, at most 64. The first rule that names the tool decides;
    /// when none does, a person is asked.
    #[serde(default)]
    pub approval_rules: Vec<ApprovalRule>,
    /// The vaults whose credentials its sessions may use, at most 16, in order: where two have a credential for one
    /// MCP server or address, the first vault's counts.
    #[serde(default)]
    pub vault_ids: Vec<VaultId>,
    /// The caller's own labels: at most 16, keys to 64 bytes, values to 512.
    pub metadata: BTreeMap<String, String>,
}

/// What is done when the program asks whether it may call a tool. A rule answers only what the program asks: which
/// calls it asks for is its permission mode's affair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tool's native name, 1 to 256 bytes; `*` stands for any characters.
    pub tool: String,
    /// What is done.
    pub decision: ApprovalDecision,
}

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// The call is allowed, this once.
    Allow,
    /// The call is declined.
    Deny,
    /// A person is asked.
    Ask,
}

impl ApprovalRule {
    /// Whether the rule names this tool.
    #[must_use]
    pub fn names(&self, tool: &str) -> bool {
        let mut parts = self.tool.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = tool.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A conversation with an agent.
    AgentChat,
    /// A conversation with a one-owner assistant that keeps its workspace between conversations.
    AssistantChat,
}

impl SessionKind {
    /// Its wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentChat => "agent_chat",
            Self::AssistantChat => "assistant_chat",
        }
    }
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The agent.
    pub agent_id: AgentId,
    /// The version of the agent that it was made with.
    pub agent_version: u32,
    /// What it is for.
    pub kind: SessionKind,
    /// A title for people.
    pub title: String,
    /// Where it stands.
    pub state: SessionState,
    /// Why it stands there, where there is something to tell.
    pub state_reason: Option<String>,
    /// Whether it is put away; an archived session takes no input.
    pub archived: bool,
    /// The permission mode, by native name.
    pub permission_mode: Option<String>,
    /// The turn that runs, if one does.
    pub current_turn: Option<TurnId>,
    /// The sequence number of its last journal event.
    pub last_seq: u64,
    /// The caller's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When anything about it last changed.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::{ApprovalDecision, ApprovalRule};

    #[test]
    fn a_rule_names_tools_by_pattern() {
        let cases = [
            ("Bash", "Bash", true),
            ("Bash", "BashOutput", false),
            ("Bash", "bash", false),
            ("*", "anything", true),
            ("*", "", true),
            ("mcp__*", "mcp__files__read", true),
            ("mcp__*", "mcp_", false),
            ("mcp__*__read", "mcp__files__read", true),
            ("mcp__*__read", "mcp__files__write", false),
            ("*__read", "mcp__files__read", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*b", "ab", false),
        ];
        for (pattern, tool, expected) in cases {
            let rule = ApprovalRule {
                tool: pattern.to_owned(),
                decision: ApprovalDecision::Allow,
            };
            assert_eq!(rule.names(tool), expected, "{pattern} {tool}");
        }
    }
}
