//! Approvals, answered by whoever is there.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use crate::{Program, Stage, must};
use astrabox_client::v1;
use v1::interaction::Presentation;
use v1::interaction_answer::Answer;

pub async fn a_second_client_allows_a_command(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/allowed").await);
    let asked = must(talk.until_asked().await);
    let Some(Presentation::ToolApproval(approval)) = &asked.presentation else {
        panic!("an approval: {asked:?}")
    };
    assert!(
        approval.input.contains("touch /workspace/allowed"),
        "{approval:?}"
    );
    let allowed: Vec<_> = approval
        .choices
        .iter()
        .filter(|choice| choice.allows)
        .map(|choice| &choice.id)
        .collect();
    assert!(allowed.contains(&&program.allow.to_owned()), "{approval:?}");

    let mut second = must(
        stage
            .server
            .client()
            .await
            .map(|client| (client, talk.id.clone())),
    );
    let listed = v1::ListInteractionsRequest {
        session_id: second.1.clone(),
        include_closed: false,
    };
    let listed = must(second.0.list_interactions(listed).await).interactions;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state(), v1::InteractionState::Active);
    std::mem::swap(&mut talk.client, &mut second.0);
    must(talk.choose(&asked, program.allow).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert_eq!(must(talk.file("/workspace/allowed").await), "");
    let late = talk
        .choose(&asked, program.allow)
        .await
        .expect_err("it was answered");
    assert!(
        format!("{late:?}").contains("INTERACTION_CLOSED"),
        "{late:?}"
    );
    must(stage.clear().await);
}

pub async fn a_declined_command_does_not_run_and_the_turn_goes_on(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/declined").await);
    let asked = must(talk.until_asked().await);
    must(talk.choose(&asked, program.decline).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(
        turn.results().iter().any(|result| result.is_error),
        "{:?}",
        turn.events
    );
    assert!(talk.file("/workspace/declined").await.is_err());
    must(stage.clear().await);
}

pub async fn an_approval_for_the_session_is_not_asked_again(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/again").await);
    let asked = must(talk.until_asked().await);
    must(talk.choose(&asked, program.allow_for_session).await);
    assert_eq!(
        must(talk.turn().await).ended().outcome(),
        v1::TurnOutcome::Completed
    );
    let turn = must(talk.say("RUN: touch /workspace/again").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    must(stage.clear().await);
}

pub async fn a_cancelled_approval_ends_the_turn(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/other").await);
    let asked = must(talk.until_asked().await);
    must(talk.choose(&asked, program.decline_and_stop).await);
    assert_eq!(
        must(talk.turn().await).ended().outcome(),
        v1::TurnOutcome::Interrupted
    );
    assert!(talk.file("/workspace/other").await.is_err());
    must(stage.clear().await);
}

pub async fn a_call_is_made_with_the_input_that_a_person_changed(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/asked").await);
    let asked = must(talk.until_asked().await);
    let choose = |choice: &str, input: &str| {
        Answer::Choose(v1::Choose {
            choice_id: choice.to_owned(),
            comment: String::new(),
            input: input.to_owned(),
        })
    };
    let (allow, decline) = (program.allow, program.decline);
    for (choice, input) in [(allow, "[1]"), (allow, "x"), (decline, "{}")] {
        let refused = talk.respond(&asked, choose(choice, input)).await;
        assert!(refused.is_err(), "{choice} {input}");
    }
    let changed = r#"{"command": "touch /workspace/changed"}"#;
    must(talk.respond(&asked, choose(allow, changed)).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(talk.file("/workspace/asked").await.is_err());
    assert_eq!(must(talk.file("/workspace/changed").await), "");
    must(stage.clear().await);
}

pub async fn an_interrupt_closes_an_open_approval(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/never").await);
    let asked = must(talk.until_asked().await);
    let request = v1::InterruptSessionRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.interrupt_session(request).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Interrupted);
    assert!(talk.choose(&asked, program.allow).await.is_err());
    assert_eq!(must(talk.say("SAY: usable").await).text(), "usable");
    assert!(talk.file("/workspace/never").await.is_err());
    must(stage.clear().await);
}
