//! What the real Claude Code alone does: questions, plans, changed inputs, children in the background, its own repair.

use std::collections::HashMap;
use std::time::Duration;

use astrabox_client::v1;
use astrabox_tests::{CLAUDE_CODE, Stage, Turn, must};
use v1::event::Payload;
use v1::interaction::Presentation;
use v1::interaction_answer::Answer;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_question_is_answered_with_one_of_its_options() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
    let mut talk = must(stage.conversation("default").await);
    let question = r#"TOOL: AskUserQuestion {"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}"#;
    must(talk.send(question).await);
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

#[tokio::test]
async fn a_plan_is_decided_and_its_approval_leaves_the_mode() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
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

#[tokio::test]
async fn a_call_is_made_with_the_input_that_a_person_changed() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
    let mut talk = must(stage.conversation("default").await);
    must(talk.send("RUN: touch /workspace/asked").await);
    let asked = must(talk.until_asked().await);
    let choose = |choice: &str, input: &str| {
        Answer::Choose(v1::Choose {
            choice_id: choice.to_owned(),
            comment: String::new(),
            input: input.to_owned(),
        })
    };
    for (choice, input) in [("allow", "[1]"), ("allow", "x"), ("deny", "{}")] {
        let refused = talk.respond(&asked, choose(choice, input)).await;
        assert!(refused.is_err(), "{choice} {input}");
    }
    let changed = r#"{"command": "touch /workspace/changed"}"#;
    must(talk.respond(&asked, choose("allow", changed)).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(talk.file("/workspace/asked").await.is_err());
    assert_eq!(must(talk.file("/workspace/changed").await), "");
    must(stage.clear().await);
}

#[tokio::test]
async fn a_mode_holds_at_once() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
    let mut talk = must(stage.conversation("default").await);
    must(talk.set_mode("bypassPermissions").await);
    let turn = must(talk.say("RUN: touch /workspace/unasked").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert_eq!(must(talk.file("/workspace/unasked").await), "");
    must(stage.clear().await);
}

#[tokio::test]
async fn a_background_child_outlives_its_turn_and_reports_in_a_turn_of_its_own() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
    let mut talk = must(stage.conversation("bypassPermissions").await);
    let turn = must(
        talk.say("SPAWN: SAY: a child begins\\nHOLD: child\\nSAY: from the child")
            .await,
    );
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    must(stage.model.wait_until_held("child", PATIENCE).await);
    // Meanwhile the conversation goes on.
    assert_eq!(must(talk.say("SAY: meanwhile").await).text(), "meanwhile");
    stage.model.release("child");
    let report = must(talk.turn().await);
    let started = report.own().find_map(|payload| match payload {
        Payload::TurnStarted(started) => Some(started.origin()),
        _ => None,
    });
    assert_eq!(started, Some(v1::TurnOrigin::Engine), "{:?}", report.events);
    assert_eq!(report.ended().outcome(), v1::TurnOutcome::Completed);
    assert_eq!(report.text(), "noted");
    let of_child = report.events.iter().any(|event| {
        !event.child_run_id.is_empty()
            && matches!(&event.payload, Some(Payload::MessageCompleted(message)) if message.text.contains("from the child"))
    });
    assert!(of_child, "{:?}", report.events);
    must(talk.until_state(v1::SessionState::Ready).await);
    must(stage.clear().await);
}

#[tokio::test]
async fn a_program_killed_in_a_tool_resumes_a_conversation_that_the_model_takes() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
    let mut talk = must(stage.conversation("bypassPermissions").await);
    must(talk.say("SAY: apple").await);
    // Its shell kills it once the call is in the transcript, which the program writes a moment later.
    let kill = "RUN: until grep -rqs '\"type\":\"tool_use\"' \"${CLAUDE_CONFIG_DIR:-$HOME/.claude}/projects\"; do sleep 0.05; done; for p in /proc/[0-9]*; do [ \"$(cat $p/comm 2>/dev/null)\" = claude ] && kill -9 ${p#/proc/}; done; sleep 60";
    let turn = must(talk.say(kill).await);
    assert_eq!(turn.ended().failure_reason, "engine_exited");
    // The model refuses a call without a result, as the vendor's does.
    let mut turn = Turn::default();
    must(talk.send("RECALL").await);
    while !must(
        talk.read_into(&mut turn, |payload| {
            matches!(payload, Payload::TurnEnded(_))
        })
        .await,
    ) {}
    assert_eq!(
        turn.ended().outcome(),
        v1::TurnOutcome::Completed,
        "{turn:?}"
    );
    assert!(turn.text().contains("SAY: apple"), "{}", turn.text());
    let told = must(talk.journal().await).into_iter().any(|event| {
        matches!(event.payload, Some(Payload::DiagnosticRaw(note)) if note.topic == "transcript_repaired")
    });
    assert!(told, "the repair is told");
    must(stage.clear().await);
}

#[tokio::test]
async fn a_prompt_of_200_kb_arrives_whole() {
    let stage = must(Stage::of(&CLAUDE_CODE).await);
    let mut talk = must(stage.conversation("default").await);
    let long = format!("[[SAY: taken]] {} the-end", "x".repeat(200_000));
    let turn = must(talk.say(&long).await);
    assert_eq!(turn.text(), "taken");
    let whole = stage
        .model
        .requests()
        .iter()
        .any(|request| request.body.to_string().contains("xxx the-end"));
    assert!(whole, "the model gets all of it");
    must(stage.clear().await);
}
