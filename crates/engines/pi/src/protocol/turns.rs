//! Turns: begin, stop, end.

use astrabox_engine::EngineInput;
use astrabox_engine::line::Effects;
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use serde_json::json;

use super::dialogs;
use super::state::{Asked, Ending, Phase, PiProtocol, Said, Stop, Tokens, Turn};
use super::wire::{Fields, verbatim};
use crate::plan::prompt;

/// How much of standard error an exit tells, bytes.
const TOLD_STDERR: usize = 2 << 10;

impl PiProtocol {
    /// Gives the program an input.
    pub(super) fn start_turn(&mut self, input: &EngineInput, effects: &mut Effects) {
        // A result may come after its turn, but not after the next input.
        self.calls.clear();
        let command = self.command(prompt(input), Asked::Prompt, effects);
        self.turn = Some(Turn {
            input: Some(input.input_id),
            command: Some(command),
            ..Turn::default()
        });
    }

    /// Tells that the input of the running turn was taken, once.
    pub(super) fn consume(&mut self, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn
            && let Some(input) = turn.input
            && !turn.consumed
        {
            turn.consumed = true;
            effects.emit.input_consumed(input);
        }
    }

    /// The program begins to work: on the input of the turn, or by itself, as when an extension wants it to.
    pub(super) fn agent_starts(&mut self, _effects: &mut Effects) {
        if self.phase == Phase::Bound {
            self.turn.get_or_insert_default().running = true;
        }
    }

    /// The model is asked again. What it had begun to say is said anew.
    pub(super) fn retrying(
        &mut self,
        kind: &str,
        fields: &Fields<'_>,
        line: &str,
        effects: &mut Effects,
    ) {
        if kind == "auto_retry_start" {
            self.stream.clear();
        }
        let message = fields.text("errorMessage").unwrap_or_default();
        self.note("retrying", message, Some(verbatim(line)), effects);
    }

    /// The program's word that it goes on with nothing by itself.
    pub(super) fn settled(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        if turn.input.is_some() && !turn.consumed {
            // It was at work by itself when the input came, which is still to be taken.
            turn.running = false;
            return;
        }
        let aborted = fields.flag("aborted") == Some(true);
        let ending = ending(aborted, turn.last.as_ref());
        self.end_turn(&ending, effects);
    }

    /// Ends the running turn, and goes on with what waits.
    pub(super) fn end_turn(&mut self, ending: &Ending, effects: &mut Effects) {
        self.close_turn(ending, effects);
        if self.turn.is_none()
            && self.phase == Phase::Bound
            && let Some(input) = self.waiting.pop_front()
        {
            self.start_turn(&input, effects);
        }
    }

    /// Ends the running turn: the one place where a `Terminal` is made (EN9).
    fn close_turn(&mut self, ending: &Ending, effects: &mut Effects) {
        if matches!(ending, Ending::Completed | Ending::Interrupted) && self.phase != Phase::Gone {
            self.consume(effects);
        }
        let Some(turn) = self.turn.take() else {
            return;
        };
        self.settle_stream(*ending != Ending::Completed, effects);
        self.close_dialogs("the turn has ended", effects);
        let used = (turn.used != Tokens::default()).then(|| turn.used.usage());
        match ending {
            Ending::Completed => effects.emit.completed(used),
            Ending::Interrupted => effects.emit.interrupted(used),
            Ending::Failed { reason, message } => effects.emit.failed(reason, message, used),
        }
    }

    pub(super) fn want_stop(&mut self, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn
            && turn.stop == Stop::No
        {
            turn.stop = Stop::Wanted;
            if !turn.running && turn.consumed {
                // What waits for an answer is a command of an extension, which `abort` does not reach.
                self.close_dialogs("the turn is stopped", effects);
            }
        }
        self.ask_to_stop(effects);
    }

    /// Asks the program to stop, as soon as it is at work: before, there is nothing that it would stop.
    pub(super) fn ask_to_stop(&mut self, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        let taken = turn.consumed || turn.input.is_none();
        if turn.stop != Stop::Wanted || !turn.running || !taken {
            return;
        }
        turn.stop = Stop::Asked;
        self.command(json!({"type": "abort"}), Asked::Abort, effects);
        // Those of our own extension end with it; others may not.
        self.close_dialogs("the turn is stopped", effects);
    }

