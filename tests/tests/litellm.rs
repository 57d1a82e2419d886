//! A real LiteLLM proxy between the product and an OpenAI-style model.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use astrabox_builtin as _;
use astrabox_client::v1;
use astrabox_model::{
    CredentialKind, ErrorKind, IssueRequest, ModelEndpointProvider, ModelRequest, ModelWire,
    Registration,
};
use astrabox_registry::Registry;
use astrabox_testkit::model::{ScriptedModel, Wire};
use astrabox_testkit::server::ServerOptions;
use astrabox_tests::litellm::{LitellmProxy, UPSTREAM_KEY, installed};
use astrabox_tests::{CLAUDE_CODE, Stage, must};
use astrabox_types::{CredentialId, Secret, SessionId};
use serde_json::{Value, json};

/// The proxy's own key. LiteLLM demands one of some length.
const MASTER: &str = "sk-canary-0f3a51d2b86c49e7a1d20c9f5e7b3846";

async fn provider(config: Value) -> Arc<dyn ModelEndpointProvider> {
    let linked = must(Registry::<Registration>::linked());
    let litellm = linked.get("litellm").expect("it is linked");
    must(litellm.build(config).await)
}

async fn scripted() -> ScriptedModel {
    must(ScriptedModel::builder().model("scripted").start().await)
}

