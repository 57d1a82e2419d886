//! How a provider makes itself known.

use std::path::PathBuf;
use std::sync::Arc;

use astrabox_registry::Registration as _;
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

type Build = fn(
    serde_json::Value,
    ProviderContext,
) -> futures::future::BoxFuture<'static, Result<Arc<dyn SandboxProvider>>>;

/// One linked sandbox provider.
#[derive(Clone, Copy)]
pub struct Registration {
    name: &'static str,
    summary: &'static str,
    origin: &'static str,
    build: Build,
}

impl Registration {
    /// Registers `F`; `origin` is `env!("CARGO_PKG_NAME")`.
    #[must_use]
    pub const fn new<F: SandboxProviderFactory + 'static>(origin: &'static str) -> Self {
        Self {
            name: F::NAME,
            summary: F::SUMMARY,
            origin,
            build: |config, context| F::build(config, context),
        }
    }

    /// Builds the provider.
    ///
    /// # Errors
    /// When the configuration is wrong or the host cannot carry the provider.
    pub async fn build(
        &self,
        config: serde_json::Value,
        context: ProviderContext,
    ) -> Result<Arc<dyn SandboxProvider>> {
        (self.build)(config, context).await
    }
}

impl astrabox_registry::Registration for Registration {
    const SEAM: &'static str = "sandbox provider";
    fn name(&self) -> &'static str {
        self.name
    }
    fn summary(&self) -> &'static str {
        self.summary
    }
    fn origin(&self) -> &'static str {
        self.origin
    }
}

astrabox_registry::inventory::collect!(Registration);

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("name", &self.name())
            .field("origin", &self.origin())
            .finish()
    }
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
