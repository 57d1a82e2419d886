//! The protocol of Claude Code: stream-json with control requests both ways.

use astrabox_engine::sandbox::WORKSPACE;
use serde_json::{Value, json};

use super::native::{End, Heard, Native, Protocol, Quirk, Tell, Word, state_file};

/// The version that this stands in for.
const VERSION: &str = "2.1.328";

/// The state of a conversation.
pub(super) struct Claude {
    quirk: Quirk,
    nonce: String,
    session: String,
    opened: bool,
    made: u64,
    stop: Option<String>,
    /// Whether the conversation that was asked for is there.
    known: bool,
    /// The host's ids of the input whose turn began last, and of the next one.
    input: Option<String>,
    next_input: Option<String>,
    /// The tool call that is open: id and command.
    call: Option<(String, String)>,
}

impl Claude {
    /// Reads the command line, as the program does before it says anything.
    pub(super) fn new(
        quirk: Quirk,
        nonce: String,
        arguments: &[String],
        exists: &dyn Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1).cloned()
        };
        if quirk == Quirk::StillBorn {
            return Err("it cannot open a conversation".to_owned());
        }
        let mut known = true;
        let session = match (value("--resume"), value("--session-id")) {
            (Some(session), _) => {
                known =
                    quirk != Quirk::Forgetful && exists(&state_file(Protocol::Claude, &session));
                if quirk == Quirk::OtherConversation {
                    format!("other-{nonce}")
                } else {
                    session
                }
            }
            (None, Some(new)) => {
                if exists(&state_file(Protocol::Claude, &new)) {
                    return Err(format!("Session ID {new} is already in use."));
                }
                new
            }
            (None, None) => format!("fault-{nonce}"),
        };
        Ok(Self {
            quirk,
            nonce,
            session,
            opened: false,
            made: 0,
            stop: None,
            known,
            input: None,
            next_input: None,
            call: None,
        })
    }

    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}_{}{:04}", self.nonce, self.made)
    }

    /// A line with the members that each has, its type first: of an overlong line only the beginning is kept.
    fn line(&mut self, kind: &str, mut rest: Value) -> String {
        rest["uuid"] = json!(self.id("uuid"));
        if matches!(rest["subtype"].as_str(), Some("status" | "init")) {
            // The program repeats it in every message. Here two conversations say the same but for this.
            rest["session_id"] = json!(self.session);
        }
        typed(kind, &rest)
    }

    fn state(&mut self, state: &str) -> String {
        let rest = json!({"subtype": "session_state_changed", "state": state});
        self.line("system", rest)
    }

    /// What becomes of the input that was taken last.
    fn lifecycle(&mut self, state: &str) -> Vec<String> {
        let Some(input) = self.input.clone() else {
            return Vec::new();
        };
        vec![self.line(
            "command_lifecycle",
            json!({"command_uuid": input, "state": state}),
        )]
    }

    fn event(&mut self, event: Value) -> String {
        self.line(
            "stream_event",
            json!({"event": event, "parent_tool_use_id": null}),
        )
    }

    fn assistant(&mut self, message: &str, block: Value, parent: Option<&str>) -> String {
        let message = json!({
            "id": message, "type": "message", "role": "assistant", "model": "scripted",
            "content": [block], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 7, "output_tokens": 1},
        });
        self.line(
            "assistant",
            json!({"message": message, "parent_tool_use_id": parent}),
        )
    }

    /// A message of one block, in pieces and, if `whole`, to its end.
    fn block(
        &mut self,
        empty: Value,
        pieces: Vec<Value>,
        block: Value,
        whole: bool,
    ) -> Vec<String> {
        let message = self.id("msg");
        let head = json!({
            "id": message, "type": "message", "role": "assistant", "model": "scripted",
            "content": [], "usage": {"input_tokens": 7, "output_tokens": 1},
        });
        let start = json!({"type": "message_start", "message": head});
        let mut lines = vec![self.event(start)];
        let start = json!({"type": "content_block_start", "index": 0, "content_block": empty});
        lines.push(self.event(start));
        for delta in pieces {
            let delta = json!({"type": "content_block_delta", "index": 0, "delta": delta});
            lines.push(self.event(delta));
        }
        if whole {
            let reason = if block["type"] == "tool_use" {
                "tool_use"
            } else {
                "end_turn"
            };
            lines.push(self.assistant(&message, block, None));
            for end in [
                json!({"type": "content_block_stop", "index": 0}),
                json!({
                    "type": "message_delta", "usage": {"output_tokens": 3},
                    "delta": {"stop_reason": reason, "stop_sequence": null},
                }),
                json!({"type": "message_stop"}),
            ] {
                lines.push(self.event(end));
            }
        }
        lines
    }

    fn message(&mut self, text: &str, whole: bool) -> Vec<String> {
        let half = text.floor_char_boundary(text.len() / 2);
        let pieces = [&text[..half], &text[half..]];
        let pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let pieces = pieces.map(|piece| json!({"type": "text_delta", "text": piece}));
        let block = |text: &str| json!({"type": "text", "text": text});
        self.block(block(""), pieces.collect(), block(text), whole)
    }

    fn call(&mut self, command: &str) -> Vec<String> {
        let id = self.id("toolu");
        let input = json!({"command": command});
        let block =
            |input: &Value| json!({"type": "tool_use", "id": id, "name": "Bash", "input": input});
        let piece = json!({"type": "input_json_delta", "partial_json": input.to_string()});
        let lines = self.block(block(&json!({})), vec![piece], block(&input), true);
        self.call = Some((id.clone(), command.to_owned()));
        lines
    }

    /// Begins a tool call if none is open.
    fn any_call(&mut self) -> Vec<String> {
        match self.call {
            Some(_) => Vec::new(),
            None => self.call("work"),
        }
    }

    fn tool_result(&mut self, call: &str, output: &str) -> String {
        let (output, uuid) = (json!(output), self.id("uuid"));
        format!(
            concat!(
                r#"{{"type":"user","message":{{"role":"user","content":[{{"tool_use_id":"{}","#,
                r#""type":"tool_result","content":{},"is_error":false}}]}},"#,
                r#""parent_tool_use_id":null,"uuid":"{}"}}"#
            ),
            call, output, uuid
        )
    }

    fn call_ended(&mut self, output: &str) -> Vec<String> {
        let mut lines = self.any_call();
        if let Some((id, _)) = self.call.take() {
            lines.push(self.tool_result(&id, output));
        }
        lines
    }

    fn ask(&mut self) -> Vec<String> {
        let mut lines = self.any_call();
        let (id, command) = self.call.clone().unwrap_or_default();
        lines.push(self.state("requires_action"));
        let request = json!({
            "subtype": "can_use_tool", "tool_name": "Bash", "display_name": "Bash",
            "input": {"command": command}, "description": command,
            "permission_suggestions": [], "tool_use_id": id,
        });
        lines.push(self.request(&request));
        lines
    }

    fn request(&mut self, request: &Value) -> String {
        let id = self.id("req");
        format!(r#"{{"type":"control_request","request_id":"{id}","request":{request}}}"#)
    }

    fn child(&mut self, text: &str) -> Vec<String> {
        let id = self.id("toolu");
        let input = json!({
            "description": "a child", "prompt": "do it", "subagent_type": "general-purpose",
            "run_in_background": false,
        });
        let block =
            |input: &Value| json!({"type": "tool_use", "id": id, "name": "Agent", "input": input});
        let mut lines = self.block(block(&json!({})), Vec::new(), block(&input), true);
        let task = self.id("task");
        let started = json!({
            "subtype": "task_started", "task_id": task, "tool_use_id": id,
            "task_type": "local_agent", "description": "a child",
        });
        lines.push(self.line("system", started));
        let message = self.id("msg");
        lines.push(self.assistant(&message, json!({"type": "text", "text": text}), Some(&id)));
        let ended = json!({
            "subtype": "task_notification", "task_id": task, "tool_use_id": id,
            "status": "completed", "summary": "done",
        });
        lines.push(self.line("system", ended));
        lines.push(self.tool_result(&id, "the child is done"));
        lines
    }

    fn end(&mut self, end: End) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(id) = self.stop.take() {
            lines.push(response(&id, &json!({"still_queued": []})));
        }
        let (subtype, failed, reason) = match end {
            End::Completed => ("success", false, "completed"),
            End::Interrupted => ("error_during_execution", true, "aborted_streaming"),
        };
        let result = json!({
            "subtype": subtype, "is_error": failed, "num_turns": 1,
            "result": "", "stop_reason": null, "terminal_reason": reason,
            "duration_ms": 1, "duration_api_ms": 1, "total_cost_usd": 0.0,
            "usage": {"input_tokens": 7, "output_tokens": 3}, "modelUsage": {},
            "permission_denials": [],
        });
        lines.push(self.line("result", result));
        lines.extend(self.lifecycle("completed"));
        lines
    }

    /// What the program says when there is no such conversation; it ends after it.
    fn not_found(&mut self) -> Heard {
        let text = format!("No conversation found with session ID: {}", self.session);
        let result = json!({
            "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
            "errors": [text], "usage": {"input_tokens": 0, "output_tokens": 0},
            "permission_denials": [],
        });
        Heard {
            word: Word::Exit(1, text),
            replies: vec![self.line("result", result)],
        }
    }

    fn controlled(&mut self, message: &Value) -> Heard {
        let id = message["request_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match message["request"]["subtype"].as_str().unwrap_or_default() {
            "initialize" if self.quirk == Quirk::Mute => Word::Other.into(),
            "initialize" if !self.known => self.not_found(),
            "initialize" => {
                let word = if self.opened {
                    Word::Other
                } else {
                    self.opened = true;
                    Word::Opened(self.session.clone())
                };
                let told = json!({
                    "commands": [], "agents": [], "models": [], "account": {}, "pid": 1,
                    "claude_code_version": VERSION, "current_permission_mode": "default",
                    "session_state": "idle", "session_id": self.session, "capabilities": [],
                });
                Heard {
                    word,
                    replies: vec![response(&id, &told)],
                }
            }
            "set_permission_mode" => {
                let mode = message["request"]["mode"].clone();
                let status = json!({"subtype": "status", "status": null, "permissionMode": mode});
                Heard {
                    word: Word::Other,
                    replies: vec![
                        response(&id, &json!({"mode": mode})),
                        self.line("system", status),
                    ],
                }
            }
            "interrupt" => {
                self.stop = Some(id);
                Word::Stop.into()
            }
            _ => Heard {
                word: Word::Other,
                replies: vec![response(&id, &json!({}))],
            },
        }
    }
}

