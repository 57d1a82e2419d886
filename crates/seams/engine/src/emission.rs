//! What an engine says, in the platform's closed set of words.
//!
//! An adapter cannot classify by itself: it calls the [`Emitter`]'s methods, and these alone build emissions.

use astrabox_types::{
    ChildRun, ChildRunId, DeltaChannel, EventPayload, FileChangeKind, InputId, Json, MessageKind,
    Presentation, TurnFailure, TurnOutcome, Usage,
};

/// What one native line, command or exit led to. One with nothing in it tells that the program is not silent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// In order.
    pub emissions: Vec<Emission>,
    /// Whether bytes wait to leave, or kept input should be freed: commit soon even without events.
    pub commit: bool,
}

impl Step {
    /// Adds a later step to this one.
    pub fn absorb(&mut self, later: Self) {
        self.emissions.extend(later.emissions);
        self.commit |= later.commit;
    }
}

/// One thing that an engine says. Built by [`Emitter`] only.
#[derive(Debug, Clone, PartialEq)]
pub struct Emission {
    kind: EmissionKind,
}

impl Emission {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> &EmissionKind {
        &self.kind
    }

    /// What it is, by value.
    #[must_use]
    pub fn into_kind(self) -> EmissionKind {
        self.kind
    }
}

/// The closed set of emissions.
#[derive(Debug, Clone, PartialEq)]
pub enum EmissionKind {
    /// A fact for the journal.
    PublicEvent(EventDraft),
    /// A piece of a message; not for the journal.
    Delta(DeltaDraft),
    /// The program took this input (EN6).
    InputConsumed(InputId),
    /// The program asks a person and waits.
    InteractionRequested(InteractionDraft),
    /// The program no longer waits for this answer.
    InteractionWithdrawn {
        /// The program's id of the question.
        native_id: String,
        /// Why.
        reason: String,
    },
    /// A child run began, moved or ended.
    ChildRunFact(ChildRun, Option<Json>),
    /// The program's permission mode is this one now, by native name, because of something that it did itself.
    PermissionModeChanged(String),
    /// Work goes on in the background, also after the turn's end.
    BackgroundOpened,
    /// All background work is done.
    BackgroundClosed,
    /// One reply is complete; the turn may go on with another.
    ResponseCompleted,
    /// The turn is over (EN9).
    Terminal(Terminal),
    /// Kept for people; no meaning for the platform (EN11).
    Diagnostic(EventDraft),
}

/// A journal event before the platform gives it id, seq and time.
#[derive(Debug, Clone, PartialEq)]
pub struct EventDraft {
    /// Unique in the conversation and the same on every replay; the event's id is derived from it.
    pub key: String,
    /// The child run that it belongs to (EN12).
    pub child_run: Option<ChildRunId>,
    /// What happened.
    pub payload: EventPayload,
    /// The native text, verbatim.
    pub native: Option<Json>,
}

