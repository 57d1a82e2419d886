//! The Claude Code scenarios as data, and their player.
//!
//! Message and field names are those of `claude` 2.1.328.

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
/// The conversation of every recording.
const CONVERSATION: &str = "00000000-0000-4000-8000-00000000c0de";

/// One recording.
struct Scenario {
    name: &'static str,
    /// What it shows; goes into the README.
    shows: &'static str,
    acts: &'static [Act],
    /// A second process that goes on with the conversation of the first.
    resumed: Option<&'static Scenario>,
}

impl Scenario {
    const fn new(name: &'static str, shows: &'static str, acts: &'static [Act]) -> Self {
        Self {
            name,
            shows,
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
    /// Waits for a question and allows it.
    Allow,
    /// Waits for a question and allows it with the suggested rules for the session.
    AllowForSession,
    /// Waits for a question and allows it with another input.
    AllowWith(&'static str),
    /// Waits for a question and denies it; whether the turn stops with it.
    Deny { stop: bool },
    /// Waits for a question and answers with a text for each of its questions.
    Reply(&'static str),
    /// Waits for a question and leaves it open.
    Ask,
    /// Waits for a message that contains this text.
    Told(&'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Lets the model go on from this name.
    Release(&'static str),
    /// Interrupts the turn.
    Interrupt,
    /// Stops the task that began last.
    StopTask,
    /// Waits for a result.
    Result,
    /// Waits until the program rests.
    Idle,
    /// Kills the program.
    Kill,
}

use Act::{
    Allow, AllowForSession, AllowWith, Ask, Deny, Held, Idle, Interrupt, Kill, Mode, Prompt,
    Release, Reply, StopTask, Told,
};

const SPAWN: &str = r#"TOOL: Agent {"description": "a task", "prompt": "SAY: from the child\nRUN: touch child.txt", "subagent_type": "general-purpose", "run_in_background": false}"#;

const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "plain",
        "a question and its answer",
        &[Prompt("hello"), Idle],
    ),
    Scenario::new(
        "deltas",
        "an answer in twelve deltas",
        &[Prompt("DELTAS: 12"), Idle],
    ),
    Scenario::new(
        "thinking",
        "thinking before the answer",
        &[
            Prompt("THINK: first I think about it\nSAY: then I answer"),
            Idle,
        ],
    ),
    Scenario::new(
        "two_turns",
        "two turns, and token counts of both",
        &[
            Prompt("USAGE: 1200 34 1000\none"),
            Idle,
            Prompt("USAGE: 1300 40 1100\nRECALL"),
            Idle,
        ],
    ),
    Scenario::new(
        "shell_allowed",
        "text, a command that is allowed, its output in the answer",
        &[
            Prompt("SAY: I will run it.\nRUN: echo hello > made.txt && cat made.txt"),
            Allow,
            Idle,
        ],
    ),
    Scenario::new(
        "shell_denied",
        "a denied command; the turn goes on",
        &[Prompt("RUN: touch never.txt"), Deny { stop: false }, Idle],
    ),
    Scenario::new(
        "shell_denied_and_stopped",
        "a command denied with an interrupt; the turn ends",
        &[Prompt("RUN: touch never.txt"), Deny { stop: true }, Idle],
    ),
    Scenario::new(
        "shell_allowed_for_session",
        "the same command twice, allowed once for the session",
        &[
            Prompt("RUN: touch a.txt\nRUN: touch a.txt\nSAY: twice"),
            AllowForSession,
            Idle,
        ],
    ),
    Scenario::new(
        "shell_changed",
        "a command that is allowed with another input",
        &[
            Prompt("RUN: touch a.txt"),
            AllowWith(r#"{"command":"echo changed"}"#),
            Idle,
        ],
    ),
    Scenario::new(
        "shell_failed",
        "a command that writes to stderr and fails",
        &[Prompt("RUN: touch x; echo oops >&2; exit 3"), Allow, Idle],
    ),
    Scenario::new(
        "files",
        "a new file and an edit of it, unasked in mode acceptEdits",
        &[
            Mode("acceptEdits"),
            Prompt(
                "WRITE new.txt hello\\nworld\nTOOL: Edit {\"file_path\": \"new.txt\", \"old_string\": \"hello\", \"new_string\": \"bye\"}\nSAY: done",
            ),
            Idle,
        ],
    ),
    Scenario::new(
        "question",
        "two questions to the user and their answers",
        &[
            Prompt(
                r#"TOOL: AskUserQuestion {"questions": [{"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]}, {"question": "Which sizes?", "header": "Sizes", "multiSelect": true, "options": [{"label": "Small", "description": "s"}, {"label": "Large", "description": "l"}]}]}"#,
            ),
            Reply("Blue"),
            Idle,
        ],
    ),
    Scenario::new(
        "plan",
        "a plan that is denied, then one that is approved, which leaves the mode",
        &[
            Mode("plan"),
            Prompt(r#"TOOL: ExitPlanMode {"plan": "first this"}"#),
            Deny { stop: false },
            Idle,
            Prompt(r#"TOOL: ExitPlanMode {"plan": "then that"}"#),
            Allow,
            Idle,
        ],
    ),
    Scenario::new(
        "mcp_tool_call",
        "a tool of an MCP server, allowed",
        &[
            Prompt(r#"TOOL: mcp__echo__say {"text": "hey"}"#),
            Allow,
            Idle,
        ],
    ),
    Scenario::new(
        "interrupt_stream",
        "an interrupt while the model speaks, and the turn after it",
        &[
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Told("text_delta"),
            Interrupt,
            Idle,
            Prompt("after"),
            Idle,
        ],
    ),
    Scenario::new(
        "interrupt_tool",
        "an interrupt while a command runs",
        &[
            Mode("bypassPermissions"),
            Prompt("RUN: echo started; sleep 60"),
            Told(r#""message_stop""#),
            Interrupt,
            Idle,
        ],
    ),
    Scenario::new(
        "interrupt_approval",
        "an interrupt while an approval is open, and the turn after it",
        &[
            Prompt("RUN: touch never.txt"),
            Ask,
            Interrupt,
            Idle,
            Prompt("after"),
            Idle,
        ],
    ),
    Scenario::new(
        "error_status",
        "the model endpoint answers 500 once, then 401 until the program gives up",
        &[
            Prompt("STATUS: 500 1\nSAY: got through"),
            Idle,
            Prompt("STATUS: 401"),
            Idle,
        ],
    ),
    Scenario::new(
        "stream_cut",
        "the model's stream is cut once in the middle of a message; the retry gets through",
        &[Prompt("SAY: all of it\nHALF 1"), Idle],
    ),
    Scenario::new(
        "compaction",
        "the program's own command that shortens the context",
        &[Prompt("one"), Idle, Prompt("/compact"), Idle],
    ),
    Scenario::new(
        "child",
        "a sub-agent that its parent waits for, with a command that is allowed",
        &[Prompt(SPAWN), Allow, Idle],
    ),
    Scenario::new(
        "background_child",
        "a sub-agent that outlives the turn, an input meanwhile, and the program's own reply",
        &[
            Prompt("SPAWN: SAY: begun\\nHOLD: child\\nSAY: from the child\nSAY: it begins"),
            Act::Result,
            Held("child"),
            Prompt("SAY: meanwhile"),
            Act::Result,
            Release("child"),
            Idle,
        ],
    ),
    Scenario::new(
        "background_child_stopped",
        "a sub-agent in the background that is stopped",
        &[
            Prompt("SPAWN: SAY: begun\\nHOLD: child\\nSAY: never\nSAY: it begins"),
            Act::Result,
            Held("child"),
            StopTask,
            Idle,
        ],
    ),
    Scenario::new(
        "background_command",
        "a command in the background, and the program's own reply to its end",
        &[
            Mode("bypassPermissions"),
            Prompt(
                "TOOL: Bash {\"command\": \"sleep 1; echo done\", \"run_in_background\": true, \"description\": \"waits\"}\nSAY: it begins",
            ),
            Act::Result,
            Told("task-notification"),
            Idle,
        ],
    ),
    Scenario {
        resumed: Some(&RESUMED),
        ..Scenario::new(
            "before_resume",
            "the process whose conversation `resume` goes on with: it is killed in a command",
            &[
                Mode("bypassPermissions"),
                Prompt("SAY: apple"),
                Idle,
                Prompt("RUN: sleep 60"),
                Told(r#""message_stop""#),
                Kill,
            ],
        )
    },
];

const RESUMED: Scenario = Scenario::new(
    "resume",
    "another process that resumes it, and the model still sees the history",
    &[Prompt("RECALL"), Idle],
);

pub(super) async fn record(
    program: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    fs::create_dir_all(out).map_err(Error::io("make the output folder"))?;
    let program = fs::canonicalize(program).map_err(Error::io("find the program"))?;
    let mut written = Vec::new();
    for scenario in SCENARIOS {
        if only.is_empty() || only.iter().any(|name| name == scenario.name) {
            let model = ScriptedModel::builder().start().await?;
            let played = play(scenario, &program, scratch, &model).await;
            model.shutdown().await;
            for (name, tape) in played? {
                let path = out.join(format!("{name}.jsonl"));
                fs::write(&path, tape.text()).map_err(Error::io("write a recording"))?;
                written.push(path);
            }
        }
    }
    let readme = out.join("README.md");
    fs::write(&readme, readme_text(&version(&program).await?))
        .map_err(Error::io("write the README"))?;
    written.push(readme);
    Ok(written)
}

/// Plays a scenario, and the process after it if there is one.
async fn play(
    scenario: &'static Scenario,
    program: &Path,
    scratch: &Path,
    model: &ScriptedModel,
) -> Result<Vec<(&'static str, Tape)>, Error> {
    fs::create_dir_all(scratch).map_err(Error::io("make the scratch folder"))?;
    let root = tempfile::Builder::new()
        .prefix("record-")
        .tempdir_in(scratch)
        .map_err(Error::io("make a folder in the scratch folder"))?;
    let (home, folder) = (
        root.path().join("home/agent"),
        root.path().join("workspace"),
    );
    for dir in [&home.join(".claude"), &folder] {
        fs::create_dir_all(dir).map_err(Error::io("lay out the program's folders"))?;
    }
    let server = home.join("echo_mcp.py");
    fs::write(&server, ECHO_MCP).map_err(Error::io("write the MCP server"))?;
    let mcp =
        json!({"mcpServers": {"echo": {"type": "stdio", "command": "python3", "args": [server]}}});
    let mut tapes = Vec::new();
    let mut next = Some((scenario, "--session-id"));
    while let Some((scenario, which)) = next {
        let command = command(program, &home, model, &mcp, which);
        let root = root.path().display().to_string();
        let scrub = Scrub::new([
            // Folder names of the program's own: the path with `-` for `/`, `.` and `_`.
            (root.replace(['/', '.', '_'], "-"), String::new()),
            (root, String::new()),
            (model.base_url(), "http://127.0.0.1:4000".to_owned()),
        ]);
        let stream = StreamJson::start(scenario.name, command, &folder, scrub)?;
        let mut player = Player {
            stream,
            model,
            inputs: 0,
            task: String::new(),
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
        next = scenario.resumed.map(|resumed| (resumed, "--resume"));
    }
    Ok(tapes)
}

fn command(
    program: &Path,
    home: &Path,
    model: &ScriptedModel,
    mcp: &Value,
    which: &str,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-p", "--input-format", "stream-json"])
        .args(["--output-format", "stream-json", "--verbose"])
        .args(["--include-partial-messages"])
        .args(["--permission-prompt-tool", "stdio"])
        .args(["--allow-dangerously-skip-permissions"])
        .args(["--permission-mode", "acceptEdits"])
        .args(["--model", "scripted-model"])
        .args(["--strict-mcp-config", "--mcp-config", &mcp.to_string()])
        .args([which, CONVERSATION])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .env("HOME", home)
        .env("CLAUDE_CONFIG_DIR", home.join(".claude"))
        .env("ANTHROPIC_BASE_URL", model.base_url())
        .env("ANTHROPIC_API_KEY", "placeholder")
        .env("CLAUDE_CODE_ENTRYPOINT", "sdk-py")
        .env("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("CLAUDE_CODE_MAX_RETRIES", "2")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1")
        .env("ENABLE_TOOL_SEARCH", "false")
        // As root the program refuses a mode that asks nobody, but in a sandbox.
        .env("IS_SANDBOX", "1");
    command
}

struct Player<'a> {
    stream: StreamJson,
    model: &'a ScriptedModel,
    inputs: u64,
    /// The task that began last.
    task: String,
}

impl Player<'_> {
    /// As our engine opens a conversation.
    async fn open(&mut self) -> Result<(), Error> {
        let initialize =
            json!({ "subtype": "initialize", "hooks": null, "forwardSubagentText": true });
        self.stream.request(initialize).await?;
        self.mode("default").await?;
        let proof = |message: &Value| message["subtype"] == "status";
        self.stream.until("the proof", proof).await.map(|_| ())
    }

    async fn mode(&mut self, mode: &str) -> Result<(), Error> {
        let request = json!({ "subtype": "set_permission_mode", "mode": mode });
        self.stream.request(request).await.map(|_| ())
    }

    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Prompt(text) => self.prompt(text).await,
            Mode(mode) => self.mode(mode).await,
            Allow => self.answer(allow).await,
            AllowForSession => self.answer(allow_for_session).await,
            AllowWith(input) => {
                let input: Value = serde_json::from_str(input).unwrap_or_default();
                self.answer(|_| json!({ "behavior": "allow", "updatedInput": input }))
                    .await
            }
            Deny { stop: false } => {
                self.answer(|_| json!({ "behavior": "deny", "message": "not now" }))
                    .await
            }
            Deny { stop: true } => {
                self.answer(
                    |_| json!({ "behavior": "deny", "message": "not now", "interrupt": true }),
                )
                .await
            }
            Reply(text) => self.answer(|request| reply(request, text)).await,
            Ask => self.asked().await.map(|_| ()),
            Told(text) => {
                let fits = |message: &Value| message.to_string().contains(text);
                self.stream.until(text, fits).await.map(|_| ())
            }
            Held(name) => Ok(self.model.wait_until_held(name, HOLD_DEADLINE).await?),
            Release(name) => {
                self.model.release(name);
                Ok(())
            }
            Interrupt => {
                let request = json!({ "subtype": "interrupt" });
                self.stream.request(request).await.map(|_| ())
            }
            StopTask => {
                let request = json!({ "subtype": "stop_task", "task_id": self.task });
                self.stream.request(request).await.map(|_| ())
            }
            Act::Result => {
                let mut task = std::mem::take(&mut self.task);
                let ends = |message: &Value| {
                    if message["subtype"] == "task_started" {
                        task = message["task_id"].as_str().unwrap_or_default().to_owned();
                    }
                    message["type"] == "result"
                };
                self.stream.until("a result", ends).await?;
                self.task = task;
                Ok(())
            }
            Idle => {
                let rests = |message: &Value| message["state"] == "idle";
                self.stream.until("its rest", rests).await.map(|_| ())
            }
            Kill => Ok(()),
        }
    }

    async fn prompt(&mut self, prompt: &str) -> Result<(), Error> {
        self.inputs += 1;
        let line = json!({
            "type": "user",
            "message": { "role": "user", "content": [{ "type": "text", "text": prompt }] },
            "parent_tool_use_id": null,
            "session_id": "",
            "uuid": format!("00000000-0000-4000-8000-{:012}", self.inputs),
        });
        self.stream.send(&line).await
    }

    /// The next request that the program makes of its host.
    async fn asked(&mut self) -> Result<Value, Error> {
        let asks = |message: &Value| message["type"] == "control_request";
        self.stream.until("a request of the program", asks).await
    }

    async fn answer(&mut self, answer: impl FnOnce(&Value) -> Value) -> Result<(), Error> {
        let message = self.asked().await?;
        let response = json!({
            "subtype": "success",
            "request_id": message["request_id"],
            "response": answer(&message["request"]),
        });
        let line = json!({ "type": "control_response", "response": response });
        self.stream.send(&line).await
    }
}

fn allow(request: &Value) -> Value {
    json!({ "behavior": "allow", "updatedInput": request["input"] })
}

fn allow_for_session(request: &Value) -> Value {
    let suggestions = request["permission_suggestions"].as_array();
    let rules = suggestions
        .into_iter()
        .flatten()
        .filter(|suggestion| suggestion["type"] == "addRules");
    let rules: Vec<Value> = rules
        .map(|rule| {
            let mut rule = rule.clone();
            rule["destination"] = json!("session");
            rule
        })
        .collect();
    let mut answer = allow(request);
    answer["updatedPermissions"] = json!(rules);
    answer
}

fn reply(request: &Value, text: &str) -> Value {
    let questions = request["input"]["questions"].as_array();
    let answers: serde_json::Map<String, Value> = questions
        .into_iter()
        .flatten()
        .filter_map(|question| question["question"].as_str())
        .map(|question| (question.to_owned(), json!(text)))
        .collect();
    let mut answer = allow(request);
    answer["updatedInput"]["answers"] = Value::Object(answers);
    answer
}

/// What the program calls itself, e.g. `2.1.328 (Claude Code)`.
async fn version(program: &Path) -> Result<String, Error> {
    let output = Command::new(program)
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
        "# Recordings of Claude Code

What one `claude -p` process with stream-json read (`in`) and wrote (`out`, `err`), a JSON object a line,
lines verbatim. Made with `{version}` against the scripted model of `astrabox-testkit`:

```
cargo xtask record claude_code
```

The program ran in a folder of the layout `home/agent/.claude` and `workspace`; that folder's own path is cut out
of the lines, the model's address is written as `http://127.0.0.1:4000`, and of the answer to `initialize` the lists
of what the vendor ships are left out. Every process is started in mode `acceptEdits`, brought to `default`, and
has the conversation `{CONVERSATION}`. This file is written by the recorder too.

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
