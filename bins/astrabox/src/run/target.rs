//! The agent of a run that names none: made once for the same options, then found again.

use std::collections::HashMap;
use std::fmt::Write as _;

use astrabox_client::{Client, Code, v1};
use sha2::{Digest as _, Sha256};

use super::NewAgent;
use super::key::Key;
use crate::args::Global;
use crate::connect::config;
use crate::environment::Fields;
use crate::exit::Failure;
use crate::out::note;

/// The label by which agents of `astrabox run` are found again; its value is a digest of what they say.
const LABEL: &str = "astrabox-run";

/// The agent's id.
pub(super) async fn agent(
    global: &Global,
    client: &Client,
    new: &NewAgent,
) -> anyhow::Result<String> {
    let found = match &new.environment {
        Some(environment) => {
            let request = v1::GetEnvironmentRequest {
                environment: environment.clone(),
            };
            let found = client.get_environment(request).await?.environment;
            found.unwrap_or_default()
        }
        None => environment(client, new).await?,
    };
    let (environment, engine) = (found.id, found.spec.unwrap_or_default().engine);
    let model = model(global, new)?;
    let system = new.system.clone().unwrap_or_default();
    let key = match new.no_model_key {
        true => None,
        false => Key::of(&engine, |name| std::env::var(name).ok())?,
    };
    let vault = match &key {
        Some(key) => {
            let vault = key.keep(client).await?;
            note(&key.told(&vault));
            vec![vault]
        }
        None => Vec::new(),
    };
    let digest = digest(&[&environment, &model, &system, &vault.concat()]);
    for agent in client.all_agents(false).await? {
        let spec = agent.spec.unwrap_or_default();
        // Somebody may have changed it since.
        let same = spec.environment == environment
            && spec.model == model
            && spec.system == system
            && spec.vault_ids == vault;
        if same && spec.metadata.get(LABEL) == Some(&digest) {
            return Ok(agent.id);
        }
    }
    let spec = v1::AgentSpec {
        name: format!("run {model}"),
        description: "made by `astrabox run`".to_owned(),
        environment,
        model,
        system,
        vault_ids: vault,
        metadata: HashMap::from([(LABEL.to_owned(), digest)]),
        ..Default::default()
    };
    let request = v1::CreateAgentRequest {
        spec: Some(spec),
        ..Default::default()
    };
    Ok(client
        .create_agent(request)
        .await?
        .agent
        .unwrap_or_default()
        .id)
}

/// The environment.
async fn environment(client: &Client, new: &NewAgent) -> anyhow::Result<v1::Environment> {
    let engine = match &new.engine {
        Some(engine) => engine.clone(),
        None => only_engine(client).await?,
    };
    let given = Fields::of_network(new.network.clone()).given();
    let name = environment_name(&engine, &given.spec);
    let named = v1::GetEnvironmentRequest {
        environment: name.clone(),
    };
    match client.get_environment(named.clone()).await {
        Ok(found) => return Ok(found.environment.unwrap_or_default()),
        Err(error) if error.code == Code::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let spec = v1::EnvironmentSpec {
        name,
        engine,
        description: "made by `astrabox run`".to_owned(),
        ..given.spec
    };
    let request = v1::CreateEnvironmentRequest {
        spec: Some(spec),
        ..Default::default()
    };
    match client.create_environment(request).await {
        Ok(made) => Ok(made.environment.unwrap_or_default()),
        // Another run with the same options was quicker.
        Err(error) if error.code == Code::AlreadyExists => {
            let found = client.get_environment(named).await?;
            Ok(found.environment.unwrap_or_default())
        }
        Err(error) => Err(error.into()),
    }
}

/// The same options give the same name: `run-codex`, with a digest where something is not the default.
fn environment_name(engine: &str, spec: &v1::EnvironmentSpec) -> String {
    let plain: String = engine
        .chars()
        .map(|c| if c == '_' { '-' } else { c })
        .take(40)
        .collect();
    if *spec == v1::EnvironmentSpec::default() {
        return format!("run-{plain}");
    }
    let hosts = match spec
        .networking
        .as_ref()
        .and_then(|networking| networking.r#type.as_ref())
    {
        Some(v1::networking::Type::Limited(limited)) => {
            let mcp = if limited.allow_mcp_servers {
                " +mcp"
            } else {
                ""
            };
            limited.allowed_hosts.join(" ") + mcp
        }
        Some(v1::networking::Type::Unrestricted(_)) => "*".to_owned(),
        None => String::new(),
    };
    format!(
        "run-{plain}-{}",
        &digest(&[&hosts, spec.permission_level().as_str_name()])[..8]
    )
}

async fn only_engine(client: &Client) -> anyhow::Result<String> {
    let engines = client
        .list_engines(v1::ListEnginesRequest {})
        .await?
        .engines;
    match engines.as_slice() {
        [only] => Ok(only.kind.clone()),
        [] => Err(Failure::usage("the server has no engine")),
        several => {
            let kinds: Vec<_> = several.iter().map(|engine| engine.kind.as_str()).collect();
            Err(Failure::usage(format!(
                "say which engine with --engine: {}",
                kinds.join(", ")
            )))
        }
    }
}

/// The model that is given, or the configured default of the default provider.
fn model(global: &Global, new: &NewAgent) -> anyhow::Result<String> {
    if let Some(model) = &new.model {
        return Ok(model.clone());
    }
    let config = config(global)?;
    let block = config
        .model
        .providers
        .get(&config.model.default)
        .map(astrabox_config::Block::value);
    let default = block
        .as_ref()
        .and_then(|block| block.get("default_model")?.as_str());
    default.map(ToOwned::to_owned).ok_or_else(|| {
        Failure::usage(format!(
            "say which model with --model, or set model.{}.default_model",
            config.model.default
        ))
    })
}

fn digest(parts: &[&str]) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize()
        .iter()
        .take(16)
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Level, Network};

    fn name(network: Network) -> String {
        environment_name("claude_code", &Fields::of_network(network).given().spec)
    }

    #[test]
    fn the_same_options_name_the_same_environment() {
        assert_eq!(name(Network::default()), "run-claude-code");
        let hosts = |hosts: &[&str]| Network {
            allow_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..Network::default()
        };
        assert_eq!(name(hosts(&["a.test"])), name(hosts(&["a.test"])));
        let open = Network {
            unrestricted: true,
            ..Network::default()
        };
        let advanced = Network {
            permission_level: Some(Level::Advanced),
            ..Network::default()
        };
        let all = [
            Network::default(),
            hosts(&["a.test"]),
            hosts(&["b.test"]),
            open,
            advanced,
        ]
        .map(name);
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(
            all.iter()
                .all(|name| name.len() <= 64 && name.bytes().all(plain)),
            "{all:?}"
        );
    }
}
