//! The start that reaches the provider boundary, for every engine, kind of session and provider.

use std::collections::BTreeMap;
use std::time::Duration;

use astrabox_egress::EgressPolicy;
use astrabox_engine::{
    Checkpoint, Conversation, EngineAdapter, Registration, SandboxRequestContext,
};
use astrabox_registry::Registration as _;
use astrabox_startup::{
    DeploymentSettings, StartupError, StartupRequest, egress_policy, start_platform_runtime,
};
use astrabox_types::{
    AgentSpec, AssignmentId, EnvironmentId, EnvironmentSpec, Networking, PermissionLevel,
    ResourceLimits, SandboxId, SessionId, SessionKind,
};
use tokio::net::TcpListener;

use super::{Boundary, SpecPlatform};
use crate::case::{check, check_eq};
use crate::sample::sample_program;
use crate::suite::cases;
use crate::{Bench, Case, Checked, Clock, Doing as _, Stop, Suite};

/// What a start asks for before the boundary, in order; the provider's own two calls follow.
const ORDER: [&str; 7] = [
    "deployment_settings",
    "resolve_model_access",
    "resolve_sandbox_backend_secret",
    "resolve_runtime_sandbox_backend",
    "resolve_session_egress_credentials",
    "resolve_session_mcp_credentials",
    "prepare_workspace_storage",
];
/// Where a callback would go; nobody is called.
const CALLBACK: &str = "http://127.0.0.1:9/callback";
/// How long one case may take.
const CASE: Duration = Duration::from_secs(30);

/// One engine, and the providers around which a boundary is drawn.
#[derive(Clone)]
pub struct SeedBench {
    engine: Registration,
    providers: Vec<String>,
}

impl Bench for SeedBench {}

/// The seed contract's cases for one engine, over the providers of these names.
#[must_use]
pub fn suite(engine: Registration, providers: Vec<String>) -> Suite<SeedBench> {
    let name = format!("seed contract, engine {}", engine.name());
    let providers = if providers.is_empty() {
        vec!["spec".to_owned()]
    } else {
        providers
    };
    let bench = SeedBench { engine, providers };
    Suite::new(name, bench, cases(), Clock::Real, CASE)
}

fn cases() -> Vec<Case<SeedBench>> {
    cases![
        every_kind_of_session_reaches_every_provider_boundary [],
        the_boundary_error_comes_back_unchanged [],
        members_are_asked_in_the_pinned_order_and_no_other [],
        the_sandbox_asked_for_is_the_one_of_the_request [],
        without_a_model_gateway_the_start_is_refused [],
        a_needed_callback_without_an_address_is_refused [],
        an_undeclared_kind_of_session_is_refused [],
        an_unknown_provider_is_refused_before_anything_is_made [],
        reaching_a_running_engine_asks_for_its_sandbox_and_makes_none [],
    ]
}

/// A start of this engine with the given provider. The assignment is the pinned one.
#[must_use]
pub fn spec_request(engine: &str, kind: SessionKind, provider: &str) -> StartupRequest {
    StartupRequest {
        session_id: SessionId::new(),
        session_kind: kind,
        assignment_id: AssignmentId::new("assignment-spec-session").expect("it is short and plain"),
        new_sandbox_id: SandboxId::new(),
        epoch: 1,
        agent: AgentSpec {
            name: "spec".to_owned(),
            description: String::new(),
            environment_id: EnvironmentId::new(),
            model: "spec-model".to_owned(),
            system: String::new(),
            engine_options: BTreeMap::new(),
            permission_mode: None,
            repository: None,
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            approval_rules: Vec::new(),
            vault_ids: Vec::new(),
            metadata: BTreeMap::new(),
        },
        environment: EnvironmentSpec {
            name: "spec".to_owned(),
            description: String::new(),
            engine: engine.to_owned(),
            sandbox: provider.to_owned(),
            image: None,
            model_provider: "spec".to_owned(),
            networking: Networking::Limited {
                allowed_hosts: vec!["api.conformance.test".to_owned()],
                allow_mcp_servers: false,
            },
            permission_level: PermissionLevel::default(),
            limits: ResourceLimits::default(),
            program: None,
        },
        image: None,
        permission_mode: None,
        conversation: Conversation::New,
        attach_to: None,
        native_state: Vec::new(),
        bind_within: Duration::from_secs(5),
    }
}

/// One start that ended.
struct Start {
    platform: SpecPlatform,
    request: StartupRequest,
    error: StartupError,
    gateway: String,
}

