//! A program that speaks ACP and wants files and terminals, and the shell that its commands run in.

use std::sync::Arc;

use astrabox_conformance::doubles::{ProgramIo, Programs, program};
use astrabox_engine::sandbox::{BoxPath, WriteOptions};
use bytes::Bytes;
use serde_json::{Value, json};

/// The programs of the box: `agent`, and the shell.
pub(crate) fn programs() -> Programs {
    let agent = program(live);
    let shell = program(command);
    Arc::new(move |spec| match spec.argv[0].as_str() {
        "/bin/sh" => Some(Arc::clone(&shell)),
        _ => Some(Arc::clone(&agent)),
    })
}

/// `sh -c SCRIPT OUTPUT COMMAND`: the command's output goes to a file.
async fn command(io: ProgramIo) -> i32 {
    let output = BoxPath::new(io.argv[3].clone()).expect("it is a path");
    let said = format!("hello from {}\n", io.argv[4]);
    let written = io
        .files
        .write(&output, Bytes::from(said), WriteOptions::default());
    written.expect("it is written");
    if io.argv[4] == "forever" {
        std::future::pending::<()>().await;
    }
    3
}

struct Agent {
    io: ProgramIo,
    asked: u64,
}

async fn live(io: ProgramIo) -> i32 {
    let mut agent = Agent { io, asked: 0 };
    while let Some(message) = agent.hear().await {
        let id = message["id"].clone();
        match message["method"].as_str() {
            Some("initialize") => {
                let capabilities = &message["params"]["clientCapabilities"];
                assert_eq!(capabilities["terminal"], true);
                assert_eq!(capabilities["fs"]["readTextFile"], true);
                agent.answer(&id, &json!({"protocolVersion": 1, "agentCapabilities": {}}));
            }
            Some("session/new") => agent.answer(&id, &json!({"sessionId": "s"})),
            Some("session/prompt") => {
                let text = message["params"]["prompt"][0]["text"].as_str();
                agent.act(text.unwrap_or_default()).await;
                agent.answer(&id, &json!({"stopReason": "end_turn"}));
            }
            _ => {}
        }
    }
    0
}

impl Agent {
    async fn act(&mut self, prompt: &str) {
        let (word, rest) = prompt.split_once(' ').unwrap_or((prompt, ""));
        match word {
            "write" => {
                let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let params = json!({"path": path, "content": text.replace("\\n", "\n")});
                let told = self.ask("fs/write_text_file", params).await;
                self.say(&told.to_string());
            }
            "read" => {
                let params = json!({"path": rest, "line": 2, "limit": 1});
                let told = self.ask("fs/read_text_file", params).await;
                self.say(&told.to_string());
            }
            "terminal" => {
                let terminal = self.terminal(rest).await;
                for method in ["terminal/wait_for_exit", "terminal/output"] {
                    let told = self.ask(method, terminal.clone()).await;
                    self.say(&told.to_string());
                }
                self.ask("terminal/release", terminal).await;
            }
            "leave" => {
                let terminal = self.terminal(rest).await;
                self.request("terminal/wait_for_exit", terminal);
                self.say("left");
            }
            _ => self.say(prompt),
        }
    }

    async fn terminal(&mut self, command: &str) -> Value {
        let params = json!({"command": command, "outputByteLimit": 14});
        let made = self.ask("terminal/create", params).await;
        json!({"terminalId": made["terminalId"]})
    }

    async fn hear(&mut self) -> Option<Value> {
        let line = self.io.line().await?;
        Some(serde_json::from_str(&line).expect("it is JSON"))
    }

    fn print(&self, message: &Value) {
        self.io.print(format!("{message}\n"));
    }

    fn answer(&self, id: &Value, result: &Value) {
        self.print(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn say(&self, text: &str) {
        let content = json!({"type": "text", "text": text});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        let params = json!({"sessionId": "s", "update": update});
        self.print(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    fn request(&mut self, method: &str, mut params: Value) -> u64 {
        self.asked += 1;
        params["sessionId"] = json!("s");
        let id = self.asked;
        self.print(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// A request, and its result or error.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        while let Some(message) = self.hear().await {
            if message["id"] == id && message.get("method").is_none() {
                return match message.get("result") {
                    Some(result) => result.clone(),
                    None => json!({"error": message["error"]}),
                };
            }
        }
        Value::Null
    }
}
