//! The Codex scenarios as data, and their player.
//!
//! Method and field names are those of `codex app-server` 0.169.0.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::Error;
use super::app_server::AppServer;
use super::place::Place;
use crate::model::ScriptedModel;

/// How long the model may take to come to a hold.
const HOLD_DEADLINE: Duration = Duration::from_secs(30);

/// One recording.
struct Scenario {
    name: &'static str,
    /// What it shows; goes into the README.
    shows: &'static str,
    mcp: bool,
    acts: &'static [Act],
    /// A second process that finds only the conversation's file of the first.
    resumed: Option<&'static Scenario>,
}

impl Scenario {
    const fn new(name: &'static str, shows: &'static str, acts: &'static [Act]) -> Self {
        Self {
            name,
            shows,
            mcp: false,
            acts,
            resumed: None,
        }
    }
}

/// One thing that the host does or waits for.
enum Act {
    /// Starts a thread.
    Start,
    /// Starts a thread with a model of Codex's own catalogue.
    StartWith(&'static str),
    /// Resumes the thread of the process before.
    Resume,
    /// Starts a turn.
    Prompt(&'static str),
    /// Waits for an approval request and answers it with a decision.
    Decide(&'static str),
    /// Waits for an approval request and leaves it open.
    Ask,
    /// Waits for an MCP approval and answers it with an action.
    Elicit(&'static str),
    /// Waits for a notification of this method that contains this text.
    Notified(&'static str, &'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Interrupts the turn.
    Interrupt,
    /// Waits for the end of the turn.
    End,
}

use Act::{Ask, Decide, Elicit, End, Held, Interrupt, Notified, Prompt, Resume, Start, StartWith};

const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "plain",
        "a question and its answer",
        &[Start, Prompt("hello"), End],
    ),
    Scenario::new(
        "deltas",
        "an answer in twelve deltas",
        &[Start, Prompt("DELTAS: 12"), End],
    ),
    Scenario::new(
        "reasoning",
        "reasoning before the answer",
        &[
            Start,
            Prompt("THINK: first I think about it\nSAY: then I answer"),
            End,
        ],
    ),
    Scenario::new(
        "two_turns",
        "two turns in one thread",
        &[Start, Prompt("one"), End, Prompt("RECALL"), End],
    ),
    Scenario::new(
        "usage",
        "token counts of two turns: the last and the total",
        &[
            Start,
            Prompt("USAGE: 1200 34 1000\none"),
            End,
            Prompt("USAGE: 1300 40 1100\ntwo"),
            End,
        ],
    ),
    Scenario::new(
        "shell_approved",
        "text, a command that is approved, its output in the answer",
        &[
            Start,
            Prompt("SAY: I will run it.\nRUN: echo hello > made.txt && cat made.txt"),
            Decide("accept"),
            End,
        ],
    ),
    Scenario::new(
        "shell_declined",
        "a declined command; the turn goes on",
        &[
            Start,
            Prompt("RUN: touch never.txt"),
            Decide("decline"),
            End,
        ],
    ),
    Scenario::new(
        "shell_cancelled",
        "a command answered with cancel; the turn ends as interrupted",
        &[Start, Prompt("RUN: touch never.txt"), Decide("cancel"), End],
    ),
    Scenario::new(
        "shell_approved_for_session",
        "the same command twice, approved once for the session",
        &[
            Start,
            Prompt("RUN: touch a.txt\nRUN: touch a.txt\nSAY: twice"),
            Decide("acceptForSession"),
            End,
        ],
    ),
    Scenario::new(
        "shell_failed",
        "a command that writes to stderr and fails",
        &[
            Start,
            Prompt("RUN: echo oops >&2; exit 3"),
            Decide("accept"),
            End,
        ],
    ),
    Scenario::new(
        "shell_output",
        "a command whose output comes in pieces",
        &[
            Start,
            Prompt("RUN: for i in 1 2 3; do echo line $i; sleep 0.3; done"),
            Decide("accept"),
            End,
        ],
    ),
    Scenario::new(
        "patch",
        "a new file through a patch that is approved",
        &[
            Start,
            Prompt("WRITE new.txt hello\\nworld"),
            Decide("accept"),
            End,
        ],
    ),
    Scenario::new(
        "patch_declined",
        "a declined patch",
        &[Start, Prompt("WRITE new.txt hello"), Decide("decline"), End],
    ),
    Scenario::new(
        "interrupt_stream",
        "an interrupt while the model speaks, and the turn after it",
        &[
            Start,
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Notified("item/agentMessage/delta", "three"),
            Interrupt,
            End,
            Prompt("after"),
            End,
        ],
    ),
    Scenario::new(
        "interrupt_tool",
        "an interrupt while a command runs, and the turn after it",
        &[
            Start,
            // The first output never comes as a delta; later output does.
            Prompt("RUN: echo started; sleep 1; echo running; sleep 60"),
            Decide("accept"),
            Notified("item/commandExecution/outputDelta", "running"),
            Interrupt,
            End,
            Prompt("after"),
            End,
        ],
    ),
    Scenario::new(
        "interrupt_approval",
        "an interrupt while an approval is open, and the turn after it",
        &[
            Start,
            Prompt("RUN: touch never.txt"),
            Ask,
            Interrupt,
            End,
            Prompt("after"),
            End,
        ],
    ),
    Scenario::new(
        "error_status",
        "the model endpoint answers 500 until the program gives up, and the turn after it",
        &[Start, Prompt("STATUS: 500"), End, Prompt("after"), End],
    ),
    Scenario::new(
        "error_credential",
        "the model endpoint answers 401",
        &[Start, Prompt("STATUS: 401"), End],
    ),
    Scenario::new(
        "error_rate_limit",
        "the model endpoint answers 429",
        &[Start, Prompt("STATUS: 429"), End],
    ),
    Scenario::new(
        "stream_cut",
        "the model's stream is cut once in the middle of a message; the retry gets through",
        &[Start, Prompt("SAY: one two three\nHALF: 1\nSAY: four"), End],
    ),
    Scenario::new(
        "stream_cut_for_good",
        "the model's stream is cut each time",
        &[Start, Prompt("SAY: one two three\nHALF"), End],
    ),
    Scenario::new(
        "child_thread",
        "a sub-agent: its thread speaks on the same connection, the parent waits for it",
        &[
            Start,
            Prompt("SPAWN: SAY: hello from the child\nWAIT\nSAY: the child is done"),
            End,
        ],
    ),
    Scenario::new(
        "child_thread_shell",
        "a sub-agent whose command is approved",
        &[
            Start,
            Prompt("SPAWN: RUN: echo from the child\nWAIT\nSAY: the child is done"),
            Decide("accept"),
            End,
        ],
    ),
    Scenario::new(
        "code_mode_shell",
        "a catalogue model that calls tools from a script: a command and a patch",
        &[
            StartWith("gpt-6.1-sol"),
            Prompt("RUN: echo hello\nWRITE new.txt hello"),
            Decide("accept"),
            Decide("accept"),
            End,
        ],
    ),
    Scenario::new(
        "code_mode_child",
        "a sub-agent of a catalogue model (second generation of the multi-agent tools)",
        &[
            StartWith("gpt-6.1-sol"),
            Prompt("SPAWN: SAY: hello from the child\nWAIT\nSAY: the child is done"),
            End,
        ],
    ),
    Scenario {
        mcp: true,
        ..Scenario::new(
            "mcp_tool_call",
            "a tool of an MCP server, approved",
            &[
                Start,
                Prompt("TOOL: say {\"text\": \"hi\"}"),
                Elicit("accept"),
                End,
            ],
        )
    },
    Scenario {
        mcp: true,
        ..Scenario::new(
            "mcp_tool_call_declined",
            "a tool of an MCP server, declined",
            &[
                Start,
                Prompt("TOOL: say {\"text\": \"hi\"}"),
                Elicit("decline"),
                End,
            ],
        )
    },
    Scenario {
        resumed: Some(&RESUMED),
        ..Scenario::new(
            "before_resume",
            "the process whose conversation `resume` goes on with",
            &[
                Start,
                Prompt("my name is Ada"),
                End,
                Prompt("RUN: echo hello"),
                Decide("accept"),
                End,
            ],
        )
    },
];

const RESUMED: Scenario = Scenario::new(
    "resume",
    "another process that has only the first one's rollout file: `thread/resume`, and the model \
     still sees the history",
    &[Resume, Prompt("RECALL"), End],
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
            for (name, text) in played? {
                let path = out.join(format!("{name}.jsonl"));
                fs::write(&path, text).map_err(Error::io("write a recording"))?;
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
) -> Result<Vec<(&'static str, String)>, Error> {
    let place = Place::new(scratch)?;
    place.configure(model, scenario.mcp)?;
    let mut thread = String::new();
    let mut tapes = Vec::new();
    let mut next = Some(scenario);
    while let Some(scenario) = next {
        let scrub = place.scrub(program, model);
        let server = AppServer::start(scenario.name, program, &place, scrub).await?;
        let mut player = Player {
            server,
            place: &place,
            model,
            thread,
            turn: String::new(),
        };
        for act in scenario.acts {
            player.act(act).await?;
        }
        thread = player.thread;
        tapes.push((
            scenario.name,
            player.server.finish().await?.text().to_owned(),
        ));
        next = scenario.resumed;
        if next.is_some() {
            place.keep_only_rollouts()?;
            place.configure(model, scenario.mcp)?;
        }
    }
    Ok(tapes)
}

struct Player<'a> {
    server: AppServer,
    place: &'a Place,
    model: &'a ScriptedModel,
    thread: String,
    turn: String,
}

impl Player<'_> {
    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Start => self.start(Value::Null).await,
            StartWith(model) => self.start(json!(model)).await,
            Resume => self.resume().await,
            Prompt(text) => self.prompt(text).await,
            Ask => self.asked().await.map(|_| ()),
            Decide(decision) => self.answer(json!({ "decision": decision })).await,
            Elicit("accept") => {
                self.answer(json!({ "action": "accept", "content": {} }))
                    .await
            }
            Elicit(action) => {
                self.answer(json!({ "action": action, "content": null }))
                    .await
            }
            Notified(method, text) => {
                let fits = |message: &Value| {
                    message["method"] == *method && message.to_string().contains(text)
                };
                self.server.until(method, fits).await.map(|_| ())
            }
            Held(name) => Ok(self.model.wait_until_held(name, HOLD_DEADLINE).await?),
            Interrupt => {
                let params = json!({ "threadId": self.thread, "turnId": self.turn });
                self.server
                    .request("turn/interrupt", params)
                    .await
                    .map(|_| ())
            }
            End => self.end().await,
        }
    }