impl EventDraft {
    /// Of a tool's result: the key of the call that it answers.
    #[must_use]
    pub fn call_key(&self) -> Option<String> {
        match &self.payload {
            EventPayload::ToolResult { call_id, .. } => Some(tool_call_key(call_id)),
            _ => None,
        }
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaDraft {
    /// The key of the event that will complete the message.
    pub key: String,
    /// The child run that speaks.
    pub child_run: Option<ChildRunId>,
    /// What it is a piece of.
    pub channel: DeltaChannel,
    /// Where it begins in the message, bytes.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// A question of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct InteractionDraft {
    /// The program's id of it, with which it is answered.
    pub native_id: String,
    /// The child run that asks (EN12).
    pub child_run: Option<ChildRunId>,
    /// What it asks.
    pub presentation: Presentation,
    /// The native text, verbatim.
    pub native: Option<Json>,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Terminal {
    /// How.
    pub outcome: TurnOutcome,
    /// What the turn used, where the program tells.
    pub usage: Option<Usage>,
}

/// Collects emissions in order.
#[derive(Debug, Default)]
pub struct Emitter {
    emissions: Vec<Emission>,
    child_run: Option<ChildRunId>,
}

impl Emitter {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks what follows as output of this child run, or of the conversation itself (EN12).
    pub fn speak_for(&mut self, child_run: Option<ChildRunId>) {
        self.child_run = child_run;
    }

    /// Everything so far, in order.
    #[must_use]
    pub fn take(&mut self) -> Vec<Emission> {
        std::mem::take(&mut self.emissions)
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.emissions.is_empty()
    }

    fn push(&mut self, kind: EmissionKind) {
        self.emissions.push(Emission { kind });
    }

    fn event(&mut self, key: String, payload: EventPayload, native: Option<Json>) {
        let child_run = self.child_run.clone();
        self.push(EmissionKind::PublicEvent(EventDraft {
            key,
            child_run,
            payload,
            native,
        }));
    }

    /// A piece of the message `key`, from byte `offset` on. Empty pieces are left out.
    pub fn delta(&mut self, channel: DeltaChannel, key: &str, offset: u64, text: &str) {
        if text.is_empty() {
            return;
        }
        let key = message_key(channel, key);
        let child_run = self.child_run.clone();
        self.push(EmissionKind::Delta(DeltaDraft {
            key,
            child_run,
            channel,
            offset,
            text: text.to_owned(),
        }));
    }

    /// The message `key` is complete; `text` is all of it.
    pub fn message(
        &mut self,
        kind: MessageKind,
        key: &str,
        text: String,
        truncated: bool,
        native: Option<Json>,
    ) {
        let channel = match kind {
            MessageKind::Text => DeltaChannel::Text,
            MessageKind::Reasoning => DeltaChannel::Reasoning,
        };
        self.event(
            message_key(channel, key),
            EventPayload::MessageCompleted {
                kind,
                text,
                truncated,
            },
            native,
        );
    }

    /// The program calls a tool.
    pub fn tool_call(&mut self, call_id: &str, name: &str, input: Json, native: Option<Json>) {
        let payload = EventPayload::ToolCall {
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            input,
        };
        self.event(tool_call_key(call_id), payload, native);
    }

    /// A tool call ended. Output pieces of the call had the key `call_id` and the channel `ToolOutput`.
    pub fn tool_result(
        &mut self,
        call_id: &str,
        name: &str,
        output: Json,
        is_error: bool,
        native: Option<Json>,
    ) {
        let payload = EventPayload::ToolResult {
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            output,
            is_error,
        };
        self.event(
            message_key(DeltaChannel::ToolOutput, call_id),
            payload,
            native,
        );
    }

    /// The program changed a file; `key` is unique with `path`.
    pub fn file_changed(
        &mut self,
        key: &str,
        path: &str,
        kind: FileChangeKind,
        diff: Option<String>,
    ) {
        let payload = EventPayload::FileChanged {
            path: path.to_owned(),
            kind,
            diff,
        };
        self.event(format!("file/{key}/{path}"), payload, None);
    }

    /// What the conversation has used.
    pub fn usage(&mut self, key: &str, usage: Usage, native: Option<Json>) {
        self.event(
            format!("usage/{key}"),
            EventPayload::Usage { usage },
            native,
        );
    }

    /// The program shortened its context.
    pub fn context_compacted(&mut self, key: &str, native: Option<Json>) {
        self.event(
            format!("compacted/{key}"),
            EventPayload::ContextCompacted,
            native,
        );
    }

    /// The program took this input (EN6).
    pub fn input_consumed(&mut self, input_id: InputId) {
        self.push(EmissionKind::InputConsumed(input_id));
    }

    /// The program asks a person.
    pub fn interaction_requested(
        &mut self,
        native_id: &str,
        presentation: Presentation,
        native: Option<Json>,
    ) {
        let native_id = native_id.to_owned();
        let child_run = self.child_run.clone();
        self.push(EmissionKind::InteractionRequested(InteractionDraft {
            native_id,
            child_run,
            presentation,
            native,
        }));
    }

    /// The program no longer waits for this answer.
    pub fn interaction_withdrawn(&mut self, native_id: &str, reason: &str) {
        let (native_id, reason) = (native_id.to_owned(), reason.to_owned());
        self.push(EmissionKind::InteractionWithdrawn { native_id, reason });
    }

    /// A child run began, moved or ended.
    pub fn child_run(&mut self, run: ChildRun, native: Option<Json>) {
        self.push(EmissionKind::ChildRunFact(run, native));
    }

    /// The program changed its permission mode by itself, or by an answer to what it asked.
    pub fn permission_mode_changed(&mut self, mode: &str) {
        self.push(EmissionKind::PermissionModeChanged(mode.to_owned()));
    }

    /// Work goes on in the background.
    pub fn background_opened(&mut self) {
        self.push(EmissionKind::BackgroundOpened);
    }

    /// All background work is done.
    pub fn background_closed(&mut self) {
        self.push(EmissionKind::BackgroundClosed);
    }

    /// One reply is complete.
    pub fn response_completed(&mut self) {
        self.push(EmissionKind::ResponseCompleted);
    }

    /// The turn is done.
    pub fn completed(&mut self, usage: Option<Usage>) {
        self.push(EmissionKind::Terminal(Terminal {
            outcome: TurnOutcome::Completed,
            usage,
        }));
    }

    /// The turn was stopped on request.
    pub fn interrupted(&mut self, usage: Option<Usage>) {
        self.push(EmissionKind::Terminal(Terminal {
            outcome: TurnOutcome::Interrupted,
            usage,
        }));
    }

    /// The turn failed, for a stable reason.
    pub fn failed(&mut self, reason: &str, message: impl Into<String>, usage: Option<Usage>) {
        let failure = TurnFailure {
            reason: reason.to_owned(),
            message: message.into(),
        };
        self.push(EmissionKind::Terminal(Terminal {
            outcome: TurnOutcome::Failed { failure },
            usage,
        }));
    }

    /// Something to keep for people (EN11); `key` is unique in the conversation.
    pub fn diagnostic(
        &mut self,
        key: &str,
        topic: &str,
        message: impl Into<String>,
        native: Option<Json>,
    ) {
        let payload = EventPayload::DiagnosticRaw {
            topic: topic.to_owned(),
            message: message.into(),
        };
        let child_run = self.child_run.clone();
        let key = format!("diagnostic/{key}");
        self.push(EmissionKind::Diagnostic(EventDraft {
            key,
            child_run,
            payload,
            native,
        }));
    }
}

fn tool_call_key(call_id: &str) -> String {
    format!("tool.call/{call_id}")
}

/// The key that a message's deltas and its completing event share.
fn message_key(channel: DeltaChannel, key: &str) -> String {
    let channel = match channel {
        DeltaChannel::Text => "text",
        DeltaChannel::Reasoning => "reasoning",
        DeltaChannel::ToolOutput => "tool.result",
    };
    format!("{channel}/{key}")
}
