//! Adapters that do nothing, and an App made of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use astrabox_client::{Client, Endpoint};
use astrabox_config::{Config, Host};
use astrabox_engine::model::ModelWire;
use astrabox_engine::{
    EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, ImageRecipe,
    NativeStateSpec, PrepareContext, RecipeCheck, RecordFormat, SandboxRequest,
    SandboxRequestContext, StartupMaterialRequest, StateFiles,
};
use astrabox_identity::{Actor, Evidence, IdentityProvider, IdentityProviderFactory};
use astrabox_model::{
    ModelEndpointProvider, ModelProviderFactory, ModelRequest, ResolvedModelAccess,
};
use astrabox_platform::Images;
use astrabox_sandbox::{
    Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, Error, ErrorKind, Posture, Probe,
    ProviderContext, Result, Sandbox, SandboxInfo, SandboxProvider, SandboxProviderFactory,
    Snapshot,
};
use astrabox_server::{App, AppBuilder, EgressMode, Registries, RunningApp};
use astrabox_types::{
    AssignmentId, PermissionLevel, SandboxId, Secret, SessionKind, Timestamp, VolumeId,
};
use async_trait::async_trait;

/// The token that the identity double takes.
pub(crate) const TOKEN: &str = "the-good-token";

/// Takes [`TOKEN`]; users of a unix socket only with `{"users": true}`; tokens not with `{"tokens": false}`.
struct Identity {
    users: bool,
    tokens: bool,
}

#[async_trait]
impl IdentityProviderFactory for Identity {
    const NAME: &'static str = "local";
    const SUMMARY: &'static str = "A double.";

    async fn build(
        config: serde_json::Value,
    ) -> std::result::Result<Arc<dyn IdentityProvider>, astrabox_identity::Error> {
        if config.get("broken").is_some() {
            let kind = astrabox_identity::ErrorKind::Invalid;
            return Err(astrabox_identity::Error::new(
                kind,
                "configure",
                "`broken` is set",
            ));
        }
        let flag = |name: &str, default| {
            config
                .get(name)
                .map_or(default, |value| value == &serde_json::json!(true))
        };
        Ok(Arc::new(Self {
            users: flag("users", false),
            tokens: flag("tokens", true),
        }))
    }
}

#[async_trait]
impl IdentityProvider for Identity {
    async fn identify(
        &self,
        evidence: &Evidence,
    ) -> std::result::Result<Actor, astrabox_identity::Error> {
        match (&evidence.bearer, evidence.peer_uid) {
            (Some(token), _) if self.tokens && token == TOKEN => Actor::new("token:good"),
            (None, Some(uid)) if self.users => Actor::new(format!("uid:{uid}")),
            _ => Err(astrabox_identity::Error::new(
                astrabox_identity::ErrorKind::Missing,
                "identify",
                "nobody",
            )),
        }
    }

    fn accepts_tokens(&self) -> bool {
        self.tokens
    }
}

struct Model;

#[async_trait]
impl ModelProviderFactory for Model {
    const NAME: &'static str = "direct";
    const SUMMARY: &'static str = "A double.";

    async fn build(
        _: serde_json::Value,
    ) -> std::result::Result<Arc<dyn ModelEndpointProvider>, astrabox_model::Error> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl ModelEndpointProvider for Model {
    async fn resolve(
        &self,
        _: &ModelRequest,
    ) -> std::result::Result<ResolvedModelAccess, astrabox_model::Error> {
        Err(astrabox_model::Error::new(
            astrabox_model::ErrorKind::NotConfigured,
            "resolve",
            "a double",
        ))
    }

    fn gateway(&self) -> Option<String> {
        None
    }

    fn credential(&self) -> Option<astrabox_model::CredentialRef> {
        None
    }

    async fn list(
        &self,
        _: Option<&Secret>,
    ) -> std::result::Result<astrabox_model::ModelList, astrabox_model::Error> {
        Ok(astrabox_model::ModelList::default())
    }

    fn issues_credentials(&self) -> bool {
        false
    }

    async fn issue(
        &self,
        _: &astrabox_model::IssueRequest,
        _: Option<&Secret>,
    ) -> std::result::Result<Option<astrabox_model::IssuedCredential>, astrabox_model::Error> {
        Ok(None)
    }

    async fn revoke(
        &self,
        _: &str,
        _: Option<&Secret>,
    ) -> std::result::Result<(), astrabox_model::Error> {
        Err(astrabox_model::Error::new(
            astrabox_model::ErrorKind::Unsupported,
            "revoke",
            "a double",
        ))
    }
}

/// Has no sandbox and makes none.
struct Sandboxes;

#[async_trait]
impl SandboxProviderFactory for Sandboxes {
    const NAME: &'static str = "local";
    const SUMMARY: &'static str = "A double.";

    async fn build(_: serde_json::Value, _: ProviderContext) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(Self))
    }
}

fn refuse<T>(operation: &'static str) -> Result<T> {
    Err(Error::new(
        ErrorKind::NotFound,
        operation,
        "a double has no sandbox",
    ))
}

