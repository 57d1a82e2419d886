//! The suite of a model endpoint provider: MO1 to MO5.

use std::sync::Arc;
use std::time::Duration;

use astrabox_model::{
    Error, ErrorKind, ModelEndpointProvider, ModelRequest, ModelWire, Registration,
};
use astrabox_registry::Registration as _;
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
    for model in provider.list().await.doing("list")? {
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
    let any = provider.list().await.doing("list")?.is_empty();
    let mut some = false;
    for wire in WIRES {
        match provider.resolve(&request(UNKNOWN, wire)).await {
            Ok(access) => {
                check!(any, "`{UNKNOWN}` is not listed and was resolved");
                check!(!access.model_name.is_empty(), "the model has no name");
                some = true;
            }
            Err(error) if !any => {
                check_eq!(error.kind(), ErrorKind::UnknownModel, "the error ({error})");
            }
            Err(_) => {}
        }
    }
    check!(some == any, "an empty list means that any name is accepted");
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
