//! The protocol of `codex app-server`: JSON-RPC without its `jsonrpc` member.

use astrabox_engine::sandbox::WORKSPACE;
use serde_json::{Value, json};

use super::native::{End, Heard, Native, Protocol, Quirk, Tell, Verdict, Word, state_file};

/// The id of the child run's thread.
const CHILD: &str = "fault-child";

/// The state of a conversation.
pub(super) struct Codex {
    quirk: Quirk,
    /// What a new thread is called.
    nonce: String,
    thread: String,
    turns: u64,
    items: u64,
    /// Counts the requests of the program.
    asked: u64,
    /// The host's request that is answered when the turn begins.
    start: Value,
    /// The host's request that is answered when the turn stops.
    stop: Value,
    /// The tool call that is open.
    call: Option<(String, String)>,
    /// What is told of the last turn when somebody asks.
    verdict: Verdict,
    resting: bool,
}

impl Codex {
    pub(super) fn new(quirk: Quirk, nonce: String) -> Self {
        Self {
            quirk,
            nonce,
            thread: String::new(),
            turns: 0,
            items: 0,
            asked: 0,
            start: Value::Null,
            stop: Value::Null,
            call: None,
            verdict: Verdict::Open,
            resting: false,
        }
    }

    fn open(&mut self, id: &Value, params: &Value, exists: &dyn Fn(&str) -> bool) -> Heard {
        if self.quirk == Quirk::StillBorn {
            return Word::Exit(1, "it cannot open a conversation".to_owned()).into();
        }
        let known = params["threadId"].as_str();
        let thread = match (known, self.quirk) {
            (None, _) => format!("fault-{}", self.nonce),
            (Some(_), Quirk::OtherConversation) => format!("other-{}", self.nonce),
            (Some(thread), _) => thread.to_owned(),
        };
        if let Some(known) = known
            && (self.quirk == Quirk::Forgetful || !exists(&state_file(Protocol::Codex, known)))
        {
            let message = format!("no rollout found for thread id {known}");
            return with(Word::Other, vec![error(id, &message)]);
        }
        self.thread = thread;
        let answer = result(id, &json!({"thread": {"id": self.thread}}));
        with(Word::Opened(self.thread.clone()), vec![answer])
    }

    fn called(&mut self, id: &Value, message: &Value, exists: &dyn Fn(&str) -> bool) -> Heard {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "initialize" if self.quirk == Quirk::Mute => Word::Other.into(),
            "initialize" => {
                let told = json!({"userAgent": "astrabox/0.169.0 (fault engine)"});
                with(Word::Other, vec![result(id, &told)])
            }
            "thread/start" | "thread/resume" => self.open(id, params, exists),
            "turn/start" => {
                self.start = id.clone();
                // The platform's own word comes first.
                let said = params["input"].as_array().and_then(|parts| parts.last());
                let text = said.and_then(|part| part["text"].as_str());
                Word::Prompt(text.unwrap_or_default().to_owned()).into()
            }
            "turn/interrupt" => {
                self.stop = id.clone();
                Word::Stop.into()
            }
            "thread/turns/list" => {
                let completed_at = match self.verdict {
                    Verdict::Ended => json!(1_796_000_000),
                    Verdict::Open => Value::Null,
                };
                let status = match (self.resting, self.verdict) {
                    (false, _) => "inProgress",
                    (true, Verdict::Ended) => "completed",
                    (true, Verdict::Open) => "interrupted",
                };
                let turn =
                    json!({"id": self.turn(), "status": status, "completedAt": completed_at});
                with(Word::Other, vec![result(id, &json!({"data": [turn]}))])
            }
            "thread/backgroundTerminals/list" => {
                with(Word::Other, vec![result(id, &json!({"data": []}))])
            }
            _ => with(Word::Other, vec![result(id, &json!({}))]),
        }
    }

    fn turn(&self) -> String {
        format!("turn-{}-{}", self.nonce, self.turns)
    }

    fn item_id(&mut self) -> String {
        self.items += 1;
        format!("item-{}", self.items)
    }

    fn notify(&self, method: &str, mut params: Value) -> String {
        params["threadId"] = json!(self.thread);
        json!({"method": method, "params": params}).to_string()
    }

    /// A line about an item. The program writes type and id first, and of an overlong line only the beginning is
    /// kept.
    fn item(&self, method: &str, kind: &str, id: &str, rest: &Value) -> String {
        let (rest, thread, turn) = (rest.to_string(), json!(self.thread), json!(self.turn()));
        let rest = rest.trim_start_matches('{');
        format!(
            r#"{{"method":"{method}","params":{{"item":{{"type":"{kind}","id":"{id}",{rest},"threadId":{thread},"turnId":{turn}}}}}"#
        )
    }

    fn message(&mut self, text: &str, whole: bool) -> Vec<String> {
        let id = self.item_id();
        let kind = "agentMessage";
        let mut lines = vec![self.item("item/started", kind, &id, &json!({"text": ""}))];
        let half = text.floor_char_boundary(text.len() / 2);
        for piece in [&text[..half], &text[half..]] {
            if !piece.is_empty() {
                let params = json!({"turnId": self.turn(), "itemId": id, "delta": piece});
                lines.push(self.notify("item/agentMessage/delta", params));
            }
        }
        if whole {
            lines.push(self.item("item/completed", kind, &id, &json!({"text": text})));
        }
        lines
    }

    fn call(&mut self, name: &str) -> Vec<String> {
        let id = self.item_id();
        let rest = json!({"command": name, "cwd": WORKSPACE, "status": "inProgress"});
        let line = self.item("item/started", "commandExecution", &id, &rest);
        self.call = Some((id, name.to_owned()));
        vec![line]
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
        if let Some((id, name)) = self.call.take() {
            let rest = json!({
                "command": name, "cwd": WORKSPACE, "status": "completed", "exitCode": 0,
                "aggregatedOutput": output,
            });
            lines.push(self.item("item/completed", "commandExecution", &id, &rest));
        }
        lines
    }

    fn ask(&mut self) -> Vec<String> {
        let mut lines = self.any_call();
        let (item, command) = self.call.clone().unwrap_or_default();
        self.asked += 1;
        let params = json!({
            "kind": "command", "threadId": self.thread, "turnId": self.turn(), "itemId": item,
            "command": command, "cwd": WORKSPACE,
        });
        let method = "item/commandExecution/requestApproval";
        let ask = json!({"method": method, "id": self.asked, "params": params});
        lines.push(ask.to_string());
        lines
    }

    fn child(&mut self, text: &str) -> Vec<String> {
        let call = self.item_id();
        let turn = self.turn();
        let own = self.thread.clone();
        let kind = "collabAgentToolCall";
        let spawn = |state: &str, status: &str| {
            json!({
                "tool": "spawnAgent", "status": status, "senderThreadId": own,
                "receiverThreadIds": [CHILD], "prompt": "do it",
                "agentsStates": {CHILD: {"status": state, "message": null}},
            })
        };
        let mut lines = vec![
            self.item(
                "item/started",
                kind,
                &call,
                &spawn("pendingInit", "inProgress"),
            ),
            self.item(
                "item/completed",
                kind,
                &call,
                &spawn("running", "completed"),
            ),
        ];
        let its = |method: &str, mut params: Value| {
            params["threadId"] = json!(CHILD);
            json!({"method": method, "params": params}).to_string()
        };
        let child_turn = format!("child-of-{turn}");
        let item = json!({"type": "agentMessage", "id": format!("{call}-child"), "text": text});
        lines.extend([
            its("turn/started", json!({"turn": {"id": child_turn}})),
            its(
                "item/completed",
                json!({"turnId": child_turn, "item": item}),
            ),
            its(
                "turn/completed",
                json!({"turn": {"id": child_turn, "status": "completed"}}),
            ),
        ]);
        lines
    }

    fn status(&self, kind: &str) -> String {
        self.notify("thread/status/changed", json!({"status": {"type": kind}}))
    }

    fn end(&mut self, end: End) -> Vec<String> {
        let mut lines = Vec::new();
        let status = match end {
            End::Completed => "completed",
            End::Interrupted => "interrupted",
        };
        if !self.stop.is_null() {
            lines.push(result(&self.stop.take(), &json!({})));
        }
        (self.resting, self.verdict) = (true, Verdict::Ended);
        let turn = json!({"id": self.turn(), "status": status, "completedAt": 1_796_000_000});
        lines.push(self.notify("turn/completed", json!({"turn": turn})));
        lines
    }
}

