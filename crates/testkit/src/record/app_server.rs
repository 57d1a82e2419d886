//! A program that speaks JSON-RPC as a child: requests out, messages in, everything on tape.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::Error;
use super::place::Place;
use super::tape::{Dir, Scrub, Tape};

/// How long anything may take that a scenario waits for.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) struct AppServer {
    scenario: &'static str,
    child: Child,
    /// None once it is closed.
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
    stderr_open: bool,
    tape: Tape,
    /// Whether messages have the member `jsonrpc`.
    versioned: bool,
    next_id: u64,
    /// Messages that were read while something else was waited for.
    unread: VecDeque<Value>,
    last: String,
}

impl AppServer {
    /// Starts `codex app-server` and shakes hands.
    pub(super) async fn start(
        scenario: &'static str,
        program: &Path,
        place: &Place,
        scrub: Scrub,
    ) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command
            .args(["app-server", "-c", "features.plugins=false"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("HOME", place.home())
            .env("CODEX_HOME", place.codex_home())
            .env("MODEL_KEY", "placeholder")
            .current_dir(place.workspace());
        let mut server = Self::open(scenario, command, scrub, false)?;
        let client = json!({ "name": "astrabox", "title": "AstraBox", "version": "0.1.0" });
        let params = json!({
            "clientInfo": client,
            "capabilities": { "experimentalApi": true },
        });
        server.request("initialize", params).await?;
        server.send(&json!({ "method": "initialized" })).await?;
        Ok(server)
    }

    /// Starts a program; `versioned` is whether it wants the member `jsonrpc`.
    pub(super) fn open(
        scenario: &'static str,
        mut command: Command,
        scrub: Scrub,
        versioned: bool,
    ) -> Result<Self, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("start the program"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::Refused {
                scenario,
                what: "the program has no pipes".to_owned(),
            });
        };
        Ok(Self {
            scenario,
            child,
            stdin: Some(stdin),
            stdout: BufReader::new(stdout).lines(),
            stderr: BufReader::new(stderr).lines(),
            stderr_open: true,
            tape: Tape::new(scrub),
            versioned,
            next_id: 0,
            unread: VecDeque::new(),
            last: String::new(),
        })
    }

    /// Sends a request and gives its id.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<u64, Error> {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if self.versioned {
            message["jsonrpc"] = json!("2.0");
        }
        self.send(&message).await?;
        Ok(id)
    }

    /// Sends a request and waits for its result.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        let id = self.ask(method, params).await?;
        let mut skipped = VecDeque::new();
        let answer = self
            .until(&format!("the answer to {method}"), |message| {
                let found = message["id"] == id && message.get("method").is_none();
                if !found {
                    skipped.push_back(message.clone());
                }
                found
            })
            .await?;
        skipped.append(&mut self.unread);
        self.unread = skipped;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(Error::Refused {
                scenario: self.scenario,
                what: format!("{method} was refused: {}", answer["error"]),
            }),
        }
    }

    /// Writes a message.
    pub(super) async fn send(&mut self, message: &Value) -> Result<(), Error> {
        let Some(stdin) = &mut self.stdin else {
            return Ok(());
        };
        let mut line = message.to_string();
        self.tape.push(Dir::In, &line);
        line.push('\n');
        let write = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        write.await.map_err(Error::io("write to the program"))
    }

    /// Reads until a message fits; those before it are done with.
    pub(super) async fn until(
        &mut self,
        what: &str,
        mut fits: impl FnMut(&Value) -> bool,
    ) -> Result<Value, Error> {
        let scenario = self.scenario;
        let search = async {
            loop {
                let message = match self.unread.pop_front() {
                    Some(message) => message,
                    None => self.read().await?.ok_or_else(|| Error::Refused {
                        scenario,
                        what: format!("the program ended before {what}"),
                    })?,
                };
                if fits(&message) {
                    return Ok(message);
                }
            }
        };
        match timeout(DEADLINE, search).await {
            Ok(found) => found,
            Err(_) => Err(Error::Silent {
                scenario,
                what: what.to_owned(),
                deadline: DEADLINE,
                last: self.last.clone(),
            }),
        }
    }

    /// The next message; none at the end.
    async fn read(&mut self) -> Result<Option<Value>, Error> {
        loop {
            tokio::select! {
                biased;
                line = self.stderr.next_line(), if self.stderr_open => {
                    match line.map_err(Error::io("read from the program"))? {
                        Some(line) => self.tape.push(Dir::Err, &line),
                        None => self.stderr_open = false,
                    }
                }
                line = self.stdout.next_line() => {
                    let Some(line) = line.map_err(Error::io("read from the program"))? else {
                        return Ok(None);
                    };
                    self.tape.push(Dir::Out, &line);
                    let message = serde_json::from_str(&line).unwrap_or(Value::Null);
                    self.last = line;
                    return Ok(Some(message));
                }
            }
        }
    }

    /// Closes the program's input and waits for its end.
    pub(super) async fn finish(mut self) -> Result<Tape, Error> {
        self.stdin = None;
        let end = async {
            while self.read().await?.is_some() {}
            self.child
                .wait()
                .await
                .map_err(Error::io("wait for the program"))
        };
        match timeout(DEADLINE, end).await {
            Ok(status) => status.map(|_| self.tape),
            Err(_) => Err(Error::Silent {
                scenario: self.scenario,
                what: "the end of the program".to_owned(),
                deadline: DEADLINE,
                last: self.last,
            }),
        }
    }
}
