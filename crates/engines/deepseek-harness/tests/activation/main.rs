//! What the adapter does to a sandbox, and that whole conversations run over it.

mod stand_in;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use astrabox_conformance::doubles::MemoryWorkload;
use astrabox_conformance::engine::{EngineFixture as _, Quirk};
use astrabox_engine::model::{CredentialKind, ResolvedModelAccess};
use astrabox_engine::sandbox::{BoxPath, WriteOptions};
use astrabox_engine::{
    BindRequest, Conversation, EngineAdapter as _, EngineStartupContext, ErrorKind,
};
use astrabox_engine_deepseek_harness::DeepseekHarness;
use astrabox_types::{
    AgentSpec, EnvironmentId, Json, McpServer, McpTransport, PermissionLevel, SessionId,
    SessionKind, Skill,
};
use bytes::Bytes;
use serde_json::Value;
use stand_in::StandIn;

astrabox_conformance::engine_conformance!(whole_conversations_conform, DeepseekHarness, StandIn);

fn workload() -> MemoryWorkload {
    MemoryWorkload::running(StandIn.program(Quirk::Faithful).expect("there is one"))
}

fn context(workload: &MemoryWorkload, conversation: Conversation) -> EngineStartupContext {
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
            engine_options: BTreeMap::new(),
            permission_mode: None,
            mcp_servers: vec![McpServer {
                name: "far".to_owned(),
                transport: McpTransport::Http {
                    url: "https://mcp.test".to_owned(),
                },
            }],
            skills: vec![Skill {
                name: "hello".to_owned(),
                files: BTreeMap::from([("SKILL.md".to_owned(), "say it".to_owned())]),
            }],
            repository: None,
            approval_rules: Vec::new(),
            vault_ids: Vec::new(),
            metadata: BTreeMap::new(),
        },
        program: None,
        permission_mode: None,
        permission_level: PermissionLevel::Default,
        model: ResolvedModelAccess {
            base_url: "http://models.test".to_owned(),
            model_name: "m-1".to_owned(),
            credential: None,
            credential_kind: CredentialKind::ApiKey,
            endpoint_provider: "direct".to_owned(),
        },
        model_placeholder: "placeholder-1".to_owned(),
        mcp_headers: Vec::new(),
        workload: Arc::new(workload.clone()),
        env: BTreeMap::from([
            ("HOME".to_owned(), "/home/agent".to_owned()),
            ("DSH_PERMISSION_MODE".to_owned(), "any".to_owned()),
            ("SSL_CERT_FILE".to_owned(), "/etc/ca.pem".to_owned()),
        ]),
        conversation,
    }
}

fn path(text: &str) -> BoxPath {
    BoxPath::new(text).expect("it is a path")
}

#[tokio::test]
async fn an_activation_writes_its_files_and_starts_the_program() {
    let workload = workload();
    let client = DeepseekHarness
        .activate(context(&workload, Conversation::New))
        .await
        .expect("it starts");
    let request = BindRequest {
        expected: None,
        within: Duration::from_secs(10),
    };
    let bound = client.bind_conversation(request).await.expect("it binds");
    let spawned = workload.spawned();
    let [spec] = &spawned[..] else {
        panic!("one program: {spawned:?}")
    };
    assert_eq!(spec.name.as_str(), "engine-4");
    assert_eq!(bound.native_key, "session-1");
    let patch = "/home/agent/.dsh/astrabox/host.patch.yml";
    let program = "/opt/astrabox/image/bin/dsh";
    assert_eq!(spec.argv, [program, "--profile", "acp", "--patch", patch]);
    for (name, value) in [
        ("DSH_HOME", "/home/agent/.dsh"),
        ("DSH_TELEMETRY_DISABLED", "1"),
        ("DEEPSEEK_API_KEY", "placeholder-1"),
        ("NODE_EXTRA_CA_CERTS", "/etc/ca.pem"),
    ] {
        assert_eq!(
            spec.env.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    assert!(!spec.env.contains_key("DSH_PERMISSION_MODE"));
    let read = |text: &str| workload.files().read(&path(text), 0, 1 << 20).expect(text);
    assert_eq!(read("/home/agent/.dsh/skills/hello/SKILL.md"), "say it");
    let plugin = read("/home/agent/.dsh/astrabox/host.mjs");
    assert!(String::from_utf8_lossy(&plugin).contains("astrabox-host"));
    let rows: Value = serde_json::from_slice(&read(patch)).expect("the patch is JSON");
    let model = rows.to_string();
    assert!(model.contains("http://models.test") && !model.contains("placeholder-1"));
}

#[tokio::test]
async fn a_conversation_without_its_log_is_lost() {
    let native_key = "00000000-0000-4000-8000-000000000001".to_owned();
    for (content, lost) in [(None, true), (Some(""), true), (Some("{}\n"), false)] {
        let workload = workload();
        if let Some(content) = content {
            let file =
                format!("/home/agent/.dsh/sessions/--workspace--/{native_key}/session.v4.jsonl");
            workload
                .files()
                .write(&path(&file), Bytes::from(content), WriteOptions::default())
                .expect("it is written");
        }
        let native_key = native_key.clone();
        let resumed = context(&workload, Conversation::Resume { native_key });
        let activated = DeepseekHarness.activate(resumed).await;
        let kind = activated.as_ref().err().map(astrabox_engine::Error::kind);
        assert_eq!(
            kind,
            lost.then_some(ErrorKind::ConversationLost),
            "{content:?}"
        );
        assert_eq!(workload.spawned().is_empty(), lost);
    }
}

#[tokio::test]
async fn what_it_cannot_do_is_refused_before_anything_is_started() {
    type Spoil = fn(&mut EngineStartupContext);
    let cases: [(Spoil, ErrorKind); 5] = [
        (
            |it| it.session_kind = SessionKind::AssistantChat,
            ErrorKind::Unsupported,
        ),
        (
            |it| it.permission_mode = Some("auto".to_owned()),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "profile", r#"{"acp":{"disabled":true}}"#),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "env", r#"{"A":1}"#),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "profile", r#"{"tool-workflow":{"enabled":true}}"#),
            ErrorKind::InvalidConfiguration,
        ),
    ];
    for (spoil, kind) in cases {
        let workload = workload();
        let mut spoiled = context(&workload, Conversation::New);
        spoil(&mut spoiled);
        let error = DeepseekHarness.activate(spoiled).await.err();
        let error = error.expect("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(workload.spawned().is_empty());
    }
}

fn set(context: &mut EngineStartupContext, block: &str, json: &str) {
    let json = Json::parse(json).expect("it is JSON");
    context.agent.engine_options.insert(block.to_owned(), json);
}
