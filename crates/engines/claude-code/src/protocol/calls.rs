//! Our requests and their answers, and the opening of the conversation.

use astrabox_engine::line::Effects;
use serde_json::{Value, json};

use super::state::{Asked, ClaudeProtocol, Phase, Stop, Unbound};
use super::wire::Fields;

impl ClaudeProtocol {
    /// Sends a request.
    pub(super) fn request(&mut self, request: Value, asked: Asked, effects: &mut Effects) {
        self.sent += 1;
        let id = format!("{}-{}", self.epoch, self.sent);
        let line = json!({"type": "control_request", "request_id": id, "request": request});
        effects.send(line.to_string());
        self.asked.insert(id, asked);
    }

    pub(super) fn ask_for_mode(&mut self, effects: &mut Effects) {
        let mode = self.settings.mode.clone();
        let request = json!({"subtype": "set_permission_mode", "mode": mode});
        self.request(request, Asked::SetMode { mode }, effects);
    }

    pub(super) fn answered(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let response = fields.fields("response");
        let id = response.text("request_id").unwrap_or_default();
        let result = match response.text("subtype").as_deref() {
            Some("success") => Ok(response.fields("response")),
            _ => Err(response.text("error").unwrap_or_default()),
        };
        self.answer_read(&id, result, effects);
    }

    pub(super) fn answer_read(
        &mut self,
        id: &str,
        result: Result<Fields<'_>, String>,
        effects: &mut Effects,
    ) {
        let Some(asked) = self.asked.remove(id) else {
            let message = format!("an answer to `{id}`, which was not asked");
            return self.note("unknown_answer", message, None, effects);
        };
        match (asked, result) {
            (Asked::Initialize, Ok(result)) => {
                let version = result.text("claude_code_version");
                self.program = version.map(|version| format!("claude {version}"));
                self.ask_for_mode(effects);
            }
            (Asked::Initialize, Err(error)) => self.unbound(Unbound::Protocol, error),
            (Asked::SetMode { .. }, Ok(_)) => {}
            (Asked::SetMode { .. }, Err(error)) if self.phase == Phase::Opening => {
                self.unbound(Unbound::Configuration, error);
            }
            (Asked::SetMode { mode }, Err(error)) => {
                let message = format!("mode `{mode}`: {error}");
                self.note("permission_mode_refused", message, None, effects);
            }
            (Asked::Interrupt, result) => {
                let queued = result.is_ok_and(|answer| !answer.list("still_queued").is_empty());
                if let Some(turn) = &mut self.turn
                    && queued
                {
                    // It came before the input was taken: once more with the next sign that it runs.
                    turn.stop = Stop::Wanted;
                }
            }
            (Asked::StopTask { .. }, Ok(_)) => {}
            (Asked::StopTask { task }, Err(error)) => {
                let message = format!("task `{task}`: {error}");
                self.note("child_not_stopped", message, None, effects);
            }
        }
    }

    /// While the conversation is being opened: the program proves which one it has, or says that it has none.
    pub(super) fn opening(&mut self, kind: &str, fields: &Fields<'_>, effects: &mut Effects) {
        let subtype = fields.text("subtype").unwrap_or_default();
        match (kind, subtype.as_str()) {
            // Its answer to our change of mode.
            ("system", "status") => {
                if fields.text("permissionMode").as_deref() != Some(&self.settings.mode) {
                    return;
                }
                match fields.text("session_id") {
                    Some(id) if id == self.settings.key => self.bound(effects),
                    Some(_) => {
                        let text = "the program has another conversation than the one expected";
                        self.unbound(Unbound::ConversationLost, text.to_owned());
                    }
                    None => {
                        let text = "the program does not tell which conversation it has";
                        self.unbound(Unbound::Protocol, text.to_owned());
                    }
                }
            }
            ("result", _) => {
                let errors = fields.texts("errors").join("; ");
                let why = if errors.contains("No conversation found") {
                    Unbound::ConversationLost
                } else {
                    Unbound::Start
                };
                self.unbound(why, errors);
            }
            _ => {}
        }
    }

    fn bound(&mut self, effects: &mut Effects) {
        self.phase = Phase::Bound;
        let unanswered = std::mem::take(&mut self.unanswered);
        if !unanswered.is_empty() {
            let message = format!(
                "the program ended while it ran {}; the conversation goes on without a result of it",
                unanswered.join(", ")
            );
            self.note("transcript_repaired", message, None, effects);
        }
    }

    pub(super) fn unbound(&mut self, why: Unbound, text: String) {
        self.phase = Phase::Failed { why, text };
    }
}
