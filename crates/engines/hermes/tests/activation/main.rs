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
    EngineManifest, EngineStartupContext, ErrorKind, McpHeader, Registration,
    SandboxRequestContext,
};
use astrabox_engine_hermes::Hermes;
use astrabox_types::{
    AgentSpec, ContentPart, EnvironmentId, InputId, Json, McpServer, McpTransport, PermissionLevel,
    SessionId, SessionKind, Skill, TurnOutcome,
};
use futures::StreamExt;
use serde_json::{Value, json};
use workload::Memory;

const HOST: &str = "/home/agent/.hermes/host/host.py";
const SETTINGS: &str = "/home/agent/.hermes/host/settings.json";

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
            model_name: "a \"model\"".to_owned(),
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

/// Starts a new conversation of this agent and gives what its host is told.
async fn told(spoil: impl FnOnce(&mut EngineStartupContext)) -> (Arc<Memory>, Value) {
    let workload = Arc::new(Memory::default());
    let mut context = context(&workload, Conversation::New);
    spoil(&mut context);
    let client = Hermes.activate(context).await.expect("it starts");
    client
        .bind_conversation(bind(None))
        .await
        .expect("it binds");
    let told = serde_json::from_str(&workload.seen().files[SETTINGS].0).expect("it is JSON");
    (workload, told)
}

/// The parameters of the last request of this method.
fn asked(workload: &Memory, method: &str) -> Value {
    let seen = workload.seen();
    let found = seen
        .requests
        .iter()
        .rev()
        .find(|one| one["method"] == method);
    found.unwrap_or_else(|| panic!("no {method}"))["params"].clone()
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
    let hermes = linked.get("hermes").expect("it is linked").adapter();
    assert_eq!(hermes.kind(), "hermes");
    let capabilities = hermes.capabilities();
    assert_eq!(capabilities.model_wire, ModelWire::OpenaiChat);
    let default = capabilities.default_permission_mode.expect("it has one");
    let modes = capabilities.permission_modes;
    assert!(modes.iter().any(|mode| mode.name == default));
    assert_eq!(hermes.image_recipe().version, capabilities.program_version);
    let state = hermes.startup_material_request().native_state;
    assert_eq!(state.directory, ".hermes/saved");
    for (name, kept) in [
        ("state.db", true),
        ("MEMORY.md", true),
        ("allowlist.json", true),
        ("state.db.partial", false),
    ] {
        assert_eq!(state.format_of(name).is_some(), kept, "{name}");
    }
}