impl SeedBench {
    fn adapter(&self) -> &'static dyn EngineAdapter {
        self.engine.adapter()
    }

    fn kinds(&self) -> &'static [SessionKind] {
        self.adapter().capabilities().session_kinds
    }

    fn needs_callback(&self, kind: SessionKind) -> Result<bool, Stop> {
        let context = SandboxRequestContext {
            session_kind: kind,
            permission_level: PermissionLevel::default(),
            program: sample_program(&self.adapter().capabilities()),
        };
        let request = self.adapter().sandbox_request(&context);
        Ok(request.doing("sandbox request")?.needs_callback)
    }

    /// Starts with the deployment's default settings, a gateway that listens, and what `change` makes of them.
    async fn start(
        &self,
        kind: SessionKind,
        provider: &str,
        change: impl FnOnce(&mut DeploymentSettings),
    ) -> Result<Start, Stop> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let gateway = format!("http://{}", listener.local_addr()?);
        let mut settings = DeploymentSettings {
            model_gateway: Some(gateway.clone()),
            ..DeploymentSettings::default()
        };
        change(&mut settings);
        let platform = SpecPlatform::new(settings, self.providers.clone());
        self.start_with(
            platform,
            spec_request(self.engine.name(), kind, provider),
            gateway,
        )
        .await
    }

    async fn start_with(
        &self,
        platform: SpecPlatform,
        mut request: StartupRequest,
        gateway: String,
    ) -> Result<Start, Stop> {
        request.environment.program = sample_program(&self.adapter().capabilities());
        match start_platform_runtime(&platform, self.adapter(), &request).await {
            Ok(_) => Err(Stop::failed("the start went past the provider boundary")),
            Err(error) => Ok(Start {
                platform,
                request,
                error,
                gateway,
            }),
        }
    }

    /// The same, with a callback address for those that need one.
    async fn start_to_boundary(&self, kind: SessionKind, provider: &str) -> Result<Start, Stop> {
        let needed = self.needs_callback(kind)?;
        self.start(kind, provider, |settings| {
            if needed {
                settings.callback_address = Some(CALLBACK.to_owned());
            }
        })
        .await
    }
}

async fn every_kind_of_session_reaches_every_provider_boundary(bench: &SeedBench) -> Checked {
    check!(
        !bench.kinds().is_empty(),
        "the engine declares no kind of session"
    );
    for kind in bench.kinds() {
        for provider in &bench.providers {
            let start = bench.start_to_boundary(*kind, provider).await?;
            let calls = start.platform.log().calls();
            let of_provider: Vec<_> = calls
                .iter()
                .filter(|call| call.starts_with(&format!("{provider}.")))
                .collect();
            let wanted = [
                &format!("{provider}.find_sandbox_by_assignment(assignment-spec-session)"),
                &format!("{provider}.create_sandbox"),
            ];
            check_eq!(
                of_provider,
                wanted,
                "what `{provider}` was asked for {kind:?}"
            );
        }
    }
    Ok(())
}

async fn the_boundary_error_comes_back_unchanged(bench: &SeedBench) -> Checked {
    for kind in bench.kinds() {
        for provider in &bench.providers {
            let start = bench.start_to_boundary(*kind, provider).await?;
            let StartupError::Sandbox(error) = &start.error else {
                return Err(Stop::failed(format!(
                    "the start failed with {}",
                    start.error
                )));
            };
            let wanted = Boundary::refusal(provider);
            check_eq!(error.kind(), wanted.kind(), "the kind");
            check_eq!(error.operation(), wanted.operation(), "the operation");
            check_eq!(error.context(), wanted.context(), "the text");
            check_eq!(
                error.is_retryable(),
                wanted.is_retryable(),
                "whether a retry helps"
            );
            check_eq!(
                start.error.to_string(),
                wanted.to_string(),
                "what people read"
            );
        }
    }
    Ok(())
}

async fn members_are_asked_in_the_pinned_order_and_no_other(bench: &SeedBench) -> Checked {
    for kind in bench.kinds() {
        for provider in &bench.providers {
            let start = bench.start_to_boundary(*kind, provider).await?;
            let calls = start.platform.log().calls();
            let members: Vec<_> = calls.iter().take(ORDER.len()).collect();
            check_eq!(members, ORDER, "what the platform was asked, in order");
            check_eq!(calls.len(), ORDER.len() + 2, "how much was asked in all");
        }
    }
    Ok(())
}

async fn the_sandbox_asked_for_is_the_one_of_the_request(bench: &SeedBench) -> Checked {
    for kind in bench.kinds() {
        let start = bench.start_to_boundary(*kind, &bench.providers[0]).await?;
        let created = start.platform.log().created();
        let [spec] = created.as_slice() else {
            return Err(Stop::failed(format!(
                "{} sandboxes were asked for",
                created.len()
            )));
        };
        let request = &start.request;
        check_eq!(spec.sandbox_id, request.new_sandbox_id, "the sandbox's id");
        check_eq!(spec.session_id, request.session_id, "the session");
        check_eq!(spec.assignment_id, request.assignment_id, "the assignment");
        check_eq!(spec.volume_id, start.platform.volume(), "the volume");
        check_eq!(spec.image, request.image, "the image");
        check_eq!(spec.limits, request.environment.limits, "the limits");
        check_eq!(
            spec.permission_level,
            request.environment.permission_level,
            "the permission level"
        );
        check_policy(&spec.egress, request, &start.gateway)?;
    }
    Ok(())
}

