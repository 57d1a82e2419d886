//! What the adapter does to a sandbox, and that a conversation runs over it.

mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::model::{CredentialKind, ModelWire, ResolvedModelAccess};
use astrabox_engine::registry::Registry;
use astrabox_engine::sandbox::{ProcessName, Stdio};
use astrabox_engine::{
    BindRequest, Conversation, EmissionKind, EngineAdapter, EngineClient, EngineInput,
    EngineManifest, EngineStartupContext, ErrorKind, Registration, SandboxRequestContext,
    check_options,
};
use astrabox_engine_codex::Codex;
use astrabox_types::{
    AgentSpec, ContentPart, EnvironmentId, EventPayload, InputId, Json, PermissionLevel, SessionId,
    SessionKind, TurnOutcome,
};
use futures::StreamExt;
use workload::Memory;

fn agent() -> AgentSpec {
    AgentSpec {
        name: "a".to_owned(),
        description: String::new(),
        environment_id: EnvironmentId::new(),
        model: "m".to_owned(),
        system: "be brief".to_owned(),
        engine_options: BTreeMap::new(),
        permission_mode: None,
        mcp_servers: Vec::new(),
        skills: Vec::new(),
        repository: None,
        approval_rules: Vec::new(),
        vault_ids: Vec::new(),
        metadata: BTreeMap::new(),
    }
}

fn context(workload: &Arc<Memory>, conversation: Conversation) -> EngineStartupContext {
    EngineStartupContext {
        session_id: SessionId::new(),
        epoch: 4,
        session_kind: SessionKind::AgentChat,
        agent: agent(),
        program: None,
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
        workload: Arc::clone(workload) as _,
        env: BTreeMap::from([("HOME".to_owned(), "/home/agent".to_owned())]),
        conversation,
    }
}

fn bind(expected: Option<&str>) -> BindRequest {
    BindRequest {
        expected: expected.map(str::to_owned),
        within: Duration::from_secs(10),
    }
}

/// Takes and commits steps until a turn ends.
async fn turn(client: &dyn EngineClient) -> Vec<EmissionKind> {
    let mut said = Vec::new();
    loop {
        let step = client.turn_events().next().await;
        let step = step.expect("it goes on").expect("it is connected");
        let kinds = step.emissions.into_iter().map(|one| one.into_kind());
        said.extend(kinds);
        client
            .committed(&client.checkpoint())
            .await
            .expect("it writes");
        let ended = said
            .iter()
            .any(|kind| matches!(kind, EmissionKind::Terminal(_)));
        if ended {
            return said;
        }
    }
}

#[test]
fn it_is_linked_under_its_kind_and_declares_what_it_has() {
    let linked = Registry::<Registration>::linked().expect("no name twice");
    let codex = linked.get("codex").expect("it is linked").adapter();
    assert_eq!(codex.kind(), "codex");
    let capabilities = codex.capabilities();
    assert_eq!(capabilities.model_wire, ModelWire::OpenaiResponses);
    let default = capabilities.default_permission_mode.expect("it has one");
    let modes = capabilities.permission_modes;
    let default = modes.iter().find(|mode| mode.name == default);
    assert_eq!(default.expect("it exists").level, PermissionLevel::Default);
    assert_eq!(codex.image_recipe().version, capabilities.program_version);
    let material = codex.startup_material_request();
    assert_eq!(material.native_state.directory, ".codex/sessions");
    assert!(material.native_state.named_by_key);
}

