use astrabox_engine::model::CredentialKind;
use astrabox_types::InputId;

use super::*;

/// Settings of an agent without options.
pub(crate) fn settings() -> Settings {
    Settings {
        model: "model-1".to_owned(),
        mode: DEFAULT_MODE.to_owned(),
        advanced: false,
        turn_start: Map::new(),
        opening: Some(Opening {
            instructions: String::new(),
            config: Map::new(),
        }),
    }
}

fn model() -> ResolvedModelAccess {
    ResolvedModelAccess {
        base_url: "http://models.test:4000".to_owned(),
        model_name: "a \"model\"\\x".to_owned(),
        credential: None,
        credential_kind: CredentialKind::Bearer,
        endpoint_provider: "direct".to_owned(),
    }
}

#[test]
fn the_configuration_names_the_model_and_no_secret() {
    let text = config_toml(&model(), true, &[], &[]).expect("it is TOML");
    expect_test::expect![[r#"
        check_for_update_on_startup = false
        model = 'a "model"\x'
        model_catalog_json = "/home/agent/.codex/model_catalog.json"
        model_provider = "astrabox"
        web_search = "disabled"

        [analytics]
        enabled = false

        [features]
        plugins = false

        [model_providers.astrabox]
        base_url = "http://models.test:4000/v1"
        env_key = "ASTRABOX_MODEL_KEY"
        name = "astrabox"
        request_max_retries = 3
        stream_idle_timeout_ms = 300000
        stream_max_retries = 3
        wire_api = "responses"

        [shell_environment_policy]
        ignore_default_excludes = true
        inherit = "all"
    "#]]
    .assert_eq(&text);
}

#[test]
fn without_a_catalogue_none_is_named() {
    let text = config_toml(&model(), false, &[], &[]).expect("it is TOML");
    assert!(!text.contains("model_catalog_json"), "{text}");
}

#[test]
fn the_program_finds_its_home_its_placeholder_and_the_authority() {
    let base = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    };
    let env = environment(
        &base(&[("HOME", "/home/agent"), ("SSL_CERT_FILE", "/ca.pem")]),
        "ph-1",
    );
    let expected = base(&[
        ("ASTRABOX_MODEL_KEY", "ph-1"),
        ("CODEX_CA_CERTIFICATE", "/ca.pem"),
        ("CODEX_HOME", "/home/agent/.codex"),
        ("HOME", "/home/agent"),
        ("SSL_CERT_FILE", "/ca.pem"),
    ]);
    assert_eq!(env, expected);
    assert!(!environment(&base(&[]), "").contains_key("CODEX_CA_CERTIFICATE"));
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other}"),
    }
}

#[test]
fn instructions_and_overrides_go_with_the_opening_of_the_conversation() {
    let mut settings = settings();
    settings.opening = Some(Opening {
        instructions: "be brief".to_owned(),
        config: object(json!({"model_reasoning_effort": "high"})),
    });
    let (method, params) = settings.clone().open(None).expect("once");
    assert_eq!(method, "thread/start");
    assert_eq!(params["developerInstructions"], "be brief");
    assert_eq!(params["config"]["model_reasoning_effort"], "high");
    let (method, params) = settings.open(Some("t")).expect("once");
    assert_eq!(method, "thread/resume");
    assert_eq!(params["developerInstructions"], "be brief");
    assert_eq!(params["threadId"], "t");
    assert!(settings.open(None).is_err(), "they are not kept");
}

#[test]
fn an_agents_turn_options_never_win_over_the_platforms() {
    let mut settings = settings();
    settings.turn_start = object(json!({
        "effort": "high",
        "approvalPolicy": "never",
        "sandboxPolicy": {"type": "dangerFullAccess"},
        "collaborationMode": {"mode": "plan", "settings": {"reasoning_effort": null}},
    }));
    settings.set_mode("untrusted").expect("it has it");
    let input = EngineInput {
        input_id: InputId::new(),
        content: vec![ContentPart::text("hi")],
        notice: None,
    };
    let params = settings.turn("t", &input).expect("it is planned");
    assert_eq!(params["effort"], "high");
    assert_eq!(params["approvalPolicy"], "untrusted");
    assert_eq!(params["sandboxPolicy"]["type"], "externalSandbox");
    assert_eq!(params["collaborationMode"]["settings"]["model"], "model-1");
}

#[test]
fn a_server_on_the_network_is_spoken_to_with_its_header() {
    let servers = ["near", "far"].map(|name| McpServer {
        name: name.to_owned(),
        transport: McpTransport::Http {
            url: format!("https://{name}.test/mcp"),
        },
    });
    let headers = [McpHeader {
        server: "far".to_owned(),
        name: "Authorization".to_owned(),
        value: "Bearer p".to_owned(),
    }];
    let text = config_toml(&model(), false, &servers, &headers).expect("it is TOML");
    let config: Value = toml::from_str(&text).expect("it is read");
    let servers = &config["mcp_servers"];
    assert_eq!(
        servers["far"]["http_headers"],
        json!({"Authorization": "Bearer p"})
    );
    assert!(servers["near"].get("http_headers").is_none(), "{text}");
}
