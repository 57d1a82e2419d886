//! The contract between the startup line and the platform that runs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_egress::CredentialPlan;
use astrabox_model::{ModelRequest, ResolvedModelAccess};
use astrabox_sandbox::{Sandbox, SandboxProvider};
use astrabox_secrets::Secret;
use astrabox_types::{EnvironmentSpec, SandboxId, VolumeId};
use async_trait::async_trait;

use crate::{Refusal, StartupError, StartupRequest};

/// What the startup line asks of a platform: exactly these twelve members, none with a body.
///
/// A test compares this list with the pinned one, so a change here is a change of the seed contract.
#[async_trait]
pub trait EnginePlatform: Send + Sync {
    /// The deployment's settings.
    async fn deployment_settings(&self) -> Result<DeploymentSettings, Refusal>;

    /// Where the session's model is.
    async fn resolve_model_access(
        &self,
        request: &StartupRequest,
        wanted: &ModelRequest,
    ) -> Result<ResolvedModelAccess, StartupError>;

    /// The secret with which the sandbox backend is spoken to, if it needs one.
    async fn resolve_sandbox_backend_secret(
        &self,
        environment: &EnvironmentSpec,
    ) -> Result<Option<Secret>, Refusal>;

    /// The credentials that requests of this session may carry out of the sandbox. When it returns, the boundary has
    /// their values for this start's sandbox.
    async fn resolve_session_egress_credentials(
        &self,
        request: &StartupRequest,
    ) -> Result<CredentialPlan, StartupError>;

    /// The credentials of the session's MCP servers.
    async fn resolve_session_mcp_credentials(
        &self,
        request: &StartupRequest,
    ) -> Result<Vec<McpCredential>, StartupError>;

    /// Makes durable which sandbox carries the assignment, before anything runs in it.
    async fn record_startup_allocation(
        &self,
        request: &StartupRequest,
        allocation: &StartupAllocation,
    ) -> Result<(), Refusal>;

    /// Makes durable which native conversation runs where.
    async fn record_attached_runtime_identity(
        &self,
        request: &StartupRequest,
        identity: &RuntimeIdentity,
    ) -> Result<(), Refusal>;

    /// Reaches the session's running sandbox; makes none.
    async fn connect_sandbox_only(
        &self,
        request: &StartupRequest,
        sandbox: SandboxId,
    ) -> Result<Sandbox, StartupError>;

    /// Puts the agent's repository into an empty workspace, if it has one. `env` is what processes of this sandbox
    /// begin with.
    async fn clone_default_repo(
        &self,
        request: &StartupRequest,
        sandbox: &Sandbox,
        env: &BTreeMap<String, String>,
    ) -> Result<(), Refusal>;

    /// Puts an assistant's lasting workspace into the sandbox.
    async fn mount_assistant_workspace_storage(
        &self,
        request: &StartupRequest,
        sandbox: &Sandbox,
    ) -> Result<(), Refusal>;

    /// Readies the session's workspace and names its volume.
    async fn prepare_workspace_storage(
        &self,
        request: &StartupRequest,
    ) -> Result<WorkspacePlan, Refusal>;

    /// The provider that makes this environment's sandboxes.
    async fn resolve_runtime_sandbox_backend(
        &self,
        environment: &EnvironmentSpec,
        secret: Option<Secret>,
    ) -> Result<Arc<dyn SandboxProvider>, Refusal>;
}

/// The deployment's settings, as far as a start needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeploymentSettings {
    /// Where programs in sandboxes can call the platform.
    pub callback_address: Option<String>,
    /// The root of a configured model endpoint; a deployment without one starts no engine.
    pub model_gateway: Option<String>,
    /// The certificate, as PEM, of the authority that signs for the hosts at which credentials are put in.
    pub authority: Option<String>,
}

/// Which sandbox carries an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupAllocation {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Whether this start made it.
    pub created: bool,
}

/// Which native conversation runs where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeIdentity {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The conversation, by its native key.
    pub native_key: String,
    /// The program's name and version, as it told.
    pub program: Option<String>,
}

/// The header with which one MCP server is spoken to.
pub use astrabox_engine::McpHeader as McpCredential;

/// The session's workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacePlan {
    /// Its volume.
    pub volume_id: VolumeId,
}
