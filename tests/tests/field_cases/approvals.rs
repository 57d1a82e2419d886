//! Approvals that outlive those who could answer, and those who asked.

use astrabox_client::{WatchOptions, v1};
use astrabox_testkit::fault_engine::Protocol;
use astrabox_tests::{FaultStage, Turn, must};
use v1::event::Payload;

use crate::support::{
    completed, failed, for_each_program, goes_on, interrupt, interrupted, session, until,
    until_ended,
};

for_each_program!(
    an_approval_waits_for_any_later_client_and_allows_nothing_by_itself,
    an_approval_is_answered_after_a_restart_of_the_server,
    an_approval_whose_program_died_expires_with_a_reason,
    an_interrupt_closes_an_open_approval,
);

async fn an_approval_waits_for_any_later_client_and_allows_nothing_by_itself(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    must(talk.send("CALL: rm -rf everything\nASK").await);
    let asked = must(talk.until_asked().await);
    let id = talk.id.clone();
    // Who watched goes away, and with it the connection.
    drop(talk);
    let client = must(stage.server.client().await);
    let request = v1::ListInteractionsRequest {
        session_id: id.clone(),
        include_closed: true,
    };
    let listed = must(client.list_interactions(request).await).interactions;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state(), v1::InteractionState::Active);
    assert_eq!(
        session(&stage, &id).await.state(),
        v1::SessionState::WaitingInput
    );
    let watch = must(client.watch(&id, WatchOptions::default()).await);
    let mut later = astrabox_tests::Conversation::resume(client, &id, watch);
    must(later.choose(&asked, first_choice(&asked)).await);
    let mut turn = Turn::default();
    until_ended(&mut later, &mut turn).await;
    completed(&turn);
    assert!(turn.text().contains("answer: "), "{}", turn.text());
    must(stage.clear().await);
}

async fn an_approval_is_answered_after_a_restart_of_the_server(protocol: Protocol) {
    let mut stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    must(talk.send("CALL: look\nASK").await);
    let asked = must(talk.until_asked().await);
    must(stage.server.kill().await);
    must(stage.server.start_again().await);
    stage.client = must(stage.server.client().await);
    let mut talk = must(stage.again(&talk.id).await);
    must(talk.choose(&asked, first_choice(&asked)).await);
    let mut turn = Turn::default();
    until_ended(&mut talk, &mut turn).await;
    completed(&turn);
    assert!(turn.text().contains("answer: "), "{}", turn.text());
    must(stage.clear().await);
}

async fn an_approval_whose_program_died_expires_with_a_reason(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let killer = "P=$PPID; (sleep 0.5; kill -9 $P) >/dev/null 2>&1 &";
    must(talk.send(&format!("RUN: {killer}\nCALL: look\nASK")).await);
    let mut turn = Turn::default();
    until(&mut talk, &mut turn, |payload| {
        matches!(payload, Payload::InteractionRequested(_))
    })
    .await;
    until_ended(&mut talk, &mut turn).await;
    failed(&turn, "engine_exited");
    let expired = turn.own().find_map(|payload| match payload {
        Payload::InteractionExpired(expired) => Some(expired.clone()),
        _ => None,
    });
    let expired = expired.expect("the approval is closed");
    assert!(expired.reason.contains("ended"), "{}", expired.reason);
    let asked = v1::Interaction {
        id: expired.interaction_id,
        ..Default::default()
    };
    let refused = talk.choose(&asked, "accept").await;
    let refused = refused.expect_err("nobody waits for it").to_string();
    assert!(refused.contains("INTERACTION"), "{refused}");
    goes_on(&mut talk, "CALL: look").await;
    must(stage.clear().await);
}

async fn an_interrupt_closes_an_open_approval(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    must(talk.send("CALL: look\nASK").await);
    must(talk.until_asked().await);
    interrupt(&talk).await;
    let mut turn = Turn::default();
    until_ended(&mut talk, &mut turn).await;
    interrupted(&turn);
    let expired = |payload: &Payload| matches!(payload, Payload::InteractionExpired(_));
    assert!(turn.own().any(expired));
    goes_on(&mut talk, "CALL: look").await;
    must(stage.clear().await);
}

fn first_choice(asked: &v1::Interaction) -> &str {
    match &asked.presentation {
        Some(v1::interaction::Presentation::ToolApproval(approval)) => &approval.choices[0].id,
        other => panic!("it is no approval: {other:?}"),
    }
}
