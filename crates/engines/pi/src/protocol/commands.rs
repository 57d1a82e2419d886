//! Our commands and their responses, and the opening of the conversation.

use astrabox_engine::line::Effects;
use serde_json::{Value, json};

use super::state::{Asked, Ending, Phase, PiProtocol, Stop, Unbound};
use super::wire::{Fields, verbatim};

impl PiProtocol {
    /// Sends a command; gives its id.
    pub(super) fn command(
        &mut self,
        mut command: Value,
        asked: Asked,
        effects: &mut Effects,
    ) -> String {
        self.sent += 1;
        let id = format!("{}-{}", self.epoch, self.sent);
        command["id"] = json!(id);
        effects.send(command.to_string());
        self.asked.insert(id.clone(), asked);
        id
    }

    pub(super) fn answered(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let Some(id) = fields.text("id") else {
            // It could not read what we wrote.
            let message = fields.text("error").unwrap_or_default();
            return self.note("unknown_answer", message, Some(verbatim(line)), effects);
        };
        let result = match fields.flag("success") {
            Some(true) => Ok(fields.fields("data")),
            _ => Err(fields.text("error").unwrap_or_default()),
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
            (Asked::State, Ok(state)) => self.opened(&state, effects),
            (Asked::State, Err(error)) => self.unbound(Unbound::Protocol, error),
            (Asked::Prompt, result) => self.prompt_taken(id, result, effects),
            // Told by the end of the turn.
            (Asked::Abort, Ok(_)) => {}
            (Asked::Abort, Err(error)) => {
                if let Some(turn) = &mut self.turn {
                    turn.stop = Stop::Wanted;
                }
                self.note("interrupt_refused", error, None, effects);
            }
        }
    }

    /// The program is up: which conversation does it have?
    fn opened(&mut self, state: &Fields<'_>, effects: &mut Effects) {
        let key = state.text("sessionId");
        let kept = state.text("sessionFile").is_some();
        match key {
            Some(key) if key == self.key && kept => {
                self.phase = Phase::Bound;
                self.tell_repaired(effects);
            }
            Some(key) if key == self.key => {
                let text = "the program does not keep the conversation".to_owned();
                self.unbound(Unbound::Protocol, text);
            }
            Some(_) => {
                let text = "the program has another conversation than the one expected".to_owned();
                self.unbound(Unbound::ConversationLost, text);
            }
            None => {
                let text = "the program does not tell which conversation it has".to_owned();
                self.unbound(Unbound::Protocol, text);
            }
        }
    }

    /// Tells of calls that a killed process left without a result. The program gives the model one for each.
    fn tell_repaired(&mut self, effects: &mut Effects) {
        let unanswered = std::mem::take(&mut self.unanswered);
        if !unanswered.is_empty() {
            let message = format!(
                "the program ended while it ran {}; the conversation goes on without a result of it",
                unanswered.join(", ")
            );
            self.note("transcript_repaired", message, None, effects);
        }
    }

    /// What became of an input.
    fn prompt_taken(
        &mut self,
        id: &str,
        result: Result<Fields<'_>, String>,
        effects: &mut Effects,
    ) {
        let Some(turn) = &self.turn else {
            return;
        };
        if turn.command.as_deref() != Some(id) {
            return;
        }
        let (running, stop) = (turn.running, turn.stop);
        match result {
            Ok(data) => {
                self.consume(effects);
                // A command of an extension, as `/mcp`: nothing runs for it, so nothing will settle.
                if data.text("disposition").as_deref() == Some("handled") && !running {
                    let ending = match stop {
                        Stop::No => Ending::Completed,
                        Stop::Wanted | Stop::Asked => Ending::Interrupted,
                    };
                    self.end_turn(&ending, effects);
                }
            }
            Err(error) => self.end_turn(&Ending::failed("input_refused", error), effects),
        }
    }

    pub(super) fn unbound(&mut self, why: Unbound, text: String) {
        self.phase = Phase::Failed { why, text };
    }
}
