//! For tests: drives the protocol by hand, as the program would, and writes what it says as short lines.

use std::collections::BTreeMap;

use astrabox_engine::line::{Effects, Handshake, Job, JobResult, Line, LineProtocol};
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_engine::{EmissionKind, EngineInput, EventDraft, Result};
use astrabox_types::{
    ChildRunId, ContentPart, EventPayload, InputId, InteractionAnswer, Json, Presentation,
    TurnOutcome, Usage,
};
use serde_json::{Value, json};

use crate::{AcpProtocol, Dialect, Settings};

/// The conversation in tests by hand.
pub const SESSION: &str = "sess-1";

/// The n-th input of a test.
///
/// # Panics
/// Never: an id is made of any number.
#[must_use]
pub fn input_id(n: u64) -> InputId {
    format!("inp_{n:032x}").parse().expect("it is an id")
}

/// An input with a text.
#[must_use]
pub fn input(n: u64, text: &str) -> EngineInput {
    EngineInput {
        input_id: input_id(n),
        content: vec![ContentPart::text(text)],
        notice: None,
    }
}

/// The answer that chooses this.
#[must_use]
pub fn choose(id: &str) -> InteractionAnswer {
    InteractionAnswer::Choose {
        choice_id: id.to_owned(),
        comment: None,
        input: None,
    }
}

/// An end of the process.
#[must_use]
pub fn exit(reason: ExitReason, code: Option<i32>, signal: Option<i32>) -> ExitStatus {
    ExitStatus {
        code,
        signal,
        reason,
    }
}

/// A protocol with its effects so far. After each step its state goes through its serialised form when `restart`.
pub struct Driver<D> {
    /// The protocol.
    pub protocol: AcpProtocol<D>,
    /// Whether the state goes through its serialised form after each step.
    pub restart: bool,
    /// What the engine said.
    pub said: Vec<EmissionKind>,
    /// What it wrote, as JSON.
    pub wrote: Vec<Value>,
    /// What it wants done, in order.
    pub jobs: Vec<Job>,
    offset: u64,
}

impl<D: Dialect> Driver<D> {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(settings: Settings, dialect: D) -> Self {
        Self {
            protocol: AcpProtocol::new(settings, dialect, 1),
            restart: false,
            said: Vec::new(),
            wrote: Vec::new(),
            jobs: Vec::new(),
            offset: 0,
        }
    }

    /// Bound to [`SESSION`], by a program that answers so to `initialize` and `session/new`; nothing said or written.
    ///
    /// # Panics
    /// When the conversation does not come to be.
    #[must_use]
    pub fn bound(settings: Settings, dialect: D, initialized: &Value, opened: &Value) -> Self {
        let mut driver = Self::new(settings, dialect);
        driver.begin(None);
        driver.answer_last("initialize", initialized);
        driver.answer_last("session/new", opened);
        while let Some(next) = driver.unanswered() {
            driver.answers(&next, &json!({}));
        }
        let state = driver.protocol.handshake();
        assert!(matches!(state, Handshake::Bound(_)), "{state:?}");
        driver.said.clear();
        driver.wrote.clear();
        driver
    }

    fn unanswered(&self) -> Option<String> {
        self.protocol.conversation.asked.keys().next().cloned()
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
        self.jobs.extend(effects.take_jobs());
        let kinds = effects.emit.take().into_iter().map(|one| one.into_kind());
        self.said.extend(kinds);
        if self.restart {
            let state = serde_json::to_string(&self.protocol).expect("the state is JSON");
            self.protocol = serde_json::from_str(&state).expect("it reads back");
        }
    }

    /// The handshake begins.
    pub fn begin(&mut self, expected: Option<&str>) {
        let mut effects = self.effects();
        self.protocol.begin(expected, &mut effects);
        self.take(effects);
    }

