//! What an activation does, as data: files, process, and what opens a conversation.

use std::collections::BTreeMap;

use astrabox_engine::model::{CredentialKind, ResolvedModelAccess};
use astrabox_engine::sandbox::{
    BoxPath, HOME, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE,
};
use astrabox_engine::{
    Conversation, EngineInput, EngineStartupContext, Error, ErrorKind, McpHeader, Result,
};
use astrabox_types::{ContentPart, InputId, McpServer, McpTransport, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::options::{DEFAULT_MODE, block, demand_mode};
use crate::recipe::PROGRAM;

/// Claude Code's own directory, below the home directory.
pub(crate) const CONFIG_DIR: &str = ".claude";
/// Where its transcripts are, below the home directory.
pub(crate) const STATE_DIR: &str = ".claude/projects";
/// The folder of the transcripts of `/workspace`: the path with `-` for each `/`.
const PROJECT: &str = "-workspace";
/// How often it asks the model again after a failed request. The default, 10, with its doubling waits keeps a turn
/// busy for minutes at a dead endpoint.
const RETRIES: &str = "3";

/// A file to write before the program starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedFile {
    pub(crate) path: BoxPath,
    pub(crate) content: Vec<u8>,
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
    /// The id of the conversation.
    pub(crate) key: String,
    /// The permission mode that was asked for last.
    pub(crate) mode: String,
    /// Needed once, when the conversation is opened; then dropped, since checkpoints hold this state.
    opening: Option<Opening>,
}

/// What only the opening of a conversation needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    instructions: String,
    agents: Map<String, Value>,
}

impl Plan {
    /// Plans the start of the program.
    ///
    /// # Errors
    /// `InvalidConfiguration` for a permission mode that there is not, or an option block that cannot be read.
    pub(crate) fn of(context: &EngineStartupContext) -> Result<Self> {
        let agent = &context.agent;
        let settings = Settings::of(context)?;
        let mut files = vec![PlannedFile {
            path: config_path("astrabox/settings.json")?,
            content: Value::Object(block(&agent.engine_options, "settings"))
                .to_string()
                .into_bytes(),
        }];
        files.push(PlannedFile {
            path: config_path("astrabox/mcp.json")?,
            content: mcp_config(&agent.mcp_servers, &context.mcp_headers)
                .to_string()
                .into_bytes(),
        });
        let mut removed = Vec::new();
        for skill in &agent.skills {
            // What an older version of the skill had is gone.
            let folder = config_path(&format!("skills/{}", skill.name))?;
            for (path, content) in &skill.files {
                files.push(PlannedFile {
                    path: folder.join(path).map_err(unplanned)?,
                    content: content.clone().into_bytes(),
                });
            }
            removed.push(folder);
        }
        Ok(Self {
            removed,
            files,
            spawn: spawn_spec(context, &settings)?,
            settings,
        })
    }
}

/// The name of the process of an activation.
pub(crate) fn process_name(epoch: u64) -> Result<ProcessName> {
    ProcessName::new(format!("engine-{epoch}")).map_err(unplanned)
}

/// Where the transcript of a conversation is.
pub(crate) fn transcript(key: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{STATE_DIR}/{PROJECT}/{key}.jsonl")).map_err(unplanned)
}

fn config_path(name: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{CONFIG_DIR}/{name}")).map_err(unplanned)
}

fn unplanned(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::StartFailed, "plan", error.to_string()).with_source(error)
}

/// The file of `--mcp-config`.
fn mcp_config(servers: &[McpServer], headers: &[McpHeader]) -> Value {
    let servers = servers.iter().map(|server| {
        let config = match &server.transport {
            McpTransport::Stdio { command, args, env } => {
                json!({"type": "stdio", "command": command, "args": args, "env": env})
            }
            McpTransport::Http { url } => {
                let mut config = json!({"type": "http", "url": url});
                let headers = McpHeader::of(headers, &server.name);
                if !headers.is_empty() {
                    config["headers"] = json!(headers);
                }
                config
            }
        };
        (server.name.clone(), config)
    });
    json!({"mcpServers": servers.collect::<Map<_, _>>()})
}

