//! The startup line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::{
    BindRequest, Conversation, EngineAdapter, EngineClient, EngineStartupContext, SandboxRequest,
    SandboxRequestContext,
};
use astrabox_model::ModelRequest;
use astrabox_sandbox::{CreateSpec, ImageRef, Sandbox, SandboxProvider};
use astrabox_types::{AgentSpec, AssignmentId, EnvironmentSpec, SandboxId, SessionId, SessionKind};

use crate::env::{base_environment, credential_environment};
use crate::native_state::{self, NativeFile};
use crate::trust;
use crate::{
    DeploymentSettings, EnginePlatform, RuntimeIdentity, StartupAllocation, StartupError,
    egress_policy,
};

/// What the program shows a model endpoint that wants no key: programs do not start without any.
const NO_MODEL_KEY: &str = "this-model-endpoint-needs-no-key";

/// A start that is wanted.
#[derive(Debug, Clone)]
pub struct StartupRequest {
    /// The session.
    pub session_id: SessionId,
    /// What it is for.
    pub session_kind: SessionKind,
    /// The decision to start, made durable before this call.
    pub assignment_id: AssignmentId,
    /// The id that a new sandbox gets.
    pub new_sandbox_id: SandboxId,
    /// Counts the activations of this session.
    pub epoch: u64,
    /// The agent.
    pub agent: AgentSpec,
    /// The environment.
    pub environment: EnvironmentSpec,
    /// The image, found by the platform.
    pub image: Option<ImageRef>,
    /// The permission mode, by native name.
    pub permission_mode: Option<String>,
    /// The conversation.
    pub conversation: Conversation,
    /// The running sandbox, when the program in it is only to be reached again.
    pub attach_to: Option<SandboxId>,
    /// The saved native state, for a resume.
    pub native_state: Vec<NativeFile>,
    /// How long the program may take until the conversation is bound.
    pub bind_within: Duration,
}

/// A running engine.
pub struct StartedRuntime {
    /// The provider of its sandbox.
    pub provider: Arc<dyn SandboxProvider>,
    /// Its sandbox.
    pub sandbox: Sandbox,
    /// The bound conversation.
    pub client: Box<dyn EngineClient>,
    /// Its native key.
    pub native_key: String,
    /// Files of its native state whose torn tails were cut, as `<path below home> (<n> bytes)`.
    pub cut_state: Vec<String>,
}

/// Brings a session to a running engine with a bound conversation.
///
/// After `record_startup_allocation` the platform owns the sandbox, also when this call fails.
///
/// # Errors
/// The first refusal on the line, unchanged.
pub async fn start_platform_runtime<P: EnginePlatform + ?Sized>(
    platform: &P,
    adapter: &dyn EngineAdapter,
    request: &StartupRequest,
) -> Result<StartedRuntime, StartupError> {
    let settings = platform.deployment_settings().await?;
    let needs = check(adapter, request, &settings)?;
    let wanted = ModelRequest {
        model: request.agent.model.clone(),
        wire: needs.model_wire,
    };
    let model = platform.resolve_model_access(request, &wanted).await?;
    let secret = platform
        .resolve_sandbox_backend_secret(&request.environment)
        .await?;
    let provider = platform
        .resolve_runtime_sandbox_backend(&request.environment, secret)
        .await?;
    let credentials = platform.resolve_session_egress_credentials(request).await?;
    let mcp = platform.resolve_session_mcp_credentials(request).await?;
    let workspace = platform.prepare_workspace_storage(request).await?;

    let sandbox = if let Some(running) = request.attach_to {
        platform.connect_sandbox_only(request, running).await?
    } else {
        let egress = egress_policy(
            &request.environment.networking,
            &model,
            &request.agent.mcp_servers,
        )?;
        let spec = CreateSpec {
            sandbox_id: request.new_sandbox_id,
            session_id: request.session_id,
            assignment_id: request.assignment_id.clone(),
            volume_id: workspace.volume_id,
            image: request.image.clone(),
            limits: request.environment.limits,
            permission_level: request.environment.permission_level,
            egress,
            labels: BTreeMap::new(),
        };
        allocate(platform, provider.as_ref(), request, spec).await?
    };

    let mut env = base_environment();
    env.extend(credential_environment(&credentials));
    // Also without credentials: one may come while the session lives.
    if let Some(authority) = settings.authority.filter(|_| request.attach_to.is_none()) {
        let trust = trust::install(sandbox.workload.as_ref(), &authority).await?;
        env.extend(trust.variables());
    }
    if request.attach_to.is_none() {
        platform.clone_default_repo(request, &sandbox, &env).await?;
    }
    let material = adapter.startup_material_request();
    let mut cut_state = Vec::new();
    if let Conversation::Resume { native_key } = &request.conversation {
        let workload = sandbox.workload.as_ref();
        cut_state = native_state::restore(
            workload,
            &material.native_state,
            request.environment.program.as_ref(),
            native_key,
            &request.native_state,
        )
        .await?;
    }
    let context = EngineStartupContext {
        session_id: request.session_id,
        epoch: request.epoch,
        session_kind: request.session_kind,
        agent: request.agent.clone(),
        program: request.environment.program.clone(),
        permission_mode: request.permission_mode.clone(),
        permission_level: request.environment.permission_level,
        model,
        model_placeholder: match credentials.model.first() {
            Some(grant) => grant.placeholder.to_string(),
            None => NO_MODEL_KEY.to_owned(),
        },
        mcp_headers: mcp,
        workload: Arc::clone(&sandbox.workload),
        env,
        conversation: request.conversation.clone(),
    };
    let (client, native_key) = activate(adapter, request, context).await?;
    let program = client.server_info().and_then(|info| info.program());
    let identity = RuntimeIdentity {
        sandbox_id: sandbox.id,
        native_key: native_key.clone(),
        program,
    };
    platform
        .record_attached_runtime_identity(request, &identity)
        .await?;
    Ok(StartedRuntime {
        provider,
        sandbox,
        client,
        native_key,
        cut_state,
    })
}

