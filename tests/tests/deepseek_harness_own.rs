//! What only DeepSeek Harness has.

use std::time::Duration;

use astrabox_client::v1;
use astrabox_tests::{DEEPSEEK_HARNESS, Stage, must};
use v1::interaction::Presentation;

const PATIENCE: Duration = Duration::from_secs(60);

/// The program's own sandbox by Landlock, in a sandbox of the level `default`, where it has no namespaces.
#[tokio::test]
async fn its_own_sandbox_holds_and_a_wider_call_is_asked_for() {
    let stage = must(Stage::of(&DEEPSEEK_HARNESS).await);
    let mut talk = must(stage.conversation("workspace-write").await);
    let turn = must(
        talk.say("RUN: touch /workspace/in && touch ~/out; echo rc=$?")
            .await,
    );
    assert!(turn.text().contains("rc=1"), "{}", turn.text());
    assert_eq!(must(talk.file("/workspace/in").await), "");
    assert!(talk.file("/home/agent/out").await.is_err());
    let wider = r#"TOOL: bash {"command":"touch ~/out","description":"wider","sandbox_permissions":"danger-full-access","justification":"it is needed"}"#;
    must(talk.send(wider).await);
    let asked = must(talk.until_asked().await);
    let Some(Presentation::ToolApproval(approval)) = &asked.presentation else {
        panic!("an approval: {asked:?}")
    };
    assert!(approval.input.contains("it is needed"), "{approval:?}");
    must(talk.choose(&asked, "allow-once").await);
    must(talk.turn().await);
    assert_eq!(must(talk.file("/home/agent/out").await), "");

    must(talk.set_mode("read-only").await);
    let turn = must(
        talk.say("RUN: touch /workspace/never; echo rc=$?\nWRITE never no")
            .await,
    );
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(talk.file("/workspace/never").await.is_err());
    must(stage.clear().await);
}

#[tokio::test]
async fn a_request_to_the_model_holds_neither_the_session_log_nor_a_list_of_plugins() {
    for model in ["scripted", "deepseek-v4-pro"] {
        let mut stage = must(Stage::of(&DEEPSEEK_HARNESS).await);
        let agent = v1::AgentSpec {
            name: "other".to_owned(),
            environment: "tested".to_owned(),
            model: model.to_owned(),
            ..Default::default()
        };
        let request = v1::CreateAgentRequest {
            spec: Some(agent),
            ..Default::default()
        };
        let created = must(stage.client.create_agent(request).await);
        stage.agent_id = created.agent.expect("an agent").id;
        let mut talk = must(stage.conversation(DEEPSEEK_HARNESS.unasked).await);
        assert_eq!(must(talk.say("SAY: one").await).text(), "one");
        let turn = must(talk.say("RUN: echo two").await);
        assert!(turn.text().contains("two"), "{}", turn.text());
        let requests = stage.model.requests();
        assert!(requests.len() >= 3);
        for request in requests {
            assert_eq!(request.body["model"], model);
            let members = request.body.as_object().expect("an object");
            for member in members.keys() {
                assert!(!member.starts_with("dsh"), "{member} goes to the model");
            }
        }
        must(stage.clear().await);
    }
}

#[tokio::test]
async fn a_call_of_a_sub_agent_is_asked_for_and_answered() {
    let stage = must(Stage::of(&DEEPSEEK_HARNESS).await);
    let mut talk = must(stage.conversation(DEEPSEEK_HARNESS.asking).await);
    must(
        talk.send("SPAWN: RUN: touch /workspace/by-child\nSAY: it begins")
            .await,
    );
    let asked = must(tokio::time::timeout(PATIENCE, talk.until_asked()).await);
    let asked = must(asked);
    let Some(Presentation::ToolApproval(approval)) = &asked.presentation else {
        panic!("an approval: {asked:?}")
    };
    assert!(approval.input.contains("by-child"), "{approval:?}");
    must(talk.choose(&asked, "allow-once").await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert_eq!(must(talk.file("/workspace/by-child").await), "");
    must(stage.clear().await);
}
