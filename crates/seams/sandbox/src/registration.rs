//! How a provider makes itself known.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{EgressGate, Error, ErrorKind, Result, SandboxProvider};

/// What the server gives to a provider when it builds it.
#[derive(Clone)]
pub struct ProviderContext {
    /// A directory of the provider's own, durable, private to the server's user.
    pub state_dir: PathBuf,
    /// A short directory for sockets, private to the server's user, emptied by a reboot.
    pub run_dir: PathBuf,
    /// A directory for what can be made again.
    pub cache_dir: PathBuf,
    /// The sandbox root: what this server owns on a shared host (SB9).
    pub root_id: String,
    /// The egress proxy.
    pub gate: Arc<dyn EgressGate>,
}

/// Builds a provider from its configuration block.
#[async_trait]
pub trait SandboxProviderFactory {
    /// The name in configuration and requests, as `local`.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;

    /// Builds the provider. `config` is its block as JSON; unknown keys are refused, an empty block means defaults.
    async fn build(
        config: serde_json::Value,
        context: ProviderContext,
    ) -> Result<Arc<dyn SandboxProvider>>;
}

astrabox_registry::provider_registration! {
    seam: "sandbox provider",
    factory: SandboxProviderFactory,
    build: (config: serde_json::Value, context: ProviderContext) -> Result<Arc<dyn SandboxProvider>>,
}

/// Reads a provider's configuration block, refusing unknown keys.
///
/// # Errors
/// `Invalid`, naming the key.
pub fn read_config<T: serde::de::DeserializeOwned + Default>(
    config: serde_json::Value,
) -> Result<T> {
    if config.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(config)
        .map_err(|error| Error::new(ErrorKind::Invalid, "configure", error.to_string()))
}
