//! What becomes of inputs: each is taken or rejected, whole, once, and by its own conversation.

use std::collections::BTreeMap;

use astrabox_client::v1;
use astrabox_testkit::fault_engine::Protocol;
use astrabox_tests::{FaultStage, must};
use v1::event::Payload;

use crate::support::{SOON, completed, for_each_program, goes_on, say_within, show};

for_each_program!(
    every_input_sent_during_a_turn_gets_one_outcome,
    inputs_behind_a_dying_program_get_one_outcome_each,
    a_long_prompt_arrives_whole,
    sessions_that_share_a_directory_resume_their_own_conversation,
    a_message_at_the_moment_of_a_restart_starts_no_second_program,
);

/// How often each input was taken, and how its turn ended.
fn outcomes(journal: &[v1::Event]) -> BTreeMap<String, (usize, Vec<v1::TurnOutcome>)> {
    let mut found: BTreeMap<String, (usize, Vec<v1::TurnOutcome>)> = BTreeMap::new();
    let mut turns = BTreeMap::new();
    for event in journal {
        match &event.payload {
            Some(Payload::InputAccepted(accepted)) => {
                found.entry(accepted.input_id.clone()).or_default();
            }
            Some(Payload::InputConsumed(consumed)) => {
                found.entry(consumed.input_id.clone()).or_default().0 += 1;
            }
            Some(Payload::TurnStarted(started)) => {
                turns.insert(event.turn_id.clone(), started.input_id.clone());
            }
            Some(Payload::TurnEnded(ended)) => {
                if let Some(input) = turns.get(&event.turn_id) {
                    found
                        .entry(input.clone())
                        .or_default()
                        .1
                        .push(ended.outcome());
                }
            }
            _ => {}
        }
    }
    found
}

async fn every_input_sent_during_a_turn_gets_one_outcome(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let mut sent = vec![must(talk.send("RUN: sleep 0.4").await)];
    for word in ["two", "three", "four"] {
        sent.push(must(talk.send(&format!("SAY: {word}")).await));
    }
    let mut said = String::new();
    for _ in &sent {
        let turn = must(talk.turn().await);
        completed(&turn);
        said.push_str(&turn.text());
    }
    assert_eq!(said, "twothreefour");
    let journal = must(talk.journal().await);
    let outcomes = outcomes(&journal);
    for input in &sent {
        let expected = (1, vec![v1::TurnOutcome::Completed]);
        assert_eq!(outcomes.get(input), Some(&expected), "{}", show(&journal));
    }
    must(stage.clear().await);
}

async fn inputs_behind_a_dying_program_get_one_outcome_each(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let dying = must(talk.send("RUN: sleep 0.3\nEXIT: 9").await);
    let next = must(talk.send("SAY: next").await);
    let last = must(talk.send("SAY: last").await);
    for _ in 0..3 {
        must(talk.turn().await);
    }
    let journal = must(talk.journal().await);
    let outcomes = outcomes(&journal);
    let completed = (1, vec![v1::TurnOutcome::Completed]);
    let failed = (1, vec![v1::TurnOutcome::Failed]);
    for (input, expected) in [(dying, &failed), (next, &completed), (last, &completed)] {
        assert_eq!(outcomes.get(&input), Some(expected), "{}", show(&journal));
    }
    must(stage.clear().await);
}

async fn a_long_prompt_arrives_whole(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let prompt = format!("LENGTH: {}", "y".repeat(200_000));
    let turn = say_within(&mut talk, &prompt, SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), "length: 200008");
    must(stage.clear().await);
}

async fn sessions_that_share_a_directory_resume_their_own_conversation(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    // Every session's working directory is /workspace.
    let mut one = must(stage.talk().await);
    let mut other = must(stage.talk().await);
    completed(&must(one.say("SAY: heliotrope").await));
    completed(&must(other.say("SAY: vermilion").await));
    for talk in [&one, &other] {
        crate::support::release(talk).await;
    }
    for (talk, own, foreign) in [
        (&mut one, "heliotrope", "vermilion"),
        (&mut other, "vermilion", "heliotrope"),
    ] {
        let turn = must(talk.say("RECALL").await);
        completed(&turn);
        assert!(turn.text().contains(own), "{}", turn.text());
        assert!(!turn.text().contains(foreign), "{}", turn.text());
    }
    must(stage.clear().await);
}

async fn a_message_at_the_moment_of_a_restart_starts_no_second_program(protocol: Protocol) {
    let mut stage = must(FaultStage::of(protocol).await);
    let talk = must(stage.talk().await);
    must(talk.send("RUN: sleep 0.7").await);
    must(stage.server.kill().await);
    must(stage.server.start_again().await);
    stage.client = must(stage.server.client().await);
    let mut talk = must(stage.again(&talk.id).await);
    // The program's launcher is replaced by the program: its command's name is its own.
    let programs = "cat /proc/[0-9]*/comm | grep -c '^fault-engine'";
    must(talk.send(&format!("RUN: {programs}")).await);
    let first = must(talk.turn().await);
    completed(&first);
    let second = must(talk.turn().await);
    completed(&second);
    let counted = &second.results()[0].output;
    assert!(counted.contains("\"1\\n\""), "{counted}");
    goes_on(&mut talk, "sleep 0.7").await;
    must(stage.clear().await);
}