#[tokio::test]
async fn the_provider_lists_resolves_and_is_told_why_a_proxy_without_a_database_has_no_keys() {
    let test = "the_provider_lists_resolves_and_is_told_why_a_proxy_without_a_database_has_no_keys";
    let Some(python) = must(installed(test)) else {
        return;
    };
    let model = scripted().await;
    let proxy = must(LitellmProxy::start(&python, &model.base_url(), MASTER).await);
    let base_url = format!("http://{}", proxy.address);
    let provider = provider(json!({
        "base_url": base_url,
        "credential": CredentialId::new().to_string(),
        "per_session": true,
    }))
    .await;
    let master = Secret::new(MASTER.as_bytes().to_vec());
    let wrong = Secret::new(format!("{MASTER}-wrong").into_bytes());

    let list = must(provider.list(Some(&master)).await);
    assert_eq!(list.names, ["scripted"]);
    let request = ModelRequest {
        model: "scripted".to_owned(),
        wire: ModelWire::AnthropicMessages,
    };
    let access = must(provider.resolve(&request).await);
    assert_eq!(
        (access.base_url, access.model_name.as_str()),
        (base_url, "scripted")
    );
    assert_eq!(access.credential_kind, CredentialKind::Bearer);

    // LiteLLM keeps the keys that it issues in a database, which this one does not have.
    let asked = IssueRequest {
        session_id: SessionId::new(),
        model: "scripted".to_owned(),
        lifetime: Duration::from_secs(60),
    };
    for (with, kind, text) in [
        (None, ErrorKind::NotConfigured, "model.litellm.credential"),
        (Some(&wrong), ErrorKind::Denied, "does not know the key"),
        (Some(&master), ErrorKind::Invalid, "has no database"),
    ] {
        let issued = provider.issue(&asked, with).await;
        let revoked = provider.revoke("an-id-of-nobody", with).await;
        for error in [issued.map(|_| ()).err(), revoked.err()] {
            let error = error.expect("there is nowhere to keep a key");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }
    let error = provider.list(Some(&wrong)).await.expect_err("it is wrong");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    must(proxy.stop().await);
    model.shutdown().await;
}

/// Puts the proxy's key into a vault, and its name into the server's configuration.
async fn keep_key(stage: &mut Stage) -> Result<()> {
    let vault = stage
        .client
        .create_vault(v1::CreateVaultRequest {
            display_name: "keys".to_owned(),
            ..Default::default()
        })
        .await?
        .vault
        .context("a vault in the answer")?;
    let key = v1::ModelKeyCredential {
        endpoint: "https://litellm.test".to_owned(),
        kind: v1::ModelKeyKind::Bearer.into(),
        models: Vec::new(),
    };
    let credential = stage
        .client
        .create_vault_credential(v1::CreateVaultCredentialRequest {
            vault_id: vault.id,
            spec: Some(v1::CredentialSpec {
                r#type: Some(v1::credential_spec::Type::ModelKey(key)),
            }),
            secret: Some(v1::CredentialSecret {
                value: MASTER.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        })
        .await?
        .credential
        .context("a credential in the answer")?;
    stage.server.stop().await?;
    let file = stage.server.folder().join("astrabox.toml");
    let config = std::fs::read_to_string(&file)?;
    let setting = format!("model.litellm.credential = {:?}", credential.id);
    std::fs::write(&file, format!("{setting}\n{config}"))?;
    stage.server.start_again().await?;
    stage.client = stage.server.client().await?;
    Ok(())
}

#[tokio::test]
async fn claude_code_runs_turns_over_a_model_that_speaks_openai() {
    let test = "claude_code_runs_turns_over_a_model_that_speaks_openai";
    let Some(python) = must(installed(test)) else {
        return;
    };
    let model = scripted().await;
    let proxy = must(LitellmProxy::start(&python, &model.base_url(), MASTER).await);
    let name = format!("litellm.test:{}", proxy.address.port());
    let options = ServerOptions {
        settings: vec![
            "model.default = \"litellm\"".to_owned(),
            format!("model.litellm.base_url = \"http://{name}\""),
        ],
        static_hosts: [(name, proxy.address.to_string())].into(),
        ..ServerOptions::default()
    };
    let environment = v1::EnvironmentSpec {
        engine: CLAUDE_CODE.engine.to_owned(),
        ..Default::default()
    };
    let agent = v1::AgentSpec::default();
    let mut stage = must(Stage::over(model, &options, environment, agent).await);
    must(keep_key(&mut stage).await);
    let mut talk = must(stage.conversation(CLAUDE_CODE.unasked).await);

    let turn = must(talk.say("DELTAS: 40\nSLOW: 50").await);
    assert_eq!(
        turn.ended().outcome(),
        v1::TurnOutcome::Completed,
        "{:?}",
        turn.ended()
    );
    assert!(turn.text().starts_with("d1 d2 d3"), "{}", turn.text());
    assert_eq!(turn.streamed(), turn.text());
    assert!(turn.deltas.len() > 5, "{} deltas", turn.deltas.len());

    let turn = must(
        talk.say("RUN: echo made here > /workspace/note.txt; cat /workspace/note.txt; env | grep ^ANTHROPIC")
            .await,
    );
    assert_eq!(
        turn.ended().outcome(),
        v1::TurnOutcome::Completed,
        "{:?}",
        turn.ended()
    );
    let results = turn.results();
    assert_eq!(results.len(), 1, "{:?}", turn.events);
    let output = &results[0].output;
    assert!(output.contains("made here"), "{output}");
    assert!(output.contains("ANTHROPIC_AUTH_TOKEN="), "{output}");
    assert!(
        !output.contains("canary"),
        "the proxy's key is in the sandbox: {output}"
    );
    assert!(
        turn.text().contains("tool said: <<made here"),
        "{}",
        turn.text()
    );
    assert_eq!(must(talk.file("/workspace/note.txt").await), "made here\n");

    let asked = stage.model.requests();
    let wires: Vec<_> = asked.iter().filter_map(|asked| asked.wire).collect();
    assert!(wires.len() >= 3, "{wires:?}");
    assert!(wires.iter().all(|wire| *wire == Wire::Chat), "{wires:?}");
    // The key of the model is the proxy's alone; nothing of it was ever in the sandbox.
    assert!(asked.iter().all(|asked| asked.presented(UPSTREAM_KEY)));
    must(stage.clear().await);
    must(proxy.stop().await);
}
