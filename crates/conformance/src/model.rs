//! The suite of a model endpoint provider: MO1 to MO10.

use std::sync::Arc;
use std::time::Duration;

use astrabox_model::{
    CredentialKind, Error, ErrorKind, IssueRequest, IssuedCredential, ModelEndpointProvider,
    ModelRequest, ModelWire, Registration,
};
use astrabox_registry::Registration as _;
use astrabox_types::{Secret, SessionId, Timestamp};
use async_trait::async_trait;
use serde_json::Value;

use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::url::why_not_a_root;
use crate::{Bench, Case, Checked, Clock, Doing as _, Filter, Stop, Suite};

/// How long one case may take.
const CASE: Duration = Duration::from_secs(30);
/// A name that no list has.
const UNKNOWN: &str = "no-such-model-of-the-conformance-suite";

/// A provider in one configuration, or why it was not built.
pub type Built = Result<Arc<dyn ModelEndpointProvider>, Error>;

/// What a provider's author gives to the suite: the provider in several configurations.
#[async_trait]
pub trait ModelFixture: Send + Sync + 'static {
    /// The provider's name, for reports.
    fn name(&self) -> String;

    /// Without any configuration.
    async fn unconfigured(&self) -> Built;

    /// With an endpoint; `None` when the suite shall do without.
    async fn configured(&self) -> Option<Built>;

    /// With an endpoint without TLS, where TLS is demanded; it may refuse to be built. `None` when the suite shall do
    /// without.
    async fn plaintext(&self) -> Option<Built>;

    /// A model that the configured one has.
    fn model(&self) -> String;

    /// The endpoint's own credential, for the calls that reach it; none where it wants none.
    fn credential(&self) -> Option<Secret> {
        None
    }

    /// Whether the endpoint now accepts this for a model; `None` when that cannot be looked at.
    async fn accepts(&self, _secret: &Secret) -> Option<bool> {
        None
    }
}

/// The fixture of a provider that is known by its registration only.
#[derive(Debug, Clone)]
pub struct RegisteredModels {
    /// The provider.
    pub registration: Registration,
    /// A block with an endpoint.
    pub configured: Option<Value>,
    /// A block with an endpoint without TLS, where TLS is demanded.
    pub plaintext: Option<Value>,
    /// A model that the configured one has.
    pub model: String,
}

#[async_trait]
impl ModelFixture for RegisteredModels {
    fn name(&self) -> String {
        self.registration.name().to_owned()
    }

    async fn unconfigured(&self) -> Built {
        self.registration.build(Value::Null).await
    }

    async fn configured(&self) -> Option<Built> {
        Some(self.registration.build(self.configured.clone()?).await)
    }

    async fn plaintext(&self) -> Option<Built> {
        Some(self.registration.build(self.plaintext.clone()?).await)
    }

    fn model(&self) -> String {
        self.model.clone()
    }
}

/// What the cases work on.
#[derive(Clone)]
pub struct ModelBench(Arc<dyn ModelFixture>);

impl Bench for ModelBench {}

impl ModelBench {
    async fn configured(&self) -> Result<Arc<dyn ModelEndpointProvider>, Stop> {
        match self.0.configured().await {
            Some(built) => built.doing("build it with an endpoint"),
            None => Err(Stop::skipped("the fixture configures no endpoint")),
        }
    }
}

/// The whole suite over one provider.
#[must_use]
pub fn suite(fixture: Arc<dyn ModelFixture>) -> Suite<ModelBench> {
    let name = format!("model endpoint provider {}", fixture.name());
    Suite::new(name, ModelBench(fixture), cases(), Clock::Real, CASE)
}

/// Runs the suite over one provider and panics with the report when it found a fault; for plain tests.
///
/// # Panics
/// When a case failed.
pub fn assert_conforms(fixture: Arc<dyn ModelFixture>) {
    suite(fixture).run_blocking(&Filter::all()).assert_passed();
}

fn cases() -> Vec<Case<ModelBench>> {
    cases![
        a_model_is_resolved_to_a_usable_endpoint[MO1],
        a_missing_configuration_is_said_and_named[MO2],
        an_endpoint_without_tls_is_refused_when_tls_is_demanded[MO3],
        every_listed_model_can_be_had[MO4],
        a_model_that_is_not_listed_is_refused[MO4],
        the_same_request_has_the_same_answer[MO5],
        a_credential_is_named_with_its_kind[MO6],
        who_issues_nothing_says_so[MO7],
        no_two_sessions_share_a_credential[MO7 MO8],
        a_revoked_credential_is_accepted_no_more[MO9],
        a_call_without_the_right_credential_is_refused[MO10],
    ]
}

const WIRES: [ModelWire; 3] = [
    ModelWire::AnthropicMessages,
    ModelWire::OpenaiResponses,
    ModelWire::OpenaiChat,
];

fn request(model: &str, wire: ModelWire) -> ModelRequest {
    ModelRequest {
        model: model.to_owned(),
        wire,
    }
}

