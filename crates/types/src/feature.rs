//! What an agent program may have beyond an answer.

use serde::{Deserialize, Serialize};

/// One thing that an engine's program has, and not every other. What an engine declares, it is held to: the live
/// suite has a case for each, and an agent that asks for what is not declared is refused when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineFeature {
    /// It takes instructions besides the inputs: an agent's `system`.
    SystemPrompt,
    /// It tells what the model thinks.
    Reasoning,
    /// It tells what it used.
    Usage,
    /// It tells which files it changed.
    FileChanges,
    /// It asks before it calls a tool.
    ToolApproval,
    /// A call can be allowed for the rest of the conversation.
    ApprovalForSession,
    /// A call can be declined so that the turn stops.
    DeclineAndStop,
    /// A call can be allowed with other input.
    ChangedInput,
    /// It asks questions.
    Question,
    /// It asks for a decision, as whether a plan is good.
    Decision,
    /// Its permission mode can be changed while it runs.
    ModeChange,
    /// It starts child runs and tells their output apart.
    ChildRuns,
    /// Its child runs can be stopped.
    ChildRunStop,
    /// Its work may go on after a turn, and speak in a turn of its own.
    BackgroundWork,
    /// It uses MCP servers over standard input and output.
    McpStdio,
    /// It uses MCP servers over HTTP, with headers.
    McpHttp,
    /// It uses an agent's skills.
    Skills,
    /// It uses plugin directories, named in its options.
    Plugins,
}

impl EngineFeature {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::SystemPrompt,
        Self::Reasoning,
        Self::Usage,
        Self::FileChanges,
        Self::ToolApproval,
        Self::ApprovalForSession,
        Self::DeclineAndStop,
        Self::ChangedInput,
        Self::Question,
        Self::Decision,
        Self::ModeChange,
        Self::ChildRuns,
        Self::ChildRunStop,
        Self::BackgroundWork,
        Self::McpStdio,
        Self::McpHttp,
        Self::Skills,
        Self::Plugins,
    ];

    /// Its wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SystemPrompt => "system_prompt",
            Self::Reasoning => "reasoning",
            Self::Usage => "usage",
            Self::FileChanges => "file_changes",
            Self::ToolApproval => "tool_approval",
            Self::ApprovalForSession => "approval_for_session",
            Self::DeclineAndStop => "decline_and_stop",
            Self::ChangedInput => "changed_input",
            Self::Question => "question",
            Self::Decision => "decision",
            Self::ModeChange => "mode_change",
            Self::ChildRuns => "child_runs",
            Self::ChildRunStop => "child_run_stop",
            Self::BackgroundWork => "background_work",
            Self::McpStdio => "mcp_stdio",
            Self::McpHttp => "mcp_http",
            Self::Skills => "skills",
            Self::Plugins => "plugins",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EngineFeature;

    #[test]
    fn a_feature_has_the_same_name_everywhere() {
        for feature in EngineFeature::ALL {
            let written = serde_json::to_value(feature).expect("a name");
            assert_eq!(written, feature.as_str());
        }
    }
}