#[async_trait]
impl SandboxProvider for Sandboxes {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            permission_levels: vec![PermissionLevel::Default],
            ..Capabilities::default()
        }
    }

    async fn find_sandbox_by_assignment(&self, _: &AssignmentId) -> Result<Option<SandboxId>> {
        Ok(None)
    }

    async fn create_sandbox(&self, _: CreateSpec) -> Result<Sandbox> {
        refuse("create_sandbox")
    }

    async fn connect(&self, _: SandboxId) -> Result<Sandbox> {
        refuse("connect")
    }

    async fn probe(&self, _: SandboxId) -> Probe {
        Probe::NotFound
    }

    async fn pause(&self, _: SandboxId) -> Result<()> {
        refuse("pause")
    }

    async fn resume(&self, _: SandboxId) -> Result<()> {
        refuse("resume")
    }

    async fn snapshot(&self, _: SandboxId) -> Result<Snapshot> {
        refuse("snapshot")
    }

    async fn renew(&self, _: SandboxId, _: Timestamp) -> Result<()> {
        refuse("renew")
    }

    async fn update_egress(&self, _: SandboxId, _: astrabox_egress::EgressPolicy) -> Result<()> {
        refuse("update_egress")
    }

    async fn destroy(&self, _: SandboxId) -> Result<()> {
        Ok(())
    }

    async fn confirm_destroyed(&self, _: SandboxId) -> Result<DestroyProof> {
        Ok(DestroyProof::Gone)
    }

    async fn claim_of(&self, _: SandboxId) -> Result<Option<Claim>> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        Ok(Vec::new())
    }

    async fn describe(&self, _: SandboxId) -> Result<SandboxInfo> {
        refuse("describe")
    }

    async fn diagnostics(&self, _: SandboxId) -> Result<Diagnostics> {
        refuse("diagnostics")
    }

    async fn security_posture(&self, _: SandboxId) -> Result<Posture> {
        refuse("security_posture")
    }

    async fn delete_volume(&self, _: VolumeId) -> Result<()> {
        Ok(())
    }
}

/// Has an image and never starts: what a session does before its engine is all that these tests need.
struct Engine;

#[async_trait]
impl EngineAdapter for Engine {
    fn kind(&self) -> &'static str {
        "double"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Double",
            program_version: "1",
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::OpenaiResponses,
            input_content_types: &["text"],
            permission_modes: &[],
            default_permission_mode: None,
            option_blocks: &[],
            steering: false,
            features: &[],
            names_program: false,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        ImageRecipe {
            version: "1",
            architectures: &[],
            commands: &[],
            npm: None,
            python: None,
            copies: &[],
            check: RecipeCheck {
                program: "x",
                arguments: &[],
                expect: "",
            },
            licence: "none",
        }
    }

    fn sandbox_request(
        &self,
        _: &SandboxRequestContext,
    ) -> astrabox_engine::Result<SandboxRequest> {
        Ok(SandboxRequest {
            needs_callback: false,
            model_wire: ModelWire::OpenaiResponses,
            model_paths: Vec::new(),
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        let native_state = NativeStateSpec {
            directory: "x",
            files: &[StateFiles {
                suffix: "x",
                format: RecordFormat::Opaque,
            }],
            named_by_key: false,
        };
        StartupMaterialRequest {
            native_state,
            secrets: Vec::new(),
        }
    }

    async fn prepare(&self, _: &PrepareContext) -> astrabox_engine::Result<()> {
        Ok(())
    }

    async fn activate(
        &self,
        _: EngineStartupContext,
    ) -> astrabox_engine::Result<Box<dyn EngineClient>> {
        Err(astrabox_engine::Error::new(
            astrabox_engine::ErrorKind::StartFailed,
            "activate",
            "a double does not start",
        ))
    }
}

/// Every image is built.
struct AllImages;

impl Images for AllImages {
    fn name_for(&self, engine: &'static str) -> String {
        format!("{engine}:1-0")
    }

    fn find(&self, _: &str) -> Option<PathBuf> {
        Some(PathBuf::from("/"))
    }

    fn build_command(&self, engine: &'static str) -> String {
        format!("build {engine}")
    }
}

/// The doubles.
pub(crate) fn registries() -> Registries {
    Registries::empty()
        .with_identity(astrabox_identity::Registration::new::<Identity>("doubles"))
        .and_then(|all| all.with_model(astrabox_model::Registration::new::<Model>("doubles")))
        .and_then(|all| {
            all.with_sandbox(astrabox_sandbox::Registration::new::<Sandboxes>("doubles"))
        })
        .and_then(|all| {
            all.with_engine(astrabox_engine::Registration::new(
                "double",
                "A double.",
                "doubles",
                &Engine,
            ))
        })
        .expect("the names differ")
}

/// A configuration below one folder, that users of the socket may call.
pub(crate) fn config(folder: &Path) -> Config {
    let mut config = Config::below(folder, &Host::default());
    config.images.cache_dir = folder.join("images");
    config
        .identity
        .providers
        .entry("local".to_owned())
        .or_default()
        .set("users", true);
    config
}

/// An App of doubles with this configuration.
pub(crate) fn app(config: Config) -> AppBuilder {
    App::builder(config)
        .registries(registries())
        .egress(EgressMode::Embedded)
        .images(Arc::new(AllImages))
}

/// A folder, and an App that serves in it.
pub(crate) async fn serve() -> (tempfile::TempDir, RunningApp) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start(config(folder.path())).await.expect("it starts");
    (folder, running)
}

pub(crate) async fn start(
    config: Config,
) -> std::result::Result<RunningApp, astrabox_server::Error> {
    app(config).build()?.spawn().await
}

pub(crate) async fn connect(running: &RunningApp) -> Client {
    let socket = running.socket().expect("it has one");
    Client::connect(Endpoint::unix(socket))
        .await
        .expect("it serves")
}
