//! What the protocol remembers. All of it is part of every checkpoint, so it holds what is open and no more.

use std::collections::{BTreeMap, VecDeque};

use astrabox_engine::{EngineInput, Error, ErrorKind};
use astrabox_types::{DeltaChannel, InputId, Json, MessageKind, Usage};
use serde::{Deserialize, Serialize};

use crate::children::Child;
use crate::diff::Change;
use crate::elicitation::Field;
use crate::serving::Serving;
use crate::settings::{Modes, Offers, Settings, Wish};
use crate::wire::Fields;

/// A conversation with a program that speaks ACP: everything but what its dialect adds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    pub(crate) phase: Phase,
    /// Until the conversation is bound.
    pub(crate) settings: Option<Settings>,
    /// The activation that started the process; part of every key, so that two processes never make the same.
    pub(crate) born: u64,
    /// The activation that speaks with it now; part of our request ids.
    pub(crate) epoch: u64,
    /// Counts our requests.
    pub(crate) sent: u64,
    /// Counts the keys that were made.
    pub(crate) made: u64,
    /// Our requests without an answer, by id.
    pub(crate) asked: BTreeMap<String, Asked>,
    /// The program's name and version, as it told.
    pub(crate) program: Option<String>,
    pub(crate) offers: Offers,
    pub(crate) modes: Modes,
    pub(crate) turn: Option<Turn>,
    /// Inputs that came while a turn ran.
    pub(crate) waiting: VecDeque<EngineInput>,
    /// Messages that are being written.
    pub(crate) messages: Vec<OpenMessage>,
    pub(crate) calls: Vec<OpenCall>,
    /// Child sessions, by their native ids.
    pub(crate) children: BTreeMap<String, Child>,
    /// Whether work beside the turns was told of.
    pub(crate) background_told: bool,
    /// The program's requests without an answer, by its ids for them.
    pub(crate) requests: BTreeMap<String, OpenRequest>,
    /// For a program that wants files and terminals of its client.
    pub(crate) serving: Option<Serving>,
    /// What was used so far, as far as it is known.
    pub(crate) total: Option<Tokens>,
    /// How full the model's context is, as it was told last.
    pub(crate) context: Option<Json>,
    pub(crate) closing: bool,
}

/// How far the conversation is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Phase {
    /// Nothing was said.
    Fresh,
    /// The program is being brought to its conversation.
    Opening {
        /// The one that it shall have; `None` for a new one.
        expected: Option<String>,
        /// Whether what it says is what was said before.
        replays: bool,
        /// The one that it has.
        session: Option<String>,
    },
    /// It has it.
    Bound { session: String },
    /// It will not come to be.
    Failed { why: Unbound, text: String },
    /// The process has ended.
    Gone,
}

/// Why a conversation could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unbound {
    Configuration,
    ConversationLost,
    Protocol,
    Start,
}

impl Unbound {
    pub(crate) fn error(self, text: &str) -> Error {
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Asked {
    Initialize,
    Open,
    /// One of the settings of a conversation that is being opened.
    Wish {
        wish: Wish,
    },
    Prompt,
    SetMode {
        mode: String,
    },
    /// The dialect's own, with its word for it.
    Dialect {
        tag: String,
    },
    /// The answer is of no interest.
    Nothing,
}

/// A turn of the conversation itself.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    /// What it answers; `None` when the program began it by itself.
    pub(crate) input: Option<InputId>,
    /// The id of the prompt that it is.
    pub(crate) prompt: Option<String>,
    /// Whether it was told that the input was taken.
    pub(crate) consumed: bool,
    pub(crate) stop: Stop,
    /// What was used when it began.
    pub(crate) base: Option<Tokens>,
}

/// Whether a turn shall stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    #[default]
    No,
    /// The program was asked before it gave a sign that it runs the turn; it is asked once more when it does.
    Early,
    /// The program is asked.
    Asked,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Completed,
    /// It was stopped.
    Interrupted,
    /// It failed.
    Failed {
        /// A stable name of the cause.
        reason: String,
        /// What the program says about it.
        message: String,
    },
}

impl Ending {
    /// A failure.
    #[must_use]
    pub fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::Failed {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Who speaks: a child run by its native id, or the conversation itself.
pub type Speaker = Option<String>;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saying {
    /// The answer.
    Text,
    /// What the model thinks.
    Reasoning,
}

impl Saying {
    pub(crate) fn channel(self) -> DeltaChannel {
        match self {
            Self::Text => DeltaChannel::Text,
            Self::Reasoning => DeltaChannel::Reasoning,
        }
    }

    pub(crate) fn message(self) -> MessageKind {
        match self {
            Self::Text => MessageKind::Text,
            Self::Reasoning => MessageKind::Reasoning,
        }
    }
}

/// A message that is being written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenMessage {
    pub(crate) child: Speaker,
    pub(crate) saying: Saying,
    /// The program's id of it, where it tells one.
    pub(crate) native: Option<String>,
    /// Its key in our events.
    pub(crate) key: String,
    pub(crate) text: String,
    /// Whether a piece is missing.
    pub(crate) cut: bool,
    /// Whether it belongs to no turn.
    pub(crate) late: bool,
}

/// A tool call without a result.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenCall {
    pub(crate) child: Speaker,
    /// Its native id.
    pub(crate) id: String,
    /// Its key in our events: the native id, made unique in the conversation.
    pub(crate) key: String,
    /// Its name as far as it is known.
    pub(crate) name: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) input: Option<Json>,
    /// Whether the call was told.
    pub(crate) told: bool,
    /// What it gave so far, up to a limit.
    pub(crate) content: Option<Json>,
    pub(crate) output: Option<Json>,
    /// What a terminal of the program's own showed, up to a limit, and how much that was, bytes.
    pub(crate) shown: String,
    pub(crate) shown_bytes: u64,
    /// The files that it changes.
    pub(crate) changes: Vec<Change>,
}

