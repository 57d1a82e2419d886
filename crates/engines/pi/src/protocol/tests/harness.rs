//! Drives the protocol by hand, and writes what it says as short lines.

use std::collections::BTreeMap;

use astrabox_engine::line::{Effects, Line, LineProtocol};
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_engine::{EmissionKind, EngineInput, EventDraft, Result};
use astrabox_types::{
    ContentPart, EventPayload, InputId, InteractionAnswer, Json, Presentation, TurnOutcome,
};
use serde_json::{Value, json};

use crate::protocol::PiProtocol;

/// The conversation in tests.
pub(super) const KEY: &str = "00000000-0000-4000-8000-00000000c0de";

/// The n-th input of a test.
pub(super) fn input_id(n: u64) -> InputId {
    format!("inp_{n:032x}").parse().expect("it is an id")
}

pub(super) fn input(n: u64, text: &str) -> EngineInput {
    EngineInput {
        input_id: input_id(n),
        content: vec![ContentPart::text(text)],
        notice: None,
    }
}

pub(super) fn choose(id: &str) -> InteractionAnswer {
    InteractionAnswer::Choose {
        choice_id: id.to_owned(),
        comment: None,
        input: None,
    }
}

pub(super) fn decline() -> InteractionAnswer {
    InteractionAnswer::Decline { comment: None }
}

pub(super) fn reply(text: &str) -> InteractionAnswer {
    InteractionAnswer::Reply {
        answers: BTreeMap::from([("answer".to_owned(), vec![text.to_owned()])]),
    }
}

pub(super) fn exit(reason: ExitReason, code: Option<i32>, signal: Option<i32>) -> ExitStatus {
    ExitStatus {
        code,
        signal,
        reason,
    }
}

/// A protocol with its effects so far.
pub(super) struct Driver {
    pub(super) protocol: PiProtocol,
    /// Whether the state goes through its serialised form after each step.
    pub(super) restart: bool,
    /// What the engine said.
    pub(super) said: Vec<EmissionKind>,
    /// What it wrote, as JSON.
    pub(super) wrote: Vec<Value>,
    offset: u64,
}

impl Driver {
    pub(super) fn new() -> Self {
        Self::with(Vec::new())
    }

    /// With calls that a process before this one left without a result.
    pub(super) fn with(unanswered: Vec<String>) -> Self {
        Self {
            protocol: PiProtocol::new(KEY.to_owned(), 1, unanswered),
            restart: false,
            said: Vec::new(),
            wrote: Vec::new(),
            offset: 0,
        }
    }

    /// Bound to [`KEY`], with nothing said or written.
    pub(super) fn bound() -> Self {
        let mut driver = Self::new();
        driver.begin(None);
        driver.answer_last(
            "get_state",
            &json!({"sessionId": KEY, "sessionFile": "/s.jsonl"}),
        );
        driver.said.clear();
        driver.wrote.clear();
        driver
    }

    /// Bound, and at work on the first input.
    pub(super) fn running() -> Self {
        let mut driver = Self::bound();
        driver.deliver(1).expect("it is taken");
        driver.begins();
        driver.said.clear();
        driver.wrote.clear();
        driver
    }

    /// The program takes the input that it was given last.
    pub(super) fn begins(&mut self) {
        self.answer_last("prompt", &json!({"disposition": "started"}));
        self.value(&json!({"type": "agent_start"}));
        self.value(&json!({"type": "turn_start"}));
    }

    fn effects(&self) -> Effects {
        Effects::at(self.offset)
    }

    fn take(&mut self, mut effects: Effects) {
        for line in effects.take_outgoing() {
            assert!(!line.contains('\n'), "{line}");
            let value = serde_json::from_str(&line).expect("what is written is JSON");
            self.wrote.push(value);
        }
        let kinds = effects.emit.take().into_iter().map(|one| one.into_kind());
        self.said.extend(kinds);
        if self.restart {
            let state = serde_json::to_string(&self.protocol).expect("the state is JSON");
            self.protocol = serde_json::from_str(&state).expect("it reads back");
        }
    }

    pub(super) fn begin(&mut self, expected: Option<&str>) {
        let mut effects = self.effects();
        self.protocol.begin(expected, &mut effects);
        self.take(effects);
    }

    pub(super) fn line(&mut self, line: Line<'_>, offset: u64) {
        self.offset = offset;
        let mut effects = self.effects();
        self.protocol.on_line(line, &mut effects);
        self.take(effects);
    }

    pub(super) fn text(&mut self, line: &str) {
        let offset = self.offset + line.len() as u64 + 1;
        self.line(Line::Text(line), offset);
    }

    pub(super) fn value(&mut self, value: &Value) {
        self.text(&value.to_string());
    }

