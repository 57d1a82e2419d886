//! An App: checked, not yet started.

use std::fs::File;
use std::sync::Arc;

use astrabox_config::Config;
use astrabox_grpc::{Listener, Server, ServerSettings};
use astrabox_identity::IdentityProvider;
use astrabox_images::ImageStore;
use astrabox_platform::{Images, Platform, PlatformParts, PlatformSettings};
use astrabox_sandbox::{EgressCredentials, EgressGate};
use astrabox_secrets::SecretStore;
use astrabox_store::Store;

use crate::egress::{self, Egress};
use crate::images::BuiltImages;
use crate::listeners::{self, Addresses};
use crate::running::RunningApp;
use crate::{EgressMode, Error, Registries, folders, providers};

/// A server that is put together and not yet started.
pub struct App {
    config: Config,
    registries: Registries,
    listeners: Vec<Listener>,
    egress: EgressMode,
    images: Option<Arc<dyn Images>>,
    secrets: Option<Arc<dyn SecretStore>>,
}

/// Puts an App together.
pub struct AppBuilder(App);

impl App {
    /// Begins with a configuration and no adapters.
    #[must_use]
    pub fn builder(config: Config) -> AppBuilder {
        AppBuilder(Self {
            config,
            registries: Registries::empty(),
            listeners: Vec::new(),
            egress: EgressMode::default(),
            images: None,
            secrets: None,
        })
    }

    /// Builds what can be built without starting anything, as `--check-config` does: the adapters that need no folder
    /// and no process read their blocks.
    ///
    /// # Errors
    /// When a block is refused, or TCP is asked for without tokens.
    pub async fn check(&self) -> Result<(), Error> {
        self.identity().await?;
        providers::models(&self.config, &self.registries).await?;
        Ok(())
    }

    async fn identity(&self) -> Result<Arc<dyn IdentityProvider>, Error> {
        let identity = providers::identity(&self.config, &self.registries).await?;
        if self.wants_tcp() && !identity.accepts_tokens() {
            return Err(Error::TcpWithoutTokens {
                provider: self.config.identity.provider.clone(),
            });
        }
        Ok(identity)
    }

    /// Starts it: takes its folders, reaches its egress role, adopts what runs, and serves.
    ///
    /// # Errors
    /// When something that it needs is not there; nothing of it is left running then, but for sandboxes of an earlier
    /// run, which go on.
    pub async fn spawn(self) -> Result<RunningApp, Error> {
        let locks = take_folders(&self.config)?;
        let identity = self.identity().await?;
        let models = providers::models(&self.config, &self.registries).await?;
        let images = self.images().await?;
        let secrets = self.secrets().await?;
        let Self {
            config,
            registries,
            listeners,
            egress,
            ..
        } = self;
        let (listeners, addresses) = bind(&config, listeners).await?;
        let egress = Egress::start(&config, egress).await?;
        let gate: Arc<dyn EgressGate> = Arc::clone(&egress.gate) as Arc<dyn EgressGate>;
        let boundary: Arc<dyn EgressCredentials> = Arc::clone(&egress.gate) as Arc<_>;
        let started = async {
            let sandboxes = providers::sandboxes(&config, &registries, &gate).await?;
            let store = open_store(&config).await?;
            let settings = platform_settings(&config)?;
            let engines = registries.engines;
            let store_handle = store.clone();
            let parts = PlatformParts {
                engines,
                sandboxes,
                models,
                secrets,
                boundary: Some(boundary),
                identity,
                images,
                store,
                settings,
            };
            match Platform::start(parts).await {
                Ok(platform) => Ok((platform, store_handle)),
                Err(error) => {
                    store_handle.close().await;
                    Err(Error::Platform(error))
                }
            }
        };
        let (platform, store) = match started.await {
            Ok(started) => started,
            Err(error) => {
                egress.leave().await;
                return Err(error);
            }
        };
        let server = Server::new(platform.clone(), ServerSettings::default()).spawn(listeners);
        tracing::info!(
            socket = addresses
                .socket
                .as_ref()
                .map(|socket| socket.path().display().to_string()),
            tcp = addresses.tcp.map(|tcp| tcp.to_string()),
            "serving"
        );
        let drain_timeout = config.server.drain_timeout;
        Ok(RunningApp {
            server,
            platform,
            store,
            egress,
            addresses,
            locks,
            drain_timeout,
        })
    }

