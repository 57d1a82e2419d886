//! What an activation does, as data: files, process, and what the conversation is opened with.

use std::collections::BTreeMap;

use astrabox_acp_protocol::Settings;
use astrabox_engine::sandbox::{
    BoxPath, HOME, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE,
};
use astrabox_engine::{EngineStartupContext, Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::options::{DEFAULT_MODE, block, demand_mode};
use crate::recipe::PACKAGES;

/// Hermes' own directory, below the home directory: one conversation has one.
pub(crate) const HERMES_DIR: &str = ".hermes";
/// What of a conversation is kept, below the home directory; written by the host.
pub(crate) const SAVED_DIR: &str = ".hermes/saved";
/// The Python of the sandbox.
const PYTHON: &str = "/usr/bin/python3";
/// The variable that holds the placeholder of the model's key.
const KEY_VARIABLE: &str = "ASTRABOX_MODEL_KEY";
/// The host's program.
const HOST: &str = include_str!("host/host.py");

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

impl Plan {
    /// Plans the start of the program.
    ///
    /// # Errors
    /// `InvalidConfiguration` for a permission mode that there is not.
    pub(crate) fn of(context: &EngineStartupContext) -> Result<Self> {
        let agent = &context.agent;
        let host = json!({
            "config": config(context),
            "instructions": agent.system,
        });
        let mut files = vec![
            PlannedFile {
                path: hermes_path("host/host.py")?,
                content: HOST.to_owned(),
            },
            PlannedFile {
                path: hermes_path("host/settings.json")?,
                content: host.to_string(),
            },
        ];
        let mut removed = Vec::new();
        for skill in &agent.skills {
            // What an older version of the skill had is gone.
            let folder = hermes_path(&format!("skills/{}", skill.name))?;
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
            settings: settings(context)?,
        })
    }
}

/// The name of the process of an activation.
pub(crate) fn process_name(epoch: u64) -> Result<ProcessName> {
    ProcessName::new(format!("engine-{epoch}")).map_err(unplanned)
}

fn hermes_path(name: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{HERMES_DIR}/{name}")).map_err(unplanned)
}

fn unplanned(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::StartFailed, "plan", error.to_string()).with_source(error)
}

/// Hermes' configuration: the agent's keys, what it is here unless the agent says otherwise, and what it always is.
/// Nothing in it is secret.
fn config(context: &EngineStartupContext) -> Value {
    let mut config = Value::Object(block(&context.agent.engine_options, "config"));
    let model = &context.model;
    let chosen = json!({
        // A picture is shown to the model itself, not told to it in words by another request.
        "agent": {"image_input_mode": "native"},
        "model": {"supports_vision": true},
        // It installs language servers.
        "lsp": {"enabled": false},
        // What looks like a key is a placeholder, and is there to be used.
        "security": {"redact_secrets": false},
    });
    let owned = json!({
        "model": {
            "provider": "custom",
            "default": model.model_name,
            "base_url": format!("{}/v1", model.base_url),
            "api_key": format!("${{{KEY_VARIABLE}}}"),
            "api_mode": "chat_completions",
        },
        "terminal": {"backend": "local"},
        // Requests of its own to the model, and work after the end of a turn.
        "auxiliary": {"title_generation": {"enabled": false}},
        "memory": {"nudge_interval": 0},
        "skills": {"creation_nudge_interval": 0},
        "curator": {"enabled": false},
        // Requests to hosts that nobody allowed.
        "model_catalog": {"enabled": false},
        "security": {"allow_lazy_installs": false, "tirith_enabled": false},
    });
    merge(&mut config, chosen, false);
    merge(&mut config, owned, true);
    config
}

/// Adds keys to an object and the objects in it; those that are there stay unless `over`.
fn merge(into: &mut Value, from: Value, over: bool) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(there) => merge(there, value, over),
                    None => drop(into.insert(key, value)),
                }
            }
        }
        (into, from) if over => *into = from,
        _ => {}
    }
}

fn spawn_spec(context: &EngineStartupContext) -> Result<SpawnSpec> {
    let argv = [
        PYTHON.to_owned(),
        // Nothing of the working directory and of the user's own packages is loaded, and nothing is compiled.
        "-P".to_owned(),
        "-s".to_owned(),
        "-B".to_owned(),
        hermes_path("host/host.py")?.as_str().to_owned(),
        format!("{IMAGE_ROOT}/{PACKAGES}"),
        hermes_path("host/settings.json")?.as_str().to_owned(),
    ];
    Ok(SpawnSpec {
        name: process_name(context.epoch)?,
        argv: argv.to_vec(),
        env: environment(&context.env, &context.model_placeholder),
        cwd: BoxPath::new(WORKSPACE).map_err(unplanned)?,
        stdin: Stdio::Piped,
        wall_limit: None,
    })
}

fn environment(base: &BTreeMap<String, String>, placeholder: &str) -> BTreeMap<String, String> {
    let mut env = base.clone();
    let mut set = |name: &str, value: &str| env.insert(name.to_owned(), value.to_owned());
    set("HERMES_HOME", &format!("{HOME}/{HERMES_DIR}"));
    set(KEY_VARIABLE, placeholder);
    // Never downloads packages or its command scanner.
    set("HERMES_DISABLE_LAZY_INSTALLS", "1");
    set("TIRITH_ENABLED", "false");
    // Tools that run at once are given up after 420 s; one of them may wait for a person. 0 is no limit, and each tool
    // has one of its own.
    set("HERMES_CONCURRENT_TOOL_TIMEOUT_S", "0");
    env
}

fn settings(context: &EngineStartupContext) -> Result<Settings> {
    let agent = &context.agent;
    let mode = context.permission_mode.as_deref();
    let mode = mode
        .or(agent.permission_mode.as_deref())
        .unwrap_or(DEFAULT_MODE);
    demand_mode(mode)?;
    Ok(Settings {
        cwd: WORKSPACE.to_owned(),
        mcp_servers: agent.mcp_servers.clone(),
        mcp_headers: context.mcp_headers.iter().map(Into::into).collect(),
        // The host gives them to the program.
        instructions: String::new(),
        mode: Some(mode.to_owned()),
        ..Settings::default()
    })
}
