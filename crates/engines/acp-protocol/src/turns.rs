//! Turns: begin, stop, end.

use astrabox_engine::EngineInput;
use astrabox_engine::line::Effects;
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_types::{ContentPart, Usage};
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::protocol::AcpProtocol;
use crate::state::{Asked, Conversation, Ending, Phase, Stop, Tokens, Turn, UsageScope};
use crate::wire::{
    self, AUTH_REQUIRED, Answer, Fields, INVALID_PARAMS, INVALID_REQUEST, REQUEST_CANCELLED,
    RpcError,
};

/// Why a turn failed whose input the program did not take.
const REJECTED: &str = "input_rejected";
/// How much of standard error an exit tells, bytes.
const TOLD_STDERR: usize = 2 << 10;

impl<D: Dialect> AcpProtocol<D> {
    /// Gives the program an input.
    pub(crate) fn start_turn(&mut self, input: &EngineInput, effects: &mut Effects) {
        let conversation = &mut self.conversation;
        // What was said unasked is over, and a result may come after its turn, but not after the next input.
        conversation.settle_all(false, effects);
        conversation.calls.retain(|call| call.child.is_some());
        let mut params = conversation.params();
        params.insert("prompt".to_owned(), Value::Array(blocks(input)));
        self.dialect.prompt(&mut params);
        let prompt = conversation.call("session/prompt", params, Asked::Prompt, effects);
        conversation.turn = Some(Turn {
            input: Some(input.input_id),
            prompt: Some(prompt),
            base: conversation.total,
            ..Turn::default()
        });
    }

    pub(crate) fn prompt_answered(&mut self, id: &str, answer: Answer<'_>, effects: &mut Effects) {
        let conversation = &mut self.conversation;
        self.dialect
            .on_prompt_answer(&answer, conversation, effects);
        let ours = |turn: &Turn| turn.prompt.as_deref() == Some(id);
        let Some(turn) = conversation.turn.as_ref().filter(|turn| ours(turn)) else {
            let message = "the end of a turn that does not run";
            return conversation.note("late_event", message, None, effects);
        };
        let stopping = turn.stop != Stop::No;
        let (ending, used) = match &answer {
            Ok(result) => {
                let fields = Fields::of(result);
                let used = Tokens::of(&fields.fields("usage"));
                (ended(&fields), used.map(|used| (used, *result)))
            }
            Err(error) => {
                let named = self.dialect.failure(error).filter(|_| !stopping);
                let named = named.map(|reason| Ending::failed(reason, error.text()));
                (named.unwrap_or_else(|| failed(error, stopping)), None)
            }
        };
        let usage = used.and_then(|(used, result)| {
            let native = Fields::of(result).json("usage");
            conversation.used(D::USAGE, used, native, effects)
        });
        if let (Ending::Interrupted, Err(error)) = (&ending, &answer) {
            conversation.note("stopped_with_error", error.text(), None, effects);
        }
        // What was not rejected was taken, whatever became of it.
        if !matches!(&ending, Ending::Failed { reason, .. } if reason == REJECTED) {
            conversation.consume(effects);
        }
        self.dialect.turn_ended();
        self.conversation.end_turn(&ending, usage, effects);
    }
}

impl Conversation {
    /// The program begins something by itself; it ends by [`Self::end_own_turn`]. Nothing happens while a turn runs.
    pub fn begin_own_turn(&mut self) {
        if self.turn.is_none() {
            self.turn = Some(Turn {
                base: self.total,
                ..Turn::default()
            });
        }
    }

    /// What the program began by itself is over. Nothing happens when the turn that runs answers an input.
    pub fn end_own_turn(&mut self, ending: &Ending, effects: &mut Effects) {
        self.end_own_turn_having(ending, UsageScope::Turn, None, effects);
    }

    /// The same, where the program tells what the turn used: figures, and its own form of them.
    pub fn end_own_turn_having(
        &mut self,
        ending: &Ending,
        scope: UsageScope,
        used: Option<(Tokens, Option<astrabox_types::Json>)>,
        effects: &mut Effects,
    ) {
        if !self.in_own_turn() {
            return;
        }
        let usage = used.and_then(|(used, native)| self.used(scope, used, native, effects));
        self.end_turn(ending, usage, effects);
    }

