//! Drives the protocol by hand, and writes what it says as short lines.

use std::collections::BTreeMap;

use astrabox_engine::line::{Effects, Line, LineProtocol};
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_engine::{EmissionKind, EngineInput, EventDraft, Result};
use astrabox_types::{
    ContentPart, EventPayload, InputId, InteractionAnswer, Json, Presentation, TurnOutcome,
};
use serde_json::{Value, json};

use crate::plan::message_id;
use crate::plan::tests::settings;
use crate::protocol::ClaudeProtocol;

/// The conversation in tests by hand.
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

pub(super) fn reply(answers: &[(&str, &[&str])]) -> InteractionAnswer {
    let answers = answers.iter().map(|(id, texts)| {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        ((*id).to_owned(), texts)
    });
    InteractionAnswer::Reply {
        answers: answers.collect(),
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
    pub(super) protocol: ClaudeProtocol,
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
        Self {
            protocol: ClaudeProtocol::new(settings(), 1, Vec::new()),
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
        driver.answer_last("initialize", &json!({"claude_code_version": "2.1.328"}));
        driver.answer_last("set_permission_mode", &json!({"mode": "default"}));
        driver.system("status", json!({"permissionMode": "default"}));
        driver.said.clear();
        driver.wrote.clear();
        driver
    }

    /// Bound, and with a turn that answers the first input.
    pub(super) fn running() -> Self {
        let mut driver = Self::bound();
        driver.deliver(1).expect("it is taken");
        driver.begins(1);
        driver.said.clear();
        driver.wrote.clear();
        driver
    }

    /// The program takes the n-th input.
    pub(super) fn begins(&mut self, n: u64) {
        self.system("session_state_changed", json!({"state": "running"}));
        self.lifecycle(n, "started");
        self.system("init", json!({"tools": ["Bash"], "mcp_servers": []}));
    }

    pub(super) fn lifecycle(&mut self, n: u64, state: &str) {
        let id = message_id(input_id(n), 1);
        self.value(&json!({"type": "command_lifecycle", "command_uuid": id, "state": state}));
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

    /// A message of the program's own.
    pub(super) fn system(&mut self, subtype: &str, mut message: Value) {
        message["type"] = json!("system");
        message["subtype"] = json!(subtype);
        message["session_id"] = json!(KEY);
        self.value(&message);
    }

    /// A piece of what the model says.
    pub(super) fn stream(&mut self, event: Value) {
        self.value(&json!({"type": "stream_event", "event": event, "parent_tool_use_id": null}));
    }

    /// A text block begins and says this.
    pub(super) fn says(&mut self, index: u64, text: &str) {
        let block = json!({"type": "text", "text": ""});
        self.stream(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let delta = json!({"type": "text_delta", "text": text});
        self.stream(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    /// A whole block of the conversation itself.
    pub(super) fn block(&mut self, block: Value) {
        let message = json!({"role": "assistant", "content": [block]});
        self.value(&json!({"type": "assistant", "message": message, "parent_tool_use_id": null}));
    }

    /// A call of the conversation itself.
    pub(super) fn call(&mut self, id: &str, name: &str, input: Value) {
        self.block(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }

    /// A result of a call of the conversation itself.
    pub(super) fn returns(&mut self, id: &str, content: Value) {
        let block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        let message = json!({"role": "user", "content": [block]});
        self.value(&json!({"type": "user", "message": message, "parent_tool_use_id": null}));
    }

    /// The end of the turn.
    pub(super) fn result(&mut self) {
        self.value(
            &json!({"type": "result", "subtype": "success", "is_error": false, "result": ""}),
        );
    }

    /// May this run?
    pub(super) fn asks(&mut self, id: &str, request: Value) {
        let mut request = request;
        request["subtype"] = json!("can_use_tool");
        self.value(&json!({"type": "control_request", "request_id": id, "request": request}));
    }

    /// The id of our last request of this subtype.
    pub(super) fn last(&self, subtype: &str) -> String {
        let mut wrote = self.wrote.iter().rev();
        let found = wrote.find(|sent| sent["request"]["subtype"] == subtype);
        let found = found.unwrap_or_else(|| panic!("no {subtype} in {:#?}", self.wrote));
        found["request_id"]
            .as_str()
            .expect("ids are texts")
            .to_owned()
    }

    /// Answers our last request of this subtype.
    pub(super) fn answer_last(&mut self, subtype: &str, response: &Value) {
        let id = self.last(subtype);
        let response = json!({"subtype": "success", "request_id": id, "response": response});
        self.value(&json!({"type": "control_response", "response": response}));
    }

    pub(super) fn refuse_last(&mut self, subtype: &str, error: &str) {
        let id = self.last(subtype);
        let response = json!({"subtype": "error", "request_id": id, "error": error});
        self.value(&json!({"type": "control_response", "response": response}));
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

    pub(super) fn set_mode(&mut self, mode: &str) -> Result<()> {
        let mut effects = self.effects();
        let done = self.protocol.set_mode(mode, &mut effects);
        self.take(effects);
        done
    }

    pub(super) fn stop_child(&mut self, run: &str) -> Result<()> {
        let mut effects = self.effects();
        let run = astrabox_types::ChildRunId(run.to_owned());
        let done = self.protocol.stop_child(&run, &mut effects);
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
        let wrote = self.written();
        wrote.iter().map(kind_of).collect()
    }
}

/// What a line of ours is.
pub(super) fn kind_of(sent: &Value) -> String {
    match sent["request"]["subtype"].as_str() {
        Some(subtype) => subtype.to_owned(),
        None => sent["type"].as_str().unwrap_or_default().to_owned(),
    }
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
