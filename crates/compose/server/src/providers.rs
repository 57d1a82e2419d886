//! Builds the adapters that the configuration names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use astrabox_config::{Block, Config};
use astrabox_identity::IdentityProvider;
use astrabox_model::ModelEndpointProvider;
use astrabox_registry::{Registration, Registry};
use astrabox_sandbox::{EgressGate, ProviderContext, SandboxProvider};
use astrabox_secrets::{SecretStore, StoreContext};

use crate::{Error, Registries, folders};

/// Refuses names that no adapter has, before anything is started.
///
/// # Errors
/// `UnknownAdapter`.
pub(crate) fn check_names(config: &Config, registries: &Registries) -> Result<(), Error> {
    let Config {
        sandbox,
        model,
        identity,
        secrets,
        ..
    } = config;
    known("sandbox.default", &sandbox.default, &registries.sandboxes)?;
    known("model.default", &model.default, &registries.models)?;
    known(
        "identity.provider",
        &identity.provider,
        &registries.identities,
    )?;
    // An embedder may have none: there are vaults then, and no credentials in them.
    if !registries.secrets.is_empty() {
        known("secrets.provider", &secrets.provider, &registries.secrets)?;
    }
    for name in sandbox.providers.keys() {
        known(&format!("sandbox.{name}"), name, &registries.sandboxes)?;
    }
    for name in model.providers.keys() {
        known(&format!("model.{name}"), name, &registries.models)?;
    }
    for name in identity.providers.keys() {
        known(&format!("identity.{name}"), name, &registries.identities)?;
    }
    for name in secrets.providers.keys() {
        known(&format!("secrets.{name}"), name, &registries.secrets)?;
    }
    Ok(())
}

fn known<'a, R: Registration>(
    setting: &str,
    name: &str,
    registry: &'a Registry<R>,
) -> Result<&'a R, Error> {
    registry.get(name).ok_or_else(|| Error::UnknownAdapter {
        setting: setting.to_owned(),
        seam: R::SEAM,
        name: name.to_owned(),
        known: registry.names().collect(),
    })
}

/// The default and every one that has a block: a provider that nobody speaks of is not built, because it may need
/// something that this host does not have.
fn wanted<'a>(default: &'a str, blocks: &'a BTreeMap<String, Block>) -> BTreeSet<&'a str> {
    blocks.keys().map(String::as_str).chain([default]).collect()
}

fn block(blocks: &BTreeMap<String, Block>, name: &str) -> serde_json::Value {
    blocks.get(name).cloned().unwrap_or_default().value()
}

pub(crate) async fn identity(
    config: &Config,
    registries: &Registries,
) -> Result<Arc<dyn IdentityProvider>, Error> {
    let name = &config.identity.provider;
    let registration = known("identity.provider", name, &registries.identities)?;
    let built = registration
        .build(block(&config.identity.providers, name))
        .await;
    built.map_err(|error| Error::adapter(format!("identity.{name}"), error))
}

/// The secret store that the configuration names; none when none is linked.
pub(crate) async fn secrets(
    config: &Config,
    registries: &Registries,
) -> Result<Option<Arc<dyn SecretStore>>, Error> {
    if registries.secrets.is_empty() {
        return Ok(None);
    }
    let name = &config.secrets.provider;
    let setting = format!("secrets.{name}");
    let registration = known("secrets.provider", name, &registries.secrets)?;
    let context = StoreContext {
        state_dir: config.state_dir.join("secrets").join(name),
    };
    folders::private("state_dir", &context.state_dir)?;
    let built = registration
        .build(block(&config.secrets.providers, name), context)
        .await;
    built
        .map(Some)
        .map_err(|error| Error::adapter(setting, error))
}

pub(crate) async fn models(
    config: &Config,
    registries: &Registries,
) -> Result<BTreeMap<&'static str, Arc<dyn ModelEndpointProvider>>, Error> {
    let mut built = BTreeMap::new();
    for name in wanted(&config.model.default, &config.model.providers) {
        let setting = format!("model.{name}");
        let registration = known(&setting, name, &registries.models)?;
        let provider = registration
            .build(block(&config.model.providers, name))
            .await;
        built.insert(
            registration.name(),
            provider.map_err(|error| Error::adapter(setting, error))?,
        );
    }
    Ok(built)
}

pub(crate) async fn sandboxes(
    config: &Config,
    registries: &Registries,
    gate: &Arc<dyn EgressGate>,
) -> Result<BTreeMap<&'static str, Arc<dyn SandboxProvider>>, Error> {
    let mut built = BTreeMap::new();
    for name in wanted(&config.sandbox.default, &config.sandbox.providers) {
        let setting = format!("sandbox.{name}");
        let registration = known(&setting, name, &registries.sandboxes)?;
        let context = ProviderContext {
            state_dir: config.state_dir.join("sandbox").join(name),
            // No longer than it must be: sockets are below it.
            run_dir: config.run_dir.join(name),
            cache_dir: config.cache_dir.join("sandbox").join(name),
            root_id: config.root_id(),
            gate: Arc::clone(gate),
        };
        folders::private("state_dir", &context.state_dir)?;
        folders::private("run_dir", &context.run_dir)?;
        folders::private("cache_dir", &context.cache_dir)?;
        let provider = registration
            .build(block(&config.sandbox.providers, name), context)
            .await;
        built.insert(
            registration.name(),
            provider.map_err(|error| Error::adapter(setting, error))?,
        );
    }
    Ok(built)
}
