//! What the protocol remembers. All of it is part of every checkpoint, so it holds what is open and no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use astrabox_engine::{EngineInput, Error, ErrorKind};
use astrabox_types::{ChildRunState, InputId, Json, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Settings;

/// How much text of an unfinished message is kept, for the case that it is never finished (256 KiB).
const KEPT_TEXT: usize = 256 << 10;

/// A conversation with `claude -p`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaudeProtocol {
    pub(super) settings: Settings,
    pub(super) phase: Phase,
    /// The activation that started the process; part of every key, so that two processes never make the same.
    pub(super) born: u64,
    /// The activation that speaks with it now; part of our request ids.
    pub(super) epoch: u64,
    /// Counts our requests.
    pub(super) sent: u64,
    /// Counts the keys that were made.
    pub(super) made: u64,
    /// Our requests without an answer, by id.
    pub(super) asked: BTreeMap<String, Asked>,
    /// The program's name and version, as it told.
    pub(super) program: Option<String>,
    /// The tools that it told of.
    pub(super) tools: Vec<String>,
    /// MCP servers of which it was told that they do not work.
    pub(super) failed_servers: BTreeSet<String>,
    /// Calls of the conversation so far that have no result, until they are told of.
    pub(super) unanswered: Vec<String>,
    /// Whether the program said that it works on something.
    pub(super) working: bool,
    pub(super) turn: Option<Turn>,
    /// Inputs that came while a turn ran.
    pub(super) waiting: VecDeque<EngineInput>,
    /// The message that the model writes.
    pub(super) stream: Vec<Block>,
    pub(super) calls: Vec<OpenCall>,
    pub(super) tasks: BTreeMap<String, Task>,
    /// The tasks that run in the background, as the program listed them last.
    pub(super) background: Vec<String>,
    /// Whether background work was told of.
    pub(super) background_told: bool,
    /// The program's requests without an answer, by its ids for them.
    pub(super) requests: BTreeMap<String, OpenRequest>,
    /// What the process has used.
    pub(super) total: Tokens,
    pub(super) closing: bool,
}

/// How far the conversation is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Phase {
    /// Nothing was said.
    Fresh,
    /// The program is being brought to its conversation.
    Opening,
    /// It has it.
    Bound,
    /// It will not come to be.
    Failed { why: Unbound, text: String },
    /// The process has ended.
    Gone,
}

/// Why a conversation could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Unbound {
    Configuration,
    ConversationLost,
    Protocol,
    Start,
}

impl Unbound {
    pub(super) fn error(self, text: &str) -> Error {
        let kind = match self {
            Self::Configuration => ErrorKind::InvalidConfiguration,
            Self::ConversationLost => ErrorKind::ConversationLost,
            Self::Protocol => ErrorKind::Protocol,
            Self::Start => ErrorKind::StartFailed,
        };
        Error::new(kind, "bind", text)
    }
}

/// What a request of ours was for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Asked {
    Initialize,
    SetMode { mode: String },
    Interrupt,
    StopTask { task: String },
}

/// A turn of the conversation itself.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    /// What it answers; `None` when the program began it by itself.
    pub(super) input: Option<InputId>,
    /// Whether it was told that the input was taken.
    pub(super) consumed: bool,
    pub(super) stop: Stop,
}

/// Whether a turn shall stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stop {
    #[default]
    No,
    /// Yes, as soon as the program can be asked.
    Wanted,
    /// The program is asked.
    Asked,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Completed,
    Interrupted,
    Failed { reason: String, message: String },
}

impl Ending {
    pub(super) fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::Failed {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// A content block of the message that the model writes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    /// Its number in the message.
    pub(super) index: u64,
    /// Its key in our events.
    pub(super) key: String,
    pub(super) kind: BlockKind,
    /// How much was told, bytes.
    pub(super) told: u64,
    /// The text, up to a limit.
    pub(super) text: String,
}

/// What a content block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BlockKind {
    Text,
    Reasoning,
}

impl Block {
    /// Takes a piece and gives its place.
    pub(super) fn take(&mut self, piece: &str) -> u64 {
        let offset = self.told;
        self.told += piece.len() as u64;
        if self.text.len() + piece.len() <= KEPT_TEXT {
            self.text.push_str(piece);
        }
        offset
    }
}

/// A tool call without a result.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenCall {
    /// The child run that made it.
    pub(super) child: Option<String>,
    /// Its native id.
    pub(super) id: String,
    /// Its key in our events: the native id, made unique in the conversation.
    pub(super) key: String,
    pub(super) name: String,
    /// What it does, where a question of the program leaves it out.
    pub(super) input: Option<Json>,
}

/// A task: a sub-agent, or a command in the background.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    pub(super) state: ChildRunState,
    pub(super) title: Option<String>,
    /// The key of the call that began it.
    pub(super) call: Option<String>,
    /// The native id of that call.
    pub(super) tool_use: Option<String>,
}

/// A request of the program that a person answers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenRequest {
    /// The child run that asks.
    pub(super) child: Option<String>,
    /// What the tool would be called with.
    pub(super) input: Json,
    pub(super) answers: Answers,
}

/// Which answers a request takes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Answers {
    /// One of these.
    Choices(Vec<(String, Verdict)>),
    /// Texts by question.
    Texts { questions: Vec<String> },
}

/// What a choice tells the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Verdict {
    /// The call may run; these changes of its permissions go with it.
    Allow { updates: Vec<Value> },
    /// It may not.
    Deny { interrupt: bool },
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

impl Tokens {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    pub(super) fn usage(self) -> Usage {
        Usage {
            input_tokens: Some(self.input),
            cached_input_tokens: Some(self.cached),
            output_tokens: Some(self.output),
            reasoning_tokens: Some(self.reasoning),
        }
    }
}

impl ClaudeProtocol {
    /// The protocol of a process that the activation `epoch` starts. `unanswered` are the calls of the
    /// conversation so far that have no result.
    pub(crate) fn new(settings: Settings, epoch: u64, unanswered: Vec<String>) -> Self {
        Self {
            settings,
            phase: Phase::Fresh,
            born: epoch,
            epoch,
            sent: 0,
            made: 0,
            asked: BTreeMap::new(),
            program: None,
            tools: Vec::new(),
            failed_servers: BTreeSet::new(),
            unanswered,
            working: false,
            turn: None,
            waiting: VecDeque::new(),
            stream: Vec::new(),
            calls: Vec::new(),
            tasks: BTreeMap::new(),
            background: Vec::new(),
            background_told: false,
            requests: BTreeMap::new(),
            total: Tokens::default(),
            closing: false,
        }
    }

    /// A key that is unique in the conversation and the same on every replay. A native id alone is not: models
    /// choose the ids of messages and calls, and not every endpoint keeps them apart.
    pub(super) fn mint(&mut self, native: &str) -> String {
        self.made += 1;
        format!("{native}@{}.{}", self.born, self.made)
    }
}
