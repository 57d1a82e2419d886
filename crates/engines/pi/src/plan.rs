//! What an activation does, as data: files, process, and what an input looks like.

use std::collections::BTreeMap;

use astrabox_engine::model::{CredentialKind, ResolvedModelAccess};
use astrabox_engine::sandbox::{
    BoxPath, HOME, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE,
};
use astrabox_engine::{
    Conversation, EngineInput, EngineStartupContext, Error, ErrorKind, McpHeader, Result,
};
use astrabox_types::{ContentPart, Json, McpServer, McpTransport, SessionId, Timestamp};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::options::{Choices, block};
use crate::recipe::{NODE, PROGRAM};

/// Pi's own directory, below the home directory.
const CONFIG_DIR: &str = ".pi/agent";
/// Where its session files are, below the home directory.
pub(crate) const STATE_DIR: &str = ".pi/agent/sessions";
/// The folder of the sessions of `/workspace`.
const PROJECT: &str = "--workspace--";
/// The provider that the platform's model is under.
const PROVIDER: &str = "astrabox";
/// The variable with what stands for the model's key.
const MODEL_KEY: &str = "ASTRABOX_MODEL_KEY";
/// The platform's extension, and the line of it that lists the tools to ask for.
const EXTENSION: &str = include_str!("extension/astrabox.ts");
const ASK: &str = "const ASK: string[] = [];";

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
    /// The id of the conversation.
    pub(crate) key: String,
}

impl Plan {
    /// Plans the start of the program.
    ///
    /// # Errors
    /// `InvalidConfiguration` for an option block that cannot be read.
    pub(crate) fn of(context: &EngineStartupContext) -> Result<Self> {
        let agent = &context.agent;
        let choices = Choices::of(&agent.engine_options)?;
        let key = match &context.conversation {
            Conversation::Resume { native_key } | Conversation::Attach { native_key, .. } => {
                native_key.clone()
            }
            Conversation::New => new_key(context.session_id, context.epoch),
        };
        let mut files = configuration(context, &choices)?;
        if context.conversation == Conversation::New {
            files.push(PlannedFile {
                path: session_file(&key)?,
                content: session_header(&key, context.session_id).into_bytes(),
            });
        }
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
            spawn: spawn_spec(context, &choices, &key)?,
            key,
        })
    }
}

/// The name of the process of an activation.
pub(crate) fn process_name(epoch: u64) -> Result<ProcessName> {
    ProcessName::new(format!("engine-{epoch}")).map_err(unplanned)
}

/// Where the session file of a conversation is.
pub(crate) fn session_file(key: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{STATE_DIR}/{PROJECT}/{key}.jsonl")).map_err(unplanned)
}

/// The first line of a session file. Pi 1.6.0 makes the file of a new session with the model's first answer only; one
/// that is there it writes to from the first prompt on, so that a conversation that is cut before is not lost.
fn session_header(key: &str, session: SessionId) -> String {
    let began = session.uuid().get_timestamp().map(|time| time.to_unix());
    let began = began.and_then(|(seconds, nanos)| {
        let seconds = i64::try_from(seconds).ok()?;
        Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok()
    });
    let began = began.unwrap_or(Timestamp::UNIX_EPOCH);
    let header = json!({
        "type": "session", "version": 3, "id": key, "timestamp": format!("{began:.3}"),
        "cwd": WORKSPACE,
    });
    format!("{header}\n")
}

fn config_path(name: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{CONFIG_DIR}/{name}")).map_err(unplanned)
}

fn unplanned(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::StartFailed, "plan", error.to_string()).with_source(error)
}

fn configuration(context: &EngineStartupContext, choices: &Choices) -> Result<Vec<PlannedFile>> {
    let agent = &context.agent;
    let options = &agent.engine_options;
    let ask = format!("const ASK: string[] = {};", json!(choices.ask));
    let contents = [
        ("models.json", models(&context.model, options).to_string()),
        ("settings.json", settings(options).to_string()),
        (
            "mcp.json",
            mcp_config(&agent.mcp_servers, &context.mcp_headers).to_string(),
        ),
        ("astrabox/extension.ts", EXTENSION.replacen(ASK, &ask, 1)),
        ("astrabox/instructions.md", agent.system.clone()),
    ];
    let files = contents.into_iter().map(|(name, content)| {
        Ok(PlannedFile {
            path: config_path(name)?,
            content: content.into_bytes(),
        })
    });
    files.collect()
}

/// The provider of the platform's model. The key is a reference to a variable: 1.6.0 sends a bare name as it stands.
fn models(model: &ResolvedModelAccess, options: &BTreeMap<String, Json>) -> Value {
    let mut entry = Map::from_iter([("input".to_owned(), json!(["text", "image"]))]);
    entry.extend(block(options, "model"));
    entry.insert("id".to_owned(), json!(model.model_name));
    entry.insert("name".to_owned(), json!(model.model_name));
    let key = format!("${MODEL_KEY}");
    let mut provider = json!({
        "baseUrl": format!("{}/v1", model.base_url),
        "api": "openai-completions",
        "models": [entry],
    });
    match model.credential_kind {
        CredentialKind::Bearer | CredentialKind::None => provider["apiKey"] = json!(key),
        CredentialKind::ApiKey => {
            // It always sends `Authorization` too, and there nothing may stand for the key.
            provider["apiKey"] = json!("none");
            provider["headers"] = json!({"x-api-key": key});
        }
    }
    json!({"providers": {PROVIDER: provider}})
}

