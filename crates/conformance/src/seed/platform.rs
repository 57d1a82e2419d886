//! A platform that implements every member of `EnginePlatform` and records what it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, HostPattern, MintKey, Placeholder,
    Places,
};
use astrabox_model::{CredentialKind, ModelRequest, ResolvedModelAccess};
use astrabox_sandbox::{Sandbox, SandboxProvider};
use astrabox_secrets::Secret;
use astrabox_startup::{
    DeploymentSettings, EnginePlatform, McpCredential, Refusal, RuntimeIdentity, StartupAllocation,
    StartupError, StartupRequest, WorkspacePlan,
};
use astrabox_types::{EnvironmentSpec, ErrorReason, SandboxId, VolumeId};
use async_trait::async_trait;

use super::{Boundary, BoundaryLog};

/// The secret of the sandbox backend, which comes back with the request for the backend.
const BACKEND_SECRET: &[u8] = b"secret of the sandbox backend";
/// A host that only a credential allows.
pub(super) const CREDENTIAL_HOST: &str = "git.conformance.test";

/// Implements every member. Members that a start asks for before the provider boundary give plain answers; members
/// behind it are refused, because nothing may come there.
pub struct SpecPlatform {
    settings: DeploymentSettings,
    providers: Vec<String>,
    volume: VolumeId,
    log: BoundaryLog,
}

impl SpecPlatform {
    /// A platform with these settings, and a boundary around each of these providers.
    #[must_use]
    pub fn new(settings: DeploymentSettings, providers: Vec<String>) -> Self {
        Self {
            settings,
            providers,
            volume: VolumeId::new(),
            log: BoundaryLog::default(),
        }
    }

    /// What it was asked.
    #[must_use]
    pub fn log(&self) -> &BoundaryLog {
        &self.log
    }

    /// The volume that it prepares.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    fn beyond(&self, member: &str) -> Refusal {
        self.log.record(member);
        let text = format!("`{member}` is behind the provider boundary");
        Refusal::new(ErrorReason::Internal, text)
    }
}

#[async_trait]
impl EnginePlatform for SpecPlatform {
    async fn deployment_settings(&self) -> Result<DeploymentSettings, Refusal> {
        self.log.record("deployment_settings");
        Ok(self.settings.clone())
    }

    async fn resolve_model_access(
        &self,
        _request: &StartupRequest,
        request: &ModelRequest,
    ) -> Result<ResolvedModelAccess, StartupError> {
        self.log.record("resolve_model_access");
        let base_url = self.settings.model_gateway.clone().unwrap_or_default();
        Ok(ResolvedModelAccess {
            base_url,
            model_name: request.model.clone(),
            credential: None,
            credential_kind: CredentialKind::Bearer,
            endpoint_provider: "spec".to_owned(),
        })
    }

    async fn resolve_sandbox_backend_secret(
        &self,
        _environment: &EnvironmentSpec,
    ) -> Result<Option<Secret>, Refusal> {
        self.log.record("resolve_sandbox_backend_secret");
        Ok(Some(Secret::new(BACKEND_SECRET.to_vec())))
    }

    async fn resolve_session_egress_credentials(
        &self,
        _request: &StartupRequest,
    ) -> Result<CredentialPlan, StartupError> {
        self.log.record("resolve_session_egress_credentials");
        let host: HostPattern = CREDENTIAL_HOST.parse().map_err(|_| {
            Refusal::new(ErrorReason::Internal, "the host of the credential is odd")
        })?;
        Ok(CredentialPlan {
            http_basic: vec![CredentialGrant {
                credential_id: "vcrd-spec".to_owned(),
                handle: format!("https://{CREDENTIAL_HOST}/spec"),
                placeholder: Placeholder::mint(&MintKey::new([0; 32]), "sbx-spec", "vcrd-spec"),
                hosts: vec![host],
                anywhere: false,
                methods: Vec::new(),
                paths: Vec::new(),
                places: Places {
                    header: HeaderPlace::Basic {
                        username: "spec".to_owned(),
                    },
                    body: BodyPlace::Refuse,
                    websocket: false,
                },
                cleartext: false,
            }],
            ..CredentialPlan::default()
        })
    }

    async fn resolve_session_mcp_credentials(
        &self,
        _request: &StartupRequest,
    ) -> Result<Vec<McpCredential>, StartupError> {
        self.log.record("resolve_session_mcp_credentials");
        Ok(Vec::new())
    }

    async fn record_startup_allocation(
        &self,
        _request: &StartupRequest,
        _allocation: &StartupAllocation,
    ) -> Result<(), Refusal> {
        Err(self.beyond("record_startup_allocation"))
    }

    async fn record_attached_runtime_identity(
        &self,
        _request: &StartupRequest,
        _identity: &RuntimeIdentity,
    ) -> Result<(), Refusal> {
        Err(self.beyond("record_attached_runtime_identity"))
    }

    async fn connect_sandbox_only(
        &self,
        _request: &StartupRequest,
        _sandbox: SandboxId,
    ) -> Result<Sandbox, StartupError> {
        Err(self.beyond("connect_sandbox_only").into())
    }

    async fn clone_default_repo(
        &self,
        _request: &StartupRequest,
        _sandbox: &Sandbox,
        _env: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        Err(self.beyond("clone_default_repo"))
    }

    async fn mount_assistant_workspace_storage(
        &self,
        _request: &StartupRequest,
        _sandbox: &Sandbox,
    ) -> Result<(), Refusal> {
        Err(self.beyond("mount_assistant_workspace_storage"))
    }

    async fn prepare_workspace_storage(
        &self,
        _request: &StartupRequest,
    ) -> Result<WorkspacePlan, Refusal> {
        self.log.record("prepare_workspace_storage");
        Ok(WorkspacePlan {
            volume_id: self.volume,
        })
    }

    async fn resolve_runtime_sandbox_backend(
        &self,
        environment: &EnvironmentSpec,
        secret: Option<Secret>,
    ) -> Result<Arc<dyn SandboxProvider>, Refusal> {
        let known = secret.is_some_and(|secret| secret.expose() == BACKEND_SECRET);
        self.log.record(if known {
            "resolve_runtime_sandbox_backend"
        } else {
            "resolve_runtime_sandbox_backend without its secret"
        });
        let name = &environment.sandbox;
        if !self.providers.contains(name) {
            let text = format!("no sandbox provider is called `{name}`");
            return Err(Refusal::new(ErrorReason::SandboxProviderUnknown, text));
        }
        Ok(Arc::new(Boundary::around(name, self.log.clone())))
    }
}
