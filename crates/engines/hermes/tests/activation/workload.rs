//! A sandbox in memory, with a program that answers the opening calls and one kind of turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use astrabox_engine::sandbox::{
    BoxPath, Error, ErrorKind, FileInfo, Output, OutputEvent, OutputStream, ProcessName,
    ProcessStatus, Result, Signal, SignalScope, SpawnSpec, Workload, WriteOptions,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What the tests look at.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) files: BTreeMap<String, (String, WriteOptions)>,
    pub(crate) spawned: Vec<SpawnSpec>,
    pub(crate) killed: Vec<String>,
    pub(crate) requests: Vec<Value>,
    stdin: String,
    stdout: String,
}

/// The sandbox.
#[derive(Default)]
pub(crate) struct Memory {
    shared: Arc<Shared>,
    /// A process of an earlier activation that still runs.
    pub(crate) left_over: Option<ProcessName>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic")
    }
}

impl Memory {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen()
    }

    fn answer(seen: &mut Seen, request: &Value) {
        let mut say = |value: Value| {
            seen.stdout.push_str(&value.to_string());
            seen.stdout.push('\n');
        };
        let mut answer = |result: Value| {
            say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
        };
        let mode = |id: &str| json!({"id": id, "name": id});
        let modes = json!({
            "currentModeId": "default",
            "availableModes": [mode("default"), mode("accept_edits"), mode("dont_ask")],
        });
        match request["method"].as_str() {
            Some("initialize") => answer(json!({
                "protocolVersion": 1,
                "agentInfo": {"name": "hermes-agent", "version": "0.19.0"},
                "agentCapabilities": {
                    "loadSession": true,
                    "promptCapabilities": {"image": true},
                    "mcpCapabilities": {"http": true},
                    "sessionCapabilities": {"resume": {}},
                },
            })),
            Some("session/new") => answer(json!({"sessionId": "session-1", "modes": modes})),
            Some("session/resume") => answer(json!({"modes": modes})),
            Some("session/set_mode") => answer(json!({})),
            Some("session/prompt") => {
                let content = json!({"type": "text", "text": "hello"});
                let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
                let params = json!({"sessionId": "session-1", "update": update});
                say(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
                let end = json!({"stopReason": "end_turn"});
                say(json!({"jsonrpc": "2.0", "id": request["id"], "result": end}));
            }
            _ => {}
        }
    }
}

fn running() -> ProcessStatus {
    ProcessStatus {
        pid: 2,
        stdin_offset: 0,
        stdout_kept: 0,
        stderr_kept: 0,
        exit: None,
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "test", "")
}

#[async_trait]
impl Workload for Memory {
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus> {
        self.seen().spawned.push(spec);
        Ok(running())
    }

    async fn attach(&self, _: &ProcessName, stdout: u64, _: u64) -> Result<OutputStream> {
        let begin = (Arc::clone(&self.shared), stdout);
        let stream = futures::stream::unfold(begin, |(shared, offset)| async move {
            let from = usize::try_from(offset).expect("it is small");
            loop {
                let changed = shared.changed.notified();
                let new = shared.seen().stdout[from..].to_owned();
                if !new.is_empty() {
                    let next = offset + new.len() as u64;
                    let event = OutputEvent::Output(Output {
                        stderr: false,
                        offset,
                        bytes: Bytes::from(new),
                    });
                    return Some((Ok(event), (Arc::clone(&shared), next)));
                }
                changed.await;
            }
        });
        Ok(stream.boxed())
    }

    async fn write_stdin(&self, _: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        let mut seen = self.seen();
        assert_eq!(offset, seen.stdin.len() as u64);
        let text = String::from_utf8(bytes.to_vec()).expect("it is text");
        seen.stdin.push_str(&text);
        for line in text.lines() {
            let request: Value = serde_json::from_str(line).expect("it is JSON");
            Self::answer(&mut seen, &request);
            seen.requests.push(request);
        }
        self.shared.changed.notify_waiters();
        Ok(seen.stdin.len() as u64)
    }

    async fn close_stdin(&self, _: &ProcessName) -> Result<()> {
        Ok(())
    }

    async fn acknowledge(&self, _: &ProcessName, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    async fn signal(&self, name: &ProcessName, _: Signal, _: SignalScope) -> Result<()> {
        let name = name.to_string();
        self.seen().killed.push(name);
        Ok(())
    }

    async fn status(&self, name: &ProcessName) -> Result<Option<ProcessStatus>> {
        let left_over = self.left_over.as_ref() == Some(name);
        Ok(left_over.then(running))
    }

    async fn read_file(&self, _: &BoxPath, _: u64, _: u64) -> Result<Bytes> {
        Err(unsupported())
    }

    async fn write_file(
        &self,
        path: &BoxPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        let content = String::from_utf8(content.to_vec()).expect("it is text");
        let mut seen = self.seen();
        seen.files.insert(path.to_string(), (content, options));
        Ok(())
    }

    async fn list_files(&self, _: &BoxPath) -> Result<Vec<FileInfo>> {
        Err(unsupported())
    }

    async fn stat(&self, _: &BoxPath) -> Result<FileInfo> {
        Err(unsupported())
    }

    async fn make_dir(&self, _: &BoxPath) -> Result<()> {
        Err(unsupported())
    }

    async fn remove(&self, _: &BoxPath) -> Result<()> {
        Ok(())
    }

    async fn rename(&self, _: &BoxPath, _: &BoxPath) -> Result<()> {
        Err(unsupported())
    }
}