#[test]
fn it_needs_one_model_call_and_no_callback() {
    let request = |session_kind| {
        Hermes.sandbox_request(&SandboxRequestContext {
            session_kind,
            permission_level: PermissionLevel::Default,
            program: None,
        })
    };
    let wanted = request(SessionKind::AgentChat).expect("it carries these");
    assert!(!wanted.needs_callback);
    let paths = wanted.model_paths.iter().map(|one| (one.method, one.path));
    assert_eq!(
        paths.collect::<Vec<_>>(),
        [("POST", "/v1/chat/completions")]
    );
    let error = request(SessionKind::AssistantChat).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_activation_writes_its_files_starts_the_program_and_carries_a_turn() {
    let workload = Arc::new(Memory::default());
    let context = context(&workload, Conversation::New);
    let client = Hermes.activate(context).await.expect("it starts");
    let bound = client
        .bind_conversation(bind(None))
        .await
        .expect("it binds");
    assert_eq!(bound.native_key, "session-1");
    {
        let seen = workload.seen();
        for file in [HOST, SETTINGS] {
            let (content, options) = &seen.files[file];
            assert!(
                options.private && !content.contains("placeholder-1"),
                "{file}"
            );
        }
        let [spec] = &seen.spawned[..] else {
            panic!("{:?}", seen.spawned);
        };
        assert_eq!(spec.name.as_str(), "engine-4");
        assert_eq!(spec.stdin, Stdio::Piped);
        assert_eq!(
            spec.argv,
            [
                "/usr/bin/python3",
                "-P",
                "-s",
                "-B",
                HOST,
                "/opt/astrabox/image/python",
                SETTINGS,
            ]
        );
        assert_eq!(spec.env["ASTRABOX_MODEL_KEY"], "placeholder-1");
        assert_eq!(spec.env["HERMES_HOME"], "/home/agent/.hermes");
        assert_eq!(spec.env["HERMES_DISABLE_LAZY_INSTALLS"], "1");
        // Commands of the agent would load the program's packages.
        assert!(!spec.env.contains_key("PYTHONPATH"));
        assert!(seen.killed.is_empty());
    }
    let manifest = EngineManifest::of("hermes", client.as_ref());
    assert!(manifest.interactions && manifest.permission_modes && manifest.child_run_control);
    let info = client.server_info().expect("it tells");
    assert_eq!(info.program().as_deref(), Some("hermes-agent 0.19.0"));

    let input = EngineInput {
        input_id: InputId::new(),
        content: vec![ContentPart::text("hi")],
        notice: None,
    };
    client.deliver(input.clone()).await.expect("it queues");
    let said = turn(client.as_ref()).await;
    assert!(matches!(said[0], EmissionKind::InputConsumed(id) if id == input.input_id));
    let Some(EmissionKind::Terminal(end)) = said.last() else {
        panic!("{said:?}");
    };
    assert_eq!(end.outcome, TurnOutcome::Completed);
    let seen = workload.seen();
    let methods: Vec<_> = seen
        .requests
        .iter()
        .filter_map(|one| one["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        [
            "initialize",
            "session/new",
            "session/set_mode",
            "session/prompt"
        ]
    );
}

#[tokio::test]
async fn the_configuration_names_the_model_and_no_secret() {
    let (_, told) = told(|_| ()).await;
    assert_eq!(told["instructions"], "be brief");
    let text = serde_json::to_string_pretty(&told["config"]).expect("it is JSON");
    expect_test::expect![[r#"
        {
          "agent": {
            "image_input_mode": "native"
          },
          "auxiliary": {
            "title_generation": {
              "enabled": false
            }
          },
          "curator": {
            "enabled": false
          },
          "lsp": {
            "enabled": false
          },
          "memory": {
            "nudge_interval": 0
          },
          "model": {
            "api_key": "${ASTRABOX_MODEL_KEY}",
            "api_mode": "chat_completions",
            "base_url": "http://models.test/v1",
            "default": "a \"model\"",
            "provider": "custom",
            "supports_vision": true
          },
          "model_catalog": {
            "enabled": false
          },
          "security": {
            "allow_lazy_installs": false,
            "redact_secrets": false,
            "tirith_enabled": false
          },
          "skills": {
            "creation_nudge_interval": 0
          },
          "terminal": {
            "backend": "local"
          }
        }"#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn an_agents_keys_are_kept_beside_the_platforms() {
    let own = json!({
        "approvals": {"mode": "off", "deny": ["git push*"]},
        "model": {"context_length": 32000},
        "agent": {"max_turns": 5},
    });
    let (_, told) = told(|context| {
        let options = &mut context.agent.engine_options;
        options.insert("config".to_owned(), Json::from(own));
    })
    .await;
    let config = &told["config"];
    assert_eq!(
        config["approvals"],
        json!({"mode": "off", "deny": ["git push*"]})
    );
    assert_eq!(config["model"]["context_length"], 32000);
    assert_eq!(config["model"]["provider"], "custom");
    assert_eq!(
        config["agent"],
        json!({"max_turns": 5, "image_input_mode": "native"})
    );
}

#[tokio::test]
async fn skills_are_written_and_servers_are_named_when_the_conversation_opens() {
    let (workload, _) = told(|context| {
        context.agent.skills.push(Skill {
            name: "tell".to_owned(),
            files: BTreeMap::from([("SKILL.md".to_owned(), "told".to_owned())]),
        });
        context.agent.mcp_servers.push(McpServer {
            name: "far".to_owned(),
            transport: McpTransport::Http {
                url: "https://mcp.test/x".to_owned(),
            },
        });
        context.mcp_headers.push(McpHeader {
            server: "far".to_owned(),
            name: "Authorization".to_owned(),
            value: "Bearer p".to_owned(),
        });
    })
    .await;
    let skill = workload.seen().files["/home/agent/.hermes/skills/tell/SKILL.md"].clone();
    assert_eq!(skill.0, "told");
    let opened = asked(&workload, "session/new");
    assert_eq!(opened["cwd"], "/workspace");
    let header = &opened["mcpServers"][0]["headers"][0];
    assert_eq!(header["value"], "Bearer p");
    assert!(opened.get("systemPrompt").is_none(), "{opened}");
}

#[tokio::test]
async fn a_session_begins_in_its_own_mode_or_the_agents_or_the_usual_one() {
    for (session, agent, wanted) in [
        (None, None, "dont_ask"),
        (None, Some("accept_edits"), "accept_edits"),
        (Some("dont_ask"), Some("accept_edits"), "dont_ask"),
    ] {
        let (workload, _) = told(|context| {
            context.permission_mode = session.map(str::to_owned);
            context.agent.permission_mode = agent.map(str::to_owned);
        })
        .await;
        assert_eq!(asked(&workload, "session/set_mode")["modeId"], wanted);
    }
}

#[tokio::test]
async fn a_resumed_conversation_is_asked_for_by_its_key() {
    let workload = Arc::new(Memory::default());
    let native_key = "session-1".to_owned();
    let resumed = context(&workload, Conversation::Resume { native_key });
    let client = Hermes.activate(resumed).await.expect("it starts");
    client
        .bind_conversation(bind(Some("session-1")))
        .await
        .expect("it is that one");
    assert_eq!(asked(&workload, "session/resume")["sessionId"], "session-1");
}

#[tokio::test]
async fn a_running_program_is_reached_without_touching_anything() {
    let workload = Arc::new(Memory::default());
    let client = Hermes
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

    let native_key = "session-1".to_owned();
    let attached = Conversation::Attach {
        native_key,
        checkpoint,
    };
    let mut again = context(&workload, attached);
    again.epoch = 5;
    let client = Hermes.activate(again).await.expect("it lives");
    client
        .bind_conversation(bind(Some("session-1")))
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
    Hermes
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
            |it| it.permission_mode = Some("plan".to_owned()),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| it.agent.permission_mode = Some("yolo".to_owned()),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| {
                let json = Json::parse(r#"{"mcp_servers":{}}"#).expect("it is JSON");
                it.agent.engine_options.insert("config".to_owned(), json);
            },
            ErrorKind::InvalidConfiguration,
        ),
    ];
    for (spoil, kind) in cases {
        let workload = Arc::new(Memory::default());
        let mut spoiled = context(&workload, Conversation::New);
        spoil(&mut spoiled);
        let error = Hermes.activate(spoiled).await.err().expect("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        let seen = workload.seen();
        assert!(seen.files.is_empty() && seen.spawned.is_empty());
    }
}
