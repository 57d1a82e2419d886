//! What the protocol remembers. All of it is part of every checkpoint, so it holds what is open and no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use astrabox_engine::{EngineInput, Error, ErrorKind};
use astrabox_types::{InputId, Usage};
use serde::{Deserialize, Serialize};

/// How much text of an unfinished message is kept, for the case that it is never finished (256 KiB).
const KEPT_TEXT: usize = 256 << 10;

/// A conversation with `pi --mode rpc`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PiProtocol {
    /// The id of the conversation.
    pub(super) key: String,
    pub(super) phase: Phase,
    /// The activation that started the process; part of every key, so that two processes never make the same.
    pub(super) born: u64,
    /// The activation that speaks with it now; part of the ids of our commands.
    pub(super) epoch: u64,
    /// Counts our commands.
    pub(super) sent: u64,
    /// Counts the keys that were made.
    pub(super) made: u64,
    /// Our commands without a response, by id.
    pub(super) asked: BTreeMap<String, Asked>,
    /// The tools that the model was told of.
    pub(super) tools: BTreeSet<String>,
    /// Calls of the conversation so far that have no result, until they are told of.
    pub(super) unanswered: Vec<String>,
    pub(super) turn: Option<Turn>,
    /// Inputs that came while a turn ran.
    pub(super) waiting: VecDeque<EngineInput>,
    /// The message that the model writes, and after an error what it wrote until then.
    pub(super) stream: Vec<Block>,
    pub(super) calls: Vec<OpenCall>,
    /// The dialogs without an answer, by the program's ids of them.
    pub(super) dialogs: BTreeMap<String, Dialog>,
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
    /// The program is asked which conversation it has.
    Opening,
    /// It has the one that was wanted.
    Bound,
    /// It will not come to be.
    Failed { why: Unbound, text: String },
    /// The process has ended.
    Gone,
}

/// Why a conversation could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Unbound {
    ConversationLost,
    Protocol,
}

impl Unbound {
    pub(super) fn error(self, text: &str) -> Error {
        let kind = match self {
            Self::ConversationLost => ErrorKind::ConversationLost,
            Self::Protocol => ErrorKind::Protocol,
        };
        Error::new(kind, "bind", text)
    }
}

/// What a command of ours was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asked {
    State,
    Prompt,
    Abort,
}

/// A turn.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    /// What it answers; `None` when the program began it by itself.
    pub(super) input: Option<InputId>,
    /// The id of the command that holds the input.
    pub(super) command: Option<String>,
    /// Whether it was told that the input was taken.
    pub(super) consumed: bool,
    /// Whether the program works on it.
    pub(super) running: bool,
    pub(super) stop: Stop,
    /// How the model's last message ended.
    pub(super) last: Option<Said>,
    /// What the turn has used.
    pub(super) used: Tokens,
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

/// How a message of the model ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Said {
    Whole,
    /// At the limit of its length.
    Cut,
    Aborted,
    Error(String),
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
    /// Its native id.
    pub(super) id: String,
    /// Its key in our events: the native id, made unique in the conversation.
    pub(super) key: String,
    pub(super) name: String,
    /// The file that it changes.
    pub(super) path: Option<String>,
    /// How much of its output was told.
    pub(super) told: super::output::Told,
}

/// A dialog that a person answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Dialog {
    /// The platform's own extension asks whether a tool may run.
    Approval,
    /// Yes or no.
    Confirm,
    /// One of these.
    Select(Vec<String>),
    /// A text.
    Text,
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

impl PiProtocol {
    /// The protocol of a process that the activation `epoch` starts, for the conversation `key`. `unanswered` are the
    /// calls of the conversation so far that have no result.
    pub(crate) fn new(key: String, epoch: u64, unanswered: Vec<String>) -> Self {
        Self {
            key,
            phase: Phase::Fresh,
            born: epoch,
            epoch,
            sent: 0,
            made: 0,
            asked: BTreeMap::new(),
            tools: BTreeSet::new(),
            unanswered,
            turn: None,
            waiting: VecDeque::new(),
            stream: Vec::new(),
            calls: Vec::new(),
            dialogs: BTreeMap::new(),
            total: Tokens::default(),
            closing: false,
        }
    }

    /// A key that is unique in the conversation and the same on every replay. A native id alone is not: models
    /// choose the ids of calls, and not every endpoint keeps them apart.
    pub(super) fn mint(&mut self, native: &str) -> String {
        self.made += 1;
        format!("{native}@{}.{}", self.born, self.made)
    }
}
