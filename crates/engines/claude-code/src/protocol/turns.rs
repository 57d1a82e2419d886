//! Turns: begin, stop, end.

use astrabox_engine::EngineInput;
use astrabox_engine::line::Effects;
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_types::Usage;
use serde_json::json;

use super::state::{Asked, ClaudeProtocol, Ending, Phase, Stop, Tokens, Turn};
use super::wire::{Fields, verbatim};
use crate::plan::{message_id, user_line};

/// How much of standard error an exit tells, bytes.
const TOLD_STDERR: usize = 2 << 10;

impl ClaudeProtocol {
    /// Gives the program an input.
    pub(super) fn start_turn(&mut self, input: &EngineInput, effects: &mut Effects) {
        // A result may come after its turn, but not after the next input.
        self.calls.retain(|call| call.child.is_some());
        effects.send(user_line(input, self.born).to_string());
        self.turn = Some(Turn {
            input: Some(input.input_id),
            ..Turn::default()
        });
    }

    /// What becomes of an input, by the id that we gave it.
    pub(super) fn lifecycle(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let id = fields.text("command_uuid").unwrap_or_default();
        let state = fields.text("state").unwrap_or_default();
        let ours = self.turn.as_ref().and_then(|turn| turn.input);
        let ours = ours.is_some_and(|input| message_id(input, self.born) == id);
        match (state.as_str(), ours) {
            ("started", true) => self.consume(effects),
            // The result came before; where it did not, this is the program's word that nothing follows.
            ("completed", true) => {
                self.consume(effects);
                self.end_turn(Ending::Completed, None, effects);
            }
            ("cancelled" | "discarded", true) => {
                self.end_turn(Ending::Interrupted, None, effects);
            }
            ("queued" | "started" | "completed" | "cancelled" | "discarded", _) => {}
            (state, _) => {
                let message = format!("command_lifecycle {state}");
                self.note("unknown_event", message, Some(verbatim(line)), effects);
            }
        }
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

    /// `system/init`: the program begins a turn, and says with what.
    pub(super) fn turn_begins(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        self.working = true;
        self.tools = fields.texts("tools");
        for server in fields.list("mcp_servers") {
            let told = Fields::of(server);
            let name = told.text("name").unwrap_or_default();
            let status = told.text("status").unwrap_or_default();
            if status == "connected" {
                self.failed_servers.remove(&name);
            } else if status == "failed" && self.failed_servers.insert(name.clone()) {
                let message = format!("the MCP server `{name}` does not work");
                self.note(
                    "mcp_server_failed",
                    message,
                    Some(verbatim(server)),
                    effects,
                );
            }
        }
        let id = fields.text("session_id").unwrap_or_default();
        if id != self.settings.key {
            let text = "the program goes on with another conversation";
            self.note("other_conversation", text, Some(verbatim(line)), effects);
        }
    }

    pub(super) fn state_changed(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let state = fields.text("state");
        self.working = state.as_deref() != Some("idle");
        if self.working {
            return;
        }
        // The program rests, so a turn that it took is over; mostly its result was the line before. An input that
        // it has not taken yet is still to come.
        if let Some(turn) = &self.turn
            && (turn.consumed || turn.input.is_none())
        {
            let text = "the program rests and told no result of the turn";
            self.end_turn(Ending::failed("no_result", text), None, effects);
        }
        self.tell_background(effects);
    }

    pub(super) fn status(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        if let Some(mode) = fields.text("permissionMode") {
            if mode != self.settings.mode {
                // As when the person who approved a plan chose so.
                let message = format!("the permission mode is `{mode}` now");
                self.settings.mode.clone_from(&mode);
                self.note("permission_mode_changed", message, None, effects);
                effects.emit.permission_mode_changed(&mode);
            }
            return;
        }
        if fields.text("status").as_deref() == Some("requesting") {
            self.working = true;
        }
        if let Some(error) = fields.text("compact_error") {
            let native = Some(verbatim(line));
            self.note("compaction_failed", error, native, effects);
        }
    }

    /// The model is asked again. What it had begun to say is said anew.
    pub(super) fn retrying(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        self.stream.clear();
        let error = fields.text("error").unwrap_or_default();
        let status = fields.number("error_status");
        let status = status.map_or(String::new(), |status| format!(" (HTTP {status})"));
        let message = format!("{error}{status}");
        self.note("retrying", message, Some(verbatim(line)), effects);
    }

    /// The program's word that a reply is over.
    pub(super) fn result(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        if self.phase != Phase::Bound {
            return;
        }
        let used = tokens(&fields.fields("usage"));
        self.total = self.total.plus(used);
        let native = Some(verbatim(line));
        let key = self.mint("");
        effects.emit.usage(&key, self.total.usage(), native.clone());
        let own_reply = fields.raw("origin").is_some()
            && fields.fields("origin").text("kind").as_deref() != Some("human");
        match &self.turn {
            // A reply that the program began by itself, before it took the input.
            Some(turn) if own_reply && turn.input.is_some() => {
                self.settle_stream(false, effects);
                effects.emit.response_completed();
            }
            Some(_) => {
                let ending = ending(fields);
                self.end_turn(ending, Some(used.usage()), effects);
            }
            None => {
                self.working = false;
                // It told nothing of its own reply, so there was no turn.
                if !own_reply {
                    let message = "the result of a turn that does not run";
                    self.note("late_event", message, native, effects);
                }
            }
        }
    }

    /// Ends the running turn, and goes on with what waits.
    pub(super) fn end_turn(&mut self, ending: Ending, usage: Option<Usage>, effects: &mut Effects) {
        self.close_turn(&ending, usage, effects);
        if self.turn.is_none()
            && self.phase == Phase::Bound
            && let Some(input) = self.waiting.pop_front()
        {
            self.start_turn(&input, effects);
        }
    }

    /// Ends the running turn: the one place where a `Terminal` is made (EN9).
    fn close_turn(&mut self, ending: &Ending, usage: Option<Usage>, effects: &mut Effects) {
        if self.turn.is_none() {
            return;
        }
        if matches!(ending, Ending::Completed | Ending::Interrupted) && self.phase != Phase::Gone {
            self.consume(effects);
        }
        self.turn = None;
        self.working = false;
        self.settle_stream(*ending != Ending::Completed, effects);
        self.withdraw_requests(None, "the turn has ended", effects);
        // Before the end, so that it is known whether questions of child runs outlive the turn.
        self.tell_background(effects);
        match ending {
            Ending::Completed => effects.emit.completed(usage),
            Ending::Interrupted => effects.emit.interrupted(usage),
            Ending::Failed { reason, message } => effects.emit.failed(reason, message, usage),
        }
    }

    pub(super) fn want_stop(&mut self, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn
            && turn.stop == Stop::No
        {
            turn.stop = Stop::Wanted;
        }
        self.ask_to_stop(effects);
    }

    /// Asks the program to stop the turn, as soon as it has taken the input: before, it runs the turn to its end.
    pub(super) fn ask_to_stop(&mut self, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        if turn.stop != Stop::Wanted || (turn.input.is_some() && !turn.consumed) {
            return;
        }
        turn.stop = Stop::Asked;
        self.request(json!({"subtype": "interrupt"}), Asked::Interrupt, effects);
    }

    pub(super) fn exited(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        let bound = self.phase == Phase::Bound;
        let stop = self.turn.as_ref().map(|turn| turn.stop);
        let message = exit_text(exit, stderr);
        self.settle_stream(true, effects);
        self.calls.clear();
        self.withdraw_all("the program has ended", effects);
        self.tasks_ended(effects);
        self.waiting.clear();
        self.asked.clear();
        if bound {
            self.phase = Phase::Gone;
        }
        match (stop, exit.reason) {
            (None, _) => {
                if bound && !self.closing {
                    self.note("engine_exited", message, None, effects);
                }
            }
            (Some(Stop::Wanted | Stop::Asked), ExitReason::Killed) => {
                self.end_turn(Ending::Interrupted, None, effects);
            }
            // It says that all is well, and told no end of the turn.
            (_, ExitReason::Exited) if exit.code == Some(0) => {
                self.end_turn(Ending::failed("no_result", message), None, effects);
            }
            (_, ExitReason::Exited | ExitReason::Killed) => {
                self.end_turn(Ending::failed("engine_exited", message), None, effects);
            }
            (_, limit) => self.end_turn(Ending::failed(limit.code(), message), None, effects),
        }
    }
}

/// How a turn ended, by its result.
fn ending(fields: &Fields<'_>) -> Ending {
    let reason = fields.text("terminal_reason").unwrap_or_default();
    if reason.starts_with("aborted") {
        return Ending::Interrupted;
    }
    let subtype = fields.text("subtype").unwrap_or_default();
    if fields.flag("is_error") != Some(true) && subtype == "success" {
        return Ending::Completed;
    }
    let text = fields.text("result").filter(|text| !text.is_empty());
    let text = text.unwrap_or_else(|| fields.texts("errors").join("; "));
    let of_model = fields.raw("api_error_status").is_some() || reason == "api_error";
    match subtype.as_str() {
        "success" if of_model => Ending::failed("model_error", text),
        "success" | "error_during_execution" => Ending::failed("engine_error", text),
        // Limits of the program's own, by its names: `error_max_turns`, `error_max_budget_usd`.
        subtype => Ending::failed(subtype, text),
    }
}

fn tokens(usage: &Fields<'_>) -> Tokens {
    let count = |key| usage.number(key).unwrap_or_default();
    let cached = count("cache_read_input_tokens");
    Tokens {
        input: count("input_tokens")
            .saturating_add(cached)
            .saturating_add(count("cache_creation_input_tokens")),
        cached,
        output: count("output_tokens"),
        reasoning: usage
            .fields("output_tokens_details")
            .number("thinking_tokens")
            .unwrap_or_default(),
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
    fn a_result_tells_how_the_turn_ended() {
        let failed = Ending::failed;
        for (result, expected) in [
            (
                r#"{"subtype":"success","is_error":false,"terminal_reason":"completed","result":"hi"}"#,
                Ending::Completed,
            ),
            (r#"{"subtype":"success","result":""}"#, Ending::Completed),
            (
                r#"{"subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","errors":["x"]}"#,
                Ending::Interrupted,
            ),
            (
                r#"{"subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}"#,
                Ending::Interrupted,
            ),
            (
                r#"{"subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":401,"result":"API Error: 401"}"#,
                failed("model_error", "API Error: 401"),
            ),
            (
                r#"{"subtype":"error_max_turns","is_error":true,"errors":["a","b"]}"#,
                failed("error_max_turns", "a; b"),
            ),
            (
                r#"{"subtype":"error_during_execution","is_error":true,"errors":["a"]}"#,
                failed("engine_error", "a"),
            ),
        ] {
            assert_eq!(ending(&Fields::of(result)), expected, "{result}");
        }
    }

    #[test]
    fn cached_tokens_are_part_of_the_input() {
        let usage = r#"{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":85,
            "output_tokens":7,"output_tokens_details":{"thinking_tokens":3}}"#;
        let used = tokens(&Fields::of(usage));
        assert_eq!(
            (used.input, used.cached, used.output, used.reasoning),
            (100, 85, 7, 3)
        );
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