    /// A text block begins and says this.
    pub(super) fn says(&mut self, index: u64, text: &str) {
        for event in [
            json!({"type": "text_start", "contentIndex": index}),
            json!({"type": "text_delta", "contentIndex": index, "delta": text}),
        ] {
            self.value(&json!({"type": "message_update", "assistantMessageEvent": event}));
        }
    }

    /// A whole message of the model.
    pub(super) fn message(&mut self, content: &Value, stop: &str) {
        let usage = json!({"input": 10, "output": 2, "cacheRead": 5, "cacheWrite": 0});
        let message =
            json!({"role": "assistant", "content": content, "usage": usage, "stopReason": stop});
        self.value(&json!({"type": "message_end", "message": message}));
    }

    pub(super) fn call(&mut self, id: &str, name: &str, args: &Value) {
        self.value(
            &json!({"type": "tool_execution_start", "toolCallId": id, "toolName": name, "args": args}),
        );
    }

    pub(super) fn returns(&mut self, id: &str, result: &Value) {
        self.value(
            &json!({"type": "tool_execution_end", "toolCallId": id, "result": result, "isError": false}),
        );
    }

    /// The program rests.
    pub(super) fn settles(&mut self, aborted: bool) {
        self.value(&json!({"type": "agent_settled", "aborted": aborted}));
    }

    /// A dialog of an extension.
    pub(super) fn asks(&mut self, id: &str, method: &str, mut dialog: Value) {
        dialog["type"] = json!("extension_ui_request");
        dialog["id"] = json!(id);
        dialog["method"] = json!(method);
        self.value(&dialog);
    }

    /// The platform's extension asks for approval.
    pub(super) fn asks_approval(&mut self, id: &str, call: &str, tool: &str, input: &Value) {
        let told = json!({"call": call, "tool": tool, "input": input}).to_string();
        self.asks(
            id,
            "input",
            json!({"title": "astrabox:approval", "placeholder": told}),
        );
    }

    /// The id of our last command of this type.
    pub(super) fn last(&self, kind: &str) -> String {
        let mut wrote = self.wrote.iter().rev();
        let found = wrote.find(|sent| sent["type"] == kind);
        let found = found.unwrap_or_else(|| panic!("no {kind} in {:#?}", self.wrote));
        found["id"].as_str().expect("ids are texts").to_owned()
    }

    /// Answers our last command of this type.
    pub(super) fn answer_last(&mut self, kind: &str, data: &Value) {
        let id = self.last(kind);
        self.value(
            &json!({"id": id, "type": "response", "command": kind, "success": true, "data": data}),
        );
    }

    pub(super) fn refuse_last(&mut self, kind: &str, error: &str) {
        let id = self.last(kind);
        self.value(
            &json!({"id": id, "type": "response", "command": kind, "success": false, "error": error}),
        );
    }

    pub(super) fn deliver(&mut self, n: u64) -> Result<()> {
        self.deliver_input(&input(n, &format!("input {n}")))
    }

    pub(super) fn deliver_input(&mut self, input: &EngineInput) -> Result<()> {
        let mut effects = self.effects();
        let done = self.protocol.deliver(input, &mut effects);
        self.take(effects);
        done
    }

    pub(super) fn interrupt(&mut self) {
        let mut effects = self.effects();
        self.protocol.interrupt(&mut effects);
        self.take(effects);
    }

    pub(super) fn answer(&mut self, id: &str, answer: &InteractionAnswer) -> Result<()> {
        let mut effects = self.effects();
        let done = self.protocol.answer(id, answer, &mut effects);
        self.take(effects);
        done
    }

    pub(super) fn exit(&mut self, exit: &ExitStatus, stderr: &str) {
        let mut effects = self.effects();
        self.protocol.on_exit(exit, stderr, &mut effects);
        self.take(effects);
    }

    /// What was said since the last call, a line each.
    pub(super) fn told(&mut self) -> Vec<String> {
        self.said.drain(..).map(|kind| told(&kind)).collect()
    }

    /// What was written since the last call.
    pub(super) fn written(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.wrote)
    }

    /// The kinds of what was written since the last call.
    pub(super) fn asked(&mut self) -> Vec<String> {
        self.written().iter().map(kind_of).collect()
    }
}

/// What a line of ours is.
pub(super) fn kind_of(sent: &Value) -> String {
    sent["type"].as_str().unwrap_or_default().to_owned()
}

