//! The protocol of `talk` with one fault.

use astrabox_conformance::doubles::TalkProtocol;
use astrabox_engine::line::{Effects, Handshake, Line, LineProtocol, Powers};
use astrabox_engine::{EngineInput, Result};
use astrabox_sandbox::ExitStatus;
use astrabox_types::{ChildRunId, InteractionAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::faults::Fault;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokenProtocol<const F: usize> {
    inner: TalkProtocol,
    /// A line that is told later.
    held: Option<String>,
    /// A part of the state that is not kept.
    #[serde(skip)]
    taken: bool,
}

/// What to do with a line.
enum Do {
    /// Read it as it is.
    Read,
    /// Read this in its place.
    ReadAs(String),
    /// Do not read it.
    Drop,
}

impl<const F: usize> BrokenProtocol<F> {
    fn has(fault: Fault) -> bool {
        fault as usize == F
    }

    fn judge(&mut self, text: &str, effects: &mut Effects) -> Do {
        let Ok(mut value) = serde_json::from_str::<Value>(text) else {
            return Do::Read;
        };
        let kind = value["type"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "took" => {
                self.taken = true;
                if Self::has(Fault::TakesLate) {
                    self.held = Some(text.to_owned());
                    return Do::Drop;
                }
            }
            "message" if Self::has(Fault::ForgetsState) && !self.taken => return Do::Drop,
            "weather" if Self::has(Fault::DropsTheUnknown) => return Do::Drop,
            "request" if Self::has(Fault::LeavesRequests) => return Do::Drop,
            "done" if Self::has(Fault::EndsTwice) => effects.emit.completed(None),
            _ => {}
        }
        if Self::has(Fault::TakesChildForParent) && value.get("message").is_some() {
            value["child"] = Value::Null;
            return Do::ReadAs(value.to_string());
        }
        Do::Read
    }
}

impl<const F: usize> LineProtocol for BrokenProtocol<F> {
    const POWERS: Powers = TalkProtocol::POWERS;

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        self.inner.begin(expected, effects);
    }

    fn handshake(&self) -> Handshake {
        self.inner.handshake()
    }

    fn attached(&mut self, epoch: u64) {
        self.inner.attached(epoch);
    }

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        let Line::Text(text) = line else {
            return self.inner.on_line(line, effects);
        };
        match self.judge(text, effects) {
            Do::Read => self.inner.on_line(line, effects),
            Do::ReadAs(other) => self.inner.on_line(Line::Text(&other), effects),
            Do::Drop => return,
        }
        if let Some(held) = self.held.take() {
            self.inner.on_line(Line::Text(&held), effects);
        }
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        if !Self::has(Fault::OutlivesItsProgram) {
            self.inner.on_exit(exit, stderr, effects);
        }
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        self.inner.deliver(input, effects)
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        self.inner.interrupt(effects);
    }

    fn close(&mut self, effects: &mut Effects) {
        self.inner.close(effects);
    }

    fn tools(&self) -> Vec<String> {
        self.inner.tools()
    }

    fn program(&self) -> Option<String> {
        self.inner.program()
    }

    fn answer(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        if Self::has(Fault::AnswersNobody) {
            return Ok(());
        }
        self.inner.answer(native_id, answer, effects)
    }

    fn set_mode(&mut self, mode: &str, effects: &mut Effects) -> Result<()> {
        self.inner.set_mode(mode, effects)
    }

    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        self.inner.stop_child(run, effects)
    }
}