impl Native for Codex {
    fn hear(&mut self, line: &str, exists: &dyn Fn(&str) -> bool) -> Heard {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let id = message["id"].clone();
        match (id.is_null(), message["method"].is_null()) {
            (false, false) => self.called(&id, &message, exists),
            (false, true) if message["error"].is_null() => {
                let decision = message["result"]["decision"].as_str();
                Word::Answer(decision.unwrap_or("something").to_owned()).into()
            }
            (false, true) => {
                let text = message["error"]["message"].as_str().unwrap_or_default();
                Word::Reply(text.to_owned()).into()
            }
            _ => Word::Other.into(),
        }
    }

    fn tell(&mut self, what: Tell<'_>) -> Vec<String> {
        match what {
            Tell::Begin => {
                self.turns += 1;
                self.call = None;
                (self.resting, self.verdict) = (false, Verdict::Open);
                let turn = json!({"turn": {"id": self.turn(), "status": "inProgress"}});
                vec![
                    result(&self.start.take(), &turn),
                    self.status("active"),
                    self.notify("turn/started", turn),
                ]
            }
            Tell::Refuse => vec![error(&self.start.take(), "the prompt is refused")],
            Tell::NothingToStop => vec![error(&self.stop.take(), "no active turn to interrupt")],
            Tell::Message(text) => self.message(text, true),
            Tell::Half(text) => self.message(text, false),
            Tell::Call(name) => self.call(name),
            Tell::Result(output) => self.call_ended(output),
            Tell::Ask => self.ask(),
            Tell::Child(text) => self.child(text),
            Tell::Strange(word) => vec![self.notify("weather/changed", json!({"text": word}))],
            Tell::Request(method) => {
                self.asked += 1;
                vec![json!({"method": method, "id": self.asked, "params": {}}).to_string()]
            }
            Tell::Rest(verdict) => {
                (self.resting, self.verdict) = (true, verdict);
                vec![self.status("idle")]
            }
            Tell::End(end) => self.end(end),
            Tell::Idle => vec![self.status("idle")],
        }
    }
}

fn with(word: Word, replies: Vec<String>) -> Heard {
    Heard { word, replies }
}

fn result(id: &Value, value: &Value) -> String {
    json!({"id": id, "result": value}).to_string()
}

fn error(id: &Value, message: &str) -> String {
    json!({"id": id, "error": {"code": -32600, "message": message}}).to_string()
}
