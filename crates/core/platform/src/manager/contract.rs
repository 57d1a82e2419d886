//! The manager's side of the startup contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_egress::CredentialPlan;
use astrabox_model::{ModelRequest, ResolvedModelAccess};
use astrabox_sandbox::{Sandbox, SandboxProvider};
use astrabox_secrets::Secret;
use astrabox_startup::{
    DeploymentSettings, EnginePlatform, McpCredential, Refusal, RuntimeIdentity, StartupAllocation,
    StartupError, StartupRequest, WorkspacePlan,
};
use astrabox_store::{RuntimePatch, SessionCommit};
use astrabox_types::{EnvironmentSpec, ErrorReason, SandboxId};
use async_trait::async_trait;

use super::{Bearer, Manager, Missing, repository};
use crate::Error;

fn refusal(error: Error) -> Refusal {
    Refusal::new(error.reason(), error.to_string())
}

impl From<Error> for StartupError {
    fn from(error: Error) -> Self {
        refusal(error).into()
    }
}

impl Manager {
    async fn record(&self, request: &StartupRequest, runtime: RuntimePatch) -> Result<(), Refusal> {
        let commit = SessionCommit {
            epoch: request.epoch,
            runtime,
            ..SessionCommit::default()
        };
        match self.store().commit(request.session_id, commit).await {
            Ok(_) => Ok(()),
            Err(error) => Err(refusal(error.into())),
        }
    }
}

#[async_trait]
impl EnginePlatform for Manager {
    async fn deployment_settings(&self) -> Result<DeploymentSettings, Refusal> {
        let gateway = self
            .parts
            .models
            .values()
            .find_map(|provider| provider.gateway());
        let model_gateway = match gateway {
            Some(gateway) => Some(gateway),
            // A model key in a vault brings its endpoint along.
            None => self
                .store()
                .any_model_endpoint()
                .await
                .map_err(|error| refusal(error.into()))?,
        };
        let authority = match &self.parts.boundary {
            Some(boundary) => {
                let authority = boundary.authority().await;
                Some(authority.map_err(|error| refusal(error.into()))?)
            }
            None => None,
        };
        Ok(DeploymentSettings {
            callback_address: self.parts.settings.callback_address.clone(),
            model_gateway,
            authority,
        })
    }

    async fn resolve_model_access(
        &self,
        request: &StartupRequest,
        wanted: &ModelRequest,
    ) -> Result<ResolvedModelAccess, StartupError> {
        self.model_access(&request.agent, &request.environment, wanted)
            .await
    }

    async fn resolve_sandbox_backend_secret(
        &self,
        _environment: &EnvironmentSpec,
    ) -> Result<Option<Secret>, Refusal> {
        // No provider that is linked today speaks to a service that wants one.
        Ok(None)
    }

    async fn resolve_session_egress_credentials(
        &self,
        request: &StartupRequest,
    ) -> Result<CredentialPlan, StartupError> {
        let bearer = Bearer::of(request);
        if request.attach_to.is_none() {
            // The boundary has them before anything runs in the sandbox.
            return self.give_credentials(bearer, Missing::Refuse).await;
        }
        // A program that runs is not given up for a credential: requests with it are refused.
        let given = self.give_credentials(bearer, Missing::LeaveOut).await;
        Ok(given.unwrap_or_else(|error| {
            tracing::warn!(session = %request.session_id, %error, "a running session has no credentials now");
            CredentialPlan::default()
        }))
    }

    async fn resolve_session_mcp_credentials(
        &self,
        request: &StartupRequest,
    ) -> Result<Vec<McpCredential>, StartupError> {
        if request.attach_to.is_some() {
            // Its program has them.
            return Ok(Vec::new());
        }
        self.mcp_headers(Bearer::of(request)).await
    }

    async fn record_startup_allocation(
        &self,
        request: &StartupRequest,
        allocation: &StartupAllocation,
    ) -> Result<(), Refusal> {
        let sandbox_id = Some(Some(allocation.sandbox_id));
        self.record(
            request,
            RuntimePatch {
                sandbox_id,
                ..RuntimePatch::default()
            },
        )
        .await
    }

    async fn record_attached_runtime_identity(
        &self,
        request: &StartupRequest,
        identity: &RuntimeIdentity,
    ) -> Result<(), Refusal> {
        let runtime = RuntimePatch {
            sandbox_id: Some(Some(identity.sandbox_id)),
            native_key: Some(Some(identity.native_key.clone())),
            program: identity.program.clone(),
            ..RuntimePatch::default()
        };
        self.record(request, runtime).await
    }

    async fn connect_sandbox_only(
        &self,
        request: &StartupRequest,
        sandbox: SandboxId,
    ) -> Result<Sandbox, StartupError> {
        let provider = self
            .sandbox_provider(&request.environment.sandbox)
            .map_err(refusal)?;
        Ok(provider.connect(sandbox).await?)
    }

    async fn clone_default_repo(
        &self,
        request: &StartupRequest,
        sandbox: &Sandbox,
        env: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        match &request.agent.repository {
            None => Ok(()),
            Some(wanted) => {
                let workload = sandbox.workload.as_ref();
                repository::clone(workload, wanted, env, request.epoch).await
            }
        }
    }

    async fn mount_assistant_workspace_storage(
        &self,
        _request: &StartupRequest,
        _sandbox: &Sandbox,
    ) -> Result<(), Refusal> {
        Err(Refusal::new(
            ErrorReason::CapabilityUnavailable,
            "assistant sessions need a workspace storage provider and none is linked",
        ))
    }

    async fn prepare_workspace_storage(
        &self,
        request: &StartupRequest,
    ) -> Result<WorkspacePlan, Refusal> {
        match self.store().session(request.session_id).await {
            Ok(row) => Ok(WorkspacePlan {
                volume_id: row.volume_id,
            }),
            Err(error) => Err(refusal(error.into())),
        }
    }

    async fn resolve_runtime_sandbox_backend(
        &self,
        environment: &EnvironmentSpec,
        _secret: Option<Secret>,
    ) -> Result<Arc<dyn SandboxProvider>, Refusal> {
        self.sandbox_provider(&environment.sandbox)
            .cloned()
            .map_err(refusal)
    }
}