fn spawn_spec(context: &EngineStartupContext, settings: &Settings) -> Result<SpawnSpec> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut argv = vec![format!("{IMAGE_ROOT}/{PROGRAM}")];
    argv.extend(words(&[
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
        "--permission-prompt-tool",
        "stdio",
        // Only makes `bypassPermissions` a mode that can be chosen.
        "--allow-dangerously-skip-permissions",
        "--permission-mode",
        settings.first_mode(),
        "--model",
        &context.model.model_name,
        // What a person has in the workspace counts, as it does when they use the program themselves.
        "--setting-sources=user,project,local",
        "--settings",
        config_path("astrabox/settings.json")?.as_str(),
        "--strict-mcp-config",
        "--mcp-config",
        config_path("astrabox/mcp.json")?.as_str(),
    ]));
    for directory in plugin_directories(context)? {
        argv.extend(["--plugin-dir".to_owned(), directory.as_str().to_owned()]);
    }
    // A new id that has a transcript is refused as "already in use", and a resume without one as unknown.
    let which = match context.conversation {
        Conversation::New => "--session-id",
        Conversation::Resume { .. } | Conversation::Attach { .. } => "--resume",
    };
    argv.extend([which.to_owned(), settings.key.clone()]);
    Ok(SpawnSpec {
        name: process_name(context.epoch)?,
        argv,
        env: environment(context)?,
        cwd: BoxPath::new(WORKSPACE).map_err(unplanned)?,
        stdin: Stdio::Piped,
        wall_limit: None,
    })
}

fn plugin_directories(context: &EngineStartupContext) -> Result<Vec<BoxPath>> {
    let invalid = |text: String| Error::new(ErrorKind::InvalidConfiguration, "plan", text);
    let plugins = block(&context.agent.engine_options, "plugins");
    if let Some(unknown) = plugins.keys().find(|key| *key != "directories") {
        return Err(invalid(format!(
            "`plugins.{unknown}` is not known; there is: directories"
        )));
    }
    let Some(listed) = plugins.get("directories") else {
        return Ok(Vec::new());
    };
    let listed: Vec<String> = serde_json::from_value(listed.clone())
        .map_err(|_| invalid("`plugins.directories` must be a list of paths".to_owned()))?;
    listed
        .into_iter()
        .map(|path| {
            BoxPath::new(path.clone())
                .map_err(|error| invalid(format!("`plugins.directories` has `{path}`: {error}")))
        })
        .collect()
}

