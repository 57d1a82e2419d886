//! The Agent Client Protocol, version 1, and what DeepSeek Harness has beyond it: permission modes, whole messages after
//! their pieces, and child runs in methods of its plugin's own.

use serde_json::{Value, json};

use super::native::{End, Heard, Native, Protocol, Quirk, Tell, Word, state_file};

/// The id of the child run's session.
const CHILD: &str = "fault-child";

/// The state of a conversation.
pub(super) struct Acp {
    protocol: Protocol,
    quirk: Quirk,
    /// What a new session is called.
    nonce: String,
    session: String,
    calls: u64,
    messages: u64,
    /// Counts the requests of the program.
    asked: u64,
    /// The host's prompt that is answered when the turn ends.
    prompt: Value,
    /// The tool call that is open.
    call: Option<String>,
}

impl Acp {
    pub(super) fn new(protocol: Protocol, quirk: Quirk, nonce: String) -> Self {
        Self {
            protocol,
            quirk,
            nonce,
            session: String::new(),
            calls: 0,
            messages: 0,
            asked: 0,
            prompt: Value::Null,
            call: None,
        }
    }

    fn open(&mut self, id: &Value, params: &Value, exists: &dyn Fn(&str) -> bool) -> Heard {
        if self.quirk == Quirk::StillBorn {
            return Word::Exit(1, "it cannot open a conversation".to_owned()).into();
        }
        let Some(known) = params["sessionId"].as_str() else {
            self.session = format!("fault-{}", self.nonce);
            let answer = result(id, &self.opened());
            return with(Word::Opened(self.session.clone()), vec![answer]);
        };
        if self.quirk == Quirk::Forgetful || !exists(&state_file(self.protocol, known)) {
            let message = format!("no conversation {known}");
            return with(Word::Other, vec![error(id, -32002, &message)]);
        }
        self.session = match self.quirk {
            Quirk::OtherConversation => format!("other-{}", self.nonce),
            _ => known.to_owned(),
        };
        if self.has_plugin() {
            // It resumes without a replay.
            let answer = result(id, &self.opened());
            return with(Word::Opened(self.session.clone()), vec![answer]);
        }
        let said = json!({"type": "text", "text": "said before"});
        let lines = vec![
            self.update("user_message_chunk", &json!({"content": said})),
            self.update("agent_message_chunk", &json!({"content": said})),
            result(id, &self.opened()),
        ];
        with(Word::Opened(self.session.clone()), lines)
    }

    fn has_plugin(&self) -> bool {
        self.protocol == Protocol::DeepseekHarness
    }

    /// The answer to the opening of a conversation.
    fn opened(&self) -> Value {
        let mut opened = json!({"sessionId": self.session});
        // The first is the one that it begins with.
        let modes: &[&str] = match self.protocol {
            Protocol::Hermes => &["default", "accept_edits", "dont_ask"],
            Protocol::DeepseekHarness => {
                &["workspace-write", "read-only", "danger-full-access", "ask"]
            }
            _ => return opened,
        };
        let known = modes.iter().map(|mode| json!({"id": mode, "name": mode}));
        let known: Vec<_> = known.collect();
        opened["modes"] = json!({"currentModeId": modes[0], "availableModes": known});
        opened
    }

