//! Sub-agents: what they say is theirs.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use astrabox_client::v1;
use v1::event::Payload;

use crate::{Program, Stage, must};

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