    /// Dismisses every open dialog: whoever waits for it goes on.
    fn close_dialogs(&mut self, reason: &str, effects: &mut Effects) {
        for id in std::mem::take(&mut self.dialogs).into_keys() {
            if self.phase != Phase::Gone {
                dialogs::dismiss(&id, effects);
            }
            effects.emit.interaction_withdrawn(&id, reason);
        }
    }

    pub(super) fn exited(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        let bound = self.phase == Phase::Bound;
        let stop = self.turn.as_ref().map(|turn| turn.stop);
        let message = exit_text(exit, stderr);
        if bound {
            self.phase = Phase::Gone;
        }
        self.settle_stream(true, effects);
        self.calls.clear();
        self.close_dialogs("the program has ended", effects);
        self.waiting.clear();
        self.asked.clear();
        let ending = match (stop, exit.reason) {
            (None, _) => {
                if bound && !self.closing {
                    self.note("engine_exited", message, None, effects);
                }
                return;
            }
            (Some(Stop::Wanted | Stop::Asked), ExitReason::Killed) => Ending::Interrupted,
            // It says that all is well, and told no end of the turn.
            (_, ExitReason::Exited) if exit.code == Some(0) => Ending::failed("no_result", message),
            (_, ExitReason::Exited | ExitReason::Killed) => {
                Ending::failed("engine_exited", message)
            }
            (_, limit) => Ending::failed(limit.code(), message),
        };
        self.close_turn(&ending, effects);
    }
}

/// How a turn ended, by how the model's last message did.
fn ending(aborted: bool, last: Option<&Said>) -> Ending {
    match last {
        _ if aborted => Ending::Interrupted,
        Some(Said::Whole) => Ending::Completed,
        Some(Said::Aborted) => Ending::Interrupted,
        Some(Said::Cut) => {
            let text = "the model's answer was cut at the limit of its length";
            Ending::failed("output_limit", text)
        }
        Some(Said::Error(error)) => Ending::failed("model_error", error),
        None => {
            let text = "the program rests and told no answer of the model";
            Ending::failed("no_result", text)
        }
    }
}

fn exit_text(exit: &ExitStatus, stderr: &str) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    let mut text = format!("the program ended ({}): {how}", exit.reason.code());
    let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(TOLD_STDERR));
    if !stderr.is_empty() {
        text.push_str("; standard error: ");
        text.push_str(&stderr[from..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_as_the_models_last_message_did() {
        let failed = |reason: &str| Some(reason.to_owned());
        for (aborted, last, expected) in [
            (false, Some(Said::Whole), None),
            (false, Some(Said::Cut), failed("output_limit")),
            (
                false,
                Some(Said::Error("no".to_owned())),
                failed("model_error"),
            ),
            (false, None, failed("no_result")),
        ] {
            let reason = match ending(aborted, last.as_ref()) {
                Ending::Failed { reason, .. } => Some(reason),
                Ending::Completed => None,
                Ending::Interrupted => failed("interrupted"),
            };
            assert_eq!(reason, expected, "{last:?}");
        }
        for last in [None, Some(Said::Whole), Some(Said::Aborted)] {
            assert_eq!(ending(true, last.as_ref()), Ending::Interrupted);
        }
        assert_eq!(ending(false, Some(&Said::Aborted)), Ending::Interrupted);
    }

    #[test]
    fn an_exit_tells_how_and_the_end_of_standard_error() {
        let exit = |code, signal, reason| ExitStatus {
            code,
            signal,
            reason,
        };
        let text = exit_text(&exit(Some(3), None, ExitReason::Exited), "no");
        assert_eq!(
            text,
            "the program ended (exited): exit code 3; standard error: no"
        );
        let long = "ä".repeat(TOLD_STDERR);
        let text = exit_text(&exit(None, Some(9), ExitReason::Killed), &long);
        assert!(text.contains("signal 9"), "{text}");
        assert!(text.len() < TOLD_STDERR + 200);
    }
}
