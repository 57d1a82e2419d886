//! The Pi scenarios as data, and their player.
//!
//! Message and field names are those of `pi` 1.6.0.

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
const HOLD_DEADLINE: Duration = Duration::from_secs(30);
/// The program's MCP server: one tool, `say`.
const ECHO_MCP: &str = include_str!("echo_mcp.py");
/// An extension with a command that opens one dialog of each kind.
const DIALOGS: &str = include_str!("pi_dialogs.ts");
/// The conversation of every recording.
const CONVERSATION: &str = "00000000-0000-4000-8000-00000000c0de";
/// The program, below the image's root.
const CLI: &str = "lib/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js";
/// The engine's extension, beside the folder of the recordings.
const EXTENSION: &str = "../../src/extension/astrabox.ts";

/// One recording.
struct Scenario {
    name: &'static str,
    /// What it shows; goes into the README.
    shows: &'static str,
    /// The tools that are asked for.
    ask: &'static [&'static str],
    acts: &'static [Act],
    /// A second process that goes on with the conversation of the first.
    resumed: Option<&'static Scenario>,
}

impl Scenario {
    const fn new(name: &'static str, shows: &'static str, acts: &'static [Act]) -> Self {
        Self {
            name,
            shows,
            ask: &[],
            acts,
            resumed: None,
        }
    }

    /// With commands and MCP tools asked for.
    const fn asking(name: &'static str, shows: &'static str, acts: &'static [Act]) -> Self {
        Self {
            ask: &["bash", "mcp__*"],
            ..Self::new(name, shows, acts)
        }
    }
}

