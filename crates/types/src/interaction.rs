//! What an engine asks a person, and what the person answers.

use serde::{Deserialize, Serialize};

use crate::{InteractionId, Json};

/// A durable question of the engine. Answered once, by its exact id, from any client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interaction {
    /// Its id.
    pub id: InteractionId,
    /// How to show it and what an answer looks like.
    pub presentation: Presentation,
}

/// How an interaction is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Presentation {
    /// May the engine run this tool call?
    ToolApproval {
        /// The call, where the engine tells.
        call_id: Option<String>,
        /// The tool's native name.
        tool: String,
        /// What it would do, in the engine's own form.
        input: Json,
        /// The engine's reason for asking, where it gives one.
        reason: Option<String>,
        /// The decisions that the engine offers, by their native ids.
        choices: Vec<Choice>,
    },
    /// Questions with options or free text.
    Question {
        /// The questions.
        questions: Vec<Question>,
    },
    /// A choice between named ways to go on, as leaving a plan mode.
    Decision {
        /// What is to be decided.
        body: String,
        /// The ways, by their native ids.
        choices: Vec<Choice>,
    },
}

/// One decision that the engine offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The engine's own id for it, verbatim.
    pub id: String,
    /// A label for people.
    pub label: String,
    /// Whether choosing it lets the engine do what it asked for.
    pub allows: bool,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The engine's key for it.
    pub id: String,
    /// A short title.
    pub header: Option<String>,
    /// The question.
    pub question: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// Whether more than one option may be chosen.
    pub multi_select: bool,
    /// Whether a text of one's own may be given.
    pub allow_free_text: bool,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum InteractionAnswer {
    /// One of the offered choices (for an approval or a decision).
    Choose {
        /// The choice's native id.
        choice_id: String,
        /// A word to the engine, where it takes one.
        comment: Option<String>,
        /// What an allowed tool call is made with instead: a JSON object, where the engine takes one.
        #[serde(default)]
        input: Option<String>,
    },
    /// Answers to questions: question id to chosen options or free text.
    Reply {
        /// One entry a question.
        answers: std::collections::BTreeMap<String, Vec<String>>,
    },
    /// No answer is wanted.
    Decline {
        /// A word to the engine, where it takes one.
        comment: Option<String>,
    },
}

/// Where an interaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractionState {
    /// It waits behind another one of the same session.
    Queued,
    /// It can be answered.
    Active,
    /// It was answered.
    Resolved,
    /// It can no longer be answered.
    Expired,
}