async fn a_model_is_resolved_to_a_usable_endpoint(bench: &ModelBench) -> Checked {
    let (provider, model) = (bench.configured().await?, bench.0.model());
    let gateway = provider.gateway();
    check!(
        gateway
            .as_deref()
            .is_some_and(|url| why_not_a_root(url).is_none()),
        "the gateway of a configured provider is {gateway:?}"
    );
    let mut some = false;
    for wire in WIRES {
        // A gateway need not speak every wire; what it answers must be usable.
        let Ok(access) = provider.resolve(&request(&model, wire)).await else {
            continue;
        };
        some = true;
        if let Some(why) = why_not_a_root(&access.base_url) {
            check!(
                false,
                "{:?} is not the root of an endpoint: {why}",
                access.base_url
            );
        }
        check!(!access.model_name.is_empty(), "the model has no name");
        check!(!access.endpoint_provider.is_empty(), "nobody resolved it");
    }
    check!(some, "`{model}` is resolved for no wire");
    Ok(())
}

async fn a_missing_configuration_is_said_and_named(bench: &ModelBench) -> Checked {
    let model = bench.0.model();
    let provider = bench
        .0
        .unconfigured()
        .await
        .doing("build it without configuration")?;
    check_eq!(
        provider.gateway(),
        None,
        "the gateway without configuration"
    );
    for wire in WIRES {
        let resolved = provider.resolve(&request(&model, wire)).await;
        let error = refused(resolved, &[ErrorKind::NotConfigured], "resolving nothing")?;
        check!(
            error.context().contains('.'),
            "the error does not name the setting: {error}"
        );
    }
    Ok(())
}

async fn an_endpoint_without_tls_is_refused_when_tls_is_demanded(bench: &ModelBench) -> Checked {
    let Some(built) = bench.0.plaintext().await else {
        return Err(Stop::skipped("the fixture demands no TLS"));
    };
    let provider = match built {
        Ok(provider) => provider,
        Err(error) => {
            check_eq!(
                error.kind(),
                ErrorKind::Refused,
                "why it is not built ({error})"
            );
            return Ok(());
        }
    };
    for wire in WIRES {
        let resolved = provider.resolve(&request(&bench.0.model(), wire)).await;
        refused(resolved, &[ErrorKind::Refused], "resolving without TLS")?;
    }
    Ok(())
}

async fn every_listed_model_can_be_had(bench: &ModelBench) -> Checked {
    let provider = bench.configured().await?;
    let listed = provider.list(bench.0.credential().as_ref()).await;
    for model in listed.doing("list")?.names {
        let mut some = false;
        for wire in WIRES {
            some |= provider.resolve(&request(&model, wire)).await.is_ok();
        }
        check!(some, "`{model}` is listed and cannot be had");
    }
    Ok(())
}

async fn a_model_that_is_not_listed_is_refused(bench: &ModelBench) -> Checked {
    let provider = bench.configured().await?;
    let listed = provider.list(bench.0.credential().as_ref()).await;
    let closed = listed.doing("list")?.closed;
    let mut some = false;
    for wire in WIRES {
        match provider.resolve(&request(UNKNOWN, wire)).await {
            Ok(access) => {
                check!(!closed, "`{UNKNOWN}` is not listed and was resolved");
                check!(!access.model_name.is_empty(), "the model has no name");
                some = true;
            }
            Err(error) if closed => {
                check_eq!(error.kind(), ErrorKind::UnknownModel, "the error ({error})");
            }
            Err(_) => {}
        }
    }
    check!(
        some != closed,
        "an open list means that any name is resolved"
    );
    Ok(())
}

async fn the_same_request_has_the_same_answer(bench: &ModelBench) -> Checked {
    let (provider, model) = (bench.configured().await?, bench.0.model());
    for wire in WIRES {
        let request = request(&model, wire);
        let first = provider.resolve(&request).await.ok();
        let second = provider.resolve(&request).await.ok();
        check_eq!(second, first, "the second answer");
    }
    Ok(())
}

async fn a_credential_is_named_with_its_kind(bench: &ModelBench) -> Checked {
    let (provider, model) = (bench.configured().await?, bench.0.model());
    for wire in WIRES {
        let Ok(access) = provider.resolve(&request(&model, wire)).await else {
            continue;
        };
        check_eq!(
            access.credential,
            provider.credential(),
            "the credential of a model, and that of the provider"
        );
        let Some(named) = access.credential else {
            continue;
        };
        check!(
            access.credential_kind != CredentialKind::None,
            "a credential is named, and none is wanted"
        );
        let id = named.credential_id;
        check!(
            !id.is_empty() && id.len() <= 100 && id.bytes().all(|byte| byte.is_ascii_graphic()),
            "the credential is named by no plain id"
        );
    }
    Ok(())
}

/// How long the suite's credentials are to last.
const LIFETIME: Duration = Duration::from_secs(600);