    /// A line of the program, of any kind.
    pub fn line(&mut self, line: Line<'_>) {
        let length = match line {
            Line::Text(text) | Line::Garbled(text) => text.len() as u64,
            Line::Overlong { length, .. } => length,
        };
        self.offset += length + 1;
        let mut effects = self.effects();
        self.protocol.on_line(line, &mut effects);
        self.take(effects);
    }

    /// A line of the program.
    pub fn text(&mut self, line: &str) {
        self.line(Line::Text(line));
    }

    /// A message of the program.
    pub fn value(&mut self, value: &Value) {
        self.text(&value.to_string());
    }

    /// A notification of the program.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.value(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// A request of the program.
    pub fn asks(&mut self, id: impl Into<Value>, method: &str, params: &Value) {
        let id = id.into();
        self.value(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// An update of the conversation.
    pub fn update(&mut self, kind: &str, update: Value) {
        self.update_of(SESSION, kind, update);
    }

    /// An update of this session.
    pub fn update_of(&mut self, session: &str, kind: &str, mut update: Value) {
        update["sessionUpdate"] = json!(kind);
        let params = json!({"sessionId": session, "update": update});
        self.notify("session/update", &params);
    }

    /// A piece of the answer.
    pub fn says(&mut self, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update("agent_message_chunk", json!({"content": content}));
    }

    /// May this call run? Offers `yes`, `always` and `no`.
    pub fn asks_permission(&mut self, id: impl Into<Value>, call: Value) {
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
        let options = json!([
            option("yes", "allow_once"),
            option("always", "allow_always"),
            option("no", "reject_once"),
        ]);
        let params = json!({"sessionId": SESSION, "toolCall": call, "options": options});
        self.asks(id, "session/request_permission", &params);
    }

    /// Our last request of this method.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn last(&self, method: &str) -> Value {
        let found = self
            .wrote
            .iter()
            .rev()
            .find(|sent| sent["method"] == method);
        let found = found.unwrap_or_else(|| panic!("no {method} in {:#?}", self.wrote));
        found.clone()
    }

    fn answers(&mut self, id: &str, result: &Value) {
        self.value(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Answers our last request of this method.
    pub fn answer_last(&mut self, method: &str, result: &Value) {
        let id = self.last(method)["id"].clone();
        self.answers(id.as_str().unwrap_or_default(), result);
    }

    /// Answers our last request of this method with an error.
    pub fn refuse_last(&mut self, method: &str, code: i64, message: &str) {
        let id = self.last(method)["id"].clone();
        let error = json!({"code": code, "message": message});
        self.value(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    /// The running prompt ends so.
    pub fn ends(&mut self, reason: &str) {
        self.answer_last("session/prompt", &json!({"stopReason": reason}));
    }

    /// Gives the n-th input.
    ///
    /// # Errors
    /// When the protocol does not take it.
    pub fn deliver(&mut self, n: u64) -> Result<()> {
        self.deliver_input(&input(n, &format!("input {n}")))
    }

    /// Gives this input.
    ///
    /// # Errors
    /// When the protocol does not take it.
    pub fn deliver_input(&mut self, input: &EngineInput) -> Result<()> {
        let mut effects = self.effects();
        let done = self.protocol.deliver(input, &mut effects);
        self.take(effects);
        done
    }

    /// Sets the permission mode.
    ///
    /// # Errors
    /// When the protocol refuses it.
    pub fn set_mode(&mut self, mode: &str) -> Result<()> {
        let mut effects = self.effects();
        let done = self.protocol.set_mode(mode, &mut effects);
        self.take(effects);
        done
    }

    /// Stops a child run.
    ///
    /// # Errors
    /// When the protocol refuses it.
    pub fn stop_child(&mut self, run: &str) -> Result<()> {
        let mut effects = self.effects();
        let run = ChildRunId(run.to_owned());
        let done = self.protocol.stop_child(&run, &mut effects);
        self.take(effects);
        done
    }

    /// Stops the turn.
    pub fn interrupt(&mut self) {
        let mut effects = self.effects();
        self.protocol.interrupt(&mut effects);
        self.take(effects);
    }

    /// Answers a question.
    ///
    /// # Errors
    /// When the protocol refuses it.
    pub fn answer(&mut self, id: &str, answer: &InteractionAnswer) -> Result<()> {
        let mut effects = self.effects();
        let done = self.protocol.answer(id, answer, &mut effects);
        self.take(effects);
        done
    }

    /// The process ends.
    pub fn exit(&mut self, exit: &ExitStatus, stderr: &str) {
        let mut effects = self.effects();
        self.protocol.on_exit(exit, stderr, &mut effects);
        self.take(effects);
    }

    /// The oldest job comes to this.
    ///
    /// # Panics
    /// When nothing is to be done.
    pub fn does(&mut self, result: &JobResult) {
        let job = self.jobs.remove(0);
        let mut effects = self.effects();
        self.protocol.on_job(&job.id, result, &mut effects);
        self.take(effects);
    }

    /// The native ids of the questions that are open.
    #[must_use]
    pub fn open_questions(&self) -> Vec<String> {
        self.protocol
            .conversation
            .requests
            .keys()
            .cloned()
            .collect()
    }

    /// What was said since the last call, a line each.
    pub fn told(&mut self) -> Vec<String> {
        self.said.drain(..).map(|kind| told(&kind)).collect()
    }

    /// What was written since the last call.
    pub fn written(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.wrote)
    }

    /// The methods of what was written since the last call; an answer is `=`.
    pub fn asked(&mut self) -> Vec<String> {
        let method = |sent: &Value| sent["method"].as_str().unwrap_or("=").to_owned();
        self.written().iter().map(method).collect()
    }
}

/// An emission as a short line. Native payloads show as `+`.
#[must_use]
pub fn told(kind: &EmissionKind) -> String {
    match kind {
        EmissionKind::PublicEvent(draft) | EmissionKind::Diagnostic(draft) => draft_told(draft),
        EmissionKind::Delta(delta) => {
            let child = child_told(delta.child_run.as_ref().map(|run| run.0.as_str()));
            let (key, offset, text) = (&delta.key, delta.offset, &delta.text);
            format!("{child}delta {key} @{offset} {text:?}")
        }
        EmissionKind::InputConsumed(id) => {
            let digits = id.to_string();
            let digits = digits.trim_start_matches("inp_").trim_start_matches('0');
            format!("consumed {digits}")
        }
        EmissionKind::InteractionRequested(draft) => {
            let child = child_told(draft.child_run.as_ref().map(|run| run.0.as_str()));
            let what = presentation_told(&draft.presentation);
            let native = native_told(draft.native.as_ref());
            format!("{child}asks {} {what}{native}", draft.native_id)
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

fn usage_told(usage: &Usage) -> String {
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
    let native = native_told(draft.native.as_ref());
    format!("{child}{}: {what}{native}", draft.key)
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
            let choices = choices
                .iter()
                .map(|choice| format!("{}{}", if choice.allows { "+" } else { "-" }, choice.id));
            format!(
                "{tool} {} call={} reason={reason:?} [{}]",
                input.text(),
                call_id.as_deref().unwrap_or("-"),
                choices.collect::<Vec<_>>().join(" ")
            )
        }
        Presentation::Question { questions } => {
            let questions = questions.iter().map(|it| {
                let free = if it.allow_free_text { " free" } else { "" };
                let many = if it.multi_select { " many" } else { "" };
                let (header, question) = (&it.header, &it.question);
                let options = &it.options;
                format!("{}: {header:?} {question:?} {options:?}{many}{free}", it.id)
            });
            questions.collect::<Vec<_>>().join("; ")
        }
        Presentation::Decision { body, choices } => {
            let ids: BTreeMap<_, _> = choices.iter().map(|it| (&it.id, it.allows)).collect();
            format!("{body:?} {ids:?}")
        }
    }
}
