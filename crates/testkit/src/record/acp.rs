//! The scenarios of two ACP programs as data, and their player.
//!
//! The programs are those of the image of kind `acp`: claude-agent-acp 0.101.0 and codex-acp 2.6.0.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::Error;
use super::app_server::AppServer;
use super::place::Place;
use crate::model::ScriptedModel;

/// How long the model may take to come to a hold.
const HOLD_DEADLINE: Duration = Duration::from_secs(30);

/// A program that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Claude,
    Codex,
}

impl Program {
    /// Its folder in the image.
    fn package(self) -> &'static str {
        match self {
            Self::Claude => "claude-agent-acp",
            Self::Codex => "codex-acp",
        }
    }

    /// The directory of its conversations, below home.
    fn state(self) -> &'static str {
        match self {
            Self::Claude => ".claude/projects",
            Self::Codex => ".codex/sessions",
        }
    }

    fn command(self, image: &Path, place: &Place, model: &ScriptedModel) -> Command {
        let script = format!(
            "node_modules/@agentclientprotocol/{}/dist/index.js",
            self.package()
        );
        let mut command = Command::new(image.join("bin/node"));
        command
            .arg(image.join(script))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("HOME", place.home())
            .current_dir(place.workspace());
        let base = model.base_url();
        match self {
            Self::Claude => command.envs([
                ("ANTHROPIC_BASE_URL", base.as_str()),
                ("ANTHROPIC_API_KEY", "placeholder"),
                ("ANTHROPIC_MODEL", "scripted-model"),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("CLAUDE_CODE_MAX_RETRIES", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("DISABLE_TELEMETRY", "1"),
                ("ENABLE_TOOL_SEARCH", "false"),
                // Else it does not run as root with everything allowed.
                ("IS_SANDBOX", "1"),
            ]),
            Self::Codex => {
                let provider = json!({
                    "name": "scripted", "base_url": format!("{base}/v1"), "wire_api": "responses",
                    "env_key": "MODEL_KEY", "request_max_retries": 1, "stream_max_retries": 1,
                });
                let config = json!({
                    "model": "scripted-model", "check_for_update_on_startup": false,
                    "analytics": {"enabled": false}, "features": {"plugins": false},
                    "model_providers": {"scripted": provider},
                });
                command
                    .env("CODEX_HOME", place.codex_home())
                    .env("MODEL_KEY", "placeholder")
                    .env("MODEL_PROVIDER", "scripted")
                    .env("CODEX_CONFIG", config.to_string())
            }
        };
        command
    }
}

/// One recording.
struct Scenario {
    program: Program,
    name: &'static str,
    /// What it shows; goes into the README.
    shows: &'static str,
    acts: &'static [Act],
    /// A second process that finds only the conversation's files of the first.
    resumed: Option<&'static Scenario>,
}

const fn claude(name: &'static str, shows: &'static str, acts: &'static [Act]) -> Scenario {
    Scenario {
        program: Program::Claude,
        name,
        shows,
        acts,
        resumed: None,
    }
}

const fn codex(name: &'static str, shows: &'static str, acts: &'static [Act]) -> Scenario {
    Scenario {
        program: Program::Codex,
        ..claude(name, shows, acts)
    }
}