/// Refuses what cannot come about, before anything is made.
fn check(
    adapter: &dyn EngineAdapter,
    request: &StartupRequest,
    settings: &DeploymentSettings,
) -> Result<SandboxRequest, StartupError> {
    let engine = adapter.kind();
    if !adapter
        .capabilities()
        .session_kinds
        .contains(&request.session_kind)
    {
        return Err(StartupError::SessionKind {
            engine,
            kind: request.session_kind.as_str(),
        });
    }
    let context = SandboxRequestContext {
        session_kind: request.session_kind,
        permission_level: request.environment.permission_level,
        program: request.environment.program.clone(),
    };
    let needs = adapter.sandbox_request(&context)?;
    if needs.needs_callback && settings.callback_address.is_none() {
        return Err(StartupError::NeedsCallback { engine });
    }
    if settings.model_gateway.is_none() {
        return Err(StartupError::NoModelGateway);
    }
    Ok(needs)
}

/// Finds the sandbox that an earlier, interrupted start made, or makes one.
async fn allocate<P: EnginePlatform + ?Sized>(
    platform: &P,
    provider: &dyn SandboxProvider,
    request: &StartupRequest,
    spec: CreateSpec,
) -> Result<Sandbox, StartupError> {
    let found = provider
        .find_sandbox_by_assignment(&request.assignment_id)
        .await?;
    let (sandbox, created) = match found {
        Some(id) => (provider.connect(id).await?, false),
        None => (provider.create_sandbox(spec).await?, true),
    };
    let allocation = StartupAllocation {
        sandbox_id: sandbox.id,
        created,
    };
    platform
        .record_startup_allocation(request, &allocation)
        .await?;
    if request.session_kind == SessionKind::AssistantChat {
        platform
            .mount_assistant_workspace_storage(request, &sandbox)
            .await?;
    }
    Ok(sandbox)
}

async fn activate(
    adapter: &dyn EngineAdapter,
    request: &StartupRequest,
    context: EngineStartupContext,
) -> Result<(Box<dyn EngineClient>, String), StartupError> {
    let expected = match &request.conversation {
        Conversation::New => None,
        Conversation::Resume { native_key } | Conversation::Attach { native_key, .. } => {
            Some(native_key.clone())
        }
    };
    let client = adapter.activate(context).await?;
    match client
        .bind_conversation(BindRequest {
            expected,
            within: request.bind_within,
        })
        .await
    {
        Ok(bound) => Ok((client, bound.native_key)),
        Err(error) => {
            // EN3: no process is left behind; the bind error is the one to tell.
            if let Err(close) = client.close(Duration::from_secs(2)).await {
                tracing::warn!(session = %request.session_id, error = %close, "closing an unbound engine failed");
            }
            Err(error.into())
        }
    }
}