fn issue_request(bench: &ModelBench) -> IssueRequest {
    IssueRequest {
        session_id: SessionId::new(),
        model: bench.0.model(),
        lifetime: LIFETIME,
    }
}

async fn issue(
    bench: &ModelBench,
    provider: &dyn ModelEndpointProvider,
) -> Result<IssuedCredential, Stop> {
    let with = bench.0.credential();
    let issued = provider.issue(&issue_request(bench), with.as_ref()).await;
    issued
        .doing("issue")?
        .ok_or_else(|| Stop::failed("credentials are declared to be issued, and none was"))
}

async fn who_issues_nothing_says_so(bench: &ModelBench) -> Checked {
    let provider = bench.configured().await?;
    if provider.issues_credentials() {
        return Ok(());
    }
    let with = bench.0.credential();
    let issued = provider.issue(&issue_request(bench), with.as_ref()).await;
    check!(
        issued.doing("issue")?.is_none(),
        "a credential was issued, and that is not declared"
    );
    let revoked = provider.revoke("of-nobody", with.as_ref()).await;
    refused(
        revoked,
        &[ErrorKind::Unsupported],
        "revoking what nobody issues",
    )?;
    Ok(())
}

async fn no_two_sessions_share_a_credential(bench: &ModelBench) -> Checked {
    let provider = issuer(bench).await?;
    let before = Timestamp::now();
    let first = issue(bench, provider.as_ref()).await?;
    let second = issue(bench, provider.as_ref()).await?;
    let after = Timestamp::now();
    check!(first.id != second.id, "two credentials have one id");
    check!(
        first.secret.expose() != second.secret.expose(),
        "two credentials have one value"
    );
    for issued in [&first, &second] {
        let (id, value) = (issued.id.as_bytes(), issued.secret.expose());
        check!(!id.is_empty(), "a credential has no id");
        check!(!value.is_empty(), "a credential has no value");
        let tells = id.windows(value.len()).any(|part| part == value)
            || value.windows(id.len()).any(|part| part == id);
        check!(!tells, "the id of a credential tells its value");
        check!(issued.expires_at > before, "a new credential has ended");
        let end = after.checked_add(LIFETIME).doing("add the lifetime")?;
        check!(
            issued.expires_at <= end,
            "a credential lasts longer than was asked for"
        );
    }
    for issued in [first, second] {
        let with = bench.0.credential();
        provider
            .revoke(&issued.id, with.as_ref())
            .await
            .doing("revoke")?;
    }
    Ok(())
}

async fn a_revoked_credential_is_accepted_no_more(bench: &ModelBench) -> Checked {
    let provider = issuer(bench).await?;
    let (kept, issued) = (
        issue(bench, provider.as_ref()).await?,
        issue(bench, provider.as_ref()).await?,
    );
    let with = bench.0.credential();
    let before = bench.0.accepts(&issued.secret).await;
    check!(before != Some(false), "a new credential is not accepted");
    // Twice: a server that died after the first does it again.
    for _ in 0..2 {
        let revoked = provider.revoke(&issued.id, with.as_ref()).await;
        revoked.doing("revoke")?;
    }
    let after = bench.0.accepts(&issued.secret).await;
    check!(after != Some(true), "a revoked credential is accepted");
    let other = bench.0.accepts(&kept.secret).await;
    check!(
        other != Some(false),
        "revoking one credential ended another"
    );
    let revoked = provider.revoke(&kept.id, with.as_ref()).await;
    revoked.doing("revoke the other")?;
    Ok(())
}

async fn a_call_without_the_right_credential_is_refused(bench: &ModelBench) -> Checked {
    const WRONG: &str = "sk-the-wrong-key-of-the-conformance-suite";
    let provider = issuer(bench).await?;
    if bench.0.credential().is_none() {
        return Err(Stop::skipped("the endpoint wants no credential"));
    }
    let wrong = Secret::new(WRONG.as_bytes().to_vec());
    for (with, kind) in [
        (None, ErrorKind::NotConfigured),
        (Some(&wrong), ErrorKind::Denied),
    ] {
        let issued = provider.issue(&issue_request(bench), with).await;
        let revoked = provider.revoke("of-nobody", with).await;
        for error in [
            refused(issued.map(|_| ()), &[kind], "issuing")?,
            refused(revoked, &[kind], "revoking")?,
        ] {
            check!(
                !format!("{error} {error:?}").contains(WRONG),
                "the error holds the credential"
            );
            check!(
                kind != ErrorKind::NotConfigured || error.context().contains('.'),
                "the error does not name the setting: {error}"
            );
        }
    }
    Ok(())
}

/// The configured provider, where it issues credentials.
async fn issuer(bench: &ModelBench) -> Result<Arc<dyn ModelEndpointProvider>, Stop> {
    let provider = bench.configured().await?;
    if provider.issues_credentials() {
        return Ok(provider);
    }
    Err(Stop::skipped("it issues no credentials"))
}
