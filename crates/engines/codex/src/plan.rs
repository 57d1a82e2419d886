//! What an activation does, as data: files, process, and the parameters of the calls that open a conversation.

use std::collections::BTreeMap;

use astrabox_engine::model::ResolvedModelAccess;
use astrabox_engine::sandbox::{
    BoxPath, HOME, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE,
};
use astrabox_engine::{EngineInput, EngineStartupContext, Error, ErrorKind, McpHeader, Result};
use astrabox_types::{ContentPart, McpServer, McpTransport, PermissionLevel};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::options::{DEFAULT_MODE, Mode, block};
use crate::recipe::PROGRAM;

/// Codex's own directory, below the home directory.
pub(crate) const CODEX_DIR: &str = ".codex";
/// The name of our model provider in config.toml.
const PROVIDER: &str = "astrabox";
/// The variable that holds the placeholder of the model's key.
const KEY_VARIABLE: &str = "ASTRABOX_MODEL_KEY";
/// How often Codex asks again after a refused request and after a cut stream. The defaults, 4 and 5, with their
/// doubling waits keep a turn busy for minutes at a dead endpoint.
const RETRIES: u32 = 3;
/// How long a silent model stream is waited for, ms: Codex's own default, written out.
const STREAM_IDLE_MS: u32 = 300_000;

/// A file to write before the program starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedFile {
    pub(crate) path: BoxPath,
    pub(crate) content: String,
}

/// Everything of an activation that starts a process.
pub(crate) struct Plan {
    /// Trees to remove before the files are written.
    pub(crate) removed: Vec<BoxPath>,
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) spawn: SpawnSpec,
    pub(crate) settings: Settings,
}

/// What the protocol needs to know of the agent and the session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    model: String,
    mode: String,
    advanced: bool,
    turn_start: Map<String, Value>,
    /// Needed once, when the conversation is opened; then dropped, since checkpoints hold this state.
    opening: Option<Opening>,
}

/// What only the opening of a conversation needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    instructions: String,
    config: Map<String, Value>,
}

impl Plan {
    /// Plans the start of the program.
    ///
    /// # Errors
    /// `InvalidConfiguration` for a permission mode that there is not.
    pub(crate) fn of(context: &EngineStartupContext) -> Result<Self> {
        let options = &context.agent.engine_options;
        let catalog = options.get("model_catalog");
        let mut files = vec![PlannedFile {
            path: codex_path("config.toml")?,
            content: config_toml(
                &context.model,
                catalog.is_some(),
                &context.agent.mcp_servers,
                &context.mcp_headers,
            )?,
        }];
        if let Some(catalog) = catalog {
            files.push(PlannedFile {
                path: codex_path("model_catalog.json")?,
                content: catalog.text().to_owned(),
            });
        }
        let mut removed = Vec::new();
        for skill in &context.agent.skills {
            // What an older version of the skill had is gone.
            let folder = codex_path(&format!("skills/{}", skill.name))?;
            for (path, content) in &skill.files {
                files.push(PlannedFile {
                    path: folder.join(path).map_err(unplanned)?,
                    content: content.clone(),
                });
            }
            removed.push(folder);
        }
        Ok(Self {
            removed,
            files,
            spawn: spawn_spec(context)?,
            settings: Settings::of(context)?,
        })
    }
}

/// The name of the process of an activation.
pub(crate) fn process_name(epoch: u64) -> Result<ProcessName> {
    ProcessName::new(format!("engine-{epoch}")).map_err(unplanned)
}

fn codex_path(name: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{CODEX_DIR}/{name}")).map_err(unplanned)
}

fn unplanned(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::StartFailed, "plan", error.to_string()).with_source(error)
}

/// The text of config.toml. Nothing in it is secret.
fn config_toml(
    model: &ResolvedModelAccess,
    catalog: bool,
    servers: &[McpServer],
    headers: &[McpHeader],
) -> Result<String> {
    let mut config = json!({
        "model": model.model_name,
        "model_provider": PROVIDER,
        "web_search": "disabled",
        "check_for_update_on_startup": false,
        "analytics": {"enabled": false},
        "features": {"plugins": false},
        "model_providers": {PROVIDER: {
            "name": PROVIDER,
            "base_url": format!("{}/v1", model.base_url),
            "wire_api": "responses",
            "env_key": KEY_VARIABLE,
            "request_max_retries": RETRIES,
            "stream_max_retries": RETRIES,
            "stream_idle_timeout_ms": STREAM_IDLE_MS,
        }},
        // What looks like a key in the environment is a placeholder, and is there for the commands.
        "shell_environment_policy": {"inherit": "all", "ignore_default_excludes": true},
    });
    if catalog {
        config["model_catalog_json"] = json!(codex_path("model_catalog.json")?.as_str());
    }
    if !servers.is_empty() {
        let servers = servers.iter().map(|server| {
            let config = match &server.transport {
                McpTransport::Stdio { command, args, env } => {
                    json!({"command": command, "args": args, "env": env})
                }
                McpTransport::Http { url } => {
                    let mut config = json!({"url": url});
                    let headers = McpHeader::of(headers, &server.name);
                    if !headers.is_empty() {
                        config["http_headers"] = json!(headers);
                    }
                    config
                }
            };
            (server.name.clone(), config)
        });
        config["mcp_servers"] = Value::Object(servers.collect());
    }
    toml::to_string(&config).map_err(unplanned)
}

