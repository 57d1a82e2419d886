//! The DeepSeek Harness scenarios as data, and their player.
//!
//! Message and field names are those of `dsh --profile acp` 0.2.1rc2 with the plugin of our engine.

mod start;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::Error;
use super::stream_json::StreamJson;
use super::tape::{Scrub, Tape};
use crate::model::ScriptedModel;
use start::{command, patch};

/// How long the model may take to come to a hold.
const HOLD_DEADLINE: Duration = Duration::from_secs(30);
/// The program's MCP server: one tool, `say`.
const ECHO_MCP: &str = include_str!("echo_mcp.py");
/// The permission modes: preset, sandbox mode, approval policy.
const MODES: [(&str, &str, &str); 4] = [
    ("read-only", "read-only", "ask"),
    ("workspace-write", "workspace-write", "ask"),
    ("danger-full-access", "danger-full-access", "never"),
    ("ask", "danger-full-access", "ask"),
];

/// One recording.
struct Scenario {
    name: &'static str,
    /// What it shows; goes into the README.
    shows: &'static str,
    /// The permission mode that it begins with.
    mode: &'static str,
    acts: &'static [Act],
    /// A second process that goes on with the conversation of the first.
    resumed: Option<&'static Scenario>,
}

impl Scenario {
    const fn new(
        name: &'static str,
        shows: &'static str,
        mode: &'static str,
        acts: &'static [Act],
    ) -> Self {
        Self {
            name,
            shows,
            mode,
            acts,
            resumed: None,
        }
    }
}

