//! Sub-agents: what they say is theirs.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::time::Duration;

use astrabox_client::v1;
use v1::event::Payload;

use crate::{Program, Stage, Turn, must};

const PATIENCE: Duration = Duration::from_secs(60);

pub async fn a_child_run_is_told_apart_from_its_parent(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(talk.say(program.child).await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    let said = |event: &&v1::Event| match &event.payload {
        Some(Payload::MessageCompleted(message)) => message.text.contains("from the child"),
        _ => false,
    };
    let said: Vec<_> = turn.events.iter().filter(said).collect();
    assert!(!said.is_empty(), "the child is heard: {:?}", turn.events);
    let child = &said[0].child_run_id;
    assert!(!child.is_empty(), "it is the child's: {said:?}");
    assert!(
        turn.text().contains("the parent is done") && !turn.text().contains("from the child"),
        "{}",
        turn.text()
    );
    let states: Vec<_> = turn
        .events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::ChildRunChanged(changed)) => Some(changed),
            _ => None,
        })
        .filter(|changed| changed.child_run_id == *child)
        .map(v1::ChildRunChanged::state)
        .collect();
    assert_eq!(states.first(), Some(&v1::ChildRunState::Running));
    must(stage.clear().await);
}

pub async fn a_child_run_is_stopped(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.send(program.held_child).await);
    must(stage.model.wait_until_held("child", PATIENCE).await);
    let mut turn = Turn::default();
    while !must(
        talk.read_into(&mut turn, |payload| {
            matches!(payload, Payload::ChildRunChanged(changed) if changed.state() == v1::ChildRunState::Running)
        })
        .await,
    ) {}
    let child = turn.first_child().expect("a child run");
    let stop = v1::StopChildRunRequest {
        session_id: talk.id.clone(),
        child_run_id: child.clone(),
        ..Default::default()
    };
    must(talk.client.stop_child_run(stop).await);
    while !must(
        talk.read_into(&mut turn, |payload| {
            matches!(payload, Payload::ChildRunChanged(changed)
                if changed.child_run_id == child && changed.state() != v1::ChildRunState::Running)
        })
        .await,
    ) {}
    stage.model.release("child");
    must(talk.until_state(v1::SessionState::Ready).await);
    let said = must(talk.journal().await);
    let never = said.iter().any(|event| {
        matches!(&event.payload, Some(Payload::MessageCompleted(message)) if message.text.contains("never said"))
    });
    assert!(!never, "a child that is stopped goes on: {said:?}");
    // Its parent may say a word to the end of its child, before or after.
    let mut said = must(talk.say("SAY: usable").await).text();
    if !said.contains("usable") {
        said = must(talk.turn().await).text();
    }
    assert!(said.contains("usable"), "{said}");
    must(stage.clear().await);
}

pub async fn a_background_child_outlives_its_turn_and_reports_in_a_turn_of_its_own(
    program: &Program,
) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(talk.say(program.background_child).await);
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

pub async fn a_background_command_outlives_its_turn_and_is_told_in_a_turn_of_its_own(
    program: &Program,
) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(talk.say(program.background_command).await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(turn.text().contains("it begins"), "{}", turn.text());
    assert!(turn.first_child().is_some(), "{:?}", turn.events);
    must(talk.until_state(v1::SessionState::BackgroundRunning).await);
    // Meanwhile the conversation goes on.
    must(talk.say("RUN: touch /workspace/go").await);
    let report = must(talk.turn().await);
    let started = report.own().find_map(|payload| match payload {
        Payload::TurnStarted(started) => Some(started.origin()),
        _ => None,
    });
    assert_eq!(started, Some(v1::TurnOrigin::Engine), "{:?}", report.events);
    assert_eq!(report.text(), "noted");
    must(talk.until_state(v1::SessionState::Ready).await);
    must(stage.clear().await);
}
