//! What a platform is put together from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::Registration as EngineRegistration;
use astrabox_identity::IdentityProvider;
use astrabox_model::ModelEndpointProvider;
use astrabox_oauth::TokenClient;
use astrabox_registry::Registry;
use astrabox_sandbox::{EgressCredentials, SandboxProvider};
use astrabox_secrets::SecretStore;
use astrabox_store::Store;
use astrabox_types::ResourceLimits;

/// Everything that the platform works with; nothing is looked up anywhere else.
pub struct PlatformParts {
    /// The engines.
    pub engines: Registry<EngineRegistration>,
    /// The sandbox providers, built, by name.
    pub sandboxes: BTreeMap<&'static str, Arc<dyn SandboxProvider>>,
    /// The model endpoint providers, built, by name.
    pub models: BTreeMap<&'static str, Arc<dyn ModelEndpointProvider>>,
    /// The secret store, if there is one.
    pub secrets: Option<Arc<dyn SecretStore>>,
    /// Where credentials are put into requests; without it no session has any.
    pub boundary: Option<Arc<dyn EgressCredentials>>,
    /// Who callers are.
    pub identity: Arc<dyn IdentityProvider>,
    /// Where images are.
    pub images: Arc<dyn Images>,
    /// The durable state.
    pub store: Store,
    /// Settings.
    pub settings: PlatformSettings,
}

/// Finds images that are built on this host.
pub trait Images: Send + Sync + 'static {
    /// The name of an engine's own image.
    fn name_for(&self, engine: &'static str) -> String;
    /// Where the image of this name is; `None` when it is not built.
    fn find(&self, name: &str) -> Option<PathBuf>;
    /// The command that builds it, for people.
    fn build_command(&self, engine: &'static str) -> String;
}

/// The platform's settings.
#[derive(Debug, Clone)]
pub struct PlatformSettings {
    /// The sandbox provider of environments that name none.
    pub default_sandbox: String,
    /// The model provider of environments that name none.
    pub default_model: String,
    /// Limits of environments that give none.
    pub default_limits: ResourceLimits,
    /// Where programs in sandboxes can call back.
    pub callback_address: Option<String>,
    /// How long an engine may take until its conversation is bound.
    pub start_timeout: Duration,
    /// How long a turn may be silent before it is failed as `engine_stalled`.
    pub stall_timeout: Duration,
    /// How long an interrupt may take at each step: the program's own way, a signal, a kill.
    pub interrupt_timeout: Duration,
    /// How long a session may be idle before its sandbox is released.
    pub idle_timeout: Duration,
    /// How long an interaction may wait for an answer.
    pub interaction_timeout: Duration,
    /// How many inputs may wait in one session.
    pub max_queued_inputs: usize,
    /// How the token endpoints of OAuth credentials are reached; by default public ones only, over TLS.
    pub token_client: TokenClient,
}

impl Default for PlatformSettings {
    fn default() -> Self {
        Self {
            default_sandbox: "local".to_owned(),
            default_model: "direct".to_owned(),
            default_limits: ResourceLimits::default(),
            callback_address: None,
            start_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(600),
            interrupt_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(1800),
            interaction_timeout: Duration::from_secs(24 * 3600),
            max_queued_inputs: 100,
            token_client: TokenClient::default(),
        }
    }
}