/// One thing that the host does or waits for.
enum Act {
    /// Sends an input.
    Prompt(&'static str),
    /// Changes the permission mode.
    Mode(&'static str),
    /// Waits for a request for permission and allows it once.
    Allow,
    /// Waits for a request for permission and rejects it.
    Reject,
    /// Waits for a question and answers each of its parts with this option.
    Reply(&'static str),
    /// Waits for a question and declines it.
    Decline,
    /// Waits for a request for permission and leaves it open, until the turn is stopped.
    Ask,
    /// Waits for a message that contains this text.
    Told(&'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Interrupts the turn.
    Interrupt,
    /// Stops the child run that began last.
    StopChild,
    /// Waits for the end of a turn.
    Ended,
    /// Kills the program.
    Kill,
}

use Act::{
    Allow, Ask, Decline, Ended, Held, Interrupt, Kill, Mode, Prompt, Reject, Reply, StopChild, Told,
};

const UNASKED: &str = "danger-full-access";
const ASKING: &str = "ask";

const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "plain",
        "a question and its answer",
        UNASKED,
        &[Prompt("hello"), Ended],
    ),
    Scenario::new(
        "deltas",
        "an answer in twelve deltas",
        UNASKED,
        &[Prompt("DELTAS: 12"), Ended],
    ),
    Scenario::new(
        "thinking",
        "thinking before the answer",
        UNASKED,
        &[
            Prompt("THINK: first I think about it\nSAY: then I answer"),
            Ended,
        ],
    ),
    Scenario::new(
        "two_turns",
        "two turns, and token counts of both",
        UNASKED,
        &[
            Prompt("USAGE: 1200 34 1000\none"),
            Ended,
            Prompt("USAGE: 1300 40 1100\nRECALL"),
            Ended,
        ],
    ),
    Scenario::new(
        "shell_allowed",
        "text, a command that is allowed, its output in the answer",
        ASKING,
        &[
            Prompt("SAY: I will run it.\nRUN: echo hello > made.txt && cat made.txt"),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "shell_denied",
        "a rejected command; the turn goes on",
        ASKING,
        &[Prompt("RUN: touch never.txt"), Reject, Ended],
    ),
    Scenario::new(
        "shell_failed",
        "a command that writes to stderr and fails",
        UNASKED,
        &[Prompt("RUN: echo oops >&2; exit 3"), Ended],
    ),
    Scenario::new(
        "files",
        "a new file, an edit of it, and another content, unasked",
        UNASKED,
        &[
            Prompt(
                "WRITE new.txt hello\\nworld\nTOOL: edit {\"file_path\": \"new.txt\", \"old_string\": \"hello\", \"new_string\": \"bye\"}\nWRITE new.txt all new\nSAY: done",
            ),
            Ended,
        ],
    ),
    Scenario::new(
        "workspace_write",
        "the program's own sandbox: the workspace is written, a folder beside it is not, and a wider call is asked for",
        "workspace-write",
        &[
            Prompt("RUN: touch inside.txt && echo in\nRUN: touch ../beside.txt\nSAY: tried"),
            Ended,
            Prompt(
                r#"TOOL: bash {"command": "touch ../beside.txt && echo out", "description": "wider", "sandbox_permissions": "danger-full-access", "justification": "it is beside the workspace"}"#,
            ),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "read_only",
        "the program's own sandbox changes nothing, neither by a command nor by a file tool",
        "read-only",
        &[
            Prompt("RUN: touch never.txt\nWRITE never.txt no\nSAY: tried"),
            Ended,
        ],
    ),
    Scenario::new(
        "mode_changed",
        "a mode that asks, changed to one that does not",
        ASKING,
        &[
            Prompt("RUN: touch a.txt"),
            Allow,
            Ended,
            Mode(UNASKED),
            Prompt("RUN: touch b.txt"),
            Ended,
        ],
    ),
    Scenario::new(
        "question",
        "two questions to the user and their answers, then one that is declined",
        UNASKED,
        &[
            Prompt(
                r#"TOOL: ask_user_question {"questions": [{"id": "colour", "question": "Which colour?", "header": "Colour", "options": [{"label": "Red"}, {"label": "Blue"}]}, {"id": "sizes", "question": "Which sizes?", "multi_select": true, "options": [{"label": "Small"}, {"label": "Blue"}]}]}"#,
            ),
            Reply("Blue"),
            Ended,
            Prompt(
                r#"TOOL: ask_user_question {"questions": [{"id": "name", "question": "Who?"}]}"#,
            ),
            Decline,
            Ended,
        ],
    ),
    Scenario::new(
        "mcp_tool_call",
        "a tool of an MCP server, allowed",
        ASKING,
        &[
            Prompt(r#"TOOL: mcp__echo__say {"text": "hey"}"#),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "interrupt_stream",
        "an interrupt while the model speaks, and the turn after it",
        UNASKED,
        &[
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Told("agent_message_chunk"),
            Interrupt,
            Ended,
            Prompt("SAY: after"),
            Ended,
        ],
    ),
    Scenario::new(
        "interrupt_tool",
        "an interrupt while a command runs",
        UNASKED,
        &[
            Prompt("RUN: echo started; sleep 60"),
            Told("tool_call"),
            Interrupt,
            Ended,
        ],
    ),
    Scenario::new(
        "interrupt_approval",
        "an interrupt while an approval is open, and the turn after it",
        ASKING,
        &[
            Prompt("RUN: touch never.txt"),
            Ask,
            Interrupt,
            Ended,
            Prompt("SAY: after"),
            Ended,
        ],
    ),
    Scenario::new(
        "error_status",
        "the model endpoint answers 500 once, then 401",
        UNASKED,
        &[
            Prompt("STATUS: 500 1\nSAY: got through"),
            Ended,
            Prompt("STATUS: 401"),
            Ended,
        ],
    ),
    Scenario::new(
        "stream_cut",
        "the model's stream is cut once in the middle of a message; the retry gets through",
        UNASKED,
        &[Prompt("SAY: all of it\nHALF 1"), Ended],
    ),
    Scenario::new(
        "child",
        "a sub-agent that its parent does not wait for, and the parent's reply to its end",
        UNASKED,
        &[
            Prompt("SPAWN: SAY: from the child\\nRUN: echo of the child\nSAY: the parent is done"),
            Ended,
        ],
    ),
    Scenario::new(
        "child_asked",
        "a command of a sub-agent that is allowed",
        ASKING,
        &[
            Prompt("SPAWN: RUN: touch child.txt\nSAY: it begins"),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "child_stopped",
        "a sub-agent that is stopped",
        UNASKED,
        &[
            Prompt("SPAWN: HOLD: child\\nSAY: never\nSAY: it begins"),
            Held("child"),
            StopChild,
            Ended,
        ],
    ),
    Scenario::new(
        "child_continued",
        "a sub-agent that is spoken to again after its end",
        UNASKED,
        &[
            Prompt("SPAWN: SAY: first\nSAY: it begins"),
            Ended,
            Prompt(r#"TOOL: send_message {"agent_id": "{child}", "message": "SAY: second"}"#),
            Ended,
        ],
    ),
    Scenario::new(
        "background_command",
        "a command in the background, and the program's own reply to its end",
        UNASKED,
        &[
            Prompt(
                "TOOL: bash {\"command\": \"sleep 1; echo done\", \"run_in_background\": true, \"description\": \"waits\"}\nSAY: it begins",
            ),
            Ended,
            Told(r#""running":false"#),
        ],
    ),
    Scenario::new(
        "background_command_stopped",
        "a command in the background that is stopped",
        UNASKED,
        &[
            Prompt(
                "TOOL: bash {\"command\": \"sleep 60\", \"run_in_background\": true, \"description\": \"waits\"}\nSAY: it begins",
            ),
            Ended,
            StopChild,
            Told(r#""running":false"#),
        ],
    ),
    Scenario {
        resumed: Some(&RESUMED),
        ..Scenario::new(
            "before_resume",
            "the process whose conversation `resume` goes on with: it is killed in a command",
            UNASKED,
            &[
                Prompt("SAY: apple"),
                Ended,
                Prompt("RUN: sleep 60"),
                Told("tool_call"),
                Kill,
            ],
        )
    },
];

const RESUMED: Scenario = Scenario::new(
    "resume",
    "another process that resumes it in another mode, and the model still sees the history",
    "ask",
    &[Prompt("RECALL"), Ended],
);

/// Where the program, its plugin and what else it needs are.
struct Setting<'a> {
    image: &'a Path,
    /// The plugin of our engine.
    host: String,
    scratch: &'a Path,
}

pub(super) async fn record(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    fs::create_dir_all(out).map_err(Error::io("make the output folder"))?;
    let image = fs::canonicalize(image).map_err(Error::io("find the program"))?;
    // The recordings are below the engine's crate.
    let host = out.join("../../src/host/host.mjs");
    let setting = Setting {
        image: &image,
        host: fs::read_to_string(host).map_err(Error::io("read the plugin"))?,
        scratch,
    };
    let mut written = Vec::new();
    for scenario in SCENARIOS {
        if only.is_empty() || only.iter().any(|name| name == scenario.name) {
            let model = ScriptedModel::builder().start().await?;
            let played = play(scenario, &setting, &model).await;
            model.shutdown().await;
            for (name, tape) in played? {
                let path = out.join(format!("{name}.jsonl"));
                fs::write(&path, tape.text()).map_err(Error::io("write a recording"))?;
                written.push(path);
            }
        }
    }
    let readme = out.join("README.md");
    fs::write(&readme, readme_text(&version(&image).await?))
        .map_err(Error::io("write the README"))?;
    written.push(readme);
    Ok(written)
}

/// Plays a scenario, and the process after it if there is one.
async fn play(
    scenario: &'static Scenario,
    setting: &Setting<'_>,
    model: &ScriptedModel,
) -> Result<Vec<(&'static str, Tape)>, Error> {
    fs::create_dir_all(setting.scratch).map_err(Error::io("make the scratch folder"))?;
    let root = tempfile::Builder::new()
        .prefix("record-")
        .tempdir_in(setting.scratch)
        .map_err(Error::io("make a folder in the scratch folder"))?;
    let (home, folder) = (
        root.path().join("home/agent"),
        root.path().join("workspace"),
    );
    let host = home.join(".dsh/astrabox");
    for dir in [&host, &folder] {
        fs::create_dir_all(dir).map_err(Error::io("lay out the program's folders"))?;
    }
    fs::write(host.join("host.mjs"), &setting.host).map_err(Error::io("write the plugin"))?;
    let server = home.join("echo_mcp.py");
    fs::write(&server, ECHO_MCP).map_err(Error::io("write the MCP server"))?;
    let mut tapes = Vec::new();
    let mut next = Some(scenario);
    let mut session = None;
    while let Some(scenario) = next {
        let patch = patch(scenario.mode, &home, &folder, setting.image, model).to_string();
        fs::write(host.join("host.patch.yml"), patch).map_err(Error::io("write the patch"))?;
        let scrub = Scrub::new([
            (root.path().display().to_string(), String::new()),
            (
                setting.image.display().to_string(),
                "/opt/engine".to_owned(),
            ),
            (model.base_url(), "http://127.0.0.1:4000".to_owned()),
        ]);
        let command = command(setting.image, &home, &host);
        let mut player = Player {
            stream: StreamJson::start(scenario.name, command, &folder, scrub)?,
            model,
            scenario,
            sent: 0,
            prompt: String::new(),
            session: String::new(),
            asked: None,
            child: String::new(),
        };
        player.open(&folder, &server, session.take()).await?;
        let mut killed = false;
        for act in scenario.acts {
            match act {
                Kill => killed = true,
                act => player.act(act).await?,
            }
        }
        session = Some(player.session);
        let tape = if killed {
            player.stream.kill().await?
        } else {
            player.stream.finish().await?
        };
        tapes.push((scenario.name, tape));
        next = scenario.resumed;
    }
    Ok(tapes)
}

struct Player<'a> {
    stream: StreamJson,
    model: &'a ScriptedModel,
    scenario: &'static Scenario,
    /// Counts our requests.
    sent: u64,
    /// The id of the prompt that was sent last.
    prompt: String,
    session: String,
    /// The id of the request that was left open.
    asked: Option<Value>,
    /// The child run that began last.
    child: String,
}

impl Player<'_> {
    /// As our engine opens a conversation.
    async fn open(
        &mut self,
        folder: &Path,
        server: &Path,
        resumed: Option<String>,
    ) -> Result<(), Error> {
        let files = json!({ "readTextFile": false, "writeTextFile": false });
        let initialize = json!({
            "protocolVersion": 1,
            "clientInfo": { "name": "astrabox", "title": "AstraBox", "version": "0.1.0" },
            "clientCapabilities": { "fs": files, "terminal": false },
        });
        self.request("initialize", initialize).await?;
        let echo = json!({ "name": "echo", "command": "/usr/bin/env", "args": ["python3", server], "env": [] });
        let servers = match self.scenario.name {
            "mcp_tool_call" => json!([echo]),
            _ => json!([]),
        };
        let mut params = json!({ "cwd": folder, "mcpServers": servers });
        let Some(session) = resumed else {
            let opened = self.request("session/new", params).await?;
            self.session = opened["sessionId"].as_str().unwrap_or_default().to_owned();
            return Ok(());
        };
        params["sessionId"] = json!(session);
        self.request("session/resume", params).await?;
        self.session = session;
        self.mode(self.scenario.mode).await
    }

    async fn mode(&mut self, mode: &str) -> Result<(), Error> {
        let params = json!({ "sessionId": self.session, "modeId": mode });
        self.request("session/set_mode", params).await.map(|_| ())
    }

    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Prompt(text) => {
                let text = text.replace("{child}", &self.child);
                let prompt = json!([{ "type": "text", "text": text }]);
                let params = json!({ "sessionId": self.session, "prompt": prompt });
                self.prompt = self.ask("session/prompt", params).await?;
                Ok(())
            }
            Mode(mode) => self.mode(mode).await,
            Allow => self.permit("allow-once").await,
            Reject => self.permit("reject-once").await,
            Reply(option) => {
                let asked = self.requested("_astrabox/question").await?;
                let questions = asked["params"]["questions"].as_array();
                let answers: Vec<Value> = questions
                    .into_iter()
                    .flatten()
                    .map(|question| json!({ "id": question["id"], "selected": [option] }))
                    .collect();
                self.answer(&asked["id"], json!({ "answers": answers }))
                    .await
            }
            Decline => {
                let asked = self.requested("_astrabox/question").await?;
                let declined = json!({ "declined": true, "comment": "not now" });
                self.answer(&asked["id"], declined).await
            }
            Ask => {
                let asked = self.requested("session/request_permission").await?;
                self.asked = Some(asked["id"].clone());
                Ok(())
            }
            Told(text) => {
                let fits = |message: &Value| message.to_string().contains(text);
                self.until(text, fits).await.map(|_| ())
            }
            Held(name) => Ok(self.model.wait_until_held(name, HOLD_DEADLINE).await?),
            Interrupt => {
                let params = json!({ "sessionId": self.session });
                let line =
                    json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params });
                self.stream.send(&line).await?;
                match self.asked.take() {
                    Some(id) => {
                        let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
                        self.answer(&id, cancelled).await
                    }
                    None => Ok(()),
                }
            }
            StopChild => {
                if self.child.is_empty() {
                    let begins = |message: &Value| message["method"] == "_astrabox/child";
                    self.until("a child run", begins).await?;
                }
                let params = json!({ "sessionId": self.session, "id": self.child });
                self.request("_astrabox/stop", params).await.map(|_| ())
            }
            Ended => {
                let prompt = self.prompt.clone();
                let ends = |message: &Value| message["id"] == prompt;
                self.until("the end of the turn", ends).await.map(|_| ())
            }
            Kill => Ok(()),
        }
    }

    /// Sends a request; gives its id.
    async fn ask(&mut self, method: &str, params: Value) -> Result<String, Error> {
        self.sent += 1;
        let id = format!("r{}", self.sent);
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stream.send(&line).await?;
        Ok(id)
    }

    /// Sends a request and waits for its result.
    async fn request(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        let id = self.ask(method, params).await?;
        let answers = |message: &Value| message["id"] == id;
        let answer = self
            .until(&format!("the answer to {method}"), answers)
            .await?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(Error::Refused {
                scenario: self.scenario.name,
                what: format!("{method} was refused: {}", answer["error"]),
            }),
        }
    }

    /// Reads until a message fits, and notes the child runs on the way.
    async fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        let child = &mut self.child;
        self.stream
            .until(what, |message| {
                if message["method"] == "_astrabox/child" {
                    message["params"]["id"]
                        .as_str()
                        .unwrap_or_default()
                        .clone_into(child);
                }
                fits(message)
            })
            .await
    }

    /// The next request of the program with this method.
    async fn requested(&mut self, method: &str) -> Result<Value, Error> {
        self.until(method, |message| message["method"] == method)
            .await
    }

    async fn permit(&mut self, option: &str) -> Result<(), Error> {
        let asked = self.requested("session/request_permission").await?;
        let outcome = json!({ "outcome": "selected", "optionId": option });
        self.answer(&asked["id"], json!({ "outcome": outcome }))
            .await
    }

    async fn answer(&mut self, id: &Value, result: Value) -> Result<(), Error> {
        let line = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        self.stream.send(&line).await
    }
}

/// What the program calls itself, e.g. `0.2.1-rc.2`.
async fn version(image: &Path) -> Result<String, Error> {
    let output = Command::new(image.join("bin/dsh"))
        .arg("--version")
        .kill_on_drop(true)
        .output();
    let output = output
        .await
        .map_err(Error::io("ask the program for its version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn readme_text(version: &str) -> String {
    let all = SCENARIOS
        .iter()
        .flat_map(|scenario| [Some(scenario), scenario.resumed]);
    let table: String = all
        .flatten()
        .map(|scenario| format!("| `{}` | {} |\n", scenario.name, scenario.shows))
        .collect();
    format!(
        "# Recordings of DeepSeek Harness

What one `dsh --profile acp` process with the plugin of this crate read (`in`) and wrote (`out`, `err`), a JSON
object a line, lines verbatim. Made with `{version}` against the scripted model of `astrabox-testkit`:

```
cargo xtask record deepseek_harness
```

The program ran in a folder of the layout `home/agent/.dsh` and `workspace`; that folder's own path is cut out of
the lines, and the model's address is written as `http://127.0.0.1:4000`. This file is written by the recorder too.

| recording | shows |
|---|---|
{table}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_recording_has_its_own_name_and_says_what_it_shows() {
        let mut names = BTreeSet::new();
        for scenario in SCENARIOS {
            for scenario in [Some(scenario), scenario.resumed].into_iter().flatten() {
                assert!(names.insert(scenario.name), "{} twice", scenario.name);
                assert!(!scenario.shows.is_empty() && !scenario.shows.contains('|'));
                assert!(readme_text("1").contains(&format!("| `{}` |", scenario.name)));
                let known = MODES.iter().any(|mode| mode.0 == scenario.mode);
                assert!(known, "{}", scenario.mode);
            }
        }
    }
}
