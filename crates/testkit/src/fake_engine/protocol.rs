//! The pure half of the adapter.

use std::collections::{BTreeMap, BTreeSet};

use astrabox_engine::line::{Effects, Handshake, Line, LineProtocol, Powers};
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use astrabox_engine::{EngineInput, Error, ErrorKind, Result};
use astrabox_types::{
    ChildRun, ChildRunId, ChildRunState, Choice, ContentPart, DeltaChannel, InteractionAnswer,
    Json, MessageKind, Presentation, Question, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::adapter::MODES;
use super::wire::{AskForm, FromProgram, Outcome, Reply, ToProgram};

/// The protocol as a state machine.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FakeProtocol {
    /// The epoch in which the program was started; with an offset it names a line of the conversation.
    born: u64,
    expected: Option<String>,
    session: Option<String>,
    lost: bool,
    program: Option<String>,
    tools: Vec<String>,
    mode: Option<String>,
    /// Inputs that were given and whose turns are not over.
    open: u32,
    /// A turn of the program's own runs.
    own: bool,
    /// The running turn was told to stop: once is enough.
    stopping: bool,
    /// How much of each unfinished message was told, bytes.
    told: BTreeMap<String, u64>,
    asked: BTreeMap<String, AskForm>,
    children: BTreeSet<String>,
}

impl FakeProtocol {
    /// The protocol of a program that is started in this epoch.
    #[must_use]
    pub fn new(born: u64, mode: Option<String>) -> Self {
        Self {
            born,
            mode,
            ..Self::default()
        }
    }

    fn on_said(&mut self, said: FromProgram, text: &str, effects: &mut Effects) {
        let native = Json::parse(text).ok();
        let key = format!("{}/{}", self.born, effects.at);
        let emit = &mut effects.emit;
        emit.speak_for(None);
        match said {
            FromProgram::Ready {
                session,
                program,
                tools,
            } => {
                self.session = Some(session);
                self.program = Some(program);
                self.tools = tools;
            }
            FromProgram::Lost { .. } => self.lost = true,
            FromProgram::Took { input } => emit.input_consumed(input),
            FromProgram::Begin => self.own = true,
            FromProgram::Delta {
                message,
                reasoning,
                tool,
                text,
                child,
            } => {
                let channel = match (reasoning, tool) {
                    (true, _) => DeltaChannel::Reasoning,
                    (_, true) => DeltaChannel::ToolOutput,
                    _ => DeltaChannel::Text,
                };
                let told = self.told.entry(message.clone()).or_default();
                emit.speak_for(child.map(ChildRunId));
                emit.delta(channel, &message, *told, &text);
                *told += text.len() as u64;
            }
            FromProgram::Message {
                message,
                reasoning,
                text,
                child,
            } => {
                self.told.remove(&message);
                let kind = if reasoning {
                    MessageKind::Reasoning
                } else {
                    MessageKind::Text
                };
                emit.speak_for(child.map(ChildRunId));
                emit.message(kind, &message, text, false, native);
            }
            FromProgram::Call { call, tool, input } => {
                emit.tool_call(&call, &tool, input.into(), native);
            }
            FromProgram::Result {
                call,
                tool,
                output,
                error,
            } => {
                self.told.remove(&call);
                emit.tool_result(&call, &tool, output.into(), error, native);
            }
            FromProgram::Ask {
                ask,
                form,
                text,
                child,
            } => {
                emit.speak_for(child.map(ChildRunId));
                emit.interaction_requested(&ask, shown(form, text), native);
                self.asked.insert(ask, form);
            }
            FromProgram::Withdraw { ask, reason } => {
                self.asked.remove(&ask);
                emit.interaction_withdrawn(&ask, &reason);
            }
            FromProgram::Child { child, state } => {
                if state == ChildRunState::Running {
                    self.children.insert(child.clone());
                } else {
                    self.children.remove(&child);
                }
                let run = ChildRun {
                    id: ChildRunId(child),
                    state,
                    title: None,
                    call_id: None,
                };
                emit.child_run(run, native);
            }
            FromProgram::Background { open: true } => emit.background_opened(),
            FromProgram::Background { open: false } => emit.background_closed(),
            FromProgram::File { path, change, key } => emit.file_changed(&key, &path, change, None),
            FromProgram::Request { request, method } => {
                let error = format!("nobody knows `{method}`");
                emit.diagnostic(&key, "unknown_request", &error, native);
                send(effects, &ToProgram::Reply(Reply { request, error }));
            }
            // What the program thinks of itself is kept for people and ends nothing.
            FromProgram::Status { status } => emit.diagnostic(&key, "status", status, native),
            FromProgram::End {
                outcome,
                own,
                usage,
            } => self.end(outcome, own, usage, effects),
        }
    }

    fn end(&mut self, outcome: Outcome, own: bool, usage: Option<(u64, u64)>, to: &mut Effects) {
        if own {
            self.own = false;
        } else {
            self.open = self.open.saturating_sub(1);
        }
        self.told.clear();
        self.asked.clear();
        self.stopping = false;
        let usage = usage.map(|(input, output)| Usage {
            input_tokens: Some(input),
            output_tokens: Some(output),
            ..Usage::default()
        });
        match outcome {
            Outcome::Completed => to.emit.completed(usage),
            Outcome::Interrupted => to.emit.interrupted(usage),
            Outcome::Failed(reason) => to.emit.failed(&reason, "it was told to fail", usage),
        }
    }
}