/// What the environment allows, and the model endpoint; nothing else.
fn check_policy(policy: &EgressPolicy, request: &StartupRequest, gateway: &str) -> Checked {
    let model = astrabox_model::ResolvedModelAccess {
        base_url: gateway.to_owned(),
        model_name: request.agent.model.clone(),
        credential: None,
        credential_kind: astrabox_model::CredentialKind::Bearer,
        endpoint_provider: "spec".to_owned(),
    };
    let wanted = egress_policy(&request.environment.networking, &model, &[])
        .doing("the policy of the request")?;
    check_eq!(*policy, wanted, "what the sandbox may reach");
    Ok(())
}

async fn without_a_model_gateway_the_start_is_refused(bench: &SeedBench) -> Checked {
    for kind in bench.kinds() {
        let start = bench
            .start(*kind, &bench.providers[0], |settings| {
                settings.model_gateway = None;
                settings.callback_address = Some(CALLBACK.to_owned());
            })
            .await?;
        check!(
            matches!(start.error, StartupError::NoModelGateway),
            "the start failed with {}",
            start.error
        );
        let text = start.error.to_string();
        check!(text.contains('`'), "the refusal names no setting: {text}");
        let calls = start.platform.log().calls();
        check_eq!(
            calls,
            ["deployment_settings"],
            "what was asked all the same"
        );
    }
    Ok(())
}

async fn a_needed_callback_without_an_address_is_refused(bench: &SeedBench) -> Checked {
    for kind in bench.kinds() {
        let start = bench.start(*kind, &bench.providers[0], |_| {}).await?;
        let refused = matches!(start.error, StartupError::NeedsCallback { .. });
        check_eq!(
            refused,
            bench.needs_callback(*kind)?,
            "whether {kind:?} is refused without a callback address ({})",
            start.error
        );
        if refused {
            let calls = start.platform.log().calls();
            check_eq!(
                calls,
                ["deployment_settings"],
                "what was asked all the same"
            );
        }
    }
    Ok(())
}

async fn an_undeclared_kind_of_session_is_refused(bench: &SeedBench) -> Checked {
    for kind in [SessionKind::AgentChat, SessionKind::AssistantChat] {
        if bench.kinds().contains(&kind) {
            continue;
        }
        let start = bench
            .start(kind, &bench.providers[0], |settings| {
                settings.callback_address = Some(CALLBACK.to_owned());
            })
            .await?;
        check!(
            matches!(start.error, StartupError::SessionKind { .. }),
            "{kind:?}, which is not declared, failed with {}",
            start.error
        );
    }
    Ok(())
}

async fn an_unknown_provider_is_refused_before_anything_is_made(bench: &SeedBench) -> Checked {
    let kind = bench.kinds().first().copied();
    let kind = kind.ok_or_else(|| Stop::failed("the engine declares no kind of session"))?;
    let start = bench.start_to_boundary(kind, "no-such-provider").await?;
    check!(
        matches!(start.error, StartupError::Refused(_)),
        "an unknown provider failed with {}",
        start.error
    );
    check_eq!(
        start.platform.log().created().len(),
        0,
        "sandboxes asked for"
    );
    Ok(())
}

async fn reaching_a_running_engine_asks_for_its_sandbox_and_makes_none(
    bench: &SeedBench,
) -> Checked {
    for kind in bench.kinds() {
        let gateway = "http://127.0.0.1:9".to_owned();
        let settings = DeploymentSettings {
            model_gateway: Some(gateway.clone()),
            callback_address: Some(CALLBACK.to_owned()),
            authority: None,
        };
        let platform = SpecPlatform::new(settings, bench.providers.clone());
        let mut request = spec_request(bench.engine.name(), *kind, &bench.providers[0]);
        request.attach_to = Some(SandboxId::new());
        request.conversation = Conversation::Attach {
            native_key: "spec-key".to_owned(),
            checkpoint: Checkpoint::new("{}".to_owned()),
        };
        let start = bench.start_with(platform, request, gateway).await?;
        check!(
            matches!(start.error, StartupError::Refused(_)),
            "the start failed with {}",
            start.error
        );
        let calls = start.platform.log().calls();
        let wanted: Vec<_> = ORDER
            .iter()
            .copied()
            .chain(["connect_sandbox_only"])
            .collect();
        check_eq!(calls, wanted, "what was asked, in order");
    }
    Ok(())
}
