use std::sync::Arc;

use astrabox_conformance::doubles::MemoryWorkload;
use astrabox_engine::Conversation;
use astrabox_engine::model::{CredentialKind, ResolvedModelAccess};
use astrabox_types::{AgentSpec, EnvironmentId, Json, PermissionLevel, SessionId, SessionKind};

use super::*;

fn program(env: &[(&str, &str)], model_wire: &str) -> ProgramSpec {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ProgramSpec {
        command: "node".to_owned(),
        arguments: vec!["--model=${model.name}".to_owned()],
        env: env.collect(),
        model_wire: model_wire.to_owned(),
        state_directory: None,
    }
}

fn context(program: Option<ProgramSpec>) -> EngineStartupContext {
    EngineStartupContext {
        session_id: SessionId::new(),
        epoch: 4,
        session_kind: SessionKind::AgentChat,
        agent: AgentSpec {
            name: "a".to_owned(),
            description: String::new(),
            environment_id: EnvironmentId::new(),
            model: "m".to_owned(),
            system: "be brief".to_owned(),
            engine_options: BTreeMap::from([
                (
                    "session".to_owned(),
                    Json::parse(r#"{"x":1.0}"#).expect("is JSON"),
                ),
                (
                    "config_options".to_owned(),
                    Json::parse(r#"{"effort":"low"}"#).expect("is JSON"),
                ),
            ]),
            permission_mode: Some("ask".to_owned()),
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            repository: None,
            approval_rules: Vec::new(),
            vault_ids: Vec::new(),
            metadata: BTreeMap::new(),
        },
        program,
        permission_mode: None,
        permission_level: PermissionLevel::Default,
        model: ResolvedModelAccess {
            base_url: "http://models.test".to_owned(),
            model_name: "m-1".to_owned(),
            credential: None,
            credential_kind: CredentialKind::Bearer,
            endpoint_provider: "direct".to_owned(),
        },
        model_placeholder: "placeholder-1".to_owned(),
        mcp_headers: Vec::new(),
        workload: Arc::new(MemoryWorkload::without_programs()),
        env: BTreeMap::from([
            ("HOME".to_owned(), "/home/agent".to_owned()),
            ("SSL_CERT_FILE".to_owned(), "/etc/ca.pem".to_owned()),
        ]),
        conversation: Conversation::New,
    }
}

#[test]
fn the_environments_program_is_started_with_the_sessions_values() {
    let named = program(
        &[
            ("URL", "${model.base_url}/v1"),
            ("KEY", "${model.key}"),
            ("HOME", "${home}/x"),
        ],
        "openai_chat",
    );
    let plan = Plan::of(&context(Some(named))).expect("it is planned");
    assert_eq!(plan.spawn.argv, ["node", "--model=m-1"]);
    assert_eq!(plan.spawn.name.as_str(), "engine-4");
    assert_eq!(plan.spawn.cwd.as_str(), "/workspace");
    for (name, value) in [
        ("URL", "http://models.test/v1"),
        ("KEY", "placeholder-1"),
        // What the environment says is stronger.
        ("HOME", "/home/agent/x"),
        ("NODE_EXTRA_CA_CERTS", "/etc/ca.pem"),
        ("CODEX_CA_CERTIFICATE", "/etc/ca.pem"),
    ] {
        assert_eq!(
            plan.spawn.env.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    assert_eq!(plan.settings.instructions, "be brief");
    assert_eq!(plan.settings.mode.as_deref(), Some("ask"));
    assert_eq!(plan.settings.wishes.len(), 1);
    assert!(plan.settings.meta.contains_key("x"));
}

#[test]
fn a_session_without_a_program_is_refused() {
    let error = Plan::of(&context(None)).err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    assert_eq!(
        model_use(None).expect_err("too").kind(),
        ErrorKind::InvalidConfiguration
    );
}

#[test]
fn what_a_program_asks_of_its_model_follows_from_its_wire() {
    for (wire, first) in [
        ("anthropic_messages", Some("/v1/messages")),
        ("openai_responses", Some("/v1/responses")),
        ("openai_chat", Some("/v1/chat/completions")),
        ("anthropic", None),
        ("", None),
    ] {
        let used = model_use(Some(&program(&[], wire)));
        let paths = used.map(|(_, paths)| paths);
        assert_eq!(paths.ok().map(|paths| paths[0].path), first, "{wire}");
    }
}

#[test]
fn a_value_that_is_not_known_is_refused_before_anything_is_made() {
    let named = program(&[("A", "${model.kee}")], "openai_chat");
    let error = model_use(Some(&named)).expect_err("it is refused");
    assert!(error.to_string().contains("${model.key}"), "{error}");
}