    fn called(&mut self, id: &Value, message: &Value, exists: &dyn Fn(&str) -> bool) -> Heard {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "initialize" if self.quirk == Quirk::Mute => Word::Other.into(),
            "initialize" => {
                let told = json!({
                    "protocolVersion": 1,
                    "agentInfo": {"name": "fault engine", "version": "1"},
                    "agentCapabilities": match self.has_plugin() {
                        true => json!({"sessionCapabilities": {"resume": {}}}),
                        false => json!({"loadSession": true}),
                    },
                });
                with(Word::Other, vec![result(id, &told)])
            }
            "session/new" | "session/load" | "session/resume" => self.open(id, params, exists),
            "session/prompt" => {
                self.prompt = id.clone();
                // The platform's own word comes first.
                let said = params["prompt"].as_array().and_then(|parts| parts.last());
                let text = said.and_then(|part| part["text"].as_str());
                Word::Prompt(text.unwrap_or_default().to_owned()).into()
            }
            "session/set_mode" => with(Word::Other, vec![result(id, &json!({}))]),
            _ => with(Word::Other, vec![error(id, -32601, "not found")]),
        }
    }

    fn update(&self, kind: &str, update: &Value) -> String {
        update_of(&self.session, kind, update)
    }

    fn message(&mut self, text: &str, whole: bool) -> Vec<String> {
        if self.has_plugin() {
            return self.message_of(&self.session.clone(), text, whole);
        }
        let half = text.floor_char_boundary(text.len() / 2);
        let mut lines = Vec::new();
        for piece in [&text[..half], &text[half..]] {
            if !piece.is_empty() {
                let content = json!({"type": "text", "text": piece});
                lines.push(self.update("agent_message_chunk", &json!({"content": content})));
            }
        }
        // The model's figures come when it has answered.
        if whole {
            lines.push(self.update("usage_update", &json!({"used": 1, "size": 100})));
        }
        lines
    }

    /// Pieces of a message with an id, and the whole of it.
    fn message_of(&mut self, session: &str, text: &str, whole: bool) -> Vec<String> {
        self.messages += 1;
        let id = format!("{session}:{}/0", self.messages);
        let half = text.floor_char_boundary(text.len() / 2);
        let pieces = [&text[..half], &text[half..]].into_iter();
        let pieces = pieces.filter(|piece| !piece.is_empty()).map(|piece| {
            let content = json!({"type": "text", "text": piece});
            let update = json!({"messageId": id, "content": content});
            update_of(session, "agent_message_chunk", &update)
        });
        let mut lines: Vec<_> = pieces.collect();
        if whole {
            let params =
                json!({"sessionId": session, "messageId": id, "kind": "text", "text": text});
            lines.push(own("message", &params));
        }
        lines
    }

    fn call(&mut self, name: &str) -> Vec<String> {
        self.calls += 1;
        let id = format!("call-{}-{}", self.nonce, self.calls);
        let call = json!({
            "toolCallId": id, "title": name, "name": "shell", "kind": "execute", "status": "in_progress",
            "rawInput": {"command": name},
        });
        self.call = Some(id);
        vec![self.update("tool_call", &call)]
    }

    /// Begins a tool call if none is open.
    fn any_call(&mut self) -> Vec<String> {
        match self.call {
            Some(_) => Vec::new(),
            None => self.call("work"),
        }
    }

    fn call_ended(&mut self, output: &str) -> Vec<String> {
        let mut lines = self.any_call();
        if let Some(id) = self.call.take() {
            // Programs write the id first, and of an overlong line only the beginning is kept.
            let (session, id, output) = (json!(self.session), json!(id), json!(output));
            lines.push(format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{{"sessionUpdate":"tool_call_update","toolCallId":{id},"status":"completed","rawOutput":{output}}}}}}}"#
            ));
        }
        lines
    }

    fn ask(&mut self) -> Vec<String> {
        let mut lines = self.any_call();
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
        let options = json!([
            option("allow", "allow_once"),
            option("reject", "reject_once")
        ]);
        let params = json!({
            "sessionId": self.session, "toolCall": {"toolCallId": self.call}, "options": options,
        });
        lines.push(self.request("session/request_permission", &params));
        lines
    }

    fn request(&mut self, method: &str, params: &Value) -> String {
        self.asked += 1;
        json!({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params}).to_string()
    }

    fn child(&mut self, text: &str) -> Vec<String> {
        if self.has_plugin() {
            let state = |state: &str| {
                let parent = &self.session;
                own(
                    "child",
                    &json!({"id": CHILD, "parent": parent, "state": state, "title": "do it"}),
                )
            };
            let (begun, ended) = (state("running"), state("completed"));
            let mut lines = vec![begun];
            lines.extend(self.message_of(CHILD, text, true));
            lines.push(ended);
            return lines;
        }
        let state = |state: Value| json!({"sessionId": CHILD, "title": "do it", "state": state});
        let content = json!({"type": "text", "text": text});
        let ended = json!({"state": "idle", "stopReason": "end_turn"});
        vec![
            self.update("subagent_update", &state(json!({"state": "running"}))),
            update_of(CHILD, "agent_message_chunk", &json!({"content": content})),
            self.update("subagent_update", &state(ended)),
        ]
    }

    fn end(&mut self, reason: &str) -> Vec<String> {
        vec![result(&self.prompt.take(), &json!({"stopReason": reason}))]
    }
}

impl Native for Acp {
    fn hear(&mut self, line: &str, exists: &dyn Fn(&str) -> bool) -> Heard {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let id = message["id"].clone();
        match (id.is_null(), message["method"].as_str()) {
            (false, Some(_)) => self.called(&id, &message, exists),
            (true, Some("session/cancel")) => Word::Stop.into(),
            (false, None) if message["error"].is_null() => {
                match message["result"]["outcome"]["optionId"].as_str() {
                    Some(option) => Word::Answer(option.to_owned()).into(),
                    // Nobody answers, as is said at a stop.
                    None => Word::Other.into(),
                }
            }
            (false, None) => {
                let text = message["error"]["message"].as_str().unwrap_or_default();
                Word::Reply(text.to_owned()).into()
            }
            _ => Word::Other.into(),
        }
    }

    fn tell(&mut self, what: Tell<'_>) -> Vec<String> {
        match what {
            Tell::Begin => {
                self.call = None;
                Vec::new()
            }
            Tell::Refuse => vec![error(&self.prompt.take(), -32602, "the prompt is refused")],
            // It has no word for these.
            Tell::NothingToStop | Tell::Rest(_) | Tell::Idle => Vec::new(),
            Tell::Message(text) => self.message(text, true),
            Tell::Half(text) => self.message(text, false),
            Tell::Call(name) => self.call(name),
            Tell::Result(output) => self.call_ended(output),
            Tell::Ask => self.ask(),
            Tell::Child(text) => self.child(text),
            Tell::Strange(word) => vec![self.update("weather_update", &json!({"text": word}))],
            Tell::Request(method) => vec![self.request(method, &json!({}))],
            Tell::End(End::Completed) => self.end("end_turn"),
            Tell::End(End::Interrupted) => self.end("cancelled"),
        }
    }
}

/// A notification of the plugin's own.
fn own(what: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": format!("_astrabox/{what}"), "params": params}).to_string()
}

fn update_of(session: &str, kind: &str, update: &Value) -> String {
    let mut update = update.clone();
    update["sessionUpdate"] = json!(kind);
    let params = json!({"sessionId": session, "update": update});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params}).to_string()
}

fn with(word: Word, replies: Vec<String>) -> Heard {
    Heard { word, replies }
}

fn result(id: &Value, value: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": value}).to_string()
}

fn error(id: &Value, code: i64, message: &str) -> String {
    let error = json!({"code": code, "message": message});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}