    async fn start(&mut self, model: Value) -> Result<(), Error> {
        let mut params = self.thread_params();
        if !model.is_null() {
            params["model"] = model;
        }
        let started = self.server.request("thread/start", params).await?;
        self.thread = text(&started["thread"]["id"]);
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Error> {
        let mut params = self.thread_params();
        params["threadId"] = json!(self.thread);
        self.server
            .request("thread/resume", params)
            .await
            .map(|_| ())
    }

    /// What our engine asks of every thread. Nothing runs in the thread's own sandbox: each turn
    /// says that there is one outside.
    fn thread_params(&self) -> Value {
        json!({
            "cwd": self.place.workspace(),
            "approvalPolicy": "untrusted",
            "sandbox": "danger-full-access",
        })
    }

    async fn prompt(&mut self, prompt: &str) -> Result<(), Error> {
        let params = json!({
            "threadId": self.thread,
            "input": [{ "type": "text", "text": prompt }],
            "approvalPolicy": "untrusted",
            "sandboxPolicy": { "type": "externalSandbox", "networkAccess": "enabled" },
        });
        let started = self.server.request("turn/start", params).await?;
        self.turn = text(&started["turn"]["id"]);
        Ok(())
    }

    /// The next request that the program makes of its host.
    async fn asked(&mut self) -> Result<Value, Error> {
        let asks = |message: &Value| message.get("id").is_some() && message.get("method").is_some();
        self.server.until("a request of the program", asks).await
    }

    async fn answer(&mut self, result: Value) -> Result<(), Error> {
        let request = self.asked().await?;
        let answer = json!({ "id": request["id"], "result": result });
        self.server.send(&answer).await
    }

    async fn end(&mut self) -> Result<(), Error> {
        let ends = |message: &Value| {
            message["method"] == "turn/completed"
                && message["params"]["threadId"] == self.thread
                && message["params"]["turn"]["id"] == self.turn
        };
        self.server
            .until("the end of the turn", ends)
            .await
            .map(|_| ())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the program calls itself, e.g. `codex-cli 0.169.0`.
async fn version(program: &Path) -> Result<String, Error> {
    let output = tokio::process::Command::new(program)
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
        "# Recordings of Codex

What one `codex app-server` process read (`in`) and wrote (`out`, `err`), a JSON object a line,
lines verbatim. Made with `{version}` against the scripted model of `astrabox-testkit`:

```
cargo xtask record codex
```

The program ran in a folder of the layout `home/agent/.codex` and `workspace`; that folder's own
path is cut out of the lines, the model's address is written as `http://127.0.0.1:4000`, the
machine's name as `host`. Every thread is started with approval policy `untrusted`, every turn with
`untrusted` and the `externalSandbox` policy. This file is written by the recorder too.

| recording | shows |
|---|---|
{table}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn a_program_that_ends_early_is_reported_with_what_was_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let only = ["plain".to_owned()];
        let recorded = record(Path::new("/bin/true"), dir.path(), dir.path(), &only).await;
        let error = recorded.expect_err("it says nothing");
        // Whether the program is gone at the write or at the read is up to the scheduler.
        assert!(
            matches!(error, Error::Refused { .. } | Error::Io { .. }),
            "{error}"
        );
        assert!(!dir.path().join("plain.jsonl").exists());
    }

    #[test]
    fn every_recording_has_its_own_name_and_says_what_it_shows() {
        let mut names = BTreeSet::new();
        for scenario in SCENARIOS {
            for scenario in [Some(scenario), scenario.resumed].into_iter().flatten() {
                assert!(names.insert(scenario.name), "{} twice", scenario.name);
                assert!(!scenario.shows.is_empty() && !scenario.shows.contains('|'));
                assert!(readme_text("codex-cli 1").contains(&format!("| `{}` |", scenario.name)));
            }
        }
    }
}
