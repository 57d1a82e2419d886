//! A small engine that keeps every clause: `talk`, which speaks JSON lines with a program that does what prompts say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use astrabox_engine::line::{Effects, Handshake, Line, LineClient, LineProtocol, Powers, Start};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineInput,
    EngineStartupContext, Error, ErrorKind, ImageRecipe, ModelPath, NativeStateSpec, NpmPackage,
    OptionBlock, PermissionMode, PrepareContext, RecipeCheck, RecipeCopy, RecordFormat, Result,
    SandboxRequest, SandboxRequestContext, StartupMaterialRequest, StateFiles,
};
use astrabox_model::ModelWire;
use astrabox_sandbox::{BoxPath, ExitStatus, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE};
use astrabox_types::{
    ChildRun, ChildRunId, ChildRunState, Choice, ContentPart, DeltaChannel, EngineFeature, InputId,
    InteractionAnswer, Json, MessageKind, PermissionLevel, Presentation, SessionKind,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The engine `talk`.
pub static TALK: Talk = Talk;

/// The adapter of `talk`.
#[derive(Debug, Clone, Copy)]
pub struct Talk;

#[async_trait]
impl EngineAdapter for Talk {
    fn kind(&self) -> &'static str {
        "talk"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Talk",
            program_version: "1.0.0",
            session_kinds: &[SessionKind::AgentChat, SessionKind::AssistantChat],
            model_wire: ModelWire::OpenaiResponses,
            input_content_types: &["text"],
            permission_modes: MODES,
            default_permission_mode: Some("asking"),
            option_blocks: &[OptionBlock {
                name: "talk",
                description: "what the program is told at its start",
                protected_keys: &["model", "sandbox.mode"],
            }],
            steering: false,
            features: &[EngineFeature::ToolApproval],
            names_program: false,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        ImageRecipe {
            version: "1.0.0",
            architectures: &["x86_64", "aarch64"],
            commands: &["npm"],
            npm: Some(NpmPackage {
                manifest: r#"{"dependencies": {"talk-program": "1.0.0"}}"#,
                lock: LOCK,
            }),
            python: None,
            copies: &[RecipeCopy {
                from: "node_modules/talk-program/bin",
                to: "bin",
            }],
            check: RecipeCheck {
                program: "bin/talk",
                arguments: &["--version"],
                expect: "1.0.0",
            },
            licence: "Apache-2.0",
        }
    }

    fn sandbox_request(&self, _context: &SandboxRequestContext) -> Result<SandboxRequest> {
        Ok(SandboxRequest {
            needs_callback: false,
            model_wire: ModelWire::OpenaiResponses,
            model_paths: vec![ModelPath {
                method: "POST",
                path: "/v1/responses",
            }],
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        StartupMaterialRequest {
            native_state: NativeStateSpec {
                directory: ".talk",
                files: &[StateFiles {
                    suffix: ".jsonl",
                    format: RecordFormat::JsonLines,
                }],
                named_by_key: true,
            },
            secrets: Vec::new(),
        }
    }

    async fn prepare(&self, _context: &PrepareContext) -> Result<()> {
        Ok(())
    }

    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        Ok(Box::new(talk_open::<TalkProtocol>(context).await?))
    }
}

const MODES: &[PermissionMode] = &[
    PermissionMode {
        name: "asking",
        description: "asks before it does anything",
        level: PermissionLevel::Default,
    },
    PermissionMode {
        name: "trusting",
        description: "asks nothing",
        level: PermissionLevel::Default,
    },
    PermissionMode {
        name: "boxed",
        description: "asks nothing, in a box of its own",
        level: PermissionLevel::Advanced,
    },
];

const LOCK: &str = r#"{
  "lockfileVersion": 3,
  "packages": {
    "": {"dependencies": {"talk-program": "1.0.0"}},
    "node_modules/talk-program": {
      "version": "1.0.0",
      "integrity": "sha512-MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA=="
    }
  }
}"#;

