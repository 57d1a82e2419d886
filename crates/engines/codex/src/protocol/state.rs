//! What the protocol remembers. All of it is part of every checkpoint, so it holds what is open and no more.

use std::collections::{BTreeMap, VecDeque};

use astrabox_engine::{EngineInput, Error, ErrorKind};
use astrabox_types::{ChildRunState, InputId, Json, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Settings;

/// How much text of an unfinished message is kept, for the case that it is never finished (256 KiB).
const KEPT_TEXT: usize = 256 << 10;

/// A conversation with `codex app-server`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodexProtocol {
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
    pub(super) turn: Option<Turn>,
    pub(super) ended: Option<Ended>,
    /// Inputs that came while a turn ran.
    pub(super) waiting: VecDeque<EngineInput>,
    pub(super) items: Vec<OpenItem>,
    pub(super) children: BTreeMap<String, Child>,
    /// The program's requests without an answer, by our id for them.
    pub(super) requests: BTreeMap<String, OpenRequest>,
    /// What the conversation has used; `None` until a resumed one tells.
    pub(super) total: Option<Tokens>,
    /// Whether background work was told of.
    pub(super) background: bool,
    pub(super) closing: bool,
}

/// How far the conversation is.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Phase {
    /// Nothing was said.
    Fresh,
    /// The program is being brought to this conversation, or to a new one.
    Opening { expected: Option<String> },
    /// It has it: the thread's id.
    Bound { thread: String },
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
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Asked {
    Initialize,
    OpenThread,
    StartTurn {
        input: InputId,
    },
    Interrupt {
        turn: String,
    },
    /// How the last turn stands.
    LastTurn {
        turn: String,
    },
    /// Which commands still run; these are to be stopped.
    Commands {
        stop: Vec<String>,
    },
    /// Its answer changes nothing.
    Nothing,
}

/// The turn of the conversation's own thread.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    /// Its native id, once it is known.
    pub(super) id: Option<String>,
    /// What it answers; `None` when the program began it by itself.
    pub(super) input: Option<InputId>,
    /// Whether it was told that the input was taken.
    pub(super) consumed: bool,
    /// Whether the program said that it runs: before, it cannot be interrupted.
    pub(super) started: bool,
    pub(super) stop: Stop,
    /// The last error that the program does not try to get over.
    pub(super) error: Option<String>,
    /// What the conversation had used when it began.
    pub(super) base: Option<Tokens>,
    /// Our request whose answer may end it.
    pub(super) check: Option<String>,
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

/// The turn before.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ended {
    pub(super) id: String,
    pub(super) ending: Ending,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// An item between its begin and its end.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenItem {
    pub(super) thread: String,
    pub(super) id: String,
    pub(super) turn: String,
    /// Its key in our events: the native id, made unique in the conversation.
    pub(super) key: String,
    pub(super) body: Body,
}

/// What an item is made of.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Body {
    /// A message.
    Text(Stream),
    /// Reasoning: what the program sums up, and what the model wrote.
    Reasoning { summary: Stream, raw: Stream },
    /// A tool call.
    Tool {
        /// The type of the item.
        kind: String,
        /// The tool's name.
        name: String,
        /// What it does, where an approval refers to it.
        input: Option<Json>,
        /// How much of its output was told.
        told: u64,
    },
}

/// A text that comes in pieces, in one or more numbered parts.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) part: u64,
    /// How much was told, bytes.
    pub(super) told: u64,
    /// The text, up to a limit.
    pub(super) text: String,
}

impl Stream {
    /// Takes a piece of a part, and gives its place and its text with what separates it from the part before.
    pub(super) fn take(&mut self, part: u64, piece: &str) -> (u64, String) {
        let offset = self.told;
        let mut text = piece.to_owned();
        if part > self.part {
            self.part = part;
            if offset > 0 {
                text.insert_str(0, super::items::PART_BREAK);
            }
        }
        self.told += text.len() as u64;
        if self.text.len() + text.len() <= KEPT_TEXT {
            self.text.push_str(&text);
        }
        (offset, text)
    }
}

/// A sub-agent: a thread of its own.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Child {
    /// Where it stands; `None` until it was told.
    pub(super) state: Option<ChildRunState>,
    pub(super) title: Option<String>,
    pub(super) call_id: Option<String>,
    /// What was told of it last.
    pub(super) told: Option<(ChildRunState, Option<String>, Option<String>)>,
    /// The turn that it runs.
    pub(super) turn: Option<String>,
}

/// A request of the program that a person answers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenRequest {
    /// Its id, verbatim.
    pub(super) id: Json,
    pub(super) thread: String,
    pub(super) item: Option<String>,
    pub(super) answers: Answers,
}

/// Which answers a request takes, in the form in which they are sent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Answers {
    /// One of these results, by the choice's id.
    Choices {
        results: Vec<(String, Value)>,
        declined: Value,
    },
    /// Texts by question.
    Texts { questions: Vec<String> },
    /// Typed values by field.
    Form { fields: Vec<Field> },
}

/// One field of a form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) kind: FieldKind,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FieldKind {
    Text,
    Integer,
    Number,
    Flag,
    /// One of these: what a person sees, and what is sent.
    One(Vec<(String, String)>),
    /// Any of these.
    Many(Vec<(String, String)>),
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
    /// What was used since `base`.
    pub(super) fn since(self, base: Self) -> Self {
        Self {
            input: self.input.saturating_sub(base.input),
            cached: self.cached.saturating_sub(base.cached),
            output: self.output.saturating_sub(base.output),
            reasoning: self.reasoning.saturating_sub(base.reasoning),
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

impl CodexProtocol {
    /// The protocol of a process that the activation `epoch` starts.
    pub(crate) fn new(settings: Settings, epoch: u64) -> Self {
        Self {
            settings,
            phase: Phase::Fresh,
            born: epoch,
            epoch,
            sent: 0,
            made: 0,
            asked: BTreeMap::new(),
            program: None,
            turn: None,
            ended: None,
            waiting: VecDeque::new(),
            items: Vec::new(),
            children: BTreeMap::new(),
            requests: BTreeMap::new(),
            total: None,
            background: false,
            closing: false,
        }
    }

    /// The conversation's own thread.
    pub(super) fn thread(&self) -> Option<&str> {
        match &self.phase {
            Phase::Bound { thread } => Some(thread),
            _ => None,
        }
    }

    /// Whether this is the conversation's own thread. Every other thread is a child's (EN12).
    pub(super) fn is_own(&self, thread: &str) -> bool {
        self.thread().is_none_or(|own| own == thread)
    }

    /// Whether the turn that runs has this id.
    pub(super) fn is_current(&self, turn: &str) -> bool {
        self.turn
            .as_ref()
            .is_some_and(|current| current.id.as_deref() == Some(turn))
    }

    /// A key that is unique in the conversation and the same on every replay. A native id alone is not: models
    /// choose the ids of messages and calls, and not every endpoint keeps them apart.
    pub(super) fn mint(&mut self, native: &str) -> String {
        self.made += 1;
        format!("{native}@{}.{}", self.born, self.made)
    }
}
