//! That the adapter keeps the contract, and what a program gets that asks for files and terminals.

mod agent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::programs;
use astrabox_conformance::doubles::MemoryWorkload;
use astrabox_engine::model::{CredentialKind, ResolvedModelAccess};
use astrabox_engine::sandbox::BoxPath;
use astrabox_engine::{
    BindRequest, Conversation, EmissionKind, EngineAdapter, EngineClient, EngineInput,
    EngineStartupContext, ErrorKind,
};
use astrabox_engine_acp::Acp;
use astrabox_types::{
    AgentSpec, ContentPart, EnvironmentId, EventPayload, InputId, PermissionLevel, ProgramSpec,
    SessionId, SessionKind,
};
use futures::StreamExt;

astrabox_conformance::engine_conformance!(Acp);

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
            system: String::new(),
            engine_options: BTreeMap::new(),
            permission_mode: None,
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            repository: None,
            approval_rules: Vec::new(),
            vault_ids: Vec::new(),
            metadata: BTreeMap::new(),
        },
        program: Some(ProgramSpec {
            command: "agent".to_owned(),
            arguments: Vec::new(),
            env: BTreeMap::new(),
            model_wire: "openai_chat".to_owned(),
            state_directory: None,
        }),
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
        workload: Arc::new(workload.clone()),
        env: BTreeMap::from([("HOME".to_owned(), "/home/agent".to_owned())]),
        conversation,
    }
}

/// A client whose conversation is bound.
async fn bound(workload: &MemoryWorkload) -> Box<dyn EngineClient> {
    let context = context(workload, Conversation::New);
    let client = Acp.activate(context).await.expect("it starts");
    let request = BindRequest {
        expected: None,
        within: Duration::from_secs(10),
    };
    client.bind_conversation(request).await.expect("it binds");
    client
}

/// What the program says in one turn; every step that is to be durable is committed.
async fn say(client: &dyn EngineClient, text: &str) -> String {
    let input = EngineInput {
        input_id: InputId::new(),
        content: vec![ContentPart::text(text)],
        notice: None,
    };
    client.deliver(input).await.expect("it queues");
    let mut said = String::new();
    loop {
        let step = {
            let mut steps = client.turn_events();
            let next = tokio::time::timeout(Duration::from_secs(30), steps.next());
            next.await.expect("it comes").expect("it goes on")
        };
        let step = step.expect("it is connected");
        let mut ended = false;
        for emission in step.emissions {
            match emission.into_kind() {
                EmissionKind::PublicEvent(event) => {
                    if let EventPayload::MessageCompleted { text, .. } = event.payload {
                        said.push_str(&text);
                    }
                }
                EmissionKind::Terminal(_) => ended = true,
                _ => {}
            }
        }
        let at = client.checkpoint();
        client.committed(&at).await.expect("it writes");
        if ended {
            return said;
        }
    }
}

fn path(text: &str) -> BoxPath {
    BoxPath::new(text).expect("it is a path")
}

#[tokio::test]
async fn a_session_whose_environment_names_no_program_is_refused() {
    let workload = MemoryWorkload::new(programs());
    let mut without = context(&workload, Conversation::New);
    without.program = None;
    let error = Acp.activate(without).await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    assert!(workload.spawned().is_empty());
}

#[tokio::test]
async fn a_file_is_written_and_read_for_the_program() {
    let workload = MemoryWorkload::new(programs());
    let client = bound(&workload).await;
    let said = say(&*client, "write /workspace/note one\\ntwo\\nthree").await;
    assert_eq!(said, "{}");
    let written = workload.files().read(&path("/workspace/note"), 0, 100);
    assert_eq!(&written.expect("it is there")[..], b"one\ntwo\nthree");
    let said = say(&*client, "read /workspace/note").await;
    assert_eq!(said, r#"{"content":"two\n"}"#);
    for (outside, why) in [
        ("/home/agent/.profile", "not below /workspace"),
        ("/workspace/none", "/workspace/none"),
    ] {
        let said = say(&*client, &format!("read {outside}")).await;
        assert!(said.contains("error") && said.contains(why), "{said}");
    }
    workload
        .files()
        .link("/etc", &path("/workspace/out"))
        .expect("it is made");
    let said = say(&*client, "read /workspace/out/passwd").await;
    assert!(said.contains("symbolic link"), "{said}");
}

#[tokio::test]
async fn a_command_runs_in_a_terminal_and_goes_with_it() {
    let workload = MemoryWorkload::new(programs());
    let client = bound(&workload).await;
    let said = say(&*client, "terminal greet").await;
    assert_eq!(
        said,
        r#"{"exitCode":3,"signal":null}{"exitStatus":{"exitCode":3,"signal":null},"output":"lo from greet\n","truncated":true}"#
    );
    let spawned = workload.spawned();
    assert_eq!(spawned[1].argv[0], "/bin/sh");
    assert_eq!(spawned[1].cwd.as_str(), "/workspace");
    assert_eq!(spawned[1].env["HOME"], "/home/agent");
    assert!(!spawned[1].env.contains_key("ANTHROPIC_API_KEY"));
    // Released: its output is gone.
    let output = path(&spawned[1].argv[3]);
    assert!(workload.files().read(&output, 0, 1).is_err());
}

#[tokio::test]
async fn a_command_that_runs_holds_nothing_else_up_and_ends_with_the_program() {
    let workload = MemoryWorkload::new(programs());
    let client = bound(&workload).await;
    // It waits for the command's end, and the turn ends nevertheless.
    assert_eq!(say(&*client, "leave forever").await, "left");
    assert_eq!(say(&*client, "hello").await, "hello");
    assert_eq!(workload.running_processes().len(), 2);
    let closing = client.close(Duration::from_secs(5));
    let reading = async {
        while let Some(step) = client.turn_events().next().await {
            step.expect("it is connected");
            let at = client.checkpoint();
            client.committed(&at).await.expect("it writes");
        }
    };
    let (closed, ()) = tokio::join!(closing, reading);
    closed.expect("it ends");
    assert!(workload.running_processes().is_empty());
}