/// One thing that the client does or waits for.
enum Act {
    /// Begins a conversation in this mode.
    New(&'static str),
    /// Takes up the conversation of the process before, by `session/resume` or `session/load`.
    Take(&'static str),
    /// Begins a turn.
    Prompt(&'static str),
    /// Waits for a request for permission and answers it with an option.
    Decide(&'static str),
    /// Waits for a request and leaves it open.
    Ask,
    /// Waits for a form and answers it with this content.
    Fill(&'static str),
    /// Waits for an update that contains this text.
    Told(&'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Lets the model go on.
    Release(&'static str),
    /// Stops the turn, and answers the request that is open.
    Cancel,
    /// Waits for the end of the turn.
    End,
}

use Act::{Ask, Cancel, Decide, End, Fill, Held, New, Prompt, Release, Take, Told};

/// Claude Code never asks.
const FREE: Act = New("bypassPermissions");
/// Claude Code asks before it writes.
const ASKING: Act = New("default");
/// Codex never asks.
const OPEN: Act = New("agent-full-access");

const QUESTION: &str = r#"TOOL: AskUserQuestion {"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}"#;
const CHILD: &str = "TOOL: Agent {\"description\": \"a task\", \"prompt\": \"SAY: from the child\", \
                     \"subagent_type\": \"general-purpose\", \"run_in_background\": false}\nSAY: the parent is done";

const SCENARIOS: &[Scenario] = &[
    claude(
        "claude_plain",
        "a question and its answer",
        &[FREE, Prompt("hello"), End],
    ),
    claude(
        "claude_deltas",
        "an answer in twelve deltas",
        &[FREE, Prompt("DELTAS: 12"), End],
    ),
    claude(
        "claude_reasoning",
        "reasoning before the answer",
        &[
            FREE,
            Prompt("THINK: first I think\nSAY: then I answer"),
            End,
        ],
    ),
    claude(
        "claude_usage",
        "token counts of two turns",
        &[
            FREE,
            Prompt("USAGE: 1200 34 1000\none"),
            End,
            Prompt("USAGE: 1300 40\ntwo"),
            End,
        ],
    ),
    claude(
        "claude_shell_approved",
        "a command that is approved, its output in the answer",
        &[
            ASKING,
            Prompt("SAY: I will.\nRUN: echo hello > made.txt && cat made.txt"),
            Decide("allow-once"),
            End,
        ],
    ),
    claude(
        "claude_shell_declined",
        "a declined command; the turn goes on",
        &[
            ASKING,
            Prompt("RUN: touch never.txt"),
            Decide("reject"),
            End,
        ],
    ),
    claude(
        "claude_shell_failed",
        "a command that fails",
        &[FREE, Prompt("RUN: echo oops >&2; exit 3"), End],
    ),
    claude(
        "claude_write",
        "a new file and a change of it",
        &[
            ASKING,
            Prompt("WRITE new.txt hello\\nworld"),
            Decide("allow-once"),
            End,
        ],
    ),
    claude(
        "claude_question",
        "a question with options, as a form",
        &[
            ASKING,
            Prompt(QUESTION),
            Fill(r#"{"question_0":"Blue"}"#),
            End,
        ],
    ),
    claude(
        "claude_interrupt_stream",
        "a stop while the model speaks, and the turn after it",
        &[
            FREE,
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Told("three"),
            Cancel,
            End,
            Release("here"),
            Prompt("after"),
            End,
        ],
    ),
    claude(
        "claude_interrupt_approval",
        "a stop while a permission is asked for, and the turn after it",
        &[
            ASKING,
            Prompt("RUN: touch never.txt"),
            Ask,
            Cancel,
            End,
            Prompt("after"),
            End,
        ],
    ),
    claude(
        "claude_error_credential",
        "the model endpoint answers 401, and the turn after it",
        &[FREE, Prompt("STATUS: 401"), End, Prompt("after"), End],
    ),
    claude(
        "claude_child",
        "a child session that its parent waits for",
        &[FREE, Prompt(CHILD), End],
    ),
    Scenario {
        resumed: Some(&claude(
            "claude_resume",
            "another process that has only the first one's files: `session/resume`",
            &[Take("session/resume"), Prompt("RECALL"), End],
        )),
        ..claude(
            "claude_before_resume",
            "the process whose conversation `claude_resume` goes on with",
            &[
                FREE,
                Prompt("my name is Ada"),
                End,
                Prompt("RUN: echo hello"),
                End,
            ],
        )
    },
    Scenario {
        resumed: Some(&claude(
            "claude_load",
            "another process that has only the first one's files: `session/load`, with its replay",
            &[Take("session/load"), Prompt("RECALL"), End],
        )),
        ..claude(
            "claude_before_load",
            "the process whose conversation `claude_load` goes on with",
            &[
                FREE,
                Prompt("my name is Ada"),
                End,
                Prompt("RUN: echo hello"),
                End,
            ],
        )
    },
    codex(
        "codex_plain",
        "a question and its answer",
        &[OPEN, Prompt("hello"), End],
    ),
    codex(
        "codex_reasoning",
        "reasoning before the answer, and token counts",
        &[
            OPEN,
            Prompt("THINK: first I think\nSAY: then I answer\nUSAGE: 1200 34 1000"),
            End,
        ],
    ),
    codex(
        "codex_shell",
        "a command whose output comes in pieces",
        &[
            OPEN,
            Prompt("RUN: for i in 1 2 3; do echo line $i; sleep 0.3; done"),
            End,
        ],
    ),
    codex(
        "codex_patch",
        "a new file",
        &[OPEN, Prompt("WRITE new.txt hello\\nworld"), End],
    ),
    codex(
        "codex_interrupt_stream",
        "a stop while the model speaks, and the turn after it",
        &[
            OPEN,
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Told("three"),
            Cancel,
            End,
            Release("here"),
            Prompt("after"),
            End,
        ],
    ),
    codex(
        "codex_error_credential",
        "the model endpoint answers 401, and the turn after it",
        &[OPEN, Prompt("STATUS: 401"), End, Prompt("after"), End],
    ),
    codex(
        "codex_child",
        "a sub-agent as a child session",
        &[
            OPEN,
            Prompt("SPAWN: SAY: from the child\nWAIT\nSAY: the parent is done"),
            End,
        ],
    ),
    Scenario {
        resumed: Some(&codex(
            "codex_resume",
            "another process that has only the first one's files: `session/resume`",
            &[Take("session/resume"), Prompt("RECALL"), End],
        )),
        ..codex(
            "codex_before_resume",
            "the process whose conversation `codex_resume` goes on with",
            &[
                OPEN,
                Prompt("my name is Ada"),
                End,
                Prompt("RUN: echo hello"),
                End,
            ],
        )
    },
];

pub(super) async fn record(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    fs::create_dir_all(out).map_err(Error::io("make the output folder"))?;
    let image = fs::canonicalize(image).map_err(Error::io("find the image"))?;
    let mut written = Vec::new();
    for scenario in SCENARIOS {
        if only.is_empty() || only.iter().any(|name| name == scenario.name) {
            let model = ScriptedModel::builder().start().await?;
            let played = play(scenario, &image, scratch, &model).await;
            model.shutdown().await;
            for (name, text) in played? {
                let path = out.join(format!("{name}.jsonl"));
                fs::write(&path, text).map_err(Error::io("write a recording"))?;
                written.push(path);
            }
        }
    }
    let readme = out.join("README.md");
    fs::write(&readme, readme_text()).map_err(Error::io("write the README"))?;
    written.push(readme);
    Ok(written)
}

/// Plays a scenario, and the process after it if there is one.
async fn play(
    scenario: &'static Scenario,
    image: &Path,
    scratch: &Path,
    model: &ScriptedModel,
) -> Result<Vec<(&'static str, String)>, Error> {
    let place = Place::new(scratch)?;
    let mut session = String::new();
    let mut tapes = Vec::new();
    let mut next = Some(scenario);
    while let Some(scenario) = next {
        let command = scenario.program.command(image, &place, model);
        let scrub = place.scrub_image(image, model);
        let mut server = AppServer::open(scenario.name, command, scrub, true)?;
        let capabilities = json!({
            "fs": {"readTextFile": true, "writeTextFile": true},
            "terminal": true,
            "session": {"notices": {}, "compaction": {}},
            "elicitation": {"form": {}},
            "subagents": {},
        });
        let client = json!({"name": "astrabox", "title": "AstraBox", "version": "0.1.0"});
        let params =
            json!({"protocolVersion": 1, "clientInfo": client, "clientCapabilities": capabilities});
        server.request("initialize", params).await?;
        let mut player = Player {
            server,
            place: &place,
            model,
            session,
            prompt: 0,
            open: None,
        };
        for act in scenario.acts {
            player.act(act).await?;
        }
        session = player.session;
        tapes.push((
            scenario.name,
            player.server.finish().await?.text().to_owned(),
        ));
        next = scenario.resumed;
        if next.is_some() {
            place.keep_only(scenario.program.state())?;
        }
    }
    Ok(tapes)
}

struct Player<'a> {
    server: AppServer,
    place: &'a Place,
    model: &'a ScriptedModel,
    session: String,
    /// The id of the prompt that runs.
    prompt: u64,
    /// The program's request that is open.
    open: Option<Value>,
}

impl Player<'_> {
    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            New(mode) => {
                let opened = self.server.request("session/new", self.opening()).await?;
                self.session = opened["sessionId"].as_str().unwrap_or_default().to_owned();
                let params = json!({"sessionId": self.session, "modeId": mode});
                self.server
                    .request("session/set_mode", params)
                    .await
                    .map(|_| ())
            }
            Take(method) => {
                let mut params = self.opening();
                params["sessionId"] = json!(self.session);
                self.server.request(method, params).await.map(|_| ())
            }
            Prompt(text) => {
                let prompt = json!([{"type": "text", "text": text}]);
                let params = json!({"sessionId": self.session, "prompt": prompt});
                self.prompt = self.server.ask("session/prompt", params).await?;
                Ok(())
            }
            Ask => self.asked().await,
            Decide(option) => {
                self.asked().await?;
                let outcome = json!({"outcome": "selected", "optionId": option});
                self.answer(json!({"outcome": outcome})).await
            }
            Fill(content) => {
                self.asked().await?;
                let content: Value = serde_json::from_str(content).unwrap_or_default();
                self.answer(json!({"action": "accept", "content": content}))
                    .await
            }
            Told(text) => {
                let fits = |message: &Value| {
                    message["method"] == "session/update" && message.to_string().contains(text)
                };
                self.server.until(text, fits).await.map(|_| ())
            }
            Held(name) => Ok(self.model.wait_until_held(name, HOLD_DEADLINE).await?),
            Release(name) => {
                self.model.release(name);
                Ok(())
            }
            Cancel => {
                let params = json!({"sessionId": self.session});
                let cancel =
                    json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
                self.server.send(&cancel).await?;
                if self.open.is_some() {
                    self.answer(json!({"outcome": {"outcome": "cancelled"}}))
                        .await?;
                }
                Ok(())
            }
            End => {
                let id = self.prompt;
                let ends = |message: &Value| message["id"] == id && message.get("method").is_none();
                self.server
                    .until("the end of the turn", ends)
                    .await
                    .map(|_| ())
            }
        }
    }

    fn opening(&self) -> Value {
        json!({"cwd": self.place.workspace(), "mcpServers": []})
    }

    /// The next request that the program makes of its client.
    async fn asked(&mut self) -> Result<(), Error> {
        let asks = |message: &Value| message.get("id").is_some() && message.get("method").is_some();
        self.open = Some(self.server.until("a request of the program", asks).await?);
        Ok(())
    }

    async fn answer(&mut self, result: Value) -> Result<(), Error> {
        let request = self.open.take().unwrap_or_default();
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.server.send(&answer).await
    }
}

fn readme_text() -> String {
    let all = SCENARIOS
        .iter()
        .flat_map(|scenario| [Some(scenario), scenario.resumed]);
    let table: String = all
        .flatten()
        .map(|scenario| format!("| `{}` | {} |\n", scenario.name, scenario.shows))
        .collect();
    format!(
        "# Recordings of ACP programs

What one process read (`in`) and wrote (`out`, `err`), a JSON object a line, lines verbatim. Made with claude-agent-acp
0.101.0 and codex-acp 2.6.0 of the image of kind `acp`, against the scripted model of `astrabox-testkit`:

```
cargo xtask record acp
```

The programs ran in a folder of the layout `home/agent` and `workspace`; that folder's own path is cut out of the lines, the
model's address is written as `http://127.0.0.1:4000`. This file is written by the recorder too.

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
                assert!(readme_text().contains(&format!("| `{}` |", scenario.name)));
            }
        }
    }
}
