//! The app server's JSON-RPC as a state machine. Pure: no clock, no I/O, no randomness.

mod calls;
mod children;
mod elicitation;
mod head;
mod items;
mod requests;
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

pub(crate) use state::CodexProtocol;
use state::{Asked, Phase};
use wire::{Fields, Message, json_text, verbatim};

/// How much of a line that is no message is kept (64 KiB).
const KEPT_GARBAGE: usize = 64 << 10;

/// Notifications that are left out on purpose: they repeat what other messages tell, or are about parts of the
/// program that the platform does not use. Everything else that is not known is kept (EN11).
const LEFT_OUT: &[&str] = &[
    // State of the program's own apps, accounts and lists.
    "account/rateLimits/updated",
    "account/updated",
    "app/list/updated",
    "remoteControl/status/changed",
    "skills/changed",
    "thread/goal/cleared",
    "thread/name/updated",
    "thread/readState/changed",
    "thread/settings/updated",
    // Told better by the items: the final changes, the whole text, the item `contextCompaction`.
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/reasoning/summaryPartAdded",
    "rawResponse/completed",
    "rawResponseItem/completed",
    "thread/compacted",
    "turn/diff/updated",
];

impl LineProtocol for CodexProtocol {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        self.phase = Phase::Opening {
            expected: expected.map(str::to_owned),
        };
        let client =
            json!({"name": "astrabox", "title": "AstraBox", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
        self.call("initialize", params, Asked::Initialize, effects);
    }

    fn handshake(&self) -> Handshake {
        match &self.phase {
            Phase::Fresh | Phase::Opening { .. } | Phase::Gone => Handshake::Pending,
            Phase::Bound { thread } => Handshake::Bound(thread.clone()),
            Phase::Failed { why, text } => Handshake::Failed(why.error(text)),
        }
    }

    fn attached(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        match line {
            Line::Text(text) => match wire::parse(text) {
                Some(Message::Response { id, result }) => self.answered(&id, result, effects),
                Some(Message::Request { id, method, params }) => {
                    self.requested(id, &method, params, effects);
                }
                Some(Message::Notification { method, params }) => {
                    self.notified(&method, params, effects);
                }
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
        if self.thread().is_none() {
            let text = "no conversation is bound";
            return Err(Error::new(ErrorKind::Protocol, "deliver", text));
        }
        if self.turn.is_some() {
            // `turn/start` while a turn runs would join that turn.
            self.waiting.push_back(input.clone());
            return Ok(());
        }
        self.start_turn(input, effects)
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        self.want_stop(effects);
    }

    fn close(&mut self, _effects: &mut Effects) {
        // The end of standard input is its way to end, and comes by itself.
        self.closing = true;
    }

    fn tools(&self) -> Vec<String> {
        // The app server lists no tools: which there are depends on the model's entry in the catalogue.
        Vec::new()
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

    fn set_mode(&mut self, mode: &str, _effects: &mut Effects) -> Result<()> {
        self.settings.set_mode(mode)
    }

    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        self.interrupt_child(run, effects)
    }
}

impl CodexProtocol {
    fn notified(&mut self, method: &str, params: &str, effects: &mut Effects) {
        let fields = Fields::of(params);
        let thread = fields.text("threadId").unwrap_or_default();
        if !thread.is_empty() && !self.is_own(&thread) {
            effects.emit.speak_for(Some(ChildRunId(thread.clone())));
        }
        match method {
            "item/started" => self.item_started(&thread, &fields, effects),
            "item/completed" => self.item_completed(&thread, &fields, effects),
            "item/agentMessage/delta" | "item/plan/delta" => {
                self.text_piece(&thread, method, &fields, effects);
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                self.reasoning_piece(&thread, method, &fields, effects);
            }
            "item/commandExecution/outputDelta" | "item/mcpToolCall/progress" => {
                self.tool_piece(&thread, method, &fields, effects);
            }
            "turn/started" => self.turn_started(&thread, &fields, effects),
            "turn/completed" => self.turn_completed(&thread, &fields, params, effects),
            "thread/status/changed" => self.status_changed(&thread, &fields, effects),
            "thread/tokenUsage/updated" => self.usage_updated(&thread, &fields, params, effects),
            "thread/started" => self.thread_started(&fields),
            "error" => self.error_told(&thread, &fields, params, effects),
            "serverRequest/resolved" => self.request_resolved(&fields, effects),
            "mcpServer/startupStatus/updated" => {
                if let Some(error) = fields.text("error") {
                    self.note("mcp_server_failed", error, Some(verbatim(params)), effects);
                }
            }
            "warning" | "guardianWarning" | "configWarning" | "deprecationNotice" => {
                self.warned(method, &fields, params, effects);
            }
            method if LEFT_OUT.contains(&method) => {}
            method => self.note("unknown_event", method, Some(verbatim(params)), effects),
        }
        self.ask_to_stop(effects);
    }

    fn warned(&mut self, method: &str, fields: &Fields<'_>, params: &str, effects: &mut Effects) {
        let topic = match method {
            "warning" => "warning",
            "guardianWarning" => "guardian_warning",
            "configWarning" => "config_warning",
            _ => "deprecation_notice",
        };
        let text = fields.text("message").or_else(|| fields.text("summary"));
        let mut text = text.unwrap_or_default();
        if let Some(details) = fields.text("details") {
            text = format!("{text}: {details}");
        }
        self.note(topic, text, Some(verbatim(params)), effects);
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
        let found = head::read(head);
        let what = found.method.unwrap_or("message");
        let message = format!("a {what} of {length} bytes is over the limit of a line");
        let native = json!({"head": head, "length": length});
        self.note("line_truncated", message, Some(native.into()), effects);
        match (found.method, found.id) {
            (Some("item/completed"), None) => {
                if let Some(id) = found.item_id {
                    self.item_cut(id, length, effects);
                }
            }
            (Some("turn/completed"), None) => self.check_turn(effects),
            (Some(_), None) | (None, None) => {}
            // Every request gets an answer (EN13), and nobody can judge half of one.
            (Some(_), Some(id)) => {
                effects.send(format!(
                    r#"{{"id":{id},"error":{{"code":-32600,"message":"the request is too long"}}}}"#
                ));
            }
            (None, Some(id)) => {
                let message = "the answer is too long".to_owned();
                let error = wire::RpcError { message };
                self.answered(wire::plain(id), Err(error), effects);
            }
        }
    }
}
