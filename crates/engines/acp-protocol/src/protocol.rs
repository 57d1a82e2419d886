//! ACP as a state machine. Pure: no clock, no I/O, no randomness.

use astrabox_engine::line::{Effects, Handshake, JobResult, Line, LineProtocol, Powers};
use astrabox_engine::sandbox::ExitStatus;
use astrabox_engine::{EngineInput, Error, ErrorKind, Result};
use astrabox_types::{ChildRunId, ContentPart, InteractionAnswer, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::dialect::Dialect;
use crate::head;
use crate::settings::Settings;
use crate::state::{Conversation, Phase, Unbound};
use crate::wire::{self, Fields, INVALID_REQUEST, Message, RpcError, json_text, verbatim};

/// How much of a line that is no message is kept (64 KiB).
const KEPT_GARBAGE: usize = 64 << 10;

/// A conversation over ACP with a program of this dialect.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcpProtocol<D> {
    pub(crate) conversation: Conversation,
    pub(crate) dialect: D,
}

impl<D: Dialect> AcpProtocol<D> {
    /// The protocol of a process that the activation `epoch` starts.
    #[must_use]
    pub fn new(settings: Settings, dialect: D, epoch: u64) -> Self {
        Self {
            conversation: Conversation::new(settings, epoch),
            dialect,
        }
    }

    /// What the dialect knows.
    #[must_use]
    pub fn dialect(&self) -> &D {
        &self.dialect
    }

    fn message(&mut self, message: Message<'_>, line: &str, effects: &mut Effects) {
        match message {
            Message::Response { id, result } => self.answered(&id, result, line, effects),
            Message::Request { id, method, params } => self.requested(id, &method, params, effects),
            Message::Notification { method, params } => self.notified(&method, params, effects),
        }
    }

    fn notified(&mut self, method: &str, params: &str, effects: &mut Effects) {
        let fields = Fields::of(params);
        match method {
            "session/update" => self.updated(&fields, params, effects),
            "$/cancel_request" => self.conversation.request_cancelled(&fields, effects),
            method => {
                let conversation = &mut self.conversation;
                if !self
                    .dialect
                    .on_notification(method, &fields, conversation, effects)
                {
                    conversation.note("unknown_event", method, Some(verbatim(params)), effects);
                }
            }
        }
    }

    /// A line over the cap. Only what it is about degrades, never the conversation.
    fn overlong(&mut self, head: &str, length: u64, effects: &mut Effects) {
        let found = head::read(head);
        let what = found.method.unwrap_or("message");
        let message = format!("a {what} of {length} bytes is over the limit of a line");
        let native = json!({"head": head, "length": length});
        let conversation = &mut self.conversation;
        conversation.note("line_truncated", message, Some(native.into()), effects);
        match (found.method, found.id) {
            (Some("session/update"), None) => {
                let session = found.session.map(str::to_owned);
                let child = session.filter(|session| !conversation.is_own(Some(session)));
                match (found.call, found.update) {
                    (Some(call), _) => conversation.call_cut(&child, call, length, effects),
                    (None, Some(_)) => conversation.messages_cut(&child),
                    (None, None) => {}
                }
            }
            (Some(_), None) | (None, None) => {}
            // Every request gets an answer (EN13), and nobody can judge half of one.
            (Some(_), Some(id)) => {
                effects.send(wire::error(id, INVALID_REQUEST, "the request is too long"));
            }
            (None, Some(id)) => {
                let id = wire::plain(id).to_owned();
                let error = RpcError::new("the answer is too long");
                self.answered(&id, Err(error), "null", effects);
            }
        }
    }

    /// Gives the program the next input, when no turn runs.
    pub(crate) fn go_on(&mut self, effects: &mut Effects) {
        while !self.conversation.in_turn()
            && matches!(self.conversation.phase, Phase::Bound { .. })
            && let Some(input) = self.conversation.waiting.pop_front()
        {
            self.start_turn(&input, effects);
        }
    }
}

impl<D: Dialect> LineProtocol for AcpProtocol<D> {
    const POWERS: Powers = D::POWERS;

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        self.initialize(expected, effects);
    }

    fn handshake(&self) -> Handshake {
        match &self.conversation.phase {
            Phase::Fresh | Phase::Opening { .. } | Phase::Gone => Handshake::Pending,
            Phase::Bound { session } => Handshake::Bound(session.clone()),
            Phase::Failed { why, text } => Handshake::Failed(why.error(text)),
        }
    }

    fn attached(&mut self, epoch: u64) {
        self.conversation.epoch = epoch;
    }

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        match line {
            Line::Text(text) => match wire::parse(text) {
                Some(message) => self.message(message, text, effects),
                None => self.conversation.garbage(text, "is not a message", effects),
            },
            Line::Garbled(text) => self.conversation.garbage(text, "is not UTF-8", effects),
            Line::Overlong { head, length } => self.overlong(head, length, effects),
        }
        effects.emit.speak_for(None);
        self.go_on(effects);
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        self.dialect.turn_ended();
        self.dialect.exited(effects);
        self.conversation.exited(exit, stderr, effects);
    }

    fn on_job(&mut self, id: &str, result: &JobResult, effects: &mut Effects) {
        self.conversation.served(id, result, effects);
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        if !matches!(self.conversation.phase, Phase::Bound { .. }) {
            let text = "no conversation is bound";
            return Err(Error::new(ErrorKind::Protocol, "deliver", text));
        }
        let image = |part: &ContentPart| matches!(part, ContentPart::Image { .. });
        if !self.conversation.offers.image && input.content.iter().any(image) {
            let text = "the program takes no pictures";
            return Err(Error::new(ErrorKind::Unsupported, "deliver", text));
        }
        self.conversation.waiting.push_back(input.clone());
        self.go_on(effects);
        Ok(())
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        self.conversation.want_stop(effects);
    }

    fn close(&mut self, effects: &mut Effects) {
        // The end of standard input is the way to end, and comes by itself.
        self.conversation.closing = true;
        self.dialect.close(&mut self.conversation, effects);
    }

    fn tools(&self) -> Vec<String> {
        self.dialect.tools()
    }

    fn program(&self) -> Option<String> {
        self.conversation.program.clone()
    }

    fn answer(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        self.answer_request(native_id, answer, effects)
    }

    fn set_mode(&mut self, mode: &str, effects: &mut Effects) -> Result<()> {
        self.conversation.ask_for_mode(mode, effects)
    }

    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        self.dialect
            .stop_child(run, &mut self.conversation, effects)
    }
}

impl Conversation {
    /// Keeps something for people, under a key of its own.
    pub fn note(
        &mut self,
        topic: &str,
        message: impl Into<String>,
        native: Option<Json>,
        effects: &mut Effects,
    ) {
        let key = self.mint("");
        effects.emit.diagnostic(&key, topic, message, native);
    }

    fn garbage(&mut self, text: &str, what: &str, effects: &mut Effects) {
        if text.trim().is_empty() {
            return;
        }
        let message = format!("a line of {} bytes {what}", text.len());
        let kept = &text[..text.floor_char_boundary(KEPT_GARBAGE)];
        self.note("garbage_line", message, Some(json_text(kept)), effects);
    }

    pub(crate) fn unbound(&mut self, why: Unbound, text: impl Into<String>) {
        let text = text.into();
        self.phase = Phase::Failed { why, text };
    }
}
