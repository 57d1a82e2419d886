//! What an activation does, as data: files, process, and what opens a conversation.

use std::collections::{BTreeMap, VecDeque};

use astrabox_acp_protocol::{Header, Settings, Wish};
use astrabox_engine::sandbox::{
    BoxPath, HOME, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE,
};
use astrabox_engine::{EngineStartupContext, Error, ErrorKind, Result};
use astrabox_types::{McpServer, McpTransport};
use serde_json::{Map, Value};

use crate::options::{DEFAULT_MODE, Mode, block, demand_mode};
use crate::patch::{KEY_VARIABLE, patch};
use crate::recipe::PROGRAM;

/// The program's own directory, below the home directory.
pub(crate) const CONFIG_DIR: &str = ".dsh";
/// Where its sessions are, below the home directory.
pub(crate) const SESSIONS: &str = ".dsh/sessions";
/// The file of a session, in a folder of its id.
pub(crate) const SESSION_FILE: &str = "session.v4.jsonl";
/// The folder of the sessions of `/workspace`.
const PROJECT: &str = "--workspace--";
/// Where the patch and the plugin beside it are, below the program's directory.
const HOST: &str = "astrabox";
/// Finds a command on the search path. The program takes commands of MCP servers by absolute paths only.
const ENV: &str = "/usr/bin/env";

/// A file to write before the program starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedFile {
    pub(crate) path: BoxPath,
    pub(crate) content: Vec<u8>,
}

/// Everything of an activation that starts a process.
#[derive(Debug)]
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
    /// `InvalidConfiguration` for a permission mode that there is not, or an option block that cannot be read.
    pub(crate) fn of(context: &EngineStartupContext) -> Result<Self> {
        let mode = mode(context)?;
        let host = |name: &str| config_path(&format!("{HOST}/{name}"));
        let patch_path = host("host.patch.yml")?;
        let mut files = vec![
            PlannedFile {
                path: host("host.mjs")?,
                content: include_bytes!("host/host.mjs").to_vec(),
            },
            PlannedFile {
                path: patch_path.clone(),
                content: patch(context, mode)?.to_string().into_bytes(),
            },
        ];
        let mut env = environment(context)?;
        if let Some(script) = withheld(&env) {
            let path = host("env.sh")?;
            env.insert("BASH_ENV".to_owned(), path.as_str().to_owned());
            files.push(PlannedFile {
                path,
                content: script.into_bytes(),
            });
        }
        let mut removed = Vec::new();
        for skill in &context.agent.skills {
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
        let argv = [
            &format!("{IMAGE_ROOT}/{PROGRAM}"),
            "--profile",
            "acp",
            "--patch",
            patch_path.as_str(),
        ];
        Ok(Self {
            removed,
            files,
            spawn: SpawnSpec {
                name: process_name(context.epoch)?,
                argv: argv.map(str::to_owned).to_vec(),
                env,
                cwd: BoxPath::new(WORKSPACE).map_err(unplanned)?,
                stdin: Stdio::Piped,
                wall_limit: None,
            },
            settings: settings(context, mode),
        })
    }
}

fn mode(context: &EngineStartupContext) -> Result<&'static Mode> {
    let mode = context.permission_mode.as_deref();
    let mode = mode.or(context.agent.permission_mode.as_deref());
    demand_mode(mode.unwrap_or(DEFAULT_MODE))
}

fn settings(context: &EngineStartupContext, mode: &Mode) -> Settings {
    let agent = &context.agent;
    let options = block(&agent.engine_options, "session");
    let wishes = options
        .into_iter()
        .map(|(id, value)| Wish::Option { id, value });
    Settings {
        cwd: WORKSPACE.to_owned(),
        mcp_servers: agent.mcp_servers.iter().map(found_by_path).collect(),
        mcp_headers: context.mcp_headers.iter().map(Header::from).collect(),
        // They are in the patch: the program takes none over ACP.
        instructions: String::new(),
        mode: Some(mode.name().to_owned()),
        wishes: wishes.collect::<VecDeque<_>>(),
        // It reads and writes files and runs commands itself.
        serve: None,
        meta: Map::new(),
    }
}

/// An MCP server whose command is an absolute path.
fn found_by_path(server: &McpServer) -> McpServer {
    let mut server = server.clone();
    if let McpTransport::Stdio { command, args, .. } = &mut server.transport
        && !command.starts_with('/')
    {
        args.insert(0, std::mem::replace(command, ENV.to_owned()));
    }
    server
}

/// The name of the process of an activation.
pub(crate) fn process_name(epoch: u64) -> Result<ProcessName> {
    ProcessName::new(format!("engine-{epoch}")).map_err(unplanned)
}

/// Where the log of a session is.
pub(crate) fn session_log(key: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{SESSIONS}/{PROJECT}/{key}/{SESSION_FILE}")).map_err(unplanned)
}

fn config_path(name: &str) -> Result<BoxPath> {
    BoxPath::new(format!("{HOME}/{CONFIG_DIR}/{name}")).map_err(unplanned)
}

fn unplanned(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::StartFailed, "plan", error.to_string()).with_source(error)
}

fn environment(context: &EngineStartupContext) -> Result<BTreeMap<String, String>> {
    let mut env = context.env.clone();
    // Variables of another program of this kind change what this one does.
    env.retain(|name, _| !name.starts_with("DSH_") && !name.starts_with("DEEPSEEK_"));
    for (name, value) in block(&context.agent.engine_options, "env") {
        let Value::String(value) = value else {
            let text = format!("`env.{name}` must be a text");
            return Err(Error::new(ErrorKind::InvalidConfiguration, "plan", text));
        };
        env.insert(name, value);
    }
    for (name, value) in [
        ("DSH_HOME", format!("{HOME}/{CONFIG_DIR}")),
        ("DSH_TELEMETRY_DISABLED", "1".to_owned()),
        (KEY_VARIABLE, key(&context.model_placeholder)),
    ] {
        env.insert(name.to_owned(), value);
    }
    // The program trusts an authority of ours by this variable alone.
    if let Some(file) = env.get("SSL_CERT_FILE").cloned() {
        env.entry("NODE_EXTRA_CA_CERTS".to_owned()).or_insert(file);
    }
    Ok(env)
}

/// What gives commands the variables that the program withholds from them: it passes none on whose name looks like a
/// secret's. What stands in them here are placeholders, and commands are what they are for.
///
/// Every shell for a command reads this, also one that a command starts, so what is set already stays.
fn withheld(env: &BTreeMap<String, String>) -> Option<String> {
    let secret = |name: &str| {
        let name = name.to_uppercase();
        let words = ["KEY", "PASSWORD", "SECRET", "TOKEN"];
        words.iter().any(|word| name.contains(word))
    };
    let plain = |name: &str| {
        let rest = |c: char| c == '_' || c.is_ascii_alphanumeric();
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(rest)
    };
    let lines = env
        .iter()
        .filter(|(name, _)| *name != KEY_VARIABLE && secret(name) && plain(name))
        .map(|(name, value)| {
            let value = value.replace('\'', r"'\''");
            format!("[ -n \"${{{name}+x}}\" ] || export {name}='{value}'\n")
        });
    Some(lines.collect::<String>()).filter(|script| !script.is_empty())
}

/// The program asks no model without a key, also where the endpoint wants none.
fn key(placeholder: &str) -> String {
    if placeholder.is_empty() {
        "none".to_owned()
    } else {
        placeholder.to_owned()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
