use std::sync::Arc;
use std::time::Duration;

use astrabox_model::registry::{Registration as _, Registry};
use astrabox_model::{
    CredentialKind, Error, ErrorKind, IssueRequest, ModelEndpointProvider, ModelList, ModelRequest,
    ModelWire, Registration,
};
use astrabox_types::SessionId;
use serde_json::{Value, json};

async fn build(config: Value) -> Result<Arc<dyn ModelEndpointProvider>, Error> {
    let linked = Registry::<Registration>::linked().unwrap();
    linked.get("direct").unwrap().build(config).await
}

async fn refused(config: Value) -> Error {
    match build(config.clone()).await {
        Ok(_) => panic!("accepted: {config}"),
        Err(error) => error,
    }
}

fn request(model: &str) -> ModelRequest {
    ModelRequest {
        model: model.to_owned(),
        wire: ModelWire::OpenaiResponses,
    }
}

#[test]
fn it_is_linked_under_its_name() {
    let linked = Registry::<Registration>::linked().unwrap();
    let direct = linked.get("direct").unwrap();
    assert_eq!(direct.origin(), "astrabox-model-direct");
}

#[tokio::test]
async fn mo1_a_model_resolves_to_the_endpoint_in_its_plain_form() {
    for (given, expected) in [
        ("https://models.example", "https://models.example"),
        (
            "https://Models.Example:8443/",
            "https://models.example:8443",
        ),
        (
            "https://models.example/Gateway//",
            "https://models.example/Gateway",
        ),
        ("http://127.0.0.1:8399", "http://127.0.0.1:8399"),
        ("http://[::1]:8399", "http://[::1]:8399"),
    ] {
        let provider = build(json!({ "base_url": given })).await.unwrap();
        let access = provider.resolve(&request("m")).await.unwrap();
        assert_eq!(access.base_url, expected);
        assert_eq!(provider.gateway().as_deref(), Some(expected));
        assert_eq!(access.model_name, "m");
        assert_eq!(access.credential_kind, CredentialKind::None);
        assert_eq!(access.endpoint_provider, "direct");
    }
}

#[tokio::test]
async fn mo1_an_endpoint_that_is_not_a_root_is_refused() {
    for (given, text) in [
        ("", "is not a URL"),
        ("models.example", "is not a whole URL"),
        ("/v1", "is not a whole URL"),
        ("ftp://models.example", "must begin with https://"),
        ("https://models.example/v1", "ends with `/v1`"),
        ("https://models.example/v1/", "ends with `/v1`"),
        (
            "https://models.example?a=b",
            "scheme, host, port and path only",
        ),
        (
            "https://models.example/#a",
            "scheme, host, port and path only",
        ),
        ("https://models.example:0", "has a port that is none"),
        ("https://models.example:99999", "has a port that is none"),
        ("https://models.example:", "has a port that is none"),
    ] {
        let error = refused(json!({ "base_url": given })).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{given}");
        assert!(error.to_string().contains(text), "{given}: {error}");
    }
}

#[tokio::test]
async fn mo2_without_a_base_url_it_builds_and_names_the_setting() {
    for config in [Value::Null, json!({}), json!({"models": ["m"]})] {
        let provider = build(config).await.unwrap();
        assert_eq!(provider.gateway(), None);
        let error = provider.resolve(&request("m")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConfigured);
        assert_eq!(
            error.to_string(),
            "model resolve: not configured: set `model.direct.base_url`"
        );
    }
}

