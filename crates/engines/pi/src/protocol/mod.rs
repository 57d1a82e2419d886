//! The RPC mode as a state machine. Pure: no clock, no I/O, no randomness.

mod commands;
mod dialogs;
mod head;
mod messages;
mod output;
mod session_file;
mod state;
mod tools;
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
pub(crate) use session_file::calls_without_result;
pub(crate) use state::PiProtocol;
use state::{Asked, Phase, Said};
use wire::{Fields, json_text, verbatim};

/// How much of a line that is no message is kept (64 KiB).
const KEPT_GARBAGE: usize = 64 << 10;

/// Messages that are left out on purpose: they repeat what other messages tell. Everything else that is not known is
/// kept (EN11).
const LEFT_OUT: &[&str] = &[
    // One answer of the model with its tool calls, all of which were told.
    "turn_start",
    "turn_end",
    // The end of a run that may be tried again; `agent_settled` is the end.
    "agent_end",
    "auto_retry_end",
    // The inputs that it holds back: it is given none while it works.
    "queue_update",
    // What it wrote into its session file beside messages.
    "entry_appended",
    "compaction_start",
    "summarization_retry_attempt_start",
    "summarization_retry_finished",
];

impl LineProtocol for PiProtocol {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: false,
        child_run_control: false,
    };

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        if expected.is_some_and(|expected| expected != self.key) {
            let text = "the program was started for another conversation".to_owned();
            self.unbound(state::Unbound::ConversationLost, text);
            return;
        }
        self.phase = Phase::Opening;
        // It answers when it is up, and tells which conversation it has.
        self.command(json!({"type": "get_state"}), Asked::State, effects);
    }

    fn handshake(&self) -> Handshake {
        match &self.phase {
            Phase::Fresh | Phase::Opening | Phase::Gone => Handshake::Pending,
            Phase::Bound => Handshake::Bound(self.key.clone()),
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
        self.ask_to_stop(effects);
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
        self.tools.iter().cloned().collect()
    }

    fn program(&self) -> Option<String> {
        // No message of the RPC mode of 1.6.0 tells its version.
        None
    }

    fn answer(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        self.answer_dialog(native_id, answer, effects)
    }

    fn set_mode(&mut self, _mode: &str, _effects: &mut Effects) -> Result<()> {
        let text = "the program has no permission modes";
        Err(Error::new(ErrorKind::Unsupported, "set mode", text))
    }

    fn stop_child(&mut self, _run: &ChildRunId, _effects: &mut Effects) -> Result<()> {
        let text = "the program has no child runs";
        Err(Error::new(ErrorKind::Unsupported, "stop child", text))
    }
}

impl PiProtocol {
    fn message(&mut self, kind: &str, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        match kind {
            "response" => self.answered(fields, line, effects),
            "agent_start" => self.agent_starts(effects),
            "message_start" => self.message_begins(fields, effects),
            "message_update" => self.message_moves(fields, line, effects),
            "message_end" => self.message_ends(fields, line, effects),
            "tool_execution_start" => self.called(fields, line, effects),
            "tool_execution_update" => self.output_grows(fields, effects),
            "tool_execution_end" => self.returned(fields, line, effects),
            "agent_settled" => self.settled(fields, effects),
            "extension_ui_request" => self.dialog_asked(fields, line, effects),
            "extension_error" => {
                let message = fields.text("error").unwrap_or_default();
                self.note("extension_error", message, Some(verbatim(line)), effects);
            }
            "auto_retry_start" | "summarization_retry_scheduled" => {
                self.retrying(kind, fields, line, effects);
            }
            "compaction_end" => self.compacted(fields, line, effects),
            "session_info_changed" | "thinking_level_changed" => {
                let message = fields.text("name").or_else(|| fields.text("level"));
                let native = Some(verbatim(line));
                self.note(kind, message.unwrap_or_default(), native, effects);
            }
            kind if LEFT_OUT.contains(&kind) => {}
            kind => self.note("unknown_event", kind, Some(verbatim(line)), effects),
        }
    }

    fn compacted(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let native = Some(verbatim(line));
        if fields.raw("result").is_some() {
            let key = self.mint("");
            effects.emit.context_compacted(&key, native);
        } else {
            let message = fields.text("errorMessage");
            let message = message.unwrap_or_else(|| "the compaction was aborted".to_owned());
            self.note("compaction_failed", message, native, effects);
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
        let read = head::read(head);
        if read == Head::LeftOut {
            return;
        }
        let message = format!("a message of {length} bytes is over the limit of a line");
        let native = json!({"head": head, "length": length});
        self.note("line_truncated", message, Some(native.into()), effects);
        match read {
            // Every dialog gets an answer (EN13), and nobody can judge half of one.
            Head::Dialog(id) => dialogs::dismiss(id, effects),
            Head::ToolCall(id, name) => self.call_begins_cut(id, name, length, effects),
            Head::ToolResult(id) => self.call_cut(id, length, effects),
            Head::MessageEnd => {
                self.settle_stream(true, effects);
                if let Some(turn) = &mut self.turn {
                    turn.last = Some(Said::Whole);
                }
            }
            Head::Response(id) => {
                let error = "the answer is too long".to_owned();
                self.answer_read(id, Err(error), effects);
            }
            Head::LeftOut | Head::Other => {}
        }
    }
}
