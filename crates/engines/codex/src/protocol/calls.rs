//! Our requests and their answers.

use astrabox_engine::line::Effects;
use serde_json::{Value, json};

use super::state::{Asked, CodexProtocol, Phase, Tokens, Unbound};
use super::wire::{Fields, RpcError};

impl CodexProtocol {
    /// Sends a request and gives its id.
    pub(super) fn call(
        &mut self,
        method: &str,
        params: Value,
        asked: Asked,
        effects: &mut Effects,
    ) -> String {
        self.sent += 1;
        let id = format!("{}-{}", self.epoch, self.sent);
        effects.send(json!({"id": id, "method": method, "params": params}).to_string());
        self.asked.insert(id.clone(), asked);
        id
    }

    pub(super) fn answered(
        &mut self,
        id: &str,
        result: Result<&str, RpcError>,
        effects: &mut Effects,
    ) {
        let Some(asked) = self.asked.remove(id) else {
            let message = format!("an answer to `{id}`, which was not asked");
            self.note("unknown_answer", message, None, effects);
            return;
        };
        match asked {
            Asked::Initialize => self.initialized(result, effects),
            Asked::OpenThread => self.opened(result),
            Asked::StartTurn { input } => self.turn_accepted(input, result, effects),
            Asked::Interrupt { turn } => self.stop_answered(&turn, result.is_ok()),
            Asked::LastTurn { turn } => self.turn_checked(&turn, id, result, effects),
            Asked::Commands { stop } => self.commands_listed(&stop, result, effects),
            Asked::Nothing => {}
        }
    }

    fn initialized(&mut self, result: Result<&str, RpcError>, effects: &mut Effects) {
        let result = match result {
            Ok(result) => Fields::of(result),
            Err(error) => return self.unbound(Unbound::Protocol, error.message),
        };
        self.program = result.text("userAgent").map(|agent| program(&agent));
        let expected = match &self.phase {
            Phase::Opening { expected } => expected.clone(),
            _ => return,
        };
        match self.settings.open(expected.as_deref()) {
            Ok((method, params)) => {
                effects.send(json!({"method": "initialized"}).to_string());
                self.call(method, params, Asked::OpenThread, effects);
            }
            Err(error) => self.unbound(Unbound::Configuration, error.context().to_owned()),
        }
    }

    fn opened(&mut self, result: Result<&str, RpcError>) {
        let expected = match &self.phase {
            Phase::Opening { expected } => expected.clone(),
            _ => return,
        };
        let result = match result {
            Ok(result) => Fields::of(result),
            Err(error) => {
                let why = match &expected {
                    _ if error.message.starts_with("failed to load configuration") => {
                        Unbound::Configuration
                    }
                    Some(_) => Unbound::ConversationLost,
                    None => Unbound::Start,
                };
                return self.unbound(why, error.message);
            }
        };
        let thread = result.fields("thread").text("id");
        match (thread, expected) {
            (None, _) => {
                let text = "the program opened a conversation without an id";
                self.unbound(Unbound::Protocol, text.to_owned());
            }
            (Some(thread), Some(expected)) if thread != expected => {
                let text = "the program opened another conversation than the one expected";
                self.unbound(Unbound::ConversationLost, text.to_owned());
            }
            (Some(thread), expected) => {
                // A resumed one tells what it has used before.
                self.total = expected.is_none().then(Tokens::default);
                self.phase = Phase::Bound { thread };
            }
        }
    }

    fn unbound(&mut self, why: Unbound, text: String) {
        self.phase = Phase::Failed { why, text };
    }
}

/// `astrabox/0.169.0 (Debian 12.0.0; x86_64) ...` to `codex 0.169.0`: the first part is our own name.
fn program(user_agent: &str) -> String {
    let version = user_agent
        .split_once('/')
        .and_then(|(_, rest)| rest.split(' ').next());
    format!("codex {}", version.unwrap_or(user_agent))
}