#[tokio::test]
async fn mo3_plaintext_is_accepted_only_where_the_settings_say() {
    let (loopback, private, public) = (
        [
            "127.0.0.1:1",
            "[::1]:1",
            "localhost:1",
            "[::ffff:127.0.0.1]",
        ],
        [
            "10.1.2.3",
            "192.168.0.9:80",
            "[fd12::1]",
            "models.test",
            "gw.internal.",
        ],
        [
            "8.8.8.8",
            "[2001:db8::1]",
            "models.example",
            "latest",
            "test.example",
        ],
    );
    let local = loopback.iter().chain(&private);
    let cases = local
        .map(|host| (host, true))
        .chain(public.iter().map(|host| (host, false)));
    for (host, is_local) in cases {
        let url = format!("http://{host}");
        for (settings, accepted) in [
            (json!({}), is_local),
            (json!({"allow_plaintext": true}), true),
            (json!({"require_https": true}), false),
        ] {
            let mut config = settings.clone();
            config["base_url"] = json!(url);
            match build(config).await {
                Ok(_) => assert!(accepted, "{url} {settings}"),
                Err(error) => {
                    assert!(!accepted, "{url} {settings}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Refused);
                }
            }
        }
    }
    let https = json!({"base_url": "https://models.example", "require_https": true});
    assert!(build(https).await.is_ok());
    let both = refused(json!({"require_https": true, "allow_plaintext": true})).await;
    assert_eq!(both.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn mo4_the_list_is_what_resolve_accepts() {
    let url = "https://models.example";
    let some = build(json!({"base_url": url, "models": ["a", "b"]}))
        .await
        .unwrap();
    let list = some.list(None).await.unwrap();
    assert_eq!(
        (&list.names[..], list.closed),
        (&["a".to_owned(), "b".to_owned()][..], true)
    );
    for model in list.names {
        let access = some.resolve(&request(&model)).await.unwrap();
        assert_eq!(access.model_name, model);
    }
    let error = some.resolve(&request("c\n")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownModel);
    assert_eq!(
        error.to_string(),
        r#"model resolve: unknown model: "c\n" is not in `model.direct.models`, which has: a, b"#
    );

    let any = build(json!({ "base_url": url })).await.unwrap();
    assert_eq!(any.list(None).await.unwrap(), ModelList::default());
    assert!(any.resolve(&request("whatever")).await.is_ok());
}

#[tokio::test]
async fn mo5_the_same_request_gives_the_same_answer() {
    let provider = build(json!({"base_url": "https://models.example"}))
        .await
        .unwrap();
    let first = provider.resolve(&request("m")).await.unwrap();
    assert_eq!(provider.resolve(&request("m")).await.unwrap(), first);
}

#[tokio::test]
async fn an_agent_without_a_model_gets_the_default_or_an_error() {
    let url = "https://models.example";
    let config = json!({"base_url": url, "models": ["a"], "default_model": "a"});
    let provider = build(config).await.unwrap();
    assert_eq!(
        provider.resolve(&request("")).await.unwrap().model_name,
        "a"
    );

    let provider = build(json!({ "base_url": url })).await.unwrap();
    let error = provider.resolve(&request("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert!(error.to_string().contains("model.direct.default_model"));

    for config in [
        json!({"models": ["a"], "default_model": "b"}),
        json!({"default_model": ""}),
        json!({"models": [""]}),
    ] {
        assert_eq!(refused(config).await.kind(), ErrorKind::Invalid);
    }
}

#[tokio::test]
async fn mo6_a_credential_of_a_vault_is_named_with_its_kind() {
    let id = "vcrd_0190f2a47e0b7c1d8f3a123456789abc";
    let config = |kind: &str| json!({"base_url": "https://models.example", "credential": id, "credential_kind": kind});
    for (kind, expected) in [
        ("bearer", CredentialKind::Bearer),
        ("api_key", CredentialKind::ApiKey),
    ] {
        let provider = build(config(kind)).await.unwrap();
        let access = provider.resolve(&request("m")).await.unwrap();
        assert_eq!(access.credential_kind, expected);
        assert_eq!(access.credential, provider.credential());
        assert_eq!(access.credential.unwrap().credential_id, id);
    }
    for (config, key) in [
        (json!({ "credential": id }), "model.direct.credential_kind"),
        (
            json!({"credential_kind": "bearer"}),
            "model.direct.credential`",
        ),
        (config("basic"), "model.direct.credential_kind"),
        (config("none"), "model.direct.credential_kind"),
    ] {
        let error = refused(config.clone()).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{config}");
        assert!(error.to_string().contains(key), "{config}: {error}");
    }
}

#[tokio::test]
async fn mo7_it_issues_nothing_and_says_so() {
    let provider = build(json!({"base_url": "https://models.example"}))
        .await
        .unwrap();
    assert!(!provider.issues_credentials());
    let request = IssueRequest {
        session_id: SessionId::new(),
        model: "m".to_owned(),
        lifetime: Duration::from_secs(60),
    };
    assert!(provider.issue(&request, None).await.unwrap().is_none());
    let error = provider.revoke("x", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_credential_is_refused_and_never_repeated() {
    for config in [
        json!({"api_key": "canary"}),
        json!({"apiKey": "canary"}),
        json!({"OPENAI_API_KEY": "canary"}),
        json!({"token": "canary"}),
        json!({"headers": {"authorization": "canary"}}),
        json!({"credential": "canary"}),
        json!({"credential": "sk-canary", "credential_kind": "bearer"}),
        json!({"credential": {"bearer": "canary"}}),
        json!({"base_url": "https://user:canary@models.example"}),
    ] {
        let error = refused(config.clone()).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{config}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("put it into a vault"), "{config}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
    assert!(build(json!({"credential": "none"})).await.is_ok());
}

#[tokio::test]
async fn a_wrong_or_unknown_setting_is_named_without_its_value() {
    for (config, key) in [
        (json!({"base_url": 7, "x": 1}), "`model.direct.base_url`"),
        (json!({"models": "canary"}), "`model.direct.models`"),
        (json!({"models": ["a", 7]}), "`model.direct.models`"),
        (
            json!({"default_model": ["canary"]}),
            "`model.direct.default_model`",
        ),
        (
            json!({"require_https": "canary"}),
            "`model.direct.require_https`",
        ),
        (
            json!({"allow_plaintext": 1}),
            "`model.direct.allow_plaintext`",
        ),
        (json!({"base_uri": "canary"}), "`model.direct.base_uri`"),
        (json!("canary"), "`model.direct`"),
    ] {
        let error = refused(config).await;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = format!("{error} {error:?}");
        assert!(text.contains(key), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}
