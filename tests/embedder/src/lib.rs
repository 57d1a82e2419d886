//! A server of somebody else: it takes the adapters that it wants, by hand, and starts an App in its own process.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use astrabox_config::{Block, Config, Host};
use astrabox_server::{App, EgressMode, Registries, RunningApp};
use serde_json::json;

/// The adapters of this server. What is linked besides does not matter.
///
/// # Errors
/// When two have one name.
pub fn registries() -> Result<Registries> {
    Ok(Registries::empty()
        .with_engine(astrabox_engine_codex::REGISTRATION)?
        .with_sandbox(astrabox_sandbox_local::REGISTRATION)?
        .with_model(astrabox_model_direct::REGISTRATION)?
        .with_identity(astrabox_identity_local::REGISTRATION)?)
}

/// Starts a server with everything below `folder`, whose sandboxes reach the model at `model`.
///
/// # Errors
/// When it does not start.
pub async fn start(folder: &Path, model: SocketAddr) -> Result<RunningApp> {
    let name = format!("model.test:{}", model.port());
    let mut config = Config::below(folder, &Host::of_process());
    let mut direct = Block::default();
    direct.set("base_url", format!("http://{name}"));
    config.model.providers.insert("direct".into(), direct);
    config
        .egress
        .proxy
        .set("static_hosts", json!({ name: model.to_string() }));
    if let Ok(runner) = std::env::var("ASTRABOX_RUNNER") {
        let mut local = Block::default();
        local.set("runner", runner);
        config.sandbox.providers.insert("local".into(), local);
    }
    let app = App::builder(config)
        .registries(registries()?)
        .egress(EgressMode::Embedded)
        .build()?;
    Ok(app.spawn().await?)
}
