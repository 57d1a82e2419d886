//! What an activation does, as data: the process, and what its conversation is opened with.

use std::collections::BTreeMap;

use astrabox_acp_protocol::{Header, Settings};
use astrabox_engine::model::ModelWire;
use astrabox_engine::sandbox::{BoxPath, HOME, ProcessName, SpawnSpec, Stdio, WORKSPACE};
use astrabox_engine::{EngineStartupContext, Error, ErrorKind, ModelPath, Result};
use astrabox_types::ProgramSpec;

use crate::options::{block, wishes};
use crate::template;

/// Everything of an activation that starts a process.
pub(crate) struct Plan {
    pub(crate) spawn: SpawnSpec,
    pub(crate) settings: Settings,
}

impl Plan {
    /// Plans the start of the environment's program.
    ///
    /// # Errors
    /// `InvalidConfiguration` for a program that cannot be started so.
    pub(crate) fn of(context: &EngineStartupContext) -> Result<Self> {
        let program = demand(context.program.as_ref())?;
        let values = BTreeMap::from([
            ("model.base_url", context.model.base_url.clone()),
            ("model.key", context.model_placeholder.clone()),
            ("model.name", context.model.model_name.clone()),
            ("home", HOME.to_owned()),
            ("workspace", WORKSPACE.to_owned()),
        ]);
        let arguments = program.arguments.iter();
        let arguments = arguments.map(|text| template::fill(text, &values));
        let command = std::iter::once(Ok(program.command.clone()));
        let mut env = context.env.clone();
        // Programs made with node trust an authority of ours by this variable alone, and Codex by that.
        if let Some(file) = env.get("SSL_CERT_FILE").cloned() {
            for name in ["NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE"] {
                env.entry(name.to_owned()).or_insert_with(|| file.clone());
            }
        }
        for (name, text) in &program.env {
            env.insert(name.clone(), template::fill(text, &values)?);
        }
        let agent = &context.agent;
        let mode = context.permission_mode.as_ref();
        Ok(Self {
            spawn: SpawnSpec {
                name: process_name(context.epoch)?,
                argv: command.chain(arguments).collect::<Result<_>>()?,
                env,
                cwd: BoxPath::new(WORKSPACE).map_err(unplanned)?,
                stdin: Stdio::Piped,
                wall_limit: None,
            },
            settings: Settings {
                cwd: WORKSPACE.to_owned(),
                mcp_servers: agent.mcp_servers.clone(),
                mcp_headers: context.mcp_headers.iter().map(Header::from).collect(),
                instructions: agent.system.clone(),
                mode: mode.or(agent.permission_mode.as_ref()).cloned(),
                wishes: wishes(&agent.engine_options)?,
                serve: Some(context.env.clone()),
                meta: block(&agent.engine_options, "session"),
            },
        })
    }
}

/// The name of the process of an activation.
pub(crate) fn process_name(epoch: u64) -> Result<ProcessName> {
    ProcessName::new(format!("engine-{epoch}")).map_err(unplanned)
}

fn unplanned(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::StartFailed, "plan", error.to_string()).with_source(error)
}

fn demand(program: Option<&ProgramSpec>) -> Result<&ProgramSpec> {
    program.ok_or_else(|| {
        let text = "the environment names no program; give its `program` a command";
        Error::new(ErrorKind::InvalidConfiguration, "plan", text)
    })
}

/// The wire that the environment's program speaks to models, and the calls that such programs make. What cannot be
/// filled in is refused here, before anything is made.
///
/// # Errors
/// `InvalidConfiguration`, naming what there is.
pub(crate) fn model_use(program: Option<&ProgramSpec>) -> Result<(ModelWire, Vec<ModelPath>)> {
    let program = demand(program)?;
    let values = template::NAMES.map(|name| (name, String::new()));
    let values = BTreeMap::from(values);
    for text in program.arguments.iter().chain(program.env.values()) {
        template::fill(text, &values)?;
    }
    let named = |wire: &ModelWire| wire.as_str() == program.model_wire;
    let Some(wire) = ModelWire::ALL.into_iter().find(named) else {
        let known = ModelWire::ALL.map(ModelWire::as_str).join(", ");
        let text = format!(
            "`program.model_wire` is `{}`; there are: {known}",
            program.model_wire
        );
        return Err(Error::new(ErrorKind::InvalidConfiguration, "plan", text));
    };
    let post = |path| ModelPath {
        method: "POST",
        path,
    };
    let list = ModelPath {
        method: "GET",
        path: "/v1/models",
    };
    let paths = match wire {
        ModelWire::AnthropicMessages => vec![
            post("/v1/messages"),
            post("/v1/messages/count_tokens"),
            list,
        ],
        ModelWire::OpenaiResponses => vec![post("/v1/responses"), list],
        ModelWire::OpenaiChat => vec![post("/v1/chat/completions"), list],
    };
    Ok((wire, paths))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
