//! Turns of the conversation's own thread: begin, stop, end.

use astrabox_engine::line::Effects;
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_engine::{EngineInput, Result};
use astrabox_types::InputId;
use serde_json::json;

use super::state::{Asked, Body, CodexProtocol, Ended, Ending, Phase, Stop, Tokens, Turn};
use super::wire::{Fields, RpcError, verbatim};

/// How much of standard error an exit tells, bytes.
const TOLD_STDERR: usize = 2 << 10;

impl CodexProtocol {
    /// Asks the program for a turn that answers this input.
    pub(super) fn start_turn(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        let thread = self.thread().unwrap_or_default().to_owned();
        let params = self.settings.turn(&thread, input)?;
        let input = input.input_id;
        self.call("turn/start", params, Asked::StartTurn { input }, effects);
        self.open_turn(Turn {
            input: Some(input),
            ..Turn::default()
        });
        Ok(())
    }

    fn open_turn(&mut self, mut turn: Turn) {
        turn.base = self.total;
        self.turn = Some(turn);
        // A call that was open when its turn ended will not be told of any more, but for a running command.
        let own = self.thread().unwrap_or_default().to_owned();
        self.items
            .retain(|item| item.thread != own || item.is_command());
    }

    pub(super) fn turn_accepted(
        &mut self,
        input: InputId,
        result: std::result::Result<&str, RpcError>,
        effects: &mut Effects,
    ) {
        let id = match result {
            Ok(result) => Fields::of(result).fields("turn").text("id"),
            Err(error) => return self.turn_refused(error.message, effects),
        };
        let Some(id) = id else {
            return self.turn_refused("it answered without a turn".to_owned(), effects);
        };
        if let Some(ended) = self.ended.take_if(|ended| ended.id == id) {
            // Its end came before this answer.
            self.adopt(id, input);
            self.consume(effects);
            return self.end_turn(ended.ending, effects);
        }
        let other = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.id.as_ref().is_some_and(|known| *known != id));
        if other {
            self.supersede(effects);
        }
        self.adopt(id, input);
        self.consume(effects);
        self.ask_to_stop(effects);
    }

    /// Joins an input with the turn that the program made of it: its own, or one that it had begun by itself.
    fn adopt(&mut self, id: String, input: InputId) {
        if self.turn.is_none() {
            self.open_turn(Turn::default());
        }
        if let Some(turn) = &mut self.turn {
            turn.id = Some(id);
            turn.input.get_or_insert(input);
        }
    }

    fn turn_refused(&mut self, message: String, effects: &mut Effects) {
        let open = self.turn.as_ref();
        if open.is_some_and(|turn| turn.id.is_none()) {
            self.end_turn(Ending::failed("input_rejected", message), effects);
        } else {
            self.note("input_rejected", message, None, effects);
        }
    }

    /// Tells that the input of the running turn was taken, once.
    fn consume(&mut self, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        let Some(taken) = turn.input.filter(|_| !turn.consumed) else {
            return;
        };
        turn.consumed = true;
        effects.emit.input_consumed(taken);
        // The turn is known: the answer, should it be still to come, tells nothing new.
        for asked in self.asked.values_mut() {
            if matches!(asked, Asked::StartTurn { input } if *input == taken) {
                *asked = Asked::Nothing;
            }
        }
    }

    pub(super) fn turn_started(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let Some(id) = fields.fields("turn").text("id") else {
            return;
        };
        if !self.is_own(thread) {
            return self.child_turn_started(thread, id, effects);
        }
        if self.ended.as_ref().is_some_and(|ended| ended.id == id) {
            let message = "a turn that has ended begins again";
            return self.note("late_event", message, None, effects);
        }
        let known = self.turn.as_ref().map(|turn| turn.id.clone());
        match known {
            // Ours: nothing else was asked for.
            Some(None) => {}
            Some(Some(known)) if known == id => {}
            Some(Some(_)) => {
                self.supersede(effects);
                self.open_turn(Turn::default());
            }
            None => self.open_turn(Turn::default()),
        }
        if let Some(turn) = &mut self.turn {
            turn.id = Some(id);
            turn.started = true;
        }
        self.consume(effects);
    }

    /// Something of a turn is told: it runs. If the answer to our `turn/start` is still to come, this can only be
    /// the turn that was made of it.
    pub(super) fn turn_seen(&mut self, thread: &str, id: &str, effects: &mut Effects) {
        let own = self.is_own(thread) && !id.is_empty();
        if !own || self.ended.as_ref().is_some_and(|ended| ended.id == id) {
            return;
        }
        if let Some(turn) = &mut self.turn
            && turn.id.as_deref().is_none_or(|known| known == id)
        {
            turn.id.get_or_insert_with(|| id.to_owned());
            turn.started = true;
            self.consume(effects);
        }
    }

    /// The program goes on with another turn: this one is over, and how was not told.
    fn supersede(&mut self, effects: &mut Effects) {
        let text = "the program began another turn without ending this one";
        self.close_turn(Ending::failed("no_result", text), effects);
    }

    pub(super) fn turn_completed(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        params: &str,
        effects: &mut Effects,
    ) {
        let turn = fields.fields("turn");
        if !self.is_own(thread) {
            return self.child_turn_completed(thread, &turn, effects);
        }
        let id = turn.text("id").unwrap_or_default();
        if self.is_current(&id) {
            let ending = self.ending(&turn);
            return self.end_turn(ending, effects);
        }
        let message = "the end of a turn that does not run";
        self.note("late_event", message, Some(verbatim(params)), effects);
        if self.turn.as_ref().is_some_and(|turn| turn.id.is_none()) {
            // It may be the one whose begin was not told yet.
            let ending = self.ending(&turn);
            self.ended = Some(Ended { id, ending });
        }
    }

    fn ending(&self, turn: &Fields<'_>) -> Ending {
        match turn.text("status").as_deref() {
            Some("completed") => Ending::Completed,
            Some("interrupted") => Ending::Interrupted,
            Some("failed") => {
                let told = turn.raw("error").map(|_| error_text(&turn.fields("error")));
                let remembered = self.turn.as_ref().and_then(|turn| turn.error.clone());
                let text = told.or(remembered);
                Ending::failed("model_error", text.unwrap_or_default())
            }
            status => {
                let status = status.unwrap_or("no status");
                Ending::failed("unknown_outcome", format!("the turn ended with {status}"))
            }
        }
    }

    /// Ends the running turn, and goes on with what waits.
    pub(super) fn end_turn(&mut self, ending: Ending, effects: &mut Effects) {
        self.close_turn(ending, effects);
        self.start_waiting(effects);
    }

    /// Ends the running turn: the one place where a `Terminal` is made (EN9).
    fn close_turn(&mut self, ending: Ending, effects: &mut Effects) {
        if matches!(ending, Ending::Completed | Ending::Interrupted) {
            self.consume(effects);
        }
        let Some(turn) = self.turn.take() else {
            return;
        };
        let own = self.thread().unwrap_or_default().to_owned();
        self.settle_items(&own, ending == Ending::Completed, effects);
        self.withdraw_requests(Some(&own), "the turn has ended", effects);
        self.tell_background(effects);
        let used = match (turn.base, self.total) {
            (Some(base), Some(total)) => {
                Some(total.since(base)).filter(|used| *used != Tokens::default())
            }
            _ => None,
        };
        let usage = used.map(Tokens::usage);
        match &ending {
            Ending::Completed => effects.emit.completed(usage),
            Ending::Interrupted => effects.emit.interrupted(usage),
            Ending::Failed { reason, message } => effects.emit.failed(reason, message, usage),
        }
        if matches!(self.phase, Phase::Gone) {
            return;
        }
        self.ask_for_commands(&own, turn.id.as_deref(), &ending, effects);
        self.ended = turn.id.map(|id| Ended { id, ending });
    }

    fn start_waiting(&mut self, effects: &mut Effects) {
        while self.turn.is_none()
            && let Some(input) = self.waiting.pop_front()
        {
            if let Err(error) = self.start_turn(&input, effects) {
                effects
                    .emit
                    .failed("input_not_delivered", error.to_string(), None);
            }
        }
    }

    /// Commands may outlive their turn. An interrupted turn's are stopped, because the program leaves them
    /// running; and those of which the program knows nothing any more are not waited for.
    fn ask_for_commands(
        &mut self,
        own: &str,
        turn: Option<&str>,
        ending: &Ending,
        effects: &mut Effects,
    ) {
        let open = |item: &&super::state::OpenItem| item.thread == own && item.is_command();
        if !self.items.iter().any(|item| open(&item)) {
            return;
        }
        let stop = match ending {
            Ending::Interrupted => self
                .items
                .iter()
                .filter(open)
                .filter(|item| Some(item.turn.as_str()) == turn)
                .map(|item| item.id.clone())
                .collect(),
            _ => Vec::new(),
        };
        let params = json!({"threadId": own});
        let asked = Asked::Commands { stop };
        self.call("thread/backgroundTerminals/list", params, asked, effects);
    }

    pub(super) fn commands_listed(
        &mut self,
        stop: &[String],
        result: std::result::Result<&str, RpcError>,
        effects: &mut Effects,
    ) {
        let fields = result.map(Fields::of).unwrap_or_default();
        let listed: Vec<(String, String)> = fields
            .list("data")
            .into_iter()
            .map(Fields::of)
            .filter_map(|one| Some((one.text("itemId")?, one.text("processId")?)))
            .collect();
        let own = self.thread().unwrap_or_default().to_owned();
        for (_, process) in listed.iter().filter(|(item, _)| stop.contains(item)) {
            let params = json!({"threadId": own, "processId": process});
            let method = "thread/backgroundTerminals/terminate";
            self.call(method, params, Asked::Nothing, effects);
        }
        if fields.raw("nextCursor").is_none() {
            let current = self.turn.as_ref().and_then(|turn| turn.id.clone());
            self.items.retain(|item| {
                item.thread != own
                    || !item.is_command()
                    || Some(&item.turn) == current.as_ref()
                    || listed.iter().any(|(id, _)| *id == item.id)
            });
        }
        self.tell_background(effects);
    }

    pub(super) fn want_stop(&mut self, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn
            && turn.stop == Stop::No
        {
            turn.stop = Stop::Wanted;
        }
        self.ask_to_stop(effects);
    }

    /// Asks the program to stop the turn, as soon as it can: between the answer to `turn/start` and
    /// `turn/started` it answers "no active turn to interrupt" and runs the turn to its end.
    pub(super) fn ask_to_stop(&mut self, effects: &mut Effects) {
        let thread = self.thread().unwrap_or_default().to_owned();
        let Some(turn) = &mut self.turn else {
            return;
        };
        if turn.stop != Stop::Wanted || !turn.started {
            return;
        }
        let Some(id) = turn.id.clone() else {
            return;
        };
        turn.stop = Stop::Asked;
        let params = json!({"threadId": thread, "turnId": id});
        self.call(
            "turn/interrupt",
            params,
            Asked::Interrupt { turn: id },
            effects,
        );
    }

    pub(super) fn stop_answered(&mut self, turn: &str, taken: bool) {
        if let Some(current) = &mut self.turn
            && current.id.as_deref() == Some(turn)
            && !taken
        {
            // Once more with the next sign that it runs.
            current.stop = Stop::Wanted;
        }
    }

    pub(super) fn status_changed(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        if !self.is_own(thread) {
            return;
        }
        match fields.fields("status").text("type").as_deref() {
            Some("idle" | "systemError") => self.check_turn(effects),
            _ => {
                if let Some(turn) = &mut self.turn {
                    turn.check = None;
                }
            }
        }
    }

    /// The thread rests while its turn is open. Mostly the turn's end is the next line; where it is not, the
    /// answer to this question decides.
    pub(super) fn check_turn(&mut self, effects: &mut Effects) {
        let Some(turn) = &self.turn else {
            return;
        };
        let (Some(id), true, None) = (turn.id.clone(), turn.started, &turn.check) else {
            return;
        };
        let params = json!({
            "threadId": self.thread(),
            "limit": 1,
            "sortDirection": "desc",
            "itemsView": "notLoaded",
        });
        let asked = Asked::LastTurn { turn: id };
        let check = self.call("thread/turns/list", params, asked, effects);
        if let Some(turn) = &mut self.turn {
            turn.check = Some(check);
        }
    }

    pub(super) fn turn_checked(
        &mut self,
        id: &str,
        request: &str,
        result: std::result::Result<&str, RpcError>,
        effects: &mut Effects,
    ) {
        let asked = self
            .turn
            .as_mut()
            .filter(|turn| turn.id.as_deref() == Some(id))
            .and_then(|turn| turn.check.take_if(|check| check == request));
        if asked.is_none() {
            return;
        }
        let fields = result.map(Fields::of).unwrap_or_default();
        let turns = fields.list("data").into_iter().map(Fields::of);
        // A status without a time is no verdict: the turn may go on. After an error of the model the program rests
        // a moment before it ends the turn, so this is no cause for alarm either.
        let ended = turns
            .filter(|turn| turn.text("id").as_deref() == Some(id))
            .filter(|turn| turn.text("status").as_deref() != Some("inProgress"))
            .find(|turn| turn.raw("completedAt").is_some());
        if let Some(turn) = ended {
            let ending = self.ending(&turn);
            self.end_turn(ending, effects);
        }
    }

    pub(super) fn usage_updated(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        params: &str,
        effects: &mut Effects,
    ) {
        let usage = fields.fields("tokenUsage");
        let total = tokens(&usage.fields("total"));
        if !self.is_own(thread) {
            let key = self.mint("");
            return effects
                .emit
                .usage(&key, total.usage(), Some(verbatim(params)));
        }
        let changed = self.total.replace(total) != Some(total);
        let id = fields.text("turnId").unwrap_or_default();
        // A resumed conversation repeats the count of its last turn.
        if !changed || !self.is_current(&id) {
            return;
        }
        if let Some(turn) = &mut self.turn {
            let last = tokens(&usage.fields("last"));
            turn.base.get_or_insert(total.since(last));
        }
        let key = self.mint("");
        let native = Some(verbatim(params));
        effects.emit.usage(&key, total.usage(), native);
    }

    pub(super) fn error_told(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        params: &str,
        effects: &mut Effects,
    ) {
        let text = error_text(&fields.fields("error"));
        let turn = fields.text("turnId").unwrap_or_default();
        if fields.flag("willRetry") == Some(true) {
            // The stream begins anew: what it said so far is said again under other ids.
            self.items.retain(|item| {
                item.thread != thread || item.turn != turn || matches!(item.body, Body::Tool { .. })
            });
            return self.note("retrying", text, Some(verbatim(params)), effects);
        }
        if self.is_own(thread) && self.is_current(&turn) {
            if let Some(turn) = &mut self.turn {
                turn.error = Some(text);
            }
            return;
        }
        self.note("error", text, Some(verbatim(params)), effects);
    }

    pub(super) fn exited(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        let bound = matches!(self.phase, Phase::Bound { .. });
        let asked = self.turn.as_ref().is_some_and(|turn| turn.stop != Stop::No);
        let message = exit_text(exit, stderr);
        for thread in self.threads_with_items() {
            self.settle_items(&thread, false, effects);
        }
        self.items.clear();
        self.withdraw_requests(None, "the program has ended", effects);
        self.children_ended(effects);
        self.waiting.clear();
        self.asked.clear();
        if bound {
            self.phase = Phase::Gone;
        }
        self.tell_background(effects);
        match exit.reason {
            _ if self.turn.is_none() => {
                if bound && !self.closing {
                    self.note("engine_exited", message, None, effects);
                }
            }
            ExitReason::Killed if asked => self.end_turn(Ending::Interrupted, effects),
            // It says that all is well, and told no end of the turn.
            ExitReason::Exited if exit.code == Some(0) => {
                self.end_turn(Ending::failed("no_result", message), effects);
            }
            ExitReason::Exited | ExitReason::Killed => {
                self.end_turn(Ending::failed("engine_exited", message), effects);
            }
            limit => self.end_turn(Ending::failed(limit.code(), message), effects),
        }
    }
}