fn environment(context: &EngineStartupContext) -> Result<BTreeMap<String, String>> {
    let mut env = context.env.clone();
    // Variables of another Claude Code change what this one does.
    env.retain(|name, _| !name.starts_with("CLAUDE") && !name.starts_with("ANTHROPIC_"));
    for (name, value) in block(&context.agent.engine_options, "env") {
        let Value::String(value) = value else {
            let text = format!("`env.{name}` must be a text");
            return Err(Error::new(ErrorKind::InvalidConfiguration, "plan", text));
        };
        env.insert(name, value);
    }
    for (name, value) in model_variables(&context.model, &context.model_placeholder) {
        env.insert(name.to_owned(), value);
    }
    for (name, value) in [
        ("CLAUDE_CODE_ENTRYPOINT", "sdk-py"),
        ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", RETRIES),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        // With it on, MCP tools and leaving plan mode are hidden from the model behind a search tool.
        ("ENABLE_TOOL_SEARCH", "false"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    env.insert(
        "CLAUDE_CONFIG_DIR".to_owned(),
        format!("{HOME}/{CONFIG_DIR}"),
    );
    // The program trusts an authority of ours by this variable alone.
    if let Some(file) = env.get("SSL_CERT_FILE").cloned() {
        env.entry("NODE_EXTRA_CA_CERTS".to_owned()).or_insert(file);
    }
    Ok(env)
}

fn model_variables(model: &ResolvedModelAccess, placeholder: &str) -> [(&'static str, String); 2] {
    let key = match model.credential_kind {
        CredentialKind::Bearer => "ANTHROPIC_AUTH_TOKEN",
        CredentialKind::ApiKey | CredentialKind::None => "ANTHROPIC_API_KEY",
    };
    [
        ("ANTHROPIC_BASE_URL", model.base_url.clone()),
        (key, placeholder.to_owned()),
    ]
}

impl Settings {
    fn of(context: &EngineStartupContext) -> Result<Self> {
        let agent = &context.agent;
        let mode = context.permission_mode.as_deref();
        let mode = mode
            .or(agent.permission_mode.as_deref())
            .unwrap_or(DEFAULT_MODE);
        demand_mode(mode)?;
        let key = match &context.conversation {
            Conversation::Resume { native_key } | Conversation::Attach { native_key, .. } => {
                native_key.clone()
            }
            Conversation::New => new_key(context.session_id, context.epoch),
        };
        Ok(Self {
            key,
            mode: mode.to_owned(),
            opening: Some(Opening {
                instructions: agent.system.clone(),
                agents: block(&agent.engine_options, "agents"),
            }),
        })
    }

    /// The mode that the program is launched with. It is brought to the wanted one by its protocol, because the
    /// program answers a change of mode with a message that names its conversation, which is the proof that it
    /// has the one that was asked for.
    pub(crate) fn first_mode(&self) -> &'static str {
        if self.mode == "acceptEdits" {
            "default"
        } else {
            "acceptEdits"
        }
    }

    /// Another mode.
    ///
    /// # Errors
    /// `InvalidConfiguration` when there is no such mode.
    pub(crate) fn set_mode(&mut self, mode: &str) -> Result<()> {
        demand_mode(mode)?;
        mode.clone_into(&mut self.mode);
        Ok(())
    }

    /// The request `initialize`, once.
    pub(crate) fn initialize(&mut self) -> Value {
        let mut request = json!({
            "subtype": "initialize",
            "hooks": null,
            // Else sub-agents are heard of by their tool calls alone.
            "forwardSubagentText": true,
        });
        if let Some(opening) = self.opening.take() {
            if !opening.instructions.is_empty() {
                request["appendSystemPrompt"] = json!(opening.instructions);
            }
            if !opening.agents.is_empty() {
                request["agents"] = Value::Object(opening.agents);
            }
        }
        request
    }
}

/// The id of a new conversation: the session's own, changed by the activation. An activation that began one and
/// died may have left a transcript under its id.
fn new_key(session: SessionId, epoch: u64) -> String {
    mixed(session.uuid(), epoch).to_string()
}

/// The id that the program knows an input by. Another process gets another one: a repeated one is taken for
/// a message that was answered already.
pub(crate) fn message_id(input: InputId, born: u64) -> String {
    mixed(input.uuid(), born).to_string()
}

fn mixed(id: Uuid, number: u64) -> Uuid {
    Uuid::from_u128(id.as_u128() ^ u128::from(number))
}

/// An input as the program takes it.
pub(crate) fn user_line(input: &EngineInput, born: u64) -> Value {
    let text = |text: &str| json!({"type": "text", "text": text});
    let notice = input.notice.as_deref().map(text);
    let parts = input.content.iter().map(|part| match part {
        ContentPart::Text { text: said } => text(said),
        ContentPart::Image { media_type, data } => json!({
            "type": "image",
            "source": {"type": "base64", "media_type": media_type.as_str(), "data": data},
        }),
    });
    let content: Vec<Value> = notice.into_iter().chain(parts).collect();
    json!({
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": null,
        "session_id": "",
        "uuid": message_id(input.input_id, born),
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
