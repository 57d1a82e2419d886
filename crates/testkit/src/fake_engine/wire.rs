//! The lines between the adapter and the program.

use astrabox_types::{ChildRunState, FileChangeKind, InputId, InteractionAnswer};
use serde::{Deserialize, Serialize};

/// A line to the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToProgram {
    /// The first line: begin a conversation, or go on with a stored one.
    Open {
        /// The key of the stored conversation.
        session: Option<String>,
        /// The permission mode.
        mode: Option<String>,
    },
    /// An input.
    Say {
        /// Its id.
        input: InputId,
        /// What it says.
        text: String,
        /// A word from the platform.
        notice: Option<String>,
    },
    /// Stop the running turn.
    Stop,
    /// The answer to a question.
    Answer {
        /// The question.
        ask: String,
        /// The answer.
        answer: InteractionAnswer,
    },
    /// Another permission mode.
    Mode {
        /// Its name.
        mode: String,
    },
    /// The reply to a request of the program.
    Reply(Reply),
    /// Stop a child run.
    StopChild {
        /// Which one.
        child: String,
    },
    /// End.
    Bye,
}

/// The reply to a request of the program; the platform knows none, so it is always an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The request.
    pub request: String,
    /// What is wrong with it.
    pub error: String,
}

/// A line from the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FromProgram {
    /// The conversation is open.
    Ready {
        /// Its key.
        session: String,
        /// The program's name and version.
        program: String,
        /// Its tools.
        tools: Vec<String>,
    },
    /// The conversation that was asked for is not there.
    Lost {
        /// Its key.
        session: String,
    },
    /// An input was taken.
    Took {
        /// Its id.
        input: InputId,
    },
    /// A turn of the program's own begins.
    Begin,
    /// A piece of a message.
    Delta {
        /// The message.
        message: String,
        /// Whether it is reasoning.
        #[serde(default, skip_serializing_if = "is_false")]
        reasoning: bool,
        /// Whether it is a tool's output; the message is then the call.
        #[serde(default, skip_serializing_if = "is_false")]
        tool: bool,
        /// The text.
        text: String,
        /// The child run that speaks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<String>,
    },
    /// A whole message.
    Message {
        /// The message.
        message: String,
        /// Whether it is reasoning.
        #[serde(default, skip_serializing_if = "is_false")]
        reasoning: bool,
        /// All of its text.
        text: String,
        /// The child run that speaks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<String>,
    },
    /// A tool is called.
    Call {
        /// The call.
        call: String,
        /// The tool.
        tool: String,
        /// What it is given.
        input: serde_json::Value,
    },
    /// A tool call ended.
    Result {
        /// The call.
        call: String,
        /// The tool.
        tool: String,
        /// What it gave.
        output: serde_json::Value,
        /// Whether it failed.
        error: bool,
    },
    /// A question.
    Ask {
        /// The question.
        ask: String,
        /// Its form.
        form: AskForm,
        /// What it is about.
        text: String,
        /// The child run that asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<String>,
    },
    /// A question is taken back.
    Withdraw {
        /// The question.
        ask: String,
        /// Why.
        reason: String,
    },
    /// A child run moves.
    Child {
        /// The child run.
        child: String,
        /// Where it stands.
        state: ChildRunState,
    },
    /// Work in the background begins or is done.
    Background {
        /// Whether there is some now.
        open: bool,
    },
    /// A file was changed.
    File {
        /// Its path.
        path: String,
        /// How.
        change: FileChangeKind,
        /// Makes the change unique.
        key: String,
    },
    /// A request to the platform.
    Request {
        /// The request.
        request: String,
        /// What is wanted.
        method: String,
    },
    /// What the program thinks of itself; no authority on the end of a turn.
    Status {
        /// `idle`.
        status: String,
    },
    /// The turn is over.
    End {
        /// How.
        outcome: Outcome,
        /// Whether it was a turn of the program's own.
        #[serde(default, skip_serializing_if = "is_false")]
        own: bool,
        /// Tokens in and out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<(u64, u64)>,
    },
}

/// The form of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskForm {
    /// May a tool run? Choices `yes`, `always`, `no`.
    Approval,
    /// A question with the id `q`, the options `red` and `blue`, and free text.
    Question,
    /// A choice of `left` and `right`.
    Decision,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All was done.
    Completed,
    /// It was stopped.
    Interrupted,
    /// It failed, for this reason.
    Failed(String),
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde wants"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