/// Starts or reaches the program with this protocol, which is [`TalkProtocol`] or one made of it.
///
/// # Errors
/// As [`LineClient::open`].
pub async fn talk_open<P: LineProtocol + Default>(
    context: EngineStartupContext,
) -> Result<LineClient<P>> {
    let start = match context.conversation {
        Conversation::Attach { checkpoint, .. } => Start::Attach(checkpoint),
        Conversation::New | Conversation::Resume { .. } => {
            let invalid = |error: astrabox_sandbox::InvalidPath| {
                Error::new(ErrorKind::StartFailed, "activate", error.to_string())
            };
            let name = format!("engine-{}", context.epoch);
            let spec = SpawnSpec {
                name: ProcessName::new(name).map_err(invalid)?,
                argv: vec![format!("{IMAGE_ROOT}/bin/talk")],
                env: context.env,
                cwd: BoxPath::new(WORKSPACE).map_err(invalid)?,
                stdin: Stdio::Piped,
                wall_limit: None,
            };
            Start::Spawn(spec, P::default())
        }
    };
    LineClient::open(Arc::clone(&context.workload), context.epoch, start).await
}

/// What the program of `talk` says.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    Hello {
        conversation: String,
        program: String,
        tools: Vec<String>,
    },
    Took {
        input: InputId,
    },
    Piece {
        message: String,
        text: String,
        child: Option<String>,
    },
    Message {
        message: String,
        text: String,
        child: Option<String>,
    },
    Child {
        child: String,
        state: ChildRunState,
    },
    Ask {
        ask: String,
        text: String,
        choices: Vec<String>,
    },
    Request {
        request: String,
        #[serde(rename = "method")]
        _method: String,
    },
    Done,
    Stopped,
}

/// The protocol of `talk` as a state machine.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TalkProtocol {
    epoch: u64,
    expected: Option<String>,
    conversation: Option<String>,
    program: Option<String>,
    tools: BTreeSet<String>,
    /// How many inputs wait for their turn's end.
    open: u32,
    /// How much of each unfinished message was told.
    told: BTreeMap<String, u64>,
    /// The open questions and their choices.
    asked: BTreeMap<String, Vec<String>>,
    children: BTreeSet<String>,
}

impl TalkProtocol {
    fn on_said(&mut self, said: Said, text: &str, effects: &mut Effects) {
        let native = Json::parse(text).ok();
        let emit = &mut effects.emit;
        match said {
            Said::Hello {
                conversation,
                program,
                tools,
            } => {
                self.conversation = Some(conversation);
                self.program = Some(program);
                self.tools = tools.into_iter().collect();
            }
            Said::Took { input } => emit.input_consumed(input),
            Said::Piece {
                message,
                text,
                child,
            } => {
                let told = self.told.entry(message.clone()).or_default();
                emit.speak_for(child.map(ChildRunId));
                emit.delta(DeltaChannel::Text, &message, *told, &text);
                *told += text.len() as u64;
            }
            Said::Message {
                message,
                text,
                child,
            } => {
                self.told.remove(&message);
                emit.speak_for(child.map(ChildRunId));
                emit.message(MessageKind::Text, &message, text, false, native);
            }
            Said::Child { child, state } => {
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
            Said::Ask { ask, text, choices } => {
                let offered = choices.iter().map(|id| Choice {
                    id: id.clone(),
                    label: id.clone(),
                    allows: id == "yes",
                });
                let shown = Presentation::Decision {
                    body: text,
                    choices: offered.collect(),
                };
                emit.interaction_requested(&ask, shown, native);
                self.asked.insert(ask, choices);
            }
            Said::Request { request, .. } => {
                let key = format!("request/{request}");
                emit.diagnostic(&key, "unknown_request", "answered with an error", native);
                send(
                    effects,
                    &json!({"type": "response", "request": request, "error": "unknown"}),
                );
            }
            Said::Done => self.end_turn(effects, false),
            Said::Stopped => self.end_turn(effects, true),
        }
    }

    fn end_turn(&mut self, effects: &mut Effects, stopped: bool) {
        self.open = self.open.saturating_sub(1);
        self.told.clear();
        effects.emit.speak_for(None);
        for ask in std::mem::take(&mut self.asked).into_keys() {
            effects.emit.interaction_withdrawn(&ask, "the turn ended");
        }
        if stopped {
            effects.emit.interrupted(None);
        } else {
            effects.emit.completed(None);
        }
    }
}

fn send(effects: &mut Effects, line: &serde_json::Value) {
    effects.send(line.to_string());
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidAnswer, "answer", text)
}