    /// Whether a turn runs that answers no input.
    #[must_use]
    pub fn in_own_turn(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.input.is_none())
    }

    /// Tells that the input of the running turn was taken, once: with the first that the program says after it.
    pub fn consume(&mut self, effects: &mut Effects) {
        let session = self.params();
        let Some(turn) = &mut self.turn else {
            return;
        };
        let Some(input) = turn.input.filter(|_| !turn.consumed) else {
            return;
        };
        turn.consumed = true;
        effects.emit.input_consumed(input);
        if turn.stop == Stop::Early {
            // It may have forgotten that it shall stop when it began.
            turn.stop = Stop::Asked;
            let session = Value::Object(session);
            effects.send(wire::notification("session/cancel", &session));
        }
    }

    /// Ends the running turn: the one place where a `Terminal` is made (EN9).
    fn end_turn(&mut self, ending: &Ending, usage: Option<Usage>, effects: &mut Effects) {
        if matches!(ending, Ending::Completed | Ending::Interrupted) && self.phase != Phase::Gone {
            self.consume(effects);
        }
        if self.turn.take().is_none() {
            return;
        }
        self.settle_all(*ending != Ending::Completed, effects);
        self.tell_calls(effects);
        if self.phase != Phase::Gone {
            self.cancel_requests("the turn has ended", effects);
        }
        if let Some(context) = self.context.take() {
            let message = context_text(&Fields::of(context.text()));
            self.note("context_usage", message, Some(context), effects);
        }
        // Before the end, so that it is known whether questions of child runs outlive the turn.
        self.tell_background(effects);
        match ending {
            Ending::Completed => effects.emit.completed(usage),
            Ending::Interrupted => effects.emit.interrupted(usage),
            Ending::Failed { reason, message } => effects.emit.failed(reason, message, usage),
        }
    }

    /// Takes the figures of a turn; gives what it used.
    fn used(
        &mut self,
        scope: UsageScope,
        told: Tokens,
        native: Option<astrabox_types::Json>,
        effects: &mut Effects,
    ) -> Option<Usage> {
        let base = self.turn.as_ref().and_then(|turn| turn.base);
        let (total, used) = match scope {
            UsageScope::Turn => (base.unwrap_or_default().plus(told), Some(told)),
            UsageScope::Process => (told, Some(told.since(base.unwrap_or_default()))),
            UsageScope::Conversation => (told, base.map(|base| told.since(base))),
        };
        self.total = Some(total);
        let key = self.mint("");
        effects.emit.usage(&key, total.usage(), native);
        used.map(Tokens::usage)
    }

    /// What the conversation had used before this process began, where the program knows it.
    pub fn used_before(&mut self, tokens: Tokens) {
        self.total = Some(tokens);
    }

    pub(crate) fn want_stop(&mut self, effects: &mut Effects) {
        let session = Value::Object(self.params());
        let Some(turn) = &mut self.turn else {
            return;
        };
        if turn.stop != Stop::No {
            return;
        }
        turn.stop = if turn.consumed || turn.input.is_none() {
            Stop::Asked
        } else {
            Stop::Early
        };
        effects.send(wire::notification("session/cancel", &session));
        self.cancel_requests("the turn is being stopped", effects);
    }

    pub(crate) fn exited(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        let bound = matches!(self.phase, Phase::Bound { .. });
        let stop = self.turn.as_ref().map(|turn| turn.stop);
        let message = exit_text(exit, stderr);
        self.settle_all(true, effects);
        self.withdraw_all("the program has ended", effects);
        self.children_ended(effects);
        self.release_terminals(effects);
        self.waiting.clear();
        self.asked.clear();
        if bound {
            self.phase = Phase::Gone;
        }
        let ending = match (stop, exit.reason) {
            (None, _) => {
                if bound && !self.closing {
                    self.note("engine_exited", message, None, effects);
                }
                None
            }
            (Some(Stop::Early | Stop::Asked), ExitReason::Killed) => Some(Ending::Interrupted),
            // It says that all is well, and told no end of the turn.
            (_, ExitReason::Exited) if exit.code == Some(0) => {
                Some(Ending::failed("no_result", message))
            }
            (_, ExitReason::Exited | ExitReason::Killed) => {
                Some(Ending::failed("engine_exited", message))
            }
            (_, limit) => Some(Ending::failed(limit.code(), message)),
        };
        if let Some(ending) = ending {
            self.end_turn(&ending, None, effects);
        }
        self.calls.clear();
    }
}

