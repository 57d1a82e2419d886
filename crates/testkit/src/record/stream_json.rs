//! A program that speaks JSON lines as a child, as `claude -p` with stream-json: messages out, messages in, everything
//! on tape.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::Error;
use super::tape::{Dir, Scrub, Tape};

/// How long anything may take that a scenario waits for.
const DEADLINE: Duration = Duration::from_secs(60);
/// Members of the answer to `initialize` that list what the vendor ships, in the vendor's words.
const CUT: [&str; 6] = [
    "commands",
    "agents",
    "models",
    "account",
    "available_output_styles",
    "pid",
];

pub(super) struct StreamJson {
    scenario: &'static str,
    child: Child,
    /// None once it is closed.
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
    stderr_open: bool,
    tape: Tape,
    next_id: u64,
    /// Messages that were read while something else was waited for.
    unread: VecDeque<Value>,
    last: String,
}

impl StreamJson {
    /// Starts the program.
    pub(super) fn start(
        scenario: &'static str,
        mut command: Command,
        folder: &Path,
        scrub: Scrub,
    ) -> Result<Self, Error> {
        let mut child = command
            .current_dir(folder)
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
            next_id: 0,
            unread: VecDeque::new(),
            last: String::new(),
        })
    }

    /// Sends a control request and waits for its answer.
    pub(super) async fn request(&mut self, request: Value) -> Result<Value, Error> {
        self.next_id += 1;
        let id = format!("r{}", self.next_id);
        let subtype = request["subtype"].to_string();
        let line = json!({ "type": "control_request", "request_id": id, "request": request });
        self.send(&line).await?;
        let mut skipped = VecDeque::new();
        let answer = self
            .until(&format!("the answer to {subtype}"), |message| {
                let found = message["type"] == "control_response"
                    && message["response"]["request_id"] == id;
                if !found {
                    skipped.push_back(message.clone());
                }
                found
            })
            .await?;
        skipped.append(&mut self.unread);
        self.unread = skipped;
        if answer["response"]["subtype"] == "success" {
            return Ok(answer["response"]["response"].clone());
        }
        Err(Error::Refused {
            scenario: self.scenario,
            what: format!("{subtype} was refused: {}", answer["response"]["error"]),
        })
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
                    let message: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
                    self.tape.push(Dir::Out, cut(&message).as_deref().unwrap_or(&line));
                    self.last = line;
                    return Ok(Some(message));
                }
            }
        }
    }

    /// Ends the program in the middle of what it does.
    pub(super) async fn kill(mut self) -> Result<Tape, Error> {
        self.child
            .kill()
            .await
            .map_err(Error::io("kill the program"))?;
        Ok(self.tape)
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

/// A message without what the vendor ships in the vendor's words, and without what other messages have; nothing for one
/// that stays as it is.
fn cut(message: &Value) -> Option<String> {
    cut_of_claude(message).or_else(|| cut_of_pi(message))
}

/// What Pi tells the model at the begin, and where it says everything again.
fn cut_of_pi(message: &Value) -> Option<String> {
    let mut message = message.clone();
    match message["type"].as_str()? {
        "message_start" | "message_end" if message["message"]["role"] == "system" => {
            let told = message["message"].as_object_mut()?;
            told.remove("sections");
            let added = told.get_mut("toolsAdded");
            let added = added.and_then(Value::as_array_mut);
            for tool in added.into_iter().flatten() {
                *tool = json!({ "name": tool["name"] });
            }
        }
        "agent_end" => message["messages"] = json!([]),
        "turn_end" => {
            message.as_object_mut()?.remove("message")?;
            message["toolResults"] = json!([]);
        }
        _ => return None,
    }
    Some(message.to_string())
}

/// The answer of Claude Code to `initialize`.
fn cut_of_claude(message: &Value) -> Option<String> {
    message["response"]["response"].get("commands")?;
    let mut message = message.clone();
    let answer = message["response"]["response"].as_object_mut()?;
    answer.retain(|key, _| !CUT.contains(&key.as_str()));
    Some(message.to_string())
}