impl Native for Claude {
    fn hear(&mut self, line: &str, _exists: &dyn Fn(&str) -> bool) -> Heard {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        match message["type"].as_str().unwrap_or_default() {
            "control_request" => self.controlled(&message),
            "control_response" => {
                let response = &message["response"];
                if response["subtype"] == "error" {
                    let text = response["error"].as_str().unwrap_or_default();
                    return Word::Reply(text.to_owned()).into();
                }
                let behavior = response["response"]["behavior"].as_str();
                Word::Answer(behavior.unwrap_or("something").to_owned()).into()
            }
            "user" => {
                self.next_input = message["uuid"].as_str().map(str::to_owned);
                let content = &message["message"]["content"];
                let said = match content {
                    Value::Array(parts) => parts.last().and_then(|part| part["text"].as_str()),
                    content => content.as_str(),
                };
                Word::Prompt(said.unwrap_or_default().to_owned()).into()
            }
            _ => Word::Other.into(),
        }
    }

    fn tell(&mut self, what: Tell<'_>) -> Vec<String> {
        match what {
            Tell::Begin => {
                self.call = None;
                self.input = self.next_input.take();
                let init = json!({
                    "subtype": "init", "cwd": WORKSPACE, "tools": ["Bash"],
                    "mcp_servers": [], "model": "scripted", "permissionMode": "default",
                    "claude_code_version": VERSION,
                });
                let mut lines = self.lifecycle("started");
                lines.extend([self.state("running"), self.line("system", init)]);
                lines
            }
            // The program has no way to say no but a turn that fails.
            Tell::Refuse => {
                let mut lines = self.tell(Tell::Begin);
                let result = json!({
                    "subtype": "error_during_execution", "is_error": true,
                    "num_turns": 0, "errors": ["the prompt is refused"],
                    "usage": {"input_tokens": 0, "output_tokens": 0}, "permission_denials": [],
                });
                lines.push(self.line("result", result));
                lines.push(self.state("idle"));
                lines
            }
            Tell::NothingToStop => {
                let id = self.stop.take().unwrap_or_default();
                vec![response(&id, &json!({"still_queued": []}))]
            }
            Tell::Message(text) => self.message(text, true),
            Tell::Half(text) => self.message(text, false),
            Tell::Call(command) => self.call(command),
            Tell::Result(output) => self.call_ended(output),
            Tell::Ask => self.ask(),
            Tell::Child(text) => self.child(text),
            Tell::Strange(word) => {
                vec![self.line("weather_changed", json!({"text": word}))]
            }
            Tell::Request(method) => vec![self.request(&json!({"subtype": method}))],
            // Nobody can ask this program how a turn stands.
            Tell::Rest(_) | Tell::Idle => vec![self.state("idle")],
            Tell::End(end) => self.end(end),
        }
    }
}

fn response(id: &str, value: &Value) -> String {
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"{id}","response":{value}}}}}"#
    )
}

/// An object with its type in front.
fn typed(kind: &str, rest: &Value) -> String {
    let rest = rest.to_string();
    format!(r#"{{"type":"{kind}",{}"#, rest.trim_start_matches('{'))
}
