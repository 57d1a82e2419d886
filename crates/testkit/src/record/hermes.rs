//! The Hermes scenarios as data, and their player.
//!
//! Message and field names are those of the ACP server of Hermes Agent 0.19.0 in the host of our engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::Error;
use super::stream_json::StreamJson;
use super::tape::{Scrub, Tape};
use crate::model::ScriptedModel;

/// How long the model may take to come to a hold.
const HOLD_DEADLINE: Duration = Duration::from_secs(60);
/// The program's MCP server: one tool, `say`.
const ECHO_MCP: &str = include_str!("echo_mcp.py");
/// The Python of the sandboxes.
const PYTHON: &str = "/usr/bin/python3";
/// The mode that asks before every call, the one that asks for what Hermes holds for dangerous, and the one that asks
/// for sensitive files only.
const ASKING: &str = "default";
const WARY: &str = "accept_edits";
const UNASKED: &str = "dont_ask";

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
    /// Waits for a request for permission and answers with this option.
    Choose(&'static str),
    /// Waits for a request for permission and leaves it open, until the turn is stopped.
    Ask,
    /// Waits for a message that contains this text.
    Told(&'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Interrupts the turn.
    Interrupt,
    /// Stops the sub-agent that began last.
    StopRun,
    /// Waits for the end of a turn.
    Ended,
    /// Kills the program.
    Kill,
}

use Act::{Ask, Choose, Ended, Held, Interrupt, Kill, Mode, Prompt, StopRun, Told};

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
            Choose("allow_once"),
            Ended,
        ],
    ),
    Scenario::new(
        "shell_denied",
        "a denied command; the turn goes on",
        ASKING,
        &[Prompt("RUN: touch never.txt"), Choose("deny"), Ended],
    ),
    Scenario::new(
        "shell_denied_and_stopped",
        "a command denied so that the turn stops",
        ASKING,
        &[Prompt("RUN: touch never.txt"), Choose("deny_stop"), Ended],
    ),
    Scenario::new(
        "shell_allowed_for_session",
        "the same command twice, allowed once for the session",
        ASKING,
        &[
            Prompt("RUN: touch a.txt\nRUN: touch a.txt\nSAY: twice"),
            Choose("allow_session"),
            Ended,
        ],
    ),
    Scenario::new(
        "shell_failed",
        "a command that writes to stderr and fails",
        UNASKED,
        &[Prompt("RUN: echo oops >&2; exit 3"), Ended],
    ),
    Scenario::new(
        "dangerous",
        "commands that Hermes holds for dangerous: one allowed for the session, one more of its kind unasked",
        WARY,
        &[
            Prompt("RUN: mkdir d && rm -rf d\nRUN: mkdir e && rm -rf e\nSAY: gone"),
            Choose("allow_session"),
            Ended,
        ],
    ),
    Scenario::new(
        "sensitive_edit",
        "an edit of a file that Hermes holds for sensitive, denied",
        UNASKED,
        &[Prompt("WRITE .env A=1"), Choose("deny"), Ended],
    ),
    Scenario::new(
        "files",
        "a new file, an edit of it, and another content, unasked",
        UNASKED,
        &[
            Prompt(
                "WRITE new.txt hello\\nworld\nTOOL: patch {\"path\": \"new.txt\", \"old_string\": \"hello\", \"new_string\": \"bye\"}\nWRITE new.txt all new\nSAY: done",
            ),
            Ended,
        ],
    ),
    Scenario::new(
        "mode_changed",
        "a mode that asks, changed to one that does not",
        ASKING,
        &[
            Prompt("RUN: touch a.txt"),
            Choose("allow_once"),
            Ended,
            Mode(UNASKED),
            Prompt("RUN: touch b.txt"),
            Ended,
        ],
    ),
    Scenario::new(
        "mcp_tool_call",
        "a tool of an MCP server, allowed",
        ASKING,
        &[
            Prompt(r#"TOOL: mcp__echo__say {"text": "hey"}"#),
            Choose("allow_once"),
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
        "an interrupt while a command runs, and the turn after it",
        UNASKED,
        &[
            Prompt("RUN: echo started; sleep 60"),
            Told(r#""sessionUpdate":"tool_call""#),
            Interrupt,
            Ended,
            Prompt("SAY: after"),
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
        "the model endpoint answers 500 once, then 401; and the turn after it",
        UNASKED,
        &[
            Prompt("STATUS: 500 1\nSAY: got through"),
            Ended,
            Prompt("STATUS: 401"),
            Ended,
            Prompt("SAY: after"),
            Ended,
        ],
    ),
    Scenario::new(
        "stream_cut",
        "the model's stream is cut once in the middle of a message",
        UNASKED,
        &[Prompt("SAY: all of it\nHALF 1"), Ended],
    ),
    Scenario::new(
        "child",
        "a sub-agent that its parent waits for, with a command of its own",
        UNASKED,
        &[
            Prompt("SPAWN: SAY: from the child\\nRUN: echo of the child\nSAY: the parent is done"),
            Ended,
        ],
    ),
    Scenario::new(
        "child_asked",
        "a sub-agent and its command, both allowed",
        ASKING,
        &[
            Prompt("SPAWN: RUN: touch child.txt\nSAY: the parent is done"),
            Choose("allow_once"),
            Choose("allow_once"),
            Ended,
        ],
    ),
    Scenario::new(
        "child_stopped",
        "a sub-agent that is stopped",
        UNASKED,
        &[
            Prompt("SPAWN: HOLD: child\\nSAY: never\nSAY: the parent is done"),
            Held("child"),
            StopRun,
            Ended,
        ],
    ),
    Scenario::new(
        "child_interrupted",
        "an interrupt while a sub-agent asks",
        ASKING,
        &[
            Prompt("SPAWN: RUN: touch child.txt\nSAY: the parent is done"),
            Choose("allow_once"),
            Ask,
            Interrupt,
            Ended,
            Prompt("SAY: after"),
            Ended,
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
                Told(r#""sessionUpdate":"tool_call""#),
                Kill,
            ],
        )
    },
];

const RESUMED: Scenario = Scenario::new(
    "resume",
    "another process that resumes it in another mode, and the model still sees the history",
    UNASKED,
    &[Prompt("RECALL"), Ended],
);

/// Where the program, its host and what else it needs are.
struct Setting<'a> {
    packages: PathBuf,
    /// The host of our engine.
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
    let packages = image.join("python");
    let packages = fs::canonicalize(packages).map_err(Error::io("find the program"))?;
    // The recordings are below the engine's crate.
    let host = out.join("../../src/host/host.py");
    let setting = Setting {
        packages,
        host: fs::read_to_string(host).map_err(Error::io("read the host"))?,
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
    fs::write(&readme, readme_text(&version(&setting.packages)?))
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
    let host = home.join(".hermes/host");
    for dir in [&host, &folder] {
        fs::create_dir_all(dir).map_err(Error::io("lay out the program's folders"))?;
    }
    fs::write(host.join("host.py"), &setting.host).map_err(Error::io("write the host"))?;
    fs::write(host.join("settings.json"), settings(model).to_string())
        .map_err(Error::io("write the settings"))?;
    let server = home.join("echo_mcp.py");
    fs::write(&server, ECHO_MCP).map_err(Error::io("write the MCP server"))?;
    let mut tapes = Vec::new();
    let mut next = Some(scenario);
    let mut session = None;
    while let Some(scenario) = next {
        let scrub = Scrub::new([
            (root.path().display().to_string(), String::new()),
            (
                setting.packages.display().to_string(),
                "/opt/astrabox/image/python".to_owned(),
            ),
            (model.base_url(), "http://127.0.0.1:4000".to_owned()),
        ]);
        let command = command(setting, &home, &host);
        let mut player = Player {
            stream: StreamJson::start(scenario.name, command, &folder, scrub)?,
            model,
            scenario,
            sent: 0,
            prompt: String::new(),
            session: String::new(),
            asked: None,
            run: String::new(),
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

/// As our engine configures Hermes.
fn settings(model: &ScriptedModel) -> Value {
    json!({
        "instructions": "",
        "config": {
            "model": {
                "provider": "custom",
                "default": "scripted-model",
                "base_url": format!("{}/v1", model.base_url()),
                "api_key": "${ASTRABOX_MODEL_KEY}",
                "api_mode": "chat_completions",
                "supports_vision": true,
            },
            "agent": { "image_input_mode": "native" },
            "auxiliary": { "title_generation": { "enabled": false } },
            "memory": { "nudge_interval": 0 },
            "skills": { "creation_nudge_interval": 0 },
            "curator": { "enabled": false },
            "lsp": { "enabled": false },
            "model_catalog": { "enabled": false },
            "security": {
                "allow_lazy_installs": false,
                "redact_secrets": false,
                "tirith_enabled": false,
            },
        },
    })
}

fn command(setting: &Setting<'_>, home: &Path, host: &Path) -> Command {
    let mut command = Command::new(PYTHON);
    command
        .args(["-P", "-s", "-B"])
        .arg(host.join("host.py"))
        .arg(&setting.packages)
        .arg(host.join("settings.json"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("HOME", home)
        .env("HERMES_HOME", home.join(".hermes"))
        .env("HERMES_DISABLE_LAZY_INSTALLS", "1")
        .env("TIRITH_ENABLED", "false")
        .env("HERMES_CONCURRENT_TOOL_TIMEOUT_S", "0")
        .env("ASTRABOX_MODEL_KEY", "placeholder");
    command
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
    /// The sub-agent that began last.
    run: String,
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
        let echo = json!({ "name": "echo", "command": PYTHON, "args": [server], "env": [] });
        let servers = match self.scenario.name {
            "mcp_tool_call" => json!([echo]),
            _ => json!([]),
        };
        let mut params = json!({ "cwd": folder, "mcpServers": servers });
        match resumed {
            None => {
                let opened = self.request("session/new", params).await?;
                self.session = opened["sessionId"].as_str().unwrap_or_default().to_owned();
            }
            Some(session) => {
                params["sessionId"] = json!(session);
                self.request("session/resume", params).await?;
                self.session = session;
            }
        }
        match self.scenario.mode {
            ASKING => Ok(()),
            mode => self.mode(mode).await,
        }
    }

    async fn mode(&mut self, mode: &str) -> Result<(), Error> {
        let params = json!({ "sessionId": self.session, "modeId": mode });
        self.request("session/set_mode", params).await.map(|_| ())
    }

    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Prompt(text) => {
                let prompt = json!([{ "type": "text", "text": text }]);
                let params = json!({ "sessionId": self.session, "prompt": prompt });
                self.prompt = self.ask("session/prompt", params).await?;
                Ok(())
            }
            Mode(mode) => self.mode(mode).await,
            Choose(option) => {
                let asked = self.permission().await?;
                let outcome = json!({ "outcome": "selected", "optionId": option });
                self.answer(&asked["id"], json!({ "outcome": outcome }))
                    .await
            }
            Ask => {
                let asked = self.permission().await?;
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
            StopRun => {
                if self.run.is_empty() {
                    let begins = |message: &Value| message["method"] == "_astrabox/run";
                    self.until("a sub-agent", begins).await?;
                }
                let params = json!({ "sessionId": self.session, "run": self.run });
                self.request("_astrabox/stop_run", params).await.map(|_| ())
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

    /// Reads until a message fits, and notes the sub-agents on the way.
    async fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        let run = &mut self.run;
        self.stream
            .until(what, |message| {
                if message["method"] == "_astrabox/run" {
                    message["params"]["run"]
                        .as_str()
                        .unwrap_or_default()
                        .clone_into(run);
                }
                fits(message)
            })
            .await
    }

    /// The next request for permission.
    async fn permission(&mut self) -> Result<Value, Error> {
        let method = "session/request_permission";
        self.until(method, |message| message["method"] == method)
            .await
    }

    async fn answer(&mut self, id: &Value, result: Value) -> Result<(), Error> {
        let line = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        self.stream.send(&line).await
    }
}

/// The version of the installed packages, e.g. `0.19.0`.
fn version(packages: &Path) -> Result<String, Error> {
    let names = fs::read_dir(packages).map_err(Error::io("list the packages"))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found = names.filter_map(|name| {
        let version = name.strip_prefix("hermes_agent-")?;
        Some(version.strip_suffix(".dist-info")?.to_owned())
    });
    Ok(found.last().unwrap_or_default())
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
        "# Recordings of Hermes Agent

What the ACP server of Hermes Agent in the host of this crate read (`in`) and wrote (`out`, `err`), a JSON object a
line, lines verbatim. Made with `{version}` against the scripted model of `astrabox-testkit`:

```
cargo xtask record hermes
```

The program ran in a folder of the layout `home/agent/.hermes` and `workspace`; that folder's own path is cut out of
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
            }
        }
    }
}
