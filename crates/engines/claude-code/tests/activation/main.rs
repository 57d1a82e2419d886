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
use astrabox_engine_claude_code::ClaudeCode;
use astrabox_types::{
    AgentSpec, EnvironmentId, Json, McpServer, McpTransport, PermissionLevel, SessionId,
    SessionKind, Skill,
};
use bytes::Bytes;
use stand_in::StandIn;

astrabox_conformance::engine_conformance!(whole_conversations_conform, ClaudeCode, StandIn);

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
            ("CLAUDECODE".to_owned(), "1".to_owned()),
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
    let client = ClaudeCode
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
    let argv = spec.argv.join(" ");
    for wanted in [
        "/opt/astrabox/image/bin/claude -p --input-format stream-json",
        "--permission-prompt-tool stdio",
        "--model m-1",
        "--strict-mcp-config --mcp-config /home/agent/.claude/astrabox/mcp.json",
        &format!("--session-id {}", bound.native_key),
    ] {
        assert!(argv.contains(wanted), "{wanted} in {argv}");
    }
    assert!(!argv.contains("be brief") && !argv.contains("placeholder-1"));
    for (name, value) in [
        ("ANTHROPIC_BASE_URL", "http://models.test"),
        ("ANTHROPIC_API_KEY", "placeholder-1"),
        ("CLAUDE_CONFIG_DIR", "/home/agent/.claude"),
        ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
        ("ENABLE_TOOL_SEARCH", "false"),
        ("NODE_EXTRA_CA_CERTS", "/etc/ca.pem"),
    ] {
        assert_eq!(
            spec.env.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    assert!(!spec.env.contains_key("CLAUDECODE"));
    let read = |text: &str| workload.files().read(&path(text), 0, 1 << 20).expect(text);
    assert_eq!(read("/home/agent/.claude/skills/hello/SKILL.md"), "say it");
    let mcp = read("/home/agent/.claude/astrabox/mcp.json");
    assert!(String::from_utf8_lossy(&mcp).contains("https://mcp.test"));
}

#[tokio::test]
async fn a_conversation_without_its_transcript_is_lost() {
    let native_key = "00000000-0000-4000-8000-000000000001".to_owned();
    for (content, lost) in [(None, true), (Some(""), true), (Some("{}\n"), false)] {
        let workload = workload();
        if let Some(content) = content {
            let file = format!("/home/agent/.claude/projects/-workspace/{native_key}.jsonl");
            workload
                .files()
                .write(&path(&file), Bytes::from(content), WriteOptions::default())
                .expect("it is written");
        }
        let native_key = native_key.clone();
        let resumed = context(&workload, Conversation::Resume { native_key });
        let activated = ClaudeCode.activate(resumed).await;
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
            |it| set(it, "settings", r#"{"hooks":{}}"#),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "env", r#"{"A":1}"#),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "plugins", r#"{"directories":["../x"]}"#),
            ErrorKind::InvalidConfiguration,
        ),
    ];
    for (spoil, kind) in cases {
        let workload = workload();
        let mut spoiled = context(&workload, Conversation::New);
        spoil(&mut spoiled);
        let error = ClaudeCode.activate(spoiled).await.err();
        let error = error.expect("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(workload.spawned().is_empty());
    }
}

fn set(context: &mut EngineStartupContext, block: &str, json: &str) {
    let json = Json::parse(json).expect("it is JSON");
    context.agent.engine_options.insert(block.to_owned(), json);
}