/// A request of the program that a person answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenRequest {
    /// The program's id of it, verbatim.
    pub(crate) id: String,
    pub(crate) child: Speaker,
    pub(crate) answers: Answers,
}

/// Which answers a request takes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Answers {
    /// One of these options, by the program's ids, with their kinds.
    Options(Vec<(String, String)>),
    /// What the fields of a form take.
    Form(Vec<Field>),
    /// The dialect knows.
    Dialect,
}

/// What the figures in the answer to a prompt count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageScope {
    /// The turn alone.
    Turn,
    /// Everything since the process began.
    Process,
    /// The whole conversation, also what other processes of it used.
    Conversation,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Sent to the model, cached or not.
    pub input: u64,
    /// Of these, found in the model's cache.
    pub cached: u64,
    /// Written by the model.
    pub output: u64,
    /// Of these, reasoning.
    pub reasoning: u64,
}

impl Tokens {
    /// Reads `usage` of an answer to a prompt. Whether `inputTokens` counts cached tokens too is each program's own;
    /// the total tells.
    #[must_use]
    pub fn of(usage: &Fields<'_>) -> Option<Self> {
        let input = usage.number("inputTokens")?;
        let count = |key| usage.number(key).unwrap_or_default();
        let cached = count("cachedReadTokens");
        let output = count("outputTokens");
        let beside = cached.saturating_add(count("cachedWriteTokens"));
        let apart = input.saturating_add(output).saturating_add(beside) <= count("totalTokens");
        Some(Self {
            input: if apart {
                input.saturating_add(beside)
            } else {
                input
            },
            cached,
            output,
            reasoning: count("thoughtTokens"),
        })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    fn each(self, other: Self, run: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            input: run(self.input, other.input),
            cached: run(self.cached, other.cached),
            output: run(self.output, other.output),
            reasoning: run(self.reasoning, other.reasoning),
        }
    }

    pub(crate) fn usage(self) -> Usage {
        Usage {
            input_tokens: Some(self.input),
            cached_input_tokens: Some(self.cached),
            output_tokens: Some(self.output),
            reasoning_tokens: Some(self.reasoning),
        }
    }
}

impl Conversation {
    /// The conversation of a process that the activation `epoch` starts.
    pub(crate) fn new(mut settings: Settings, epoch: u64) -> Self {
        let serving = settings.serve.take().map(Serving::new);
        Self {
            phase: Phase::Fresh,
            settings: Some(settings),
            born: epoch,
            epoch,
            sent: 0,
            made: 0,
            asked: BTreeMap::new(),
            program: None,
            offers: Offers::default(),
            modes: Modes::default(),
            turn: None,
            waiting: VecDeque::new(),
            messages: Vec::new(),
            calls: Vec::new(),
            children: BTreeMap::new(),
            background_told: false,
            requests: BTreeMap::new(),
            serving,
            total: None,
            context: None,
            closing: false,
        }
    }

    /// The native id of the conversation, as soon as the program told it.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        match &self.phase {
            Phase::Bound { session } => Some(session),
            Phase::Opening { session, .. } => session.as_deref(),
            _ => None,
        }
    }

    /// Whether this native session is the conversation itself. What names none is.
    #[must_use]
    pub fn is_own(&self, session: Option<&str>) -> bool {
        match (session, self.session()) {
            (Some(session), Some(own)) => session == own,
            _ => true,
        }
    }

    /// Whether a turn runs.
    #[must_use]
    pub fn in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// What the program said that it can.
    #[must_use]
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// A key that is unique in the conversation and the same on every replay. A native id alone is not: models
    /// choose the ids of messages and calls, and not every endpoint keeps them apart.
    pub fn mint(&mut self, native: &str) -> String {
        self.made += 1;
        format!("{native}@{}.{}", self.born, self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_tells_whether_cached_tokens_are_counted_apart() {
        for (usage, input, cached) in [
            (
                r#"{"inputTokens":10,"outputTokens":7,"totalTokens":17}"#,
                10,
                0,
            ),
            (
                r#"{"inputTokens":10,"outputTokens":7,"cachedReadTokens":85,"cachedWriteTokens":5,"totalTokens":107}"#,
                100,
                85,
            ),
            (
                r#"{"inputTokens":100,"outputTokens":7,"cachedReadTokens":85,"totalTokens":107}"#,
                100,
                85,
            ),
            (
                r#"{"inputTokens":100,"outputTokens":7,"cachedReadTokens":85}"#,
                100,
                85,
            ),
        ] {
            let tokens = Tokens::of(&Fields::of(usage)).expect("there are figures");
            assert_eq!((tokens.input, tokens.cached), (input, cached), "{usage}");
            assert_eq!(tokens.output, 7);
        }
        assert_eq!(Tokens::of(&Fields::of("{}")), None);
    }
}