fn spawn_spec(context: &EngineStartupContext) -> Result<SpawnSpec> {
    // `features.plugins` is on the command line too: it is read before config.toml, and a start with plugins
    // calls its vendor's hosts.
    let argv = ["app-server", "-c", "features.plugins=false"];
    let program = format!("{IMAGE_ROOT}/{PROGRAM}");
    Ok(SpawnSpec {
        name: process_name(context.epoch)?,
        argv: std::iter::once(program)
            .chain(argv.map(str::to_owned))
            .collect(),
        env: environment(&context.env, &context.model_placeholder),
        cwd: BoxPath::new(WORKSPACE).map_err(unplanned)?,
        stdin: Stdio::Piped,
        wall_limit: None,
    })
}

fn environment(base: &BTreeMap<String, String>, placeholder: &str) -> BTreeMap<String, String> {
    let mut env = base.clone();
    // Never below /tmp: there Codex makes no helper programs and its commands fail.
    env.insert("CODEX_HOME".to_owned(), format!("{HOME}/{CODEX_DIR}"));
    env.insert(KEY_VARIABLE.to_owned(), placeholder.to_owned());
    // Codex trusts an authority of ours by this variable alone.
    if let Some(file) = base.get("SSL_CERT_FILE") {
        env.entry("CODEX_CA_CERTIFICATE".to_owned())
            .or_insert_with(|| file.clone());
    }
    env
}

impl Settings {
    fn of(context: &EngineStartupContext) -> Result<Self> {
        let agent = &context.agent;
        let advanced = context.permission_level == PermissionLevel::Advanced;
        let mode = context.permission_mode.as_deref();
        let mode = mode
            .or(agent.permission_mode.as_deref())
            .unwrap_or(DEFAULT_MODE);
        Mode::find(mode, advanced)?;
        Ok(Self {
            model: context.model.model_name.clone(),
            mode: mode.to_owned(),
            advanced,
            turn_start: block(&agent.engine_options, "turn_start"),
            opening: Some(Opening {
                instructions: agent.system.clone(),
                config: block(&agent.engine_options, "config"),
            }),
        })
    }

    fn mode(&self) -> Result<&'static Mode> {
        Mode::find(&self.mode, self.advanced)
    }

    /// Another mode from the next turn on.
    ///
    /// # Errors
    /// `InvalidConfiguration` when there is no such mode.
    pub(crate) fn set_mode(&mut self, mode: &str) -> Result<()> {
        Mode::find(mode, self.advanced)?;
        mode.clone_into(&mut self.mode);
        Ok(())
    }

    /// Method and parameters of the call that opens the conversation: a new one, or the one expected.
    ///
    /// # Errors
    /// `Protocol` when it was opened before.
    pub(crate) fn open(&mut self, expected: Option<&str>) -> Result<(&'static str, Value)> {
        let mode = self.mode()?;
        let opening = self.opening.take().ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "open",
                "the conversation was opened before",
            )
        })?;
        let mut params = json!({
            "cwd": WORKSPACE,
            "model": self.model,
            "modelProvider": PROVIDER,
            "approvalPolicy": mode.approval,
            "sandbox": mode.thread_sandbox(),
        });
        if !opening.instructions.is_empty() {
            params["developerInstructions"] = json!(opening.instructions);
        }
        if !opening.config.is_empty() {
            params["config"] = Value::Object(opening.config);
        }
        let Some(expected) = expected else {
            return Ok(("thread/start", params));
        };
        params["threadId"] = json!(expected);
        // The journal has the past; reading all of it again would be one huge line.
        params["excludeTurns"] = json!(true);
        Ok(("thread/resume", params))
    }

    /// The parameters of `turn/start`.
    ///
    /// # Errors
    /// `InvalidConfiguration` when the mode is not one any more.
    pub(crate) fn turn(&self, thread: &str, input: &EngineInput) -> Result<Value> {
        let mode = self.mode()?;
        let mut params = self.turn_start.clone();
        // The program demands a model here, and the model is the platform's.
        if let Some(Value::Object(settings)) = params
            .get_mut("collaborationMode")
            .and_then(|mode| mode.get_mut("settings"))
        {
            settings.insert("model".to_owned(), json!(self.model));
        }
        let own = [
            ("threadId", json!(thread)),
            ("clientUserMessageId", json!(input.input_id)),
            ("input", native_input(input)),
            ("approvalPolicy", json!(mode.approval)),
            // On every turn: `thread/start` has no value for it.
            ("sandboxPolicy", mode.sandbox_policy()),
        ];
        params.extend(own.map(|(key, value)| (key.to_owned(), value)));
        Ok(Value::Object(params))
    }
}

fn native_input(input: &EngineInput) -> Value {
    let text = |text: &str| json!({"type": "text", "text": text});
    let notice = input.notice.as_deref().map(text);
    let parts = input.content.iter().map(|part| match part {
        ContentPart::Text { text: said } => text(said),
        ContentPart::Image { media_type, data } => json!({
            "type": "image",
            "url": format!("data:{};base64,{data}", media_type.as_str()),
        }),
    });
    notice.into_iter().chain(parts).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
