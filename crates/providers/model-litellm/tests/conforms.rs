//! The provider keeps the seam's clauses, at a gateway that answers as LiteLLM does.

mod gateway;

use std::sync::Arc;
use std::time::Duration;

use astrabox_conformance::Filter;
use astrabox_conformance::model::{self, Built, ModelFixture};
use astrabox_model::{
    CredentialKind, ErrorKind, IssueRequest, ModelEndpointProvider, ModelRequest, ModelWire,
};
use astrabox_model_litellm::REGISTRATION;
use astrabox_types::{Secret, SessionId};
use async_trait::async_trait;
use gateway::Gateway;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const MASTER: &str = "sk-master-canary-canary";
const CREDENTIAL: &str = "vcrd_0190f2a47e0b7c1d8f3a123456789abc";

fn master() -> Secret {
    Secret::new(MASTER.as_bytes().to_vec())
}

struct Fixture {
    gateway: Gateway,
    _serving: JoinSet<()>,
    config: Value,
}

#[async_trait]
impl ModelFixture for Fixture {
    fn name(&self) -> String {
        "litellm".to_owned()
    }

    async fn unconfigured(&self) -> Built {
        REGISTRATION.build(Value::Null).await
    }

    async fn configured(&self) -> Option<Built> {
        Some(REGISTRATION.build(self.config.clone()).await)
    }

    async fn plaintext(&self) -> Option<Built> {
        let config = json!({"base_url": "http://models.test", "require_https": true});
        Some(REGISTRATION.build(config).await)
    }

    fn model(&self) -> String {
        "scripted".to_owned()
    }

    fn credential(&self) -> Option<Secret> {
        Some(master())
    }

    async fn accepts(&self, secret: &Secret) -> Option<bool> {
        Some(self.gateway.accepts(secret.expose()))
    }
}

async fn fixture(more: Value) -> Fixture {
    let (gateway, address, serving) = Gateway::start(MASTER).await;
    let mut config = json!({
        "base_url": "http://models.test:4000",
        "management_url": format!("http://{address}"),
        "credential": CREDENTIAL,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    Fixture {
        gateway,
        _serving: serving,
        config,
    }
}

async fn provider(fixture: &Fixture) -> Arc<dyn ModelEndpointProvider> {
    let built = REGISTRATION.build(fixture.config.clone()).await;
    built.unwrap_or_else(|error| panic!("{error}"))
}

fn asked() -> IssueRequest {
    IssueRequest {
        session_id: SessionId::new(),
        model: "scripted".to_owned(),
        lifetime: Duration::from_secs(900),
    }
}

#[tokio::test]
async fn it_conforms_with_keys_for_each_session_and_without() {
    for (more, skipped) in [
        (json!({"per_session": true}), 0),
        (json!({"per_session": true, "models": ["scripted"]}), 0),
        (json!({}), 3),
    ] {
        let suite = model::suite(Arc::new(fixture(more).await));
        let report = suite.run(&Filter::all()).await;
        report.assert_passed();
        assert_eq!(report.skipped(), skipped, "{report}");
    }
}

#[tokio::test]
async fn the_models_of_the_gateway_are_listed_and_any_name_is_resolved() {
    let fixture = fixture(json!({"credential_kind": "api_key"})).await;
    let provider = provider(&fixture).await;
    let list = provider.list(Some(&master())).await.unwrap();
    assert_eq!(list.names, ["scripted", "other"]);
    assert!(!list.closed, "a gateway may have models by pattern");
    let request = ModelRequest {
        model: "by-pattern".to_owned(),
        wire: ModelWire::AnthropicMessages,
    };
    let access = provider.resolve(&request).await.unwrap();
    assert_eq!(access.base_url, "http://models.test:4000");
    assert_eq!(access.model_name, "by-pattern");
    assert_eq!(access.credential_kind, CredentialKind::ApiKey);
    assert_eq!(access.credential.unwrap().credential_id, CREDENTIAL);
    assert_eq!(access.endpoint_provider, "litellm");
}

#[tokio::test]
async fn a_key_is_for_one_session_and_its_model_with_an_end_and_a_budget() {
    let config = json!({"per_session": true, "max_budget": 2, "default_model": "scripted"});
    let fixture = fixture(config).await;
    let provider = provider(&fixture).await;
    let request = IssueRequest {
        // What an agent names that names no model.
        model: String::new(),
        ..asked()
    };
    let issued = provider.issue(&request, Some(&master())).await;
    let issued = issued.unwrap().expect("it issues");
    assert!(issued.secret.expose().starts_with(b"sk-generated-"));
    assert_eq!(
        fixture.gateway.asked(),
        [json!({
            "duration": "900s",
            "models": ["scripted"],
            "key_type": "llm_api",
            "metadata": {"astrabox_session_id": request.session_id.to_string()},
            "max_budget": 2.0,
        })]
    );
}

#[tokio::test]
async fn what_is_wrong_is_told_by_kind_and_without_a_key() {
    let (_gateway, address, _serving) = Gateway::start(MASTER).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    let wrong = Secret::new(b"sk-wrong-canary-canary".to_vec());
    for (url, with, kind, text) in [
        (
            format!("http://{address}"),
            None,
            ErrorKind::NotConfigured,
            "model.litellm.credential",
        ),
        (
            format!("http://{address}"),
            Some(&wrong),
            ErrorKind::Denied,
            "does not accept the key",
        ),
        (
            format!("http://{address}/else"),
            Some(&master()),
            ErrorKind::Invalid,
            "no such path",
        ),
        (
            format!("http://{nobody}"),
            Some(&master()),
            ErrorKind::Unavailable,
            "no connection",
        ),
    ] {
        let config = json!({"base_url": url, "credential": CREDENTIAL, "per_session": true});
        let provider = REGISTRATION.build(config).await.unwrap();
        let errors = [
            provider.list(with).await.err(),
            provider.issue(&asked(), with).await.err(),
            provider.revoke("an-id-of-nobody", with).await.err(),
        ];
        for error in errors {
            let error = error.unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert!(
                !format!("{error} {error:?}").contains("canary"),
                "{error:?}"
            );
        }
    }
}
