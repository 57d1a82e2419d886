//! The lines of `parrot`, understood.

use astrabox_engine::line::{Effects, Handshake, Line, LineProtocol, Powers};
use astrabox_engine::sandbox::ExitStatus;
use astrabox_engine::{EngineInput, Error, ErrorKind, Result};
use astrabox_types::{ChildRunId, ContentPart, DeltaChannel, InteractionAnswer, MessageKind};
use serde::{Deserialize, Serialize};

/// Where a conversation stands.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParrotProtocol {
    expected: Option<String>,
    key: Option<String>,
    /// Whether an input waits for `over`.
    open: bool,
    answers: u64,
}

impl ParrotProtocol {
    /// Whether the line is one of the protocol's.
    fn understand(&mut self, line: &str, effects: &mut Effects) -> bool {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "hello" if self.key.is_none() => self.key = Some(rest.to_owned()),
            "heard" => match rest.parse() {
                Ok(input) => effects.emit.input_consumed(input),
                Err(_) => return false,
            },
            "said" => {
                self.answers += 1;
                let key = self.answers.to_string();
                effects.emit.delta(DeltaChannel::Text, &key, 0, rest);
                let text = rest.to_owned();
                effects
                    .emit
                    .message(MessageKind::Text, &key, text, false, None);
            }
            "over" | "hush" if self.open => {
                self.open = false;
                if word == "over" {
                    effects.emit.completed(None);
                } else {
                    effects.emit.interrupted(None);
                }
            }
            _ => return false,
        }
        true
    }
}

fn unsupported<T>(operation: &'static str) -> Result<T> {
    let text = "a parrot does not ask, has no modes and no children";
    Err(Error::new(ErrorKind::Unsupported, operation, text))
}

impl LineProtocol for ParrotProtocol {
    const POWERS: Powers = Powers {
        interactions: false,
        permission_modes: false,
        child_run_control: false,
    };

    fn begin(&mut self, expected: Option<&str>, _effects: &mut Effects) {
        self.expected = expected.map(str::to_owned);
    }

    fn handshake(&self) -> Handshake {
        match (&self.key, &self.expected) {
            (None, _) => Handshake::Pending,
            (Some(key), Some(expected)) if key != expected => Handshake::Failed(Error::new(
                ErrorKind::ConversationLost,
                "bind",
                "it is another parrot",
            )),
            (Some(key), _) => Handshake::Bound(key.clone()),
        }
    }

    fn attached(&mut self, _epoch: u64) {}

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        let (text, whole) = match line {
            Line::Text(text) => (text, true),
            Line::Garbled(text) | Line::Overlong { head: text, .. } => (text, false),
        };
        if !(whole && self.understand(text, effects)) {
            let key = effects.at.to_string();
            effects.emit.diagnostic(&key, "unknown_line", text, None);
        }
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        if std::mem::take(&mut self.open) {
            let text = format!("the parrot has gone ({}) {stderr}", exit.reason.code());
            effects.emit.failed("engine_exited", text, None);
        }
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        let mut words = String::new();
        for part in &input.content {
            let ContentPart::Text { text } = part else {
                return unsupported("deliver");
            };
            words.push_str(text);
        }
        self.open = true;
        let words = words.replace('\n', " ");
        effects.send(format!("say {} {words}", input.input_id));
        Ok(())
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        if self.open {
            effects.send("hush".to_owned());
        }
    }

    fn close(&mut self, _effects: &mut Effects) {}

    fn tools(&self) -> Vec<String> {
        Vec::new()
    }

    fn program(&self) -> Option<String> {
        None
    }

    fn answer(&mut self, _: &str, _: &InteractionAnswer, _: &mut Effects) -> Result<()> {
        unsupported("answer")
    }

    fn set_mode(&mut self, _: &str, _: &mut Effects) -> Result<()> {
        unsupported("set mode")
    }

    fn stop_child(&mut self, _: &ChildRunId, _: &mut Effects) -> Result<()> {
        unsupported("stop child")
    }
}