    fn wants_tcp(&self) -> bool {
        let given = self
            .listeners
            .iter()
            .any(|listener| matches!(listener, Listener::Tcp(_)));
        given || (self.listeners.is_empty() && self.config.server.tcp.is_some())
    }

    async fn secrets(&self) -> Result<Option<Arc<dyn SecretStore>>, Error> {
        match &self.secrets {
            Some(given) => Ok(Some(Arc::clone(given))),
            None => providers::secrets(&self.config, &self.registries).await,
        }
    }

    async fn images(&self) -> Result<Arc<dyn Images>, Error> {
        if let Some(images) = &self.images {
            return Ok(Arc::clone(images));
        }
        let opened = ImageStore::open(&self.config.images.cache_dir).await;
        let store = opened.map_err(|error| Error::adapter("images.cache_dir", error))?;
        Ok(Arc::new(BuiltImages {
            store,
            engines: self.registries.engines.clone(),
        }))
    }
}

impl AppBuilder {
    /// The adapters that it may use.
    #[must_use]
    pub fn registries(mut self, registries: Registries) -> Self {
        self.0.registries = registries;
        self
    }

    /// A listener in place of those that the configuration names; may be called again.
    #[must_use]
    pub fn listener(mut self, listener: Listener) -> Self {
        self.0.listeners.push(listener);
        self
    }

    /// Where the egress role runs.
    #[must_use]
    pub fn egress(mut self, mode: EgressMode) -> Self {
        self.0.egress = mode;
        self
    }

    /// Where images are, in place of the cache.
    #[must_use]
    pub fn images(mut self, images: Arc<dyn Images>) -> Self {
        self.0.images = Some(images);
        self
    }

    /// A store of secrets, in place of the one that the configuration names.
    #[must_use]
    pub fn secrets(mut self, secrets: Arc<dyn SecretStore>) -> Self {
        self.0.secrets = Some(secrets);
        self
    }

    /// Checks what can be checked before anything is started.
    ///
    /// # Errors
    /// A configuration that cannot be meant, or an adapter that is not there.
    pub fn build(self) -> Result<App, Error> {
        self.0.config.check()?;
        egress::settings(&self.0.config)?;
        providers::check_names(&self.0.config, &self.0.registries)?;
        Ok(self.0)
    }
}

fn take_folders(config: &Config) -> Result<Vec<File>, Error> {
    folders::private("state_dir", &config.state_dir)?;
    folders::private("run_dir", &config.run_dir)?;
    folders::private("cache_dir", &config.cache_dir)?;
    Ok(vec![
        folders::lock("state_dir", &config.state_dir)?,
        folders::lock("run_dir", &config.run_dir)?,
    ])
}

async fn bind(config: &Config, given: Vec<Listener>) -> Result<(Vec<Listener>, Addresses), Error> {
    if given.is_empty() {
        return listeners::bind(config).await;
    }
    let addresses = listeners::given(&given);
    Ok((given, addresses))
}

async fn open_store(config: &Config) -> Result<Store, Error> {
    let path = config.store_path();
    if let Some(folder) = path.parent() {
        folders::private("the folder of store.path", folder)?;
    }
    let opened = Store::open(&path).await;
    let store = opened.map_err(|error| Error::Store(Box::new(error)))?;
    #[cfg(feature = "fault-points")]
    let store = crate::fault::of_environment(store);
    Ok(store)
}

fn platform_settings(config: &Config) -> Result<PlatformSettings, Error> {
    let sessions = &config.sessions;
    Ok(PlatformSettings {
        default_sandbox: config.sandbox.default.clone(),
        default_model: config.model.default.clone(),
        default_limits: config.limits,
        callback_address: config.server.callback_address.clone(),
        start_timeout: sessions.start_timeout,
        stall_timeout: sessions.stall_timeout,
        interrupt_timeout: sessions.interrupt_timeout,
        idle_timeout: sessions.idle_timeout,
        interaction_timeout: sessions.interaction_timeout,
        max_queued_inputs: sessions.max_queued_inputs,
        token_client: egress::token_client(config)?,
    })
}