fn settings(options: &BTreeMap<String, Json>) -> Value {
    let mut settings = block(options, "settings");
    for (key, value) in [
        ("enableInstallTelemetry", json!(false)),
        ("enableAnalytics", json!(false)),
        ("defaultProjectTrust", json!("never")),
    ] {
        settings.insert(key.to_owned(), value);
    }
    Value::Object(settings)
}

/// The servers' tools are told to the model as they are. By default 1.6.0 hides them behind a tool that runs scripts.
fn mcp_config(servers: &[McpServer], headers: &[McpHeader]) -> Value {
    let servers = servers.iter().map(|server| {
        let config = match &server.transport {
            McpTransport::Stdio { command, args, env } => {
                json!({"command": command, "args": args, "env": env, "exposure": "direct"})
            }
            McpTransport::Http { url } => {
                let mut config = json!({"url": url, "exposure": "direct"});
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

fn spawn_spec(context: &EngineStartupContext, choices: &Choices, key: &str) -> Result<SpawnSpec> {
    let mut argv = vec![
        format!("{IMAGE_ROOT}/{NODE}"),
        format!("{IMAGE_ROOT}/{PROGRAM}"),
    ];
    let mut say = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    say(&["--mode", "rpc", "--provider", PROVIDER]);
    say(&["--model", &context.model.model_name]);
    say(&["--session", session_file(key)?.as_str()]);
    say(&[if choices.trust {
        "--approve"
    } else {
        "--no-approve"
    }]);
    // Nothing that lies about in the home directory or the workspace runs inside of the program.
    say(&["--no-extensions"]);
    for name in ["builtin:mcp", "builtin:codemode", "builtin:tool-search"] {
        say(&["--extension", name]);
    }
    say(&[
        "--extension",
        config_path("astrabox/extension.ts")?.as_str(),
    ]);
    for path in &choices.extensions {
        say(&["--extension", path.as_str()]);
    }
    if !context.agent.system.is_empty() {
        // Not AGENTS.md: that one is the repository's.
        let path = config_path("astrabox/instructions.md")?;
        say(&["--append-system-prompt", path.as_str()]);
    }
    Ok(SpawnSpec {
        name: process_name(context.epoch)?,
        argv,
        env: environment(context)?,
        cwd: BoxPath::new(WORKSPACE).map_err(unplanned)?,
        stdin: Stdio::Piped,
        wall_limit: None,
    })
}

fn environment(context: &EngineStartupContext) -> Result<BTreeMap<String, String>> {
    let mut env = context.env.clone();
    // Variables of another Pi change what this one does.
    env.retain(|name, _| !name.starts_with("PI_"));
    for (name, value) in block(&context.agent.engine_options, "env") {
        let Value::String(value) = value else {
            let text = format!("`env.{name}` must be a text");
            return Err(Error::new(ErrorKind::InvalidConfiguration, "plan", text));
        };
        env.insert(name, value);
    }
    let config = format!("{HOME}/{CONFIG_DIR}");
    for (name, value) in [
        (MODEL_KEY, context.model_placeholder.as_str()),
        ("PI_CODING_AGENT_DIR", &config),
        ("PI_OFFLINE", "1"),
        ("PI_TELEMETRY", "0"),
        ("PI_SKIP_VERSION_CHECK", "1"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    // Node trusts an authority of ours by this variable alone.
    if let Some(file) = env.get("SSL_CERT_FILE").cloned() {
        env.entry("NODE_EXTRA_CA_CERTS".to_owned()).or_insert(file);
    }
    Ok(env)
}

/// The id of a new conversation: the session's own, changed by the activation. An activation that began one and
/// died may have left a session file under its id.
fn new_key(session: SessionId, epoch: u64) -> String {
    Uuid::from_u128(session.uuid().as_u128() ^ u128::from(epoch)).to_string()
}

/// An input as the command that gives it to the program.
pub(crate) fn prompt(input: &EngineInput) -> Value {
    let mut texts: Vec<&str> = input.notice.as_deref().into_iter().collect();
    let mut images = Vec::new();
    for part in &input.content {
        match part {
            ContentPart::Text { text } => texts.push(text),
            ContentPart::Image { media_type, data } => images.push(json!({
                "type": "image", "data": data, "mimeType": media_type.as_str(),
            })),
        }
    }
    let mut command = json!({
        "type": "prompt",
        "message": texts.join("\n\n"),
        // It may be at work by itself; without this it would refuse the input then.
        "streamingBehavior": "followUp",
    });
    if !images.is_empty() {
        command["images"] = json!(images);
    }
    command
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
