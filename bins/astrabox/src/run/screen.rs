//! What a run shows: the answer on standard output, the rest on standard error; or everything as JSON lines.

use std::collections::HashMap;
use std::io::IsTerminal as _;

use astrabox_client::v1;
use astrabox_client::v1::event::Payload;
use serde_json::json;

use super::follow::Outcome;
use crate::out::{Out, enum_name, note, one_line};

const LIMIT: usize = 200;

/// Shows what happens.
pub(super) struct Screen {
    out: Out,
    verbose: bool,
    /// Both outputs are seen together.
    shared: bool,
    /// Messages that are not complete: event id and the bytes that were shown.
    shown: HashMap<String, usize>,
    /// Whether the answer's last line is open.
    open_line: bool,
}

impl Screen {
    pub(super) fn new(out: Out, verbose: bool) -> Self {
        let shared = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Self {
            out,
            verbose,
            shared,
            shown: HashMap::new(),
            open_line: false,
        }
    }

    /// A piece of a message.
    pub(super) fn delta(&mut self, delta: &v1::Delta) -> anyhow::Result<()> {
        if self.out.is_json() {
            return self
                .out
                .line(&json!({ "delta": self.out.message("Delta", delta) }).to_string());
        }
        match delta.channel() {
            v1::DeltaChannel::Text if delta.child_run_id.is_empty() => {
                self.text(&delta.event_id, &delta.text)
            }
            v1::DeltaChannel::Text | v1::DeltaChannel::Reasoning | v1::DeltaChannel::ToolOutput => {
                if self.verbose {
                    self.aside(&one_line(&delta.text, LIMIT));
                }
                Ok(())
            }
            v1::DeltaChannel::Unspecified => Ok(()),
        }
    }

    /// A durable event.
    pub(super) fn event(&mut self, event: &v1::Event) -> anyhow::Result<()> {
        if self.out.is_json() {
            return self
                .out
                .line(&json!({ "event": self.out.message("Event", event) }).to_string());
        }
        let Some(payload) = &event.payload else {
            return Ok(());
        };
        let own = event.child_run_id.is_empty();
        match payload {
            Payload::MessageCompleted(message)
                if message.kind() == v1::MessageKind::Text && own =>
            {
                self.completed(&event.id, &message.text)?;
            }
            Payload::MessageCompleted(_) => self.shown.remove(&event.id).map_or((), drop),
            _ => {
                if let Some(line) = self.line(payload) {
                    let child = if own {
                        String::new()
                    } else {
                        format!("[{}] ", event.child_run_id)
                    };
                    self.aside(&format!("{child}{line}"));
                }
            }
        }
        Ok(())
    }

    /// How the turn ended.
    pub(super) fn outcome(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        self.end_line()?;
        let (name, reason, message) = match outcome {
            Outcome::Completed => ("completed", "", ""),
            Outcome::Interrupted => ("interrupted", "", ""),
            Outcome::Failed { reason, message } => ("failed", reason.as_str(), message.as_str()),
        };
        if self.out.is_json() {
            let result =
                json!({ "outcome": name, "failure_reason": reason, "failure_message": message });
            return self.out.line(&json!({ "result": result }).to_string());
        }
        match outcome {
            Outcome::Completed => {}
            Outcome::Interrupted => note("the turn was interrupted"),
            Outcome::Failed { reason, message } => {
                note(&format!("the turn failed: {reason}: {message}"))
            }
        }
        Ok(())
    }

    fn text(&mut self, event_id: &str, text: &str) -> anyhow::Result<()> {
        if !self.shown.contains_key(event_id) {
            self.end_line()?;
        }
        *self.shown.entry(event_id.to_owned()).or_default() += text.len();
        self.write(text)
    }

    /// The rest of a message, or all of it when no piece came.
    fn completed(&mut self, event_id: &str, text: &str) -> anyhow::Result<()> {
        let shown = self.shown.remove(event_id);
        if shown.is_none() {
            self.end_line()?;
        }
        // What does not fit the pieces is shown whole rather than cut.
        let rest = text.get(shown.unwrap_or(0)..).unwrap_or(text);
        self.write(rest)?;
        self.end_line()
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        if !text.is_empty() {
            self.open_line = !text.ends_with('\n');
            self.out.write(text)?;
        }
        Ok(())
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.open_line) {
            self.out.write("\n")?;
        }
        Ok(())
    }

    /// A line beside the answer.
    fn aside(&mut self, text: &str) {
        if self.shared {
            // A failure shows at the next write of the answer.
            let _ = self.end_line();
            note(&format!("\x1b[2m{text}\x1b[0m"));
        } else {
            note(text);
        }
    }

    fn line(&self, payload: &Payload) -> Option<String> {
        match payload {
            Payload::ToolCall(call) => Some(format!(
                "> {} {}",
                call.name,
                one_line(&tool_text(&call.input), LIMIT)
            )),
            Payload::ToolResult(result) if result.is_error => Some(format!(
                "! {} failed: {}",
                result.name,
                one_line(&result.output, LIMIT)
            )),
            Payload::ToolResult(result) => self
                .verbose
                .then(|| format!("< {} {}", result.name, one_line(&result.output, LIMIT))),
            Payload::FileChanged(change) => {
                let kind = match change.kind() {
                    v1::FileChangeKind::Added => "+",
                    v1::FileChangeKind::Deleted => "-",
                    v1::FileChangeKind::Modified | v1::FileChangeKind::Unspecified => "~",
                };
                Some(format!("{kind} {}", change.path))
            }
            Payload::InteractionExpired(expired) => {
                Some(format!("the question is closed: {}", expired.reason))
            }
            Payload::InteractionResolved(resolved) => self
                .verbose
                .then(|| format!("the question was answered by {}", resolved.actor)),
            Payload::ContextCompacted(_) => Some("the agent shortened its context".to_owned()),
            Payload::SessionStatus(status) => self.verbose.then(|| {
                let state = enum_name(status.state().as_str_name()).unwrap_or_default();
                format!("session {state} {}", status.reason)
            }),
            Payload::DiagnosticRaw(raw) => self
                .verbose
                .then(|| format!("{}: {}", raw.topic, one_line(&raw.message, LIMIT))),
            Payload::ChildRunChanged(run) => self
                .verbose
                .then(|| format!("child {} {}", run.child_run_id, run.title)),
            Payload::TurnStarted(_)
            | Payload::TurnEnded(_)
            | Payload::InputAccepted(_)
            | Payload::InputConsumed(_)
            | Payload::MessageCompleted(_)
            | Payload::InteractionRequested(_)
            | Payload::Usage(_) => None,
        }
    }
}

/// What a tool call is about: its command where the input has one, else the whole input.
fn tool_text(input: &str) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_str(input).ok();
    let command = parsed
        .as_ref()
        .and_then(|input| input.get("command")?.as_str());
    command.unwrap_or(input).to_owned()
}
