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
use astrabox_engine_pi::Pi;
use astrabox_types::{
    AgentSpec, EnvironmentId, Json, McpServer, McpTransport, PermissionLevel, SessionId,
    SessionKind, Skill,
};
use bytes::Bytes;
use stand_in::StandIn;

astrabox_conformance::engine_conformance!(whole_conversations_conform, Pi, StandIn);

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
            ("PI_OFFLINE".to_owned(), "0".to_owned()),
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
    let client = Pi
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
    let session = format!(
        "/home/agent/.pi/agent/sessions/--workspace--/{}.jsonl",
        bound.native_key
    );
    for wanted in [
        "/opt/astrabox/image/bin/node /opt/astrabox/image/lib/node_modules/@earendil-works/pi-coding-agent/",
        "--mode rpc --provider astrabox --model m-1",
        &format!("--session {session}"),
        "--no-approve --no-extensions",
        "--extension /home/agent/.pi/agent/astrabox/extension.ts",
        "--append-system-prompt /home/agent/.pi/agent/astrabox/instructions.md",
    ] {
        assert!(argv.contains(wanted), "{wanted} in {argv}");
    }
    assert!(!argv.contains("be brief") && !argv.contains("placeholder-1"));
    for (name, value) in [
        ("ASTRABOX_MODEL_KEY", "placeholder-1"),
        ("PI_CODING_AGENT_DIR", "/home/agent/.pi/agent"),
        ("PI_OFFLINE", "1"),
        ("PI_TELEMETRY", "0"),
        ("NODE_EXTRA_CA_CERTS", "/etc/ca.pem"),
    ] {
        assert_eq!(
            spec.env.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    let read = |text: &str| {
        let read = workload.files().read(&path(text), 0, 1 << 20);
        String::from_utf8(read.expect(text).to_vec()).expect("it is UTF-8")
    };
    let config = |name: &str| read(&format!("/home/agent/.pi/agent/{name}"));
    assert_eq!(config("skills/hello/SKILL.md"), "say it");
    assert_eq!(config("astrabox/instructions.md"), "be brief");
    assert!(config("mcp.json").contains("https://mcp.test"));
    assert!(config("models.json").contains("http://models.test/v1"));
    assert!(config("settings.json").contains("\"enableInstallTelemetry\":false"));
    assert!(config("astrabox/extension.ts").contains("const ASK: string[] = [];"));
    assert!(!config("models.json").contains("placeholder-1"));
    assert!(read(&session).contains(&format!("\"id\":\"{}\"", bound.native_key)));
}

#[tokio::test]
async fn an_agent_chooses_who_asks_and_what_counts() {
    let workload = workload();
    let mut chosen = context(&workload, Conversation::New);
    set(&mut chosen, "approvals", r#"{"ask":["bash"]}"#);
    set(&mut chosen, "project", r#"{"trust":true}"#);
    set(
        &mut chosen,
        "extensions",
        r#"{"paths":["/workspace/x.ts"]}"#,
    );
    set(&mut chosen, "env", r#"{"MY_TOOL":"1"}"#);
    Pi.activate(chosen).await.expect("it starts");
    let spec = workload.spawned().remove(0);
    let argv = spec.argv.join(" ");
    assert!(
        argv.contains("--approve") && !argv.contains("--no-approve"),
        "{argv}"
    );
    assert!(argv.contains("--extension /workspace/x.ts"), "{argv}");
    assert_eq!(spec.env.get("MY_TOOL").map(String::as_str), Some("1"));
    let extension = path("/home/agent/.pi/agent/astrabox/extension.ts");
    let extension = workload
        .files()
        .read(&extension, 0, 1 << 20)
        .expect("it is there");
    assert!(String::from_utf8_lossy(&extension).contains("const ASK: string[] = [\"bash\"];"));
}

#[tokio::test]
async fn a_conversation_without_its_session_file_is_lost() {
    let native_key = "00000000-0000-4000-8000-000000000001".to_owned();
    let header = |id: &str| format!("{{\"type\":\"session\",\"id\":\"{id}\"}}\n");
    for (content, lost) in [
        (None, true),
        (Some(String::new()), true),
        (Some("{}\n".to_owned()), true),
        (Some(header("another")), true),
        (Some(header(&native_key)), false),
    ] {
        let workload = workload();
        if let Some(content) = content.clone() {
            let file = format!("/home/agent/.pi/agent/sessions/--workspace--/{native_key}.jsonl");
            workload
                .files()
                .write(&path(&file), Bytes::from(content), WriteOptions::default())
                .expect("it is written");
        }
        let native_key = native_key.clone();
        let resumed = context(&workload, Conversation::Resume { native_key });
        let activated = Pi.activate(resumed).await;
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
            |it| it.permission_mode = Some("default".to_owned()),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "settings", r#"{"defaultProvider":"x"}"#),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "env", r#"{"A":1}"#),
            ErrorKind::InvalidConfiguration,
        ),
        (
            |it| set(it, "extensions", r#"{"paths":["../x"]}"#),
            ErrorKind::InvalidConfiguration,
        ),
    ];
    for (spoil, kind) in cases {
        let workload = workload();
        let mut spoiled = context(&workload, Conversation::New);
        spoil(&mut spoiled);
        let error = Pi.activate(spoiled).await.err();
        let error = error.expect("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(workload.spawned().is_empty());
    }
}

fn set(context: &mut EngineStartupContext, block: &str, json: &str) {
    let json = Json::parse(json).expect("it is JSON");
    context.agent.engine_options.insert(block.to_owned(), json);
}
