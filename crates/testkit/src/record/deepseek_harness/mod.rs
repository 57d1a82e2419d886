//! The player of the DeepSeek Harness scenarios.
//!
//! Message and field names are those of `dsh --profile acp` 0.2.1rc2 with the plugin of our engine.

mod scenarios;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::Error;
use super::stream_json::StreamJson;
use super::tape::{Scrub, Tape};
use crate::model::ScriptedModel;
use scenarios::Act::{
    Allow, Ask, Decline, Ended, Held, Interrupt, Kill, Mode, Prompt, Reject, Reply, StopChild, Told,
};
use scenarios::{ASKING, Act, SCENARIOS, Scenario};

/// How long the model may take to come to a hold.
const HOLD_DEADLINE: Duration = Duration::from_secs(30);
/// The program's MCP server: one tool, `say`.
const ECHO_MCP: &str = include_str!("../echo_mcp.py");
/// The permission modes: preset, sandbox mode, approval policy.
const MODES: [(&str, &str, &str); 4] = [
    ("read-only", "read-only", "ask"),
    ("workspace-write", "workspace-write", "ask"),
    ("danger-full-access", "danger-full-access", "never"),
    ("ask", "danger-full-access", "ask"),
];

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

/// As our engine patches the profile, but for places.
fn patch(mode: &str, home: &Path, folder: &Path, image: &Path, model: &ScriptedModel) -> Value {
    let of = |name: &str| MODES.iter().find(|known| known.0 == name);
    let (_, sandbox, approval) = of(mode).copied().unwrap_or(MODES[1]);
    let presets: serde_json::Map<String, Value> = MODES
        .iter()
        .map(|(name, sandbox, approval)| {
            let preset = json!({ "sandbox": sandbox, "approval": approval });
            ((*name).to_owned(), preset)
        })
        .collect();
    let row = |id: &str, config: Value| json!({ "id": id, "config": config });
    let mut rows = vec![
        json!({ "insert": [
            { "id": "astrabox-host", "name": "./host.mjs", "config": {
                "asking": ASKING,
                "modes": MODES.map(|mode| mode.0),
                "instructions": "",
                "landlock": image.join("bin/landlock-run"),
            } },
            { "id": "tool-ask-user", "name": "@deepseek-ai/dsh-tool-ask-user" },
        ] }),
        json!({ "id": "acp", "inject": ["acpAppStartup", "astraboxWire"], "config": {
            "provider": "gateway",
            "model": "scripted-model",
            "stream": { "__jsExpr": "ctx.astraboxWire" },
        } }),
        row(
            "session-persistence-jsonl",
            json!({ "root": home.join(".dsh/sessions"), "compression": "none" }),
        ),
        row(
            "sandbox-policy",
            json!({ "mode": sandbox, "workspaceRoot": folder }),
        ),
        row("approval", json!({ "policy": approval })),
        row(
            "permission",
            json!({ "presets": presets, "defaultPreset": mode }),
        ),
        row(
            "agent-default-model",
            json!({ "provider": "gateway", "model": "scripted-model" }),
        ),
        row("web", json!({ "fetchProvider": "http" })),
        row("tool-web", json!({ "fetch": true, "search": false })),
        row(
            "llm-pi-ai",
            json!({ "providers": { "gateway": {
                "displayName": "Gateway",
                "apiKeyEnv": "DEEPSEEK_API_KEY",
                "api": "anthropic-messages",
                "baseURL": model.base_url(),
                "models": [{ "id": "scripted-model" }],
            } } }),
        ),
    ];
    let off = [
        "llm-deepseek",
        "session-log-deepseek",
        "plugin-package-inventory-deepseek",
        "session-telemetry-otel",
        "otel",
        "deepseek-account",
        "llm-deepseek-account",
        "web-search-deepseek",
        "web-deepseek-api",
    ];
    rows.extend(off.map(|id| json!({ "id": id, "disabled": true })));
    Value::Array(rows)
}

fn command(image: &Path, home: &Path, host: &Path) -> Command {
    let mut command = Command::new(image.join("bin/dsh"));
    command
        .args(["--profile", "acp", "--patch"])
        .arg(host.join("host.patch.yml"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .env("HOME", home)
        .env("DSH_HOME", home.join(".dsh"))
        .env("DSH_TELEMETRY_DISABLED", "1")
        .env("DEEPSEEK_API_KEY", "placeholder");
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