impl LineProtocol for TalkProtocol {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        self.expected = expected.map(str::to_owned);
        send(effects, &json!({"type": "open", "conversation": expected}));
    }

    fn handshake(&self) -> Handshake {
        match (&self.conversation, &self.expected) {
            (None, _) => Handshake::Pending,
            (Some(key), Some(expected)) if key != expected => {
                let text = "the program opened another conversation";
                Handshake::Failed(Error::new(ErrorKind::ConversationLost, "bind", text))
            }
            (Some(key), _) => Handshake::Bound(key.clone()),
        }
    }

    fn attached(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        let (text, whole) = match line {
            Line::Text(text) => (text, true),
            Line::Garbled(text) | Line::Overlong { head: text, .. } => (text, false),
        };
        match serde_json::from_str(text) {
            Ok(said) if whole => self.on_said(said, text, effects),
            _ => {
                let key = format!("line/{}", effects.at);
                let native = Json::parse(text).ok();
                effects.emit.diagnostic(&key, "unknown_line", text, native);
            }
        }
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        if std::mem::take(&mut self.open) == 0 {
            return;
        }
        let text = format!("the program ended ({}): {stderr}", exit.reason.code());
        effects.emit.failed("engine_exited", text, None);
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        let mut said = String::new();
        for part in &input.content {
            match part {
                ContentPart::Text { text } => said.push_str(text),
                ContentPart::Image { .. } => {
                    let text = "the program takes no pictures";
                    return Err(Error::new(ErrorKind::Unsupported, "deliver", text));
                }
            }
        }
        self.open += 1;
        let input = input.input_id;
        send(
            effects,
            &json!({"type": "say", "input": input, "text": said}),
        );
        Ok(())
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        if self.open > 0 {
            send(effects, &json!({"type": "stop"}));
        }
    }

    fn close(&mut self, _effects: &mut Effects) {}

    fn tools(&self) -> Vec<String> {
        self.tools.iter().cloned().collect()
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
        let Some(choices) = self.asked.get(native_id) else {
            return Err(invalid(format!("no question `{native_id}` is open")));
        };
        let choice = match answer {
            InteractionAnswer::Choose { choice_id, .. } => choice_id.as_str(),
            InteractionAnswer::Decline { .. } => "no",
            InteractionAnswer::Reply { .. } => {
                return Err(invalid("it is a choice, not a text".to_owned()));
            }
        };
        if !choices.iter().any(|one| one == choice) {
            return Err(invalid(format!("`{choice}` was not offered")));
        }
        self.asked.remove(native_id);
        send(
            effects,
            &json!({"type": "answer", "ask": native_id, "choice": choice}),
        );
        Ok(())
    }

    fn set_mode(&mut self, mode: &str, effects: &mut Effects) -> Result<()> {
        if !MODES.iter().any(|one| one.name == mode) {
            let text = format!("there is no mode `{mode}`");
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "set mode",
                text,
            ));
        }
        send(effects, &json!({"type": "mode", "mode": mode}));
        Ok(())
    }

    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        if !self.children.contains(&run.0) {
            let text = format!("no child run `{}` works", run.0);
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "stop child",
                text,
            ));
        }
        send(effects, &json!({"type": "stop_child", "child": run.0}));
        Ok(())
    }
}
