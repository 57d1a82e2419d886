//! Journal events: the one closed set in which every engine's output is told.
//!
//! The names are those of the public API: [`EventPayload::name`] gives `message.completed` and so on.

use serde::{Deserialize, Serialize};

use crate::{
    ContentPart, EventId, InputId, Interaction, InteractionAnswer, InteractionId, Json, SessionId,
    SessionState, Timestamp, TurnId,
};

/// One durable fact about a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalEvent {
    /// Its id; the deltas of a message carry the id of the event that completes it.
    pub id: EventId,
    /// The session that it belongs to.
    pub session_id: SessionId,
    /// Its place in the session's journal: 1, 2, 3 without gaps.
    pub seq: u64,
    /// The turn that it belongs to, where there is one.
    pub turn_id: Option<TurnId>,
    /// The child run whose output it is; absent for the session's own conversation.
    pub child_run: Option<ChildRunId>,
    /// When the platform made it durable.
    pub at: Timestamp,
    /// What happened.
    pub payload: EventPayload,
    /// The engine's own words for it, verbatim, where it came from the engine.
    pub native: Option<Json>,
}

/// Names a child run (a sub-agent, a background task) by the engine's own key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChildRunId(pub String);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// Externally tagged: an internally tagged enum is buffered by serde, which cannot hold verbatim JSON.
#[serde(deny_unknown_fields)]
pub enum EventPayload {
    /// The session moved to another state.
    #[serde(rename = "session.status")]
    SessionStatus {
        /// The new state.
        state: SessionState,
        /// Why, where there is something to tell.
        reason: Option<String>,
    },
    /// A turn began.
    #[serde(rename = "turn.started")]
    TurnStarted {
        /// What began it.
        origin: TurnOrigin,
    },
    /// A turn ended; nothing of it follows.
    #[serde(rename = "turn.ended")]
    TurnEnded {
        /// How.
        outcome: TurnOutcome,
        /// What the turn used, where the engine tells.
        usage: Option<Usage>,
    },
    /// An input is stored and will be delivered in order.
    #[serde(rename = "input.accepted")]
    InputAccepted {
        /// Its id.
        input_id: InputId,
        /// What it says.
        content: Vec<ContentPart>,
    },
    /// The engine took an input; its output follows.
    #[serde(rename = "input.consumed")]
    InputConsumed {
        /// Its id.
        input_id: InputId,
    },
    /// A message is complete.
    #[serde(rename = "message.completed")]
    MessageCompleted {
        /// What kind of message.
        kind: MessageKind,
        /// The whole text.
        text: String,
        /// Whether it was cut at the line limit or by an interrupt.
        truncated: bool,
    },
    /// The engine calls a tool.
    #[serde(rename = "tool.call")]
    ToolCall {
        /// Joins call and result; the engine's own key.
        call_id: String,
        /// The tool's native name.
        name: String,
        /// The native input.
        input: Json,
    },
    /// A tool call ended.
    #[serde(rename = "tool.result")]
    ToolResult {
        /// Joins call and result; the engine's own key.
        call_id: String,
        /// The tool's native name.
        name: String,
        /// The native result.
        output: Json,
        /// Whether the tool failed or was declined.
        is_error: bool,
    },
    /// The engine asks a person.
    #[serde(rename = "interaction.requested")]
    InteractionRequested {
        /// What it asks.
        interaction: Interaction,
    },
    /// A person answered.
    #[serde(rename = "interaction.resolved")]
    InteractionResolved {
        /// Which one.
        interaction_id: InteractionId,
        /// The answer.
        answer: InteractionAnswer,
        /// Who answered.
        actor: String,
    },
    /// Nobody can answer any more.
    #[serde(rename = "interaction.expired")]
    InteractionExpired {
        /// Which one.
        interaction_id: InteractionId,
        /// Why.
        reason: String,
    },
    /// The engine changed a file in the workspace.
    #[serde(rename = "file.changed")]
    FileChanged {
        /// The path inside the sandbox.
        path: String,
        /// What was done.
        kind: FileChangeKind,
        /// A unified diff, where the engine gives one.
        diff: Option<String>,
    },
    /// A child run began, moved or ended.
    #[serde(rename = "child_run.changed")]
    ChildRunChanged {
        /// The run.
        run: ChildRun,
    },
    /// The engine shortened its context.
    #[serde(rename = "context.compacted")]
    ContextCompacted,
    /// What the conversation has used so far.
    #[serde(rename = "usage")]
    Usage {
        /// The figures.
        usage: Usage,
    },
    /// Something that the platform keeps but does not understand, or wants known: always with `native` or a text.
    #[serde(rename = "diagnostic.raw")]
    DiagnosticRaw {
        /// What it is about, as `unknown_event`, `garbage_line`, `stderr`.
        topic: String,
        /// A text for people.
        message: String,
    },
}

