use astrabox_types::{ImageMediaType, InputId};

use super::*;

fn model(credential_kind: CredentialKind) -> ResolvedModelAccess {
    ResolvedModelAccess {
        base_url: "http://models.test:4000".to_owned(),
        model_name: "m".to_owned(),
        credential: None,
        credential_kind,
        endpoint_provider: "direct".to_owned(),
    }
}

fn options(name: &str, value: &str) -> BTreeMap<String, Json> {
    BTreeMap::from([(name.to_owned(), Json::parse(value).expect("it is JSON"))])
}

#[test]
fn the_placeholder_is_where_the_endpoint_wants_its_key() {
    for (kind, expected) in [
        (
            CredentialKind::Bearer,
            r#"{"providers":{"astrabox":{"api":"openai-completions","apiKey":"$ASTRABOX_MODEL_KEY","baseUrl":"http://models.test:4000/v1","models":[{"id":"m","input":["text","image"],"name":"m"}]}}}"#,
        ),
        (
            CredentialKind::ApiKey,
            r#"{"providers":{"astrabox":{"api":"openai-completions","apiKey":"none","baseUrl":"http://models.test:4000/v1","headers":{"x-api-key":"$ASTRABOX_MODEL_KEY"},"models":[{"id":"m","input":["text","image"],"name":"m"}]}}}"#,
        ),
    ] {
        assert_eq!(
            models(&model(kind), &BTreeMap::new()).to_string(),
            expected,
            "{kind:?}"
        );
    }
}

#[test]
fn an_agent_tells_more_of_its_model_and_no_other_address() {
    let options = options(
        "model",
        r#"{"contextWindow":200000,"reasoning":true,"input":["text"],"id":"x"}"#,
    );
    let models = models(&model(CredentialKind::Bearer), &options);
    let entry = &models["providers"]["astrabox"]["models"][0];
    assert_eq!(
        entry.to_string(),
        r#"{"contextWindow":200000,"id":"m","input":["text"],"name":"m","reasoning":true}"#
    );
}

#[test]
fn settings_are_the_agents_but_for_what_is_told_to_others() {
    let settings = settings(&options("settings", r#"{"defaultThinkingLevel":"high"}"#));
    assert_eq!(settings["defaultThinkingLevel"], "high");
    assert_eq!(settings["enableInstallTelemetry"], false);
    assert_eq!(settings["defaultProjectTrust"], "never");
}

#[test]
fn the_tools_to_ask_for_are_written_into_the_extension() {
    assert_eq!(EXTENSION.matches(ASK).count(), 1);
    let asks = format!("const ASK: string[] = {};", json!(["bash", "mcp__*"]));
    let written = EXTENSION.replacen(ASK, &asks, 1);
    assert!(written.contains(r#"const ASK: string[] = ["bash","mcp__*"];"#));
}

#[test]
fn mcp_servers_are_written_in_the_programs_form() {
    let servers = [
        McpServer {
            name: "echo".to_owned(),
            transport: McpTransport::Stdio {
                command: "perl".to_owned(),
                args: vec!["x.pl".to_owned()],
                env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            },
        },
        McpServer {
            name: "far".to_owned(),
            transport: McpTransport::Http {
                url: "https://mcp.test/x".to_owned(),
            },
        },
    ];
    let headers = [McpHeader {
        server: "far".to_owned(),
        name: "Authorization".to_owned(),
        value: "Bearer p".to_owned(),
    }];
    expect_test::expect![[
        r#"{"mcpServers":{"echo":{"args":["x.pl"],"command":"perl","env":{"A":"b"},"exposure":"direct"},"far":{"exposure":"direct","headers":{"Authorization":"Bearer p"},"url":"https://mcp.test/x"}}}"#
    ]]
    .assert_eq(&mcp_config(&servers, &headers).to_string());
}

#[test]
fn a_session_file_begins_with_its_header() {
    let session: SessionId = "sesn_0190a5b8d7f07000800000000000c0de"
        .parse()
        .expect("it is an id");
    expect_test::expect![[r#"
        {"cwd":"/workspace","id":"k","timestamp":"2024-07-12T06:54:32.944Z","type":"session","version":3}
    "#]]
    .assert_eq(&session_header("k", session));
    assert_ne!(new_key(session, 1), new_key(session, 2));
    assert_eq!(new_key(session, 0), session.uuid().to_string());
}

#[test]
fn an_input_is_one_text_and_its_pictures() {
    let input = EngineInput {
        input_id: InputId::new(),
        content: vec![
            ContentPart::text("look"),
            ContentPart::Image {
                media_type: ImageMediaType::Png,
                data: "AAAA".to_owned(),
            },
        ],
        notice: Some("the last turn was cut".to_owned()),
    };
    expect_test::expect![[
        r#"{"images":[{"data":"AAAA","mimeType":"image/png","type":"image"}],"message":"the last turn was cut\n\nlook","streamingBehavior":"followUp","type":"prompt"}"#
    ]]
    .assert_eq(&prompt(&input).to_string());
    let plain = EngineInput {
        content: vec![ContentPart::text("hi")],
        notice: None,
        ..input
    };
    assert!(prompt(&plain).get("images").is_none());
}
