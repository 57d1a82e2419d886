//! stream-json and the control protocol as a state machine. Pure: no clock, no I/O, no randomness.

mod calls;
mod head;
mod messages;
mod requests;
mod state;
mod tasks;
mod tools;
mod transcript;
mod turns;
mod wire;

#[cfg(test)]
mod tests;

use astrabox_engine::line::{Effects, Handshake, Line, LineProtocol, Powers};
use astrabox_engine::sandbox::ExitStatus;
use astrabox_engine::{EngineInput, Error, ErrorKind, Result};
use astrabox_types::{ChildRunId, InteractionAnswer, Json};
use serde_json::json;

use head::Head;
pub(crate) use state::ClaudeProtocol;
use state::{Asked, Ending, Phase};
pub(crate) use transcript::calls_without_result;
use wire::{Fields, json_text, verbatim};

/// How much of a line that is no message is kept (64 KiB).
const KEPT_GARBAGE: usize = 64 << 10;

/// Messages that are left out on purpose: they repeat what other messages tell, or are about parts of the program
/// that the platform does not use. Everything else that is not known is kept (EN11).
const LEFT_OUT: &[&str] = &["keep_alive", "tool_progress", "streamlined_text"];

/// The same for subtypes of `system`.
const LEFT_OUT_OF_SYSTEM: &[&str] = &[
    // The thinking itself is told; this counts its tokens meanwhile.
    "thinking_tokens",
    // What a sub-agent does is told by its own messages.
    "task_progress",
];

impl LineProtocol for ClaudeProtocol {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        if expected.is_some_and(|expected| expected != self.settings.key) {
            let text = "the program was started for another conversation".to_owned();
            self.unbound(state::Unbound::ConversationLost, text);
            return;
        }
        self.phase = Phase::Opening;
        let request = self.settings.initialize();
        self.request(request, Asked::Initialize, effects);
    }

    fn handshake(&self) -> Handshake {
        match &self.phase {
            Phase::Fresh | Phase::Opening | Phase::Gone => Handshake::Pending,
            Phase::Bound => Handshake::Bound(self.settings.key.clone()),
            Phase::Failed { why, text } => Handshake::Failed(why.error(text)),
        }
    }

    fn attached(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        match line {
            Line::Text(text) => match wire::parse(text) {
                Some((kind, fields)) => self.message(&kind, &fields, text, effects),
                None => self.garbage(text, "is not a message", effects),
            },
            Line::Garbled(text) => self.garbage(text, "is not UTF-8", effects),
            Line::Overlong { head, length } => self.overlong(head, length, effects),
        }
        effects.emit.speak_for(None);
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        self.exited(exit, stderr, effects);
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        if self.phase != Phase::Bound {
            let text = "no conversation is bound";
            return Err(Error::new(ErrorKind::Protocol, "deliver", text));
        }
        if self.turn.is_some() {
            self.waiting.push_back(input.clone());
        } else {
            self.start_turn(input, effects);
        }
        Ok(())
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        self.want_stop(effects);
    }

    fn close(&mut self, _effects: &mut Effects) {
        // The end of standard input is its way to end, and comes by itself.
        self.closing = true;
    }

    fn tools(&self) -> Vec<String> {
        self.tools.clone()
    }

    fn program(&self) -> Option<String> {
        self.program.clone()
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
        self.settings.set_mode(mode)?;
        self.ask_for_mode(effects);
        Ok(())
    }

    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        self.stop_task(run, effects)
    }
}

impl ClaudeProtocol {
    fn message(&mut self, kind: &str, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        if self.phase == Phase::Opening {
            self.opening(kind, fields, effects);
        }
        match kind {
            "stream_event" => self.stream_event(fields, line, effects),
            "assistant" => self.assistant(fields, line, effects),
            "user" => self.user(fields, line, effects),
            "result" => self.result(fields, line, effects),
            "system" => self.system(fields, line, effects),
            "command_lifecycle" => self.lifecycle(fields, line, effects),
            "control_request" => self.requested(fields, line, effects),
            "control_cancel_request" => self.cancelled(fields, effects),
            "control_response" => self.answered(fields, effects),
            kind if LEFT_OUT.contains(&kind) => {}
            kind => self.note("unknown_event", kind, Some(verbatim(line)), effects),
        }
        self.ask_to_stop(effects);
    }

    fn system(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let subtype = fields.text("subtype").unwrap_or_default();
        match subtype.as_str() {
            "init" => self.turn_begins(fields, line, effects),
            "session_state_changed" => self.state_changed(fields, effects),
            "status" => self.status(fields, line, effects),
            "task_started" => self.task_started(fields, line, effects),
            "task_updated" => {
                let status = fields.fields("patch").text("status");
                self.task_moved(fields, status.as_deref(), line, effects);
            }
            "task_notification" => {
                let status = fields.text("status");
                self.task_moved(fields, status.as_deref(), line, effects);
            }
            "background_tasks_changed" => self.tasks_listed(fields, effects),
            "compact_boundary" => {
                let key = self.mint("");
                effects.emit.context_compacted(&key, Some(verbatim(line)));
            }
            "api_retry" => self.retrying(fields, line, effects),
            subtype if LEFT_OUT_OF_SYSTEM.contains(&subtype) => {}
            subtype => {
                let message = format!("system/{subtype}");
                self.note("unknown_event", message, Some(verbatim(line)), effects);
            }
        }
    }

    /// Keeps something for people, under a key of its own.
    fn note(
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

    /// A line over the cap. Only what it is about degrades, never the conversation.
    fn overlong(&mut self, head: &str, length: u64, effects: &mut Effects) {
        let message = format!("a message of {length} bytes is over the limit of a line");
        let native = json!({"head": head, "length": length});
        self.note("line_truncated", message, Some(native.into()), effects);
        match head::read(head) {
            // Every request gets an answer (EN13), and nobody can judge half of one.
            Head::Request(id) => refuse(id, "the request is too long", effects),
            Head::ToolResult(id) => self.call_cut(id, length, effects),
            Head::Assistant => self.settle_stream(true, effects),
            Head::Result { is_error: false } => self.end_turn(Ending::Completed, None, effects),
            Head::Result { is_error: true } => {
                let text = "the program ended the turn with an error that is too long to read";
                self.end_turn(Ending::failed("engine_error", text), None, effects);
            }
            Head::Response(id) => {
                let error = "the answer is too long".to_owned();
                self.answer_read(id, Err(error), effects);
            }
            Head::Other => {}
        }
    }
}

/// Answers a request of the program with an error.
fn refuse(id: &str, error: &str, effects: &mut Effects) {
    let response = json!({"subtype": "error", "request_id": id, "error": error});
    effects.send(json!({"type": "control_response", "response": response}).to_string());
}
