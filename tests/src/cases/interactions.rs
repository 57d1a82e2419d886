//! What programs ask besides approvals, and modes that change while they run.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::collections::HashMap;

use astrabox_client::v1;
use v1::interaction::Presentation;
use v1::interaction_answer::Answer;

use crate::{Program, Stage, must};

pub async fn a_question_is_answered_with_one_of_its_options(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send(program.question).await);
    let asked = must(talk.until_asked().await);
    let Some(Presentation::Question(form)) = &asked.presentation else {
        panic!("a question: {asked:?}")
    };
    assert_eq!(form.questions[0].options, ["Red", "Blue"]);
    let values = v1::ReplyValues {
        values: vec!["Blue".to_owned()],
    };
    let answers = HashMap::from([(form.questions[0].id.clone(), values)]);
    must(
        talk.respond(&asked, Answer::Reply(v1::Reply { answers }))
            .await,
    );
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(
        turn.results()[0].output.contains("Blue"),
        "{:?}",
        turn.results()
    );
    must(stage.clear().await);
}

/// In the words of Claude Code, the one program that asks for a decision.
pub async fn a_plan_is_decided_and_its_approval_leaves_the_mode(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation("plan").await);
    must(
        talk.send(r#"TOOL: ExitPlanMode {"plan":"first this, then that"}"#)
            .await,
    );
    let asked = must(talk.until_asked().await);
    let Some(Presentation::Decision(decision)) = &asked.presentation else {
        panic!("a decision: {asked:?}")
    };
    assert!(decision.body.contains("first this"), "{decision:?}");
    must(talk.choose(&asked, "reject").await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(turn.results()[0].is_error);

    must(
        talk.send(r#"TOOL: ExitPlanMode {"plan":"only this"}"#)
            .await,
    );
    let asked = must(talk.until_asked().await);
    must(talk.choose(&asked, "approve_accept_edits").await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    let turn = must(talk.say("WRITE planned.txt done").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert_eq!(must(talk.file("/workspace/planned.txt").await), "done");
    must(stage.clear().await);
}

pub async fn a_mode_holds_at_once(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.set_mode(program.unasked).await);
    let turn = must(talk.say("RUN: touch /workspace/unasked").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert_eq!(must(talk.file("/workspace/unasked").await), "");
    must(talk.set_mode(program.asking).await);
    must(talk.send("RUN: touch /workspace/asked").await);
    let asked = must(talk.until_asked().await);
    must(talk.choose(&asked, program.decline).await);
    must(talk.turn().await);
    assert!(talk.file("/workspace/asked").await.is_err());
    must(stage.clear().await);
}