/// An emission as a short line. Native payloads show as `+`.
pub(super) fn told(kind: &EmissionKind) -> String {
    match kind {
        EmissionKind::PublicEvent(draft) | EmissionKind::Diagnostic(draft) => draft_told(draft),
        EmissionKind::Delta(delta) => {
            let child = child_told(delta.child_run.as_ref().map(|run| run.0.as_str()));
            format!(
                "{child}delta {} @{} {:?}",
                delta.key, delta.offset, delta.text
            )
        }
        EmissionKind::InputConsumed(id) => {
            let digits = id.to_string();
            format!(
                "consumed {}",
                digits.trim_start_matches("inp_").trim_start_matches('0')
            )
        }
        EmissionKind::InteractionRequested(draft) => {
            let what = presentation_told(&draft.presentation);
            format!(
                "asks {} {what}{}",
                draft.native_id,
                native_told(draft.native.as_ref())
            )
        }
        EmissionKind::InteractionWithdrawn { native_id, reason } => {
            format!("withdraws {native_id}: {reason}")
        }
        EmissionKind::ChildRunFact(run, native) => format!(
            "child {} {:?} title={:?} call={:?}{}",
            run.id.0,
            run.state,
            run.title,
            run.call_id,
            native_told(native.as_ref())
        ),
        EmissionKind::PermissionModeChanged(mode) => format!("permission mode {mode}"),
        EmissionKind::BackgroundOpened => "background opened".to_owned(),
        EmissionKind::BackgroundClosed => "background closed".to_owned(),
        EmissionKind::ResponseCompleted => "response completed".to_owned(),
        EmissionKind::Terminal(terminal) => {
            let outcome = match &terminal.outcome {
                TurnOutcome::Completed => "completed".to_owned(),
                TurnOutcome::Interrupted => "interrupted".to_owned(),
                TurnOutcome::Failed { failure } => {
                    format!("failed {}: {}", failure.reason, failure.message)
                }
            };
            let usage = terminal.usage.as_ref().map(usage_told);
            format!("END {outcome} {}", usage.unwrap_or_default())
                .trim_end()
                .to_owned()
        }
    }
}

fn usage_told(usage: &astrabox_types::Usage) -> String {
    let show = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    format!(
        "in={} cached={} out={} reasoning={}",
        show(usage.input_tokens),
        show(usage.cached_input_tokens),
        show(usage.output_tokens),
        show(usage.reasoning_tokens)
    )
}

fn native_told(native: Option<&Json>) -> &'static str {
    if native.is_some() { " +" } else { "" }
}

fn child_told(child: Option<&str>) -> String {
    child.map_or(String::new(), |child| format!("[{child}] "))
}

fn draft_told(draft: &EventDraft) -> String {
    let what = match &draft.payload {
        EventPayload::MessageCompleted {
            kind,
            text,
            truncated,
        } => format!(
            "{kind:?} {text:?}{}",
            if *truncated { " truncated" } else { "" }
        ),
        EventPayload::ToolCall { name, input, .. } => format!("{name} {}", input.text()),
        EventPayload::ToolResult {
            name,
            output,
            is_error,
            ..
        } => format!(
            "{name} {}{}",
            output.text(),
            if *is_error { " error" } else { "" }
        ),
        EventPayload::FileChanged { path, kind, diff } => format!("{path} {kind:?} {diff:?}"),
        EventPayload::Usage { usage } => usage_told(usage),
        EventPayload::DiagnosticRaw { topic, message } => format!("{topic} {message:?}"),
        other => format!("{other:?}"),
    };
    let child = child_told(draft.child_run.as_ref().map(|run| run.0.as_str()));
    format!(
        "{child}{}: {what}{}",
        draft.key,
        native_told(draft.native.as_ref())
    )
}

fn presentation_told(presentation: &Presentation) -> String {
    match presentation {
        Presentation::ToolApproval {
            call_id,
            tool,
            input,
            reason,
            choices,
        } => {
            let choices: Vec<_> = choices
                .iter()
                .map(|choice| format!("{}{}", if choice.allows { "+" } else { "-" }, choice.id))
                .collect();
            format!(
                "{tool} {} call={} reason={reason:?} [{}]",
                input.text(),
                call_id.as_deref().unwrap_or("-"),
                choices.join(" ")
            )
        }
        Presentation::Question { questions } => {
            let questions: Vec<_> = questions
                .iter()
                .map(|it| {
                    let free = if it.allow_free_text { " free" } else { "" };
                    let many = if it.multi_select { " many" } else { "" };
                    let (header, question) = (&it.header, &it.question);
                    format!(
                        "{}: {header:?} {question:?} {:?}{many}{free}",
                        it.id, it.options
                    )
                })
                .collect();
            questions.join("; ")
        }
        Presentation::Decision { body, choices } => {
            let ids: BTreeMap<_, _> = choices.iter().map(|it| (&it.id, it.allows)).collect();
            format!("{body:?} {ids:?}")
        }
    }
}
