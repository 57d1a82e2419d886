use super::*;

/// Settings of an agent without options.
pub(crate) fn settings() -> Settings {
    Settings {
        key: "00000000-0000-4000-8000-00000000c0de".to_owned(),
        mode: DEFAULT_MODE.to_owned(),
        opening: Some(Opening {
            instructions: String::new(),
            agents: Map::new(),
        }),
    }
}

#[test]
fn a_program_is_launched_in_another_mode_than_the_wanted_one() {
    for mode in [
        "default",
        "acceptEdits",
        "plan",
        "dontAsk",
        "bypassPermissions",
    ] {
        let mut settings = settings();
        settings.set_mode(mode).expect("there is such a mode");
        assert_ne!(settings.first_mode(), mode);
        // Neither is a mode in which more runs unasked than edits.
        assert!(matches!(settings.first_mode(), "default" | "acceptEdits"));
    }
    assert!(settings().set_mode("auto").is_err());
}

#[test]
fn initialize_carries_instructions_and_sub_agents_once() {
    let mut settings = settings();
    settings.opening = Some(Opening {
        instructions: "Be brief.".to_owned(),
        agents: Map::from_iter([("a".to_owned(), json!({"description": "d", "prompt": "p"}))]),
    });
    let request = settings.initialize();
    assert_eq!(request["appendSystemPrompt"], "Be brief.");
    assert_eq!(request["agents"]["a"]["prompt"], "p");
    assert_eq!(request["forwardSubagentText"], true);
    let state = serde_json::to_string(&settings).expect("it is JSON");
    assert!(!state.contains("Be brief"), "{state}");
    assert!(settings.initialize().get("agents").is_none());
}

#[test]
fn an_activation_gives_conversations_and_messages_ids_of_their_own() {
    let (session, input) = (SessionId::new(), InputId::new());
    assert_ne!(new_key(session, 1), new_key(session, 2));
    assert_eq!(new_key(session, 1), new_key(session, 1));
    assert_eq!(new_key(session, 0), session.uuid().to_string());
    assert_ne!(message_id(input, 1), message_id(input, 2));
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
        r#"{"mcpServers":{"echo":{"args":["x.pl"],"command":"perl","env":{"A":"b"},"type":"stdio"},"far":{"headers":{"Authorization":"Bearer p"},"type":"http","url":"https://mcp.test/x"}}}"#
    ]]
    .assert_eq(&mcp_config(&servers, &headers).to_string());
}

#[test]
fn the_placeholder_is_where_the_endpoint_wants_its_key() {
    for (kind, variable) in [
        (CredentialKind::None, "ANTHROPIC_API_KEY"),
        (CredentialKind::ApiKey, "ANTHROPIC_API_KEY"),
        (CredentialKind::Bearer, "ANTHROPIC_AUTH_TOKEN"),
    ] {
        let model = ResolvedModelAccess {
            base_url: "http://models.test:4000".to_owned(),
            model_name: "m".to_owned(),
            credential: None,
            credential_kind: kind,
            endpoint_provider: "direct".to_owned(),
        };
        let variables = model_variables(&model, "placeholder");
        assert_eq!(variables[1], (variable, "placeholder".to_owned()));
    }
}

#[test]
fn an_input_is_a_user_message_with_its_parts() {
    let input = EngineInput {
        input_id: InputId::new(),
        content: vec![
            ContentPart::text("look"),
            ContentPart::Image {
                media_type: astrabox_types::ImageMediaType::Png,
                data: "AAAA".to_owned(),
            },
        ],
        notice: Some("the last turn was cut".to_owned()),
    };
    let line = user_line(&input, 1);
    let content = line["message"]["content"].as_array().expect("parts");
    assert_eq!(content[0]["text"], "the last turn was cut");
    assert_eq!(content[1]["text"], "look");
    assert_eq!(content[2]["source"]["media_type"], "image/png");
    assert_eq!(line["uuid"], message_id(input.input_id, 1));
}