impl EventPayload {
    /// The event's public type name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SessionStatus { .. } => "session.status",
            Self::TurnStarted { .. } => "turn.started",
            Self::TurnEnded { .. } => "turn.ended",
            Self::InputAccepted { .. } => "input.accepted",
            Self::InputConsumed { .. } => "input.consumed",
            Self::MessageCompleted { .. } => "message.completed",
            Self::ToolCall { .. } => "tool.call",
            Self::ToolResult { .. } => "tool.result",
            Self::InteractionRequested { .. } => "interaction.requested",
            Self::InteractionResolved { .. } => "interaction.resolved",
            Self::InteractionExpired { .. } => "interaction.expired",
            Self::FileChanged { .. } => "file.changed",
            Self::ChildRunChanged { .. } => "child_run.changed",
            Self::ContextCompacted => "context.compacted",
            Self::Usage { .. } => "usage",
            Self::DiagnosticRaw { .. } => "diagnostic.raw",
        }
    }
}

/// What began a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "origin", rename_all = "snake_case", deny_unknown_fields)]
pub enum TurnOrigin {
    /// An input of a client.
    Input {
        /// The input.
        input_id: InputId,
    },
    /// The engine itself, as when background work reports.
    Engine,
}

/// How a turn ended. There is no fourth way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum TurnOutcome {
    /// The engine said that it is done.
    Completed,
    /// It was stopped on request.
    Interrupted,
    /// It failed.
    Failed {
        /// Why.
        failure: TurnFailure,
    },
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnFailure {
    /// A stable reason, as `engine_exited`, `no_result`, `engine_stalled`, `sandbox_gone`, `memory_limit`,
    /// `model_error`.
    pub reason: String,
    /// A text for people; never a secret, never a host path.
    pub message: String,
}

/// What kind of message a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// What the agent says.
    Text,
    /// What the model thinks on the way.
    Reasoning,
}

/// What was done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It is new.
    Added,
    /// It has another content.
    Modified,
    /// It is gone.
    Deleted,
}

/// A sub-agent or background task as its parent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildRun {
    /// The engine's own key.
    pub id: ChildRunId,
    /// Where it stands.
    pub state: ChildRunState,
    /// A short name or task, where the engine gives one.
    pub title: Option<String>,
    /// The tool call that began it, where the engine tells.
    pub call_id: Option<String>,
}

/// Where a child run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildRunState {
    /// It works.
    Running,
    /// It is done.
    Completed,
    /// It failed.
    Failed,
    /// It was stopped.
    Stopped,
}

/// Tokens used. Absent figures are those that the engine does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens sent to the model.
    pub input_tokens: Option<u64>,
    /// Of these, tokens that the model had cached.
    pub cached_input_tokens: Option<u64>,
    /// Tokens that the model wrote.
    pub output_tokens: Option<u64>,
    /// Of these, tokens of reasoning.
    pub reasoning_tokens: Option<u64>,
}

/// A piece of a message that is not complete yet. Never in the journal: only live subscribers see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// The id of the event that will complete the message.
    pub event_id: EventId,
    /// The turn.
    pub turn_id: Option<TurnId>,
    /// The child run that speaks; absent for the session's own conversation.
    pub child_run: Option<ChildRunId>,
    /// What the text is.
    pub channel: DeltaChannel,
    /// Where the text begins within the message, in bytes.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// What a delta is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaChannel {
    /// The agent's answer.
    Text,
    /// The model's reasoning.
    Reasoning,
    /// What a running tool prints.
    ToolOutput,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_verbatim_json_through_text() {
        let native = r#"{"b":1.0,"a":[1e2, "\u2028"]}"#;
        let payload = EventPayload::ToolCall {
            call_id: "c1".into(),
            name: "shell".into(),
            input: Json::parse(native).expect("it is JSON"),
        };
        let text = serde_json::to_string(&payload).expect("a payload is JSON");
        assert!(text.contains(native), "{text}");
        assert_eq!(
            serde_json::from_str::<EventPayload>(&text).expect("it reads back"),
            payload
        );
    }
}