/// An input as ACP has it.
fn blocks(input: &EngineInput) -> Vec<Value> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let notice = input.notice.as_deref().map(text);
    let parts = input.content.iter().map(|part| match part {
        ContentPart::Text { text: said } => text(said),
        ContentPart::Image { media_type, data } => {
            json!({"type": "image", "mimeType": media_type.as_str(), "data": data})
        }
    });
    notice.into_iter().chain(parts).collect()
}

/// How a turn ended, by the answer to its prompt.
fn ended(result: &Fields<'_>) -> Ending {
    match result.text("stopReason").as_deref() {
        Some("end_turn") => Ending::Completed,
        Some("cancelled") => Ending::Interrupted,
        Some("max_tokens") => {
            Ending::failed("max_tokens", "the model's answer was cut at its limit")
        }
        Some("max_turn_requests") => Ending::failed(
            "max_turn_requests",
            "the program's limit of model requests is reached",
        ),
        Some("refusal") => Ending::failed("refusal", "the model refused to go on"),
        reason => {
            let reason = reason.unwrap_or("no reason");
            Ending::failed("unknown_outcome", format!("the turn ended with {reason}"))
        }
    }
}

/// How a turn ended whose prompt was answered with an error. Programs that do not catch the error of what they were
/// told to stop answer with that error.
fn failed(error: &RpcError, stopping: bool) -> Ending {
    let reason = match error.code {
        _ if stopping => return Ending::Interrupted,
        REQUEST_CANCELLED => return Ending::Interrupted,
        AUTH_REQUIRED => "auth_required",
        INVALID_PARAMS | INVALID_REQUEST => REJECTED,
        _ => "engine_error",
    };
    Ending::failed(reason, error.text())
}

fn context_text(context: &Fields<'_>) -> String {
    let used = context.number("used").unwrap_or_default();
    match context.number("size") {
        Some(size) => format!("{used} of {size} tokens of the model's context are used"),
        None => format!("{used} tokens of the model's context are used"),
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
    fn an_answer_to_a_prompt_tells_how_the_turn_ended() {
        for (result, expected) in [
            (r#"{"stopReason":"end_turn"}"#, "completed"),
            (r#"{"stopReason":"cancelled"}"#, "interrupted"),
            (r#"{"stopReason":"max_tokens"}"#, "max_tokens"),
            (r#"{"stopReason":"max_turn_requests"}"#, "max_turn_requests"),
            (r#"{"stopReason":"refusal"}"#, "refusal"),
            (r#"{"stopReason":"new"}"#, "unknown_outcome"),
            ("{}", "unknown_outcome"),
        ] {
            assert_eq!(word(&ended(&Fields::of(result))), expected, "{result}");
        }
        for (code, stopping, expected) in [
            (-32603, false, "engine_error"),
            (-32603, true, "interrupted"),
            (-32000, false, "auth_required"),
            (-32602, false, "input_rejected"),
            (-32800, false, "interrupted"),
        ] {
            let error = RpcError {
                code,
                ..RpcError::default()
            };
            assert_eq!(word(&failed(&error, stopping)), expected, "{code}");
        }
    }

    fn word(ending: &Ending) -> &str {
        match ending {
            Ending::Completed => "completed",
            Ending::Interrupted => "interrupted",
            Ending::Failed { reason, .. } => reason,
        }
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
        let text = exit_text(&exit(None, Some(9), ExitReason::MemoryLimit), "");
        assert_eq!(text, "the program ended (memory_limit): signal 9");
        let long = "ä".repeat(2 * TOLD_STDERR);
        let text = exit_text(&exit(None, None, ExitReason::SandboxDied), &long);
        assert!(text.len() < TOLD_STDERR + 100 && text.ends_with('ä'));
    }
}
