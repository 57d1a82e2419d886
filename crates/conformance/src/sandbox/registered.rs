//! The fixture of a provider that is known by its registration only.

use std::path::PathBuf;
use std::sync::Arc;

use astrabox_registry::Registration as _;
use astrabox_sandbox::{
    EgressGate, Error, ErrorKind, ProviderContext, Registration, Result, SandboxProvider,
};
use async_trait::async_trait;
use tempfile::TempDir;

use super::{HostView, ProviderFixture};

/// Builds a registered provider with state in a temporary directory, as a server on this host would.
pub struct RegisteredProvider {
    registration: Registration,
    config: serde_json::Value,
    directory: TempDir,
    on_this_host: bool,
}

impl RegisteredProvider {
    /// The provider with this configuration block. `on_this_host` says that its sandboxes are processes of this Linux
    /// host, so that the suite looks from outside as well.
    ///
    /// # Errors
    /// When no temporary directory can be made.
    pub fn new(
        registration: Registration,
        config: serde_json::Value,
        on_this_host: bool,
    ) -> std::io::Result<Self> {
        // Sockets go below it, and their paths are short.
        let directory = tempfile::Builder::new().prefix("abx").tempdir()?;
        Ok(Self {
            registration,
            config,
            directory,
            on_this_host,
        })
    }

    fn make(&self, path: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(&path).map_err(|error| {
            let text = "no directory for the provider";
            Error::new(ErrorKind::Internal, "prepare", text).with_source(error)
        })?;
        Ok(path)
    }
}

#[async_trait]
impl ProviderFixture for RegisteredProvider {
    fn name(&self) -> String {
        self.registration.name().to_owned()
    }

    async fn provider(
        &self,
        root: &str,
        gate: Arc<dyn EgressGate>,
    ) -> Result<Arc<dyn SandboxProvider>> {
        let context = ProviderContext {
            state_dir: self.make(&format!("{root}/s"))?,
            run_dir: self.make(&format!("{root}/r"))?,
            cache_dir: self.make("c")?,
            root_id: root.to_owned(),
            gate,
        };
        self.registration.build(self.config.clone(), context).await
    }

    fn host(&self) -> Option<HostView> {
        self.on_this_host.then(|| HostView {
            directories: vec![self.directory.path().to_owned()],
        })
    }
}