/// One thing that the host does or waits for.
enum Act {
    /// Sends an input.
    Prompt(&'static str),
    /// Sends an input with a picture.
    Picture(&'static str),
    /// Waits for an approval and answers it with this verdict.
    Judge(&'static str),
    /// Waits for a dialog and gives it these members.
    Answer(&'static str),
    /// Waits for a dialog and leaves it open.
    Ask,
    /// Waits for a message that contains this text.
    Told(&'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Stops the turn.
    Abort,
    /// Waits until the program rests.
    Settled,
    /// Waits until the program says that it dealt with the input by itself.
    Handled,
    /// Kills the program.
    Kill,
}

use Act::{Abort, Answer, Ask, Handled, Held, Judge, Kill, Picture, Prompt, Settled, Told};

const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "plain",
        "a question and its answer",
        &[Prompt("hello"), Settled],
    ),
    Scenario::new(
        "deltas",
        "an answer in twelve deltas",
        &[Prompt("DELTAS: 12"), Settled],
    ),
    Scenario::new(
        "thinking",
        "thinking before the answer",
        &[
            Prompt("THINK: first I think about it\nSAY: then I answer"),
            Settled,
        ],
    ),
    Scenario::new(
        "two_turns",
        "two turns, and token counts of both",
        &[
            Prompt("USAGE: 1200 34 1000\none"),
            Settled,
            Prompt("USAGE: 1300 40 1100\nRECALL"),
            Settled,
        ],
    ),
    Scenario::new(
        "picture",
        "an input with a picture",
        &[Picture("look"), Settled],
    ),
    Scenario::asking(
        "shell_allowed",
        "text, a command that is allowed, its output in the answer",
        &[
            Prompt("SAY: I will run it.\nRUN: echo hello > made.txt && cat made.txt"),
            Judge(r#"{"choice":"allow"}"#),
            Settled,
        ],
    ),
    Scenario::asking(
        "shell_denied",
        "a denied command; the turn goes on",
        &[
            Prompt("RUN: touch never.txt"),
            Judge(r#"{"choice":"deny","comment":"not now"}"#),
            Settled,
        ],
    ),
    Scenario::asking(
        "shell_denied_and_stopped",
        "a command denied so that the turn ends",
        &[
            Prompt("RUN: touch never.txt"),
            Judge(r#"{"choice":"deny_stop"}"#),
            Settled,
        ],
    ),
    Scenario::asking(
        "shell_allowed_for_session",
        "the same command twice, allowed once for the session",
        &[
            Prompt("RUN: touch a.txt\nRUN: touch a.txt\nSAY: twice"),
            Judge(r#"{"choice":"allow_session"}"#),
            Settled,
        ],
    ),
    Scenario::asking(
        "shell_changed",
        "a command that is allowed with another input",
        &[
            Prompt("RUN: touch a.txt"),
            Judge(r#"{"choice":"allow","input":{"command":"echo changed"}}"#),
            Settled,
        ],
    ),
    Scenario::new(
        "shell_failed",
        "a command whose output grows, that writes to stderr and fails",
        &[
            Prompt("RUN: echo one; sleep 0.5; echo two; sleep 0.5; echo oops >&2; exit 3"),
            Settled,
        ],
    ),
    Scenario::new(
        "files",
        "a new file, an edit of it, and a file that is written over",
        &[
            Prompt(
                "WRITE new.txt hello\\nworld\nTOOL: edit {\"path\": \"new.txt\", \"edits\": [{\"oldText\": \"hello\", \"newText\": \"bye\"}]}\nWRITE new.txt other\nSAY: done",
            ),
            Settled,
        ],
    ),
    Scenario::asking(
        "mcp_tool_call",
        "a tool of an MCP server, allowed",
        &[
            Prompt(r#"TOOL: mcp__echo__say {"text": "hey"}"#),
            Judge(r#"{"choice":"allow"}"#),
            Settled,
        ],
    ),
    Scenario::new(
        "interrupt_stream",
        "an interrupt while the model speaks, and the turn after it",
        &[
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Told("text_delta"),
            Abort,
            Settled,
            Prompt("after"),
            Settled,
        ],
    ),
    Scenario::new(
        "interrupt_tool",
        "an interrupt while a command runs",
        &[
            Prompt("RUN: echo started; sleep 60"),
            Told(r#""text":"started"#),
            Abort,
            Settled,
        ],
    ),
    Scenario::asking(
        "interrupt_approval",
        "an interrupt while an approval is open, and the turn after it",
        &[
            Prompt("RUN: touch never.txt"),
            Ask,
            Abort,
            Settled,
            Prompt("after"),
            Settled,
        ],
    ),
    Scenario::new(
        "error_status",
        "the model endpoint answers 500 once, then 401 until the program gives up",
        &[
            Prompt("STATUS: 500 1\nSAY: got through"),
            Settled,
            Prompt("STATUS: 401"),
            Settled,
        ],
    ),
    Scenario::new(
        "stream_cut",
        "the model's stream is cut once in the middle of a message; the retry gets through",
        &[Prompt("SAY: all of it\nHALF 1"), Settled],
    ),
    Scenario::new(
        "compaction",
        "a turn after which the context is full, and is shortened",
        &[
            Prompt("SAY: one"),
            Settled,
            Prompt("USAGE: 127000 50\nSAY: two"),
            Settled,
        ],
    ),
    Scenario::new(
        "command",
        "a command of an extension in the place of an input",
        &[Prompt("/mcp"), Handled],
    ),
    Scenario::new(
        "dialogs",
        "a command of an extension that opens one dialog of each kind",
        &[
            Prompt("/dialogs"),
            Answer(r#"{"value":"Blue"}"#),
            Answer(r#"{"confirmed":true}"#),
            Answer(r#"{"value":"me"}"#),
            Answer(r#"{"cancelled":true}"#),
            Handled,
        ],
    ),
    Scenario {
        resumed: Some(&RESUMED),
        ..Scenario::new(
            "before_resume",
            "the process whose conversation `resume` goes on with: it is killed in a command",
            &[
                Prompt("SAY: apple"),
                Settled,
                Prompt("RUN: echo started; sleep 60"),
                Told(r#""text":"started"#),
                Kill,
            ],
        )
    },
];

const RESUMED: Scenario = Scenario::new(
    "resume",
    "another process that resumes it, and the model still sees the history",
    &[Prompt("RECALL"), Settled],
);

pub(super) async fn record(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    let image = fs::canonicalize(image).map_err(Error::io("find the image"))?;
    let extension = fs::read_to_string(out.join(EXTENSION)).map_err(Error::io(
        "read the engine's extension beside the recordings",
    ))?;
    let mut written = Vec::new();
    for scenario in SCENARIOS {
        if only.is_empty() || only.iter().any(|name| name == scenario.name) {
            let model = ScriptedModel::builder().start().await?;
            let place = Place::new(&image, scratch, &model, &extension)?;
            let played = play(scenario, &place, &model).await;
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

/// The folders of one scenario; gone when dropped.
struct Place<'a> {
    image: &'a Path,
    root: tempfile::TempDir,
    model: String,
    extension: &'a str,
}

impl<'a> Place<'a> {
    fn new(
        image: &'a Path,
        scratch: &Path,
        model: &ScriptedModel,
        extension: &'a str,
    ) -> Result<Self, Error> {
        fs::create_dir_all(scratch).map_err(Error::io("make the scratch folder"))?;
        let root = tempfile::Builder::new()
            .prefix("record-")
            .tempdir_in(scratch)
            .map_err(Error::io("make a folder in the scratch folder"))?;
        let place = Self {
            image,
            root,
            model: model.base_url(),
            extension,
        };
        let laid = || Error::io("lay out the program's folders");
        for dir in [place.workspace(), place.sessions()] {
            fs::create_dir_all(dir).map_err(laid())?;
        }
        let server = place.config().join("echo_mcp.py");
        let echo = json!({"command": "python3", "args": [server], "exposure": "direct"});
        let entry = json!({"id": "scripted-model", "input": ["text", "image"]});
        let provider = json!({
            "baseUrl": format!("{}/v1", place.model), "api": "openai-completions",
            "apiKey": "$MODEL_KEY", "models": [entry],
        });
        let settings =
            json!({"enableInstallTelemetry": false, "compaction": {"keepRecentTokens": 1}});
        let header = json!({
            "type": "session", "version": 3, "id": CONVERSATION,
            "timestamp": "2026-01-01T00:00:00.000Z", "cwd": place.workspace(),
        });
        for (path, content) in [
            (server, ECHO_MCP.to_owned()),
            (
                place.config().join("mcp.json"),
                json!({"mcpServers": {"echo": echo}}).to_string(),
            ),
            (
                place.config().join("models.json"),
                json!({"providers": {"astrabox": provider}}).to_string(),
            ),
            (place.config().join("settings.json"), settings.to_string()),
            (place.config().join("dialogs.ts"), DIALOGS.to_owned()),
            (place.session(), format!("{header}\n")),
        ] {
            fs::write(path, content).map_err(laid())?;
        }
        Ok(place)
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home/agent")
    }

    fn config(&self) -> PathBuf {
        self.home().join(".pi/agent")
    }

    fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    fn sessions(&self) -> PathBuf {
        self.config().join("sessions/--workspace--")
    }

    fn session(&self) -> PathBuf {
        self.sessions().join(format!("{CONVERSATION}.jsonl"))
    }

    /// Writes the extension for a process that asks for these tools, and gives its command.
    fn command(&self, ask: &[&str]) -> Result<Command, Error> {
        let path = self.config().join("astrabox.ts");
        let asks = format!("const ASK: string[] = {};", json!(ask));
        let extension = self
            .extension
            .replacen("const ASK: string[] = [];", &asks, 1);
        fs::write(&path, extension).map_err(Error::io("write the extension"))?;
        let mut command = Command::new(self.image.join("bin/node"));
        command
            .arg(self.image.join(CLI))
            .args(["--mode", "rpc", "--provider", "astrabox"])
            .args(["--model", "scripted-model", "--no-approve"])
            .arg("--session")
            .arg(self.session())
            .args(["--no-extensions", "--extension", "builtin:mcp"])
            .arg("--extension")
            .arg(path)
            .arg("--extension")
            .arg(self.config().join("dialogs.ts"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("HOME", self.home())
            .env("PI_CODING_AGENT_DIR", self.config())
            .env("MODEL_KEY", "placeholder")
            .env("PI_OFFLINE", "1")
            .env("PI_TELEMETRY", "0")
            .env("PI_SKIP_VERSION_CHECK", "1");
        Ok(command)
    }

    /// What of a recording depends on this machine.
    fn scrub(&self) -> Scrub {
        Scrub::new([
            (self.root.path().display().to_string(), String::new()),
            (self.image.display().to_string(), "/image".to_owned()),
            (self.model.clone(), "http://127.0.0.1:4000".to_owned()),
        ])
    }
}

/// Plays a scenario, and the process after it if there is one.
async fn play(
    scenario: &'static Scenario,
    place: &Place<'_>,
    model: &ScriptedModel,
) -> Result<Vec<(&'static str, Tape)>, Error> {
    let mut tapes = Vec::new();
    let mut next = Some(scenario);
    while let Some(scenario) = next {
        let command = place.command(scenario.ask)?;
        let stream = StreamJson::start(scenario.name, command, &place.workspace(), place.scrub())?;
        let mut player = Player {
            stream,
            model,
            sent: 0,
        };
        player.open().await?;
        let mut killed = false;
        for act in scenario.acts {
            match act {
                Kill => killed = true,
                act => player.act(act).await?,
            }
        }
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
    sent: u64,
}

impl Player<'_> {
    async fn command(&mut self, mut command: Value) -> Result<String, Error> {
        self.sent += 1;
        let id = format!("r{}", self.sent);
        command["id"] = json!(id);
        self.stream.send(&command).await?;
        Ok(id)
    }

    /// Asks which conversation the program has.
    async fn open(&mut self) -> Result<(), Error> {
        let id = self.command(json!({"type": "get_state"})).await?;
        let answers = |message: &Value| message["id"] == id.as_str();
        self.stream.until("its state", answers).await.map(|_| ())
    }

    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Prompt(text) => {
                let prompt =
                    json!({"type": "prompt", "message": text, "streamingBehavior": "followUp"});
                self.command(prompt).await.map(|_| ())
            }
            Picture(text) => {
                // One red pixel.
                let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4z8AAAAMBAQAY3Y2wAAAAAElFTkSuQmCC";
                let image = json!({"type": "image", "data": data, "mimeType": "image/png"});
                let prompt = json!({"type": "prompt", "message": text, "images": [image], "streamingBehavior": "followUp"});
                self.command(prompt).await.map(|_| ())
            }
            Judge(verdict) => self.answer(json!({"value": verdict})).await,
            Answer(members) => {
                let members = serde_json::from_str(members).unwrap_or_default();
                self.answer(members).await
            }
            Ask => self.asked().await.map(|_| ()),
            Told(text) => {
                let fits = |message: &Value| message.to_string().contains(text);
                self.stream.until(text, fits).await.map(|_| ())
            }
            Held(name) => Ok(self.model.wait_until_held(name, HOLD_DEADLINE).await?),
            Abort => self.command(json!({"type": "abort"})).await.map(|_| ()),
            Settled => {
                let rests = |message: &Value| message["type"] == "agent_settled";
                self.stream.until("its rest", rests).await.map(|_| ())
            }
            Handled => {
                let handled = |message: &Value| message["data"]["disposition"] == "handled";
                let what = "that it dealt with it";
                self.stream.until(what, handled).await.map(|_| ())
            }
            Kill => Ok(()),
        }
    }

    /// The next dialog.
    async fn asked(&mut self) -> Result<Value, Error> {
        let asks = |message: &Value| {
            let method = message["method"].as_str().unwrap_or_default();
            ["select", "confirm", "input", "editor"].contains(&method)
        };
        self.stream.until("a dialog", asks).await
    }

    async fn answer(&mut self, mut members: Value) -> Result<(), Error> {
        let asked = self.asked().await?;
        members["type"] = json!("extension_ui_response");
        members["id"] = asked["id"].clone();
        self.stream.send(&members).await
    }
}

/// What the program calls itself, e.g. `1.6.0`.
async fn version(image: &Path) -> Result<String, Error> {
    let output = Command::new(image.join("bin/node"))
        .arg(image.join(CLI))
        .arg("--version")
        .env("PI_OFFLINE", "1")
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
        "# Recordings of Pi

What one `pi --mode rpc` process read (`in`) and wrote (`out`, `err`), a JSON object a line, lines verbatim. Made with
`pi {version}` against the scripted model of `astrabox-testkit`:

```
cargo xtask record pi
```

The program ran in a folder of the layout `home/agent/.pi/agent` and `workspace`, with the engine's own extension and
one with a command for dialogs; that folder's own path is cut out of the lines, and the model's address is written as
`http://127.0.0.1:4000`. Of what the model is told at the begin only the names of tools are kept, and the messages that
`agent_end` and `turn_end` repeat are left out. This file is written by the recorder too.

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