#[test]
fn it_needs_one_model_call_and_no_callback() {
    let request = |session_kind| {
        Codex.sandbox_request(&SandboxRequestContext {
            session_kind,
            permission_level: PermissionLevel::Default,
            program: None,
        })
    };
    let wanted = request(SessionKind::AgentChat).expect("it carries these");
    assert!(!wanted.needs_callback);
    let paths: Vec<_> = wanted
        .model_paths
        .iter()
        .map(|one| (one.method, one.path))
        .collect();
    assert_eq!(paths, [("POST", "/v1/responses")]);
    let error = request(SessionKind::AssistantChat).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_activation_writes_its_files_starts_the_program_and_carries_a_turn() {
    let workload = Arc::new(Memory::default());
    let context = context(&workload, Conversation::New);
    let client = Codex.activate(context).await.expect("it starts");
    let bound = client
        .bind_conversation(bind(None))
        .await
        .expect("it binds");
    assert_eq!(bound.native_key, "thread-1");
    {
        let seen = workload.seen();
        let (config, options) = &seen.files["/home/agent/.codex/config.toml"];
        assert!(
            config.contains("base_url = \"http://models.test/v1\""),
            "{config}"
        );
        assert!(options.private);
        assert!(!config.contains("placeholder-1"), "{config}");
        let [spec] = &seen.spawned[..] else {
            panic!("{:?}", seen.spawned);
        };
        assert_eq!(spec.name.as_str(), "engine-4");
        assert_eq!(spec.stdin, Stdio::Piped);
        assert_eq!(
            spec.argv,
            [
                "/opt/astrabox/image/bin/codex",
                "app-server",
                "-c",
                "features.plugins=false"
            ]
        );
        assert_eq!(spec.env["ASTRABOX_MODEL_KEY"], "placeholder-1");
        assert_eq!(spec.env["CODEX_HOME"], "/home/agent/.codex");
        assert!(seen.killed.is_empty());
    }
    let manifest = EngineManifest::of("codex", client.as_ref());
    assert!(manifest.interactions && manifest.permission_modes && manifest.child_run_control);
    let info = client.server_info().expect("it tells");
    assert_eq!(info.program().as_deref(), Some("codex 0.169.0"));

    let input = EngineInput {
        input_id: InputId::new(),
        content: vec![ContentPart::text("hi")],
        notice: None,
    };
    client.deliver(input.clone()).await.expect("it queues");
    let said = turn(client.as_ref()).await;
    assert!(matches!(said[0], EmissionKind::InputConsumed(id) if id == input.input_id));
    assert!(matches!(&said[1], EmissionKind::PublicEvent(draft)
        if matches!(&draft.payload, EventPayload::MessageCompleted { text, .. } if text == "hello")));
    assert!(
        matches!(&said[2], EmissionKind::Terminal(end) if end.outcome == TurnOutcome::Completed)
    );
    let requests = &workload.seen().requests;
    let methods: Vec<_> = requests
        .iter()
        .filter_map(|one| one["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        ["initialize", "initialized", "thread/start", "turn/start"]
    );
    assert_eq!(requests[0]["id"], "4-1");
    assert_eq!(requests[2]["params"]["developerInstructions"], "be brief");
}

#[tokio::test]
async fn a_resumed_conversation_is_asked_for_by_its_key_and_must_be_that_one() {
    let workload = Arc::new(Memory::default());
    let native_key = "thread-1".to_owned();
    let resumed = context(&workload, Conversation::Resume { native_key });
    let client = Codex.activate(resumed).await.expect("it starts");
    client
        .bind_conversation(bind(Some("thread-1")))
        .await
        .expect("it is that one");
    assert_eq!(
        workload.seen().requests[2]["params"]["threadId"],
        "thread-1"
    );

    let workload = Arc::new(Memory::default());
    let native_key = "thread-2".to_owned();
    let resumed = context(&workload, Conversation::Resume { native_key });
    let client = Codex.activate(resumed).await.expect("it starts");
    let error = client
        .bind_conversation(bind(Some("thread-2")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConversationLost);
}

#[tokio::test]
async fn a_running_program_is_reached_without_touching_anything() {
    let workload = Arc::new(Memory::default());
    let client = Codex
        .activate(context(&workload, Conversation::New))
        .await
        .expect("it starts");
    client
        .bind_conversation(bind(None))
        .await
        .expect("it binds");
    let checkpoint = client.checkpoint();
    drop(client);
    workload.seen().files.clear();

    let native_key = "thread-1".to_owned();
    let attached = Conversation::Attach {
        native_key,
        checkpoint,
    };
    let mut again = context(&workload, attached);
    again.epoch = 5;
    let client = Codex.activate(again).await.expect("it lives");
    client
        .bind_conversation(bind(Some("thread-1")))
        .await
        .expect("the same");
    let seen = workload.seen();
    assert!(seen.files.is_empty() && seen.killed.is_empty());
    assert_eq!(seen.spawned.len(), 1);
}

#[tokio::test]
async fn the_program_of_a_crashed_activation_is_ended_first() {
    let mut workload = Memory::default();
    workload.left_over = Some(ProcessName::new("engine-3").expect("plain"));
    let workload = Arc::new(workload);
    Codex
        .activate(context(&workload, Conversation::New))
        .await
        .expect("it starts");
    let seen = workload.seen();
    assert_eq!(seen.killed, ["engine-3"]);
    assert_eq!(seen.spawned.len(), 1);
}

#[tokio::test]
async fn what_it_cannot_do_is_refused_before_anything_is_started() {
    type Spoil = fn(&mut EngineStartupContext);
    let cases: [(Spoil, ErrorKind); 4] = [
        (
            |it| it.session_kind = SessionKind::AssistantChat,
            ErrorKind::Unsupported,
        ),
        (
            |it| it.permission_mode = Some("workspace-write".to_owned()),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| it.agent.permission_mode = Some("yolo".to_owned()),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| {
                let json = Json::parse(r#"{"model":"other"}"#).expect("it is JSON");
                it.agent.engine_options.insert("config".to_owned(), json);
            },
            ErrorKind::InvalidConfiguration,
        ),
    ];
    for (spoil, kind) in cases {
        let workload = Arc::new(Memory::default());
        let mut spoiled = context(&workload, Conversation::New);
        spoil(&mut spoiled);
        let error = Codex.activate(spoiled).await.err().expect("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        let seen = workload.seen();
        assert!(seen.files.is_empty() && seen.spawned.is_empty());
    }
}

#[test]
fn the_platforms_own_keys_are_refused_in_every_spelling() {
    let check = |block: &str, json: &str| {
        let json = Json::parse(json).expect("it is JSON");
        check_options(
            &Codex.capabilities(),
            &BTreeMap::from([(block.to_owned(), json)]),
        )
    };
    for (block, json) in [
        ("config", r#"{"model_provider":"x"}"#),
        ("config", r#"{"model_providers.x.base_url":"http://x"}"#),
        (
            "config",
            r#"{"sandbox_workspace_write":{"network_access":true}}"#,
        ),
        ("config", r#"{"mcp_servers":{}}"#),
        ("config", r#"{"tools":{"web_search":true}}"#),
        ("config", r#"{"features.plugins":true}"#),
        (
            "turn_start",
            r#"{"sandboxPolicy":{"type":"dangerFullAccess"}}"#,
        ),
        (
            "turn_start",
            r#"{"collaborationMode":{"settings":{"model":"x"}}}"#,
        ),
        ("sdk_options", "{}"),
        ("config", "[]"),
    ] {
        let error = check(block, json).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidConfiguration,
            "{block} {json}"
        );
    }
    for (block, json) in [
        (
            "config",
            r#"{"model_reasoning_effort":"high","features":{"goals":false}}"#,
        ),
        (
            "turn_start",
            r#"{"effort":"high","collaborationMode":{"mode":"plan","settings":{}}}"#,
        ),
        ("model_catalog", r#"{"models":[]}"#),
    ] {
        check(block, json).expect(json);
    }
}