fn tokens(fields: &Fields<'_>) -> Tokens {
    let count = |key| fields.number(key).unwrap_or_default();
    Tokens {
        input: count("inputTokens"),
        cached: count("cachedInputTokens"),
        output: count("outputTokens"),
        reasoning: count("reasoningOutputTokens"),
    }
}

/// Message, details and Codex's own code of an error, as far as it has them.
pub(super) fn error_text(error: &Fields<'_>) -> String {
    let mut text = error.text("message").unwrap_or_default();
    if let Some(details) = error.text("additionalDetails") {
        text = format!("{text}: {details}");
    }
    let info = error.fields("codexErrorInfo");
    let code = error
        .text("codexErrorInfo")
        .or_else(|| info.keys().next().map(str::to_owned))
        .filter(|code| code != "other");
    match code {
        Some(code) => format!("{text} ({code})"),
        None => text,
    }
}

fn exit_text(exit: &ExitStatus, stderr: &str) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    let mut text = format!("the program ended ({}): {how}", exit.reason.code());
    let stderr = without_colours(stderr);
    let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(TOLD_STDERR));
    if !stderr.is_empty() {
        text.push_str("; standard error: ");
        text.push_str(&stderr[from..]);
    }
    text
}

/// A text without the terminal's colour codes.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_tells_how_and_the_end_of_standard_error() {
        let exit = |code, signal, reason| ExitStatus {
            code,
            signal,
            reason,
        };
        let text = exit_text(
            &exit(Some(3), None, ExitReason::Exited),
            "\u{1b}[2m10:00\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m no",
        );
        assert_eq!(
            text,
            "the program ended (exited): exit code 3; standard error: 10:00 ERROR no"
        );
        let text = exit_text(&exit(None, Some(9), ExitReason::MemoryLimit), "");
        assert_eq!(text, "the program ended (memory_limit): signal 9");
        let long = "ä".repeat(2 * TOLD_STDERR);
        let text = exit_text(&exit(None, None, ExitReason::SandboxDied), &long);
        assert!(text.len() < TOLD_STDERR + 100 && text.ends_with('ä'));
    }

    #[test]
    fn an_error_has_its_code_and_details() {
        for (error, expected) in [
            (r#"{"message":"no"}"#, "no"),
            (r#"{"message":"no","codexErrorInfo":"other"}"#, "no"),
            (
                r#"{"message":"no","codexErrorInfo":"unauthorized"}"#,
                "no (unauthorized)",
            ),
            (
                r#"{"message":"a","additionalDetails":"b","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":1}}}"#,
                "a: b (httpConnectionFailed)",
            ),
        ] {
            assert_eq!(error_text(&Fields::of(error)), expected, "{error}");
        }
    }
}
