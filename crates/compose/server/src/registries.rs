//! The adapters that an App may use.

use astrabox_registry::{DuplicateName, Registry};

/// The adapters that an App may use, by seam. Which of them it builds, the configuration says.
#[derive(Debug, Clone)]
pub struct Registries {
    /// Engines.
    pub engines: Registry<astrabox_engine::Registration>,
    /// Sandbox providers.
    pub sandboxes: Registry<astrabox_sandbox::Registration>,
    /// Model endpoint providers.
    pub models: Registry<astrabox_model::Registration>,
    /// Identity providers.
    pub identities: Registry<astrabox_identity::Registration>,
    /// Secret stores.
    pub secrets: Registry<astrabox_secrets::Registration>,
}

impl Registries {
    /// Nothing: the explicit path, for embedders and tests.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            engines: Registry::empty(),
            sandboxes: Registry::empty(),
            models: Registry::empty(),
            identities: Registry::empty(),
            secrets: Registry::empty(),
        }
    }

    /// Everything that is linked into this program.
    ///
    /// # Errors
    /// When two adapters of one seam have the same name.
    pub fn linked() -> Result<Self, DuplicateName> {
        Ok(Self {
            engines: Registry::linked()?,
            sandboxes: Registry::linked()?,
            models: Registry::linked()?,
            identities: Registry::linked()?,
            secrets: Registry::linked()?,
        })
    }

    /// Adds an engine.
    ///
    /// # Errors
    /// When its kind is taken.
    pub fn with_engine(
        mut self,
        engine: astrabox_engine::Registration,
    ) -> Result<Self, DuplicateName> {
        self.engines = self.engines.with(engine)?;
        Ok(self)
    }

    /// Adds a sandbox provider.
    ///
    /// # Errors
    /// When its name is taken.
    pub fn with_sandbox(
        mut self,
        provider: astrabox_sandbox::Registration,
    ) -> Result<Self, DuplicateName> {
        self.sandboxes = self.sandboxes.with(provider)?;
        Ok(self)
    }

    /// Adds a model endpoint provider.
    ///
    /// # Errors
    /// When its name is taken.
    pub fn with_model(
        mut self,
        provider: astrabox_model::Registration,
    ) -> Result<Self, DuplicateName> {
        self.models = self.models.with(provider)?;
        Ok(self)
    }

    /// Adds an identity provider.
    ///
    /// # Errors
    /// When its name is taken.
    pub fn with_identity(
        mut self,
        provider: astrabox_identity::Registration,
    ) -> Result<Self, DuplicateName> {
        self.identities = self.identities.with(provider)?;
        Ok(self)
    }

    /// Adds a secret store.
    ///
    /// # Errors
    /// When its name is taken.
    pub fn with_secrets(
        mut self,
        store: astrabox_secrets::Registration,
    ) -> Result<Self, DuplicateName> {
        self.secrets = self.secrets.with(store)?;
        Ok(self)
    }
}