/// A question as people see it.
fn shown(form: AskForm, text: String) -> Presentation {
    let choice = |id: &str, allows: bool| Choice {
        id: id.to_owned(),
        label: id.to_owned(),
        allows,
    };
    match form {
        AskForm::Approval => Presentation::ToolApproval {
            call_id: None,
            tool: "sh".to_owned(),
            input: json!({ "command": text }).into(),
            reason: None,
            choices: vec![
                choice("yes", true),
                choice("always", true),
                choice("no", false),
            ],
        },
        AskForm::Question => Presentation::Question {
            questions: vec![Question {
                id: "q".to_owned(),
                header: None,
                question: text,
                options: vec!["red".to_owned(), "blue".to_owned()],
                multi_select: false,
                allow_free_text: true,
            }],
        },
        AskForm::Decision => Presentation::Decision {
            body: text,
            choices: vec![choice("left", true), choice("right", true)],
        },
    }
}

fn send(effects: &mut Effects, line: &ToProgram) {
    effects.send(json!(line).to_string());
}

fn refused(operation: &'static str, kind: ErrorKind, text: String) -> Error {
    Error::new(kind, operation, text)
}

impl LineProtocol for FakeProtocol {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        self.expected = expected.map(str::to_owned);
        let (session, mode) = (self.expected.clone(), self.mode.clone());
        send(effects, &ToProgram::Open { session, mode });
    }

    fn handshake(&self) -> Handshake {
        let lost = |text| Handshake::Failed(Error::new(ErrorKind::ConversationLost, "bind", text));
        match (&self.session, &self.expected) {
            _ if self.lost => lost("the program has no session file of this conversation"),
            (None, _) => Handshake::Pending,
            (Some(key), Some(expected)) if key != expected => {
                lost("the program opened another conversation")
            }
            (Some(key), _) => Handshake::Bound(key.clone()),
        }
    }

    fn attached(&mut self, _epoch: u64) {}

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        let key = format!("{}/{}", self.born, effects.at);
        match line {
            Line::Text(text) => match serde_json::from_str(text) {
                Ok(said) => self.on_said(said, text, effects),
                Err(_) => {
                    let native = Json::parse(text).ok();
                    let topic = if native.is_some() {
                        "unknown_event"
                    } else {
                        "garbage_line"
                    };
                    effects.emit.speak_for(None);
                    effects.emit.diagnostic(&key, topic, text, native);
                }
            },
            Line::Garbled(text) => effects.emit.diagnostic(&key, "garbage_line", text, None),
            Line::Overlong { head, length } => {
                let text = format!("a line of {length} bytes was cut: {head}");
                effects.emit.diagnostic(&key, "overlong_line", text, None);
            }
        }
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        let open = std::mem::take(&mut self.open) > 0;
        if !std::mem::take(&mut self.own) && !open {
            return;
        }
        let reason = match exit.reason {
            ExitReason::Exited | ExitReason::Killed => "engine_exited",
            other => other.code(),
        };
        let how = match (exit.code, exit.signal) {
            (Some(code), _) => format!("code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => exit.reason.code().to_owned(),
        };
        effects.emit.speak_for(None);
        effects.emit.failed(
            reason,
            format!("the program ended with {how}: {stderr}"),
            None,
        );
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        let mut said = Vec::new();
        for part in &input.content {
            match part {
                ContentPart::Text { text } => said.push(text.as_str()),
                ContentPart::Image { .. } => {
                    let text = "the program takes no pictures".to_owned();
                    return Err(refused("deliver", ErrorKind::Unsupported, text));
                }
            }
        }
        self.open += 1;
        let line = ToProgram::Say {
            input: input.input_id,
            text: said.join("\n"),
            notice: input.notice.clone(),
        };
        send(effects, &line);
        Ok(())
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        if (self.open > 0 || self.own) && !std::mem::replace(&mut self.stopping, true) {
            send(effects, &ToProgram::Stop);
        }
    }

    fn close(&mut self, effects: &mut Effects) {
        send(effects, &ToProgram::Bye);
    }

    fn tools(&self) -> Vec<String> {
        self.tools.clone()
    }

    fn program(&self) -> Option<String> {
        self.program.clone()
    }

    fn answer(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        let invalid = |text| Err(refused("answer", ErrorKind::InvalidAnswer, text));
        let Some(form) = self.asked.get(native_id) else {
            return invalid(format!("no question `{native_id}` is open"));
        };
        let fits = match answer {
            InteractionAnswer::Decline { .. } => true,
            InteractionAnswer::Choose { .. } => *form != AskForm::Question,
            InteractionAnswer::Reply { .. } => *form == AskForm::Question,
        };
        if !fits {
            return invalid(format!("the answer does not fit `{native_id}`"));
        }
        self.asked.remove(native_id);
        let line = ToProgram::Answer {
            ask: native_id.to_owned(),
            answer: answer.clone(),
        };
        send(effects, &line);
        Ok(())
    }

    fn set_mode(&mut self, mode: &str, effects: &mut Effects) -> Result<()> {
        if !MODES.iter().any(|one| one.name == mode) {
            let text = format!("there is no mode `{mode}`");
            return Err(refused("set mode", ErrorKind::InvalidConfiguration, text));
        }
        if self.mode.as_deref() != Some(mode) {
            self.mode = Some(mode.to_owned());
            let mode = mode.to_owned();
            send(effects, &ToProgram::Mode { mode });
        }
        Ok(())
    }

    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        if !self.children.contains(&run.0) {
            let text = format!("no child run `{}` works", run.0);
            return Err(refused("stop child", ErrorKind::InvalidConfiguration, text));
        }
        let child = run.0.clone();
        send(effects, &ToProgram::StopChild { child });
        Ok(())
    }
}
