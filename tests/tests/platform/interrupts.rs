//! Stopping turns, and turns that stop by themselves.

use std::time::Duration;

use astrabox_types::{ErrorReason, EventPayload, InteractionAnswer, SessionState, TurnOutcome};

use crate::fault::Faults;
use crate::server::pass_ms;
use crate::stage::Stage;
use crate::told::{asked, check, ended, ends, is_now, names, outcomes, said, texts};
use crate::world::{World, settings};

async fn busy(stage: &mut Stage, id: astrabox_types::SessionId) {
    stage
        .until(id, "the turn", |events| {
            names(events).contains(&"input.consumed").then_some(())
        })
        .await;
}

/// Interrupts a turn that does this, and looks whether the session works after it.
async fn interrupted(prompt: &str) -> Stage {
    let mut stage = Stage::new().await;
    let id = stage.create(prompt).await;
    busy(&mut stage, id).await;
    let turn = stage.interrupt(id).await;
    assert!(turn.is_some());
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["interrupted", "completed"], "{prompt}");
    let recalled = texts(&events).pop().unwrap_or_default();
    assert!(
        recalled.contains(&serde_json::json!(prompt).to_string()),
        "{recalled}"
    );
    assert_eq!(stage.interrupt(id).await, None, "nothing runs");
    stage
}

#[tokio::test]
async fn a_streaming_turn_is_stopped() {
    interrupted("STREAM: 6 never").await;
}

#[tokio::test]
async fn a_waiting_turn_is_stopped() {
    interrupted("SAY: something\nHOLD: never").await;
}

#[tokio::test]
async fn a_turn_in_a_tool_call_is_stopped() {
    let mut stage = interrupted("RUN: sleep 1000").await;
    let id = stage.world.log.processes()[0].0;
    let session = stage.world.memory_session(id).await;
    let events = stage.journal(session).await;
    let result = events.iter().find_map(|event| match &event.payload {
        EventPayload::ToolResult { is_error, .. } => Some(*is_error),
        _ => None,
    });
    assert_eq!(result, Some(true), "a stopped call has a result");
}

#[tokio::test]
async fn an_asking_turn_is_stopped_and_its_questions_are_closed() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASKS: 3").await;
    let interaction = stage
        .until(id, "a question", |events| asked(events).pop())
        .await;
    assert_eq!(stage.open_interactions(id).await.len(), 3);
    stage.interrupt(id).await;
    stage.until(id, "the end", ended(1)).await;
    assert!(stage.open_interactions(id).await.is_empty());
    let late = InteractionAnswer::Choose {
        choice_id: "yes".into(),
        comment: None,
        input: None,
    };
    let late = stage.try_respond(id, interaction.id, late).await;
    assert_eq!(crate::server::reason(late), ErrorReason::InteractionClosed);
    let events = stage.journal(id).await;
    check(&events);
    let expired = names(&events)
        .into_iter()
        .filter(|name| *name == "interaction.expired");
    assert_eq!(expired.count(), 3);
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
}

#[tokio::test]
async fn an_engine_that_does_not_listen_is_ended_and_the_session_works_on() {
    for prompt in ["SILENT", "DEAF\nHOLD: never"] {
        let stage = interrupted(prompt).await;
        assert_eq!(stage.world.log.processes().len(), 2, "{prompt}");
    }
}

#[tokio::test]
async fn queued_inputs_follow_an_interrupted_turn() {
    let mut stage = Stage::new().await;
    let id = stage.create("HOLD: never").await;
    stage.send(id, "SAY: two").await;
    stage.send(id, "SAY: three").await;
    busy(&mut stage, id).await;
    stage.interrupt(id).await;
    stage.until(id, "all ends", ended(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["interrupted", "completed", "completed"]);
}

#[tokio::test]
async fn a_turn_that_ends_while_it_is_stopped_keeps_its_own_outcome() {
    let mut stage = Stage::new().await;
    let id = stage.create("DEAF\nHOLD: go").await;
    busy(&mut stage, id).await;
    stage.interrupt(id).await;
    stage.world.release(id, "go").await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert!(["completed", "interrupted"].contains(&ends(&events)[0].as_str()));
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
}

#[tokio::test]
async fn a_second_interrupt_of_one_turn_changes_nothing() {
    let mut stage = Stage::new().await;
    let id = stage.create("SILENT").await;
    busy(&mut stage, id).await;
    let first = stage.interrupt(id).await;
    let second = stage.interrupt(id).await;
    assert_eq!(first, second);
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["interrupted"]);
}

async fn with_stall(stall: Duration) -> Stage {
    let world = World::with(astrabox_platform::PlatformSettings {
        stall_timeout: stall,
        ..settings()
    });
    Stage::of(world, Faults::none()).await
}

#[tokio::test]
async fn a_silent_engine_is_failed_as_stalled_and_the_session_works_on() {
    let mut stage = with_stall(Duration::from_millis(300)).await;
    // One that only says that it is idle has not ended its turn.
    for prompt in [
        "SAY: a word\nSILENT",
        "SAY: a word\nHOLD: never",
        "SAY: a word\nIDLE\nHOLD: never",
    ] {
        let id = stage.create(prompt).await;
        stage.until(id, "the end", ended(1)).await;
        stage.send(id, "SAY: on").await;
        stage.until(id, "the second end", ended(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(ends(&events), ["engine_stalled", "completed"], "{prompt}");
        assert_eq!(texts(&events), ["a word", "on"], "what was said is kept");
    }
}

#[tokio::test]
async fn an_engine_that_speaks_is_not_stalled() {
    let mut stage = with_stall(Duration::from_millis(400)).await;
    let holds: Vec<_> = (0..6).map(|n| format!("SAY: {n}\nHOLD: go{n}")).collect();
    let id = stage.create(&holds.join("\n")).await;
    for n in 0..6 {
        stage.until(id, "progress", said(&n.to_string())).await;
        pass_ms(150).await;
        stage.world.release(id, &format!("go{n}")).await;
    }
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(ends(&stage.journal(id).await), ["completed"]);
}

#[tokio::test]
async fn the_time_that_a_person_takes_is_not_the_engines_silence() {
    let mut stage = with_stall(Duration::from_millis(300)).await;
    let id = stage.create("ASK: decision now?\nHOLD: go").await;
    let interaction = stage
        .until(id, "a question", |events| asked(events).pop())
        .await;
    // Longer than the engine may be silent.
    pass_ms(500).await;
    let answer = InteractionAnswer::Choose {
        choice_id: "left".into(),
        comment: None,
        input: None,
    };
    stage
        .try_respond(id, interaction.id, answer)
        .await
        .expect("it waits");
    stage.until(id, "the answer", said("answer: left")).await;
    stage.world.release(id, "go").await;
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(ends(&stage.journal(id).await), ["completed"]);
}

#[tokio::test]
async fn an_exit_in_the_middle_of_a_turn_fails_it_with_code_and_last_words() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: so far\nSTDERR: it hurts\nEXIT: 7").await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    let TurnOutcome::Failed { failure } = &outcomes(&events)[0] else {
        panic!("it failed");
    };
    assert_eq!(failure.reason, "engine_exited");
    assert!(failure.message.contains("code 7"), "{failure:?}");
    assert!(failure.message.contains("it hurts"), "{failure:?}");
    assert_eq!(texts(&events), ["so far"], "what was said is kept");
    stage.send(id, "RECALL\nNOTICE").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    let texts = texts(&events);
    assert!(texts[1].contains("EXIT: 7"), "{texts:?}");
    // The engine is told, so that it does not repeat what it has done.
    assert!(
        texts[2].contains("ended abnormally (engine_exited)"),
        "{texts:?}"
    );
}

#[tokio::test]
async fn an_end_without_a_result_fails_the_turn() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: almost\nNOEND").await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["engine_exited"]);
    assert_eq!(texts(&events), ["almost"]);
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_turn_fails_it_with_a_reason() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: so far\nHOLD: never").await;
    stage.until(id, "the words", said("so far")).await;
    stage.world.kill_engine(id).await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["engine_exited", "completed"]);
}

#[tokio::test]
async fn an_exit_between_turns_is_seen_and_the_next_input_starts_the_program_again() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", ended(1)).await;
    stage.world.kill_engine(id).await;
    stage
        .until(id, "rest", is_now(SessionState::Hibernated))
        .await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed", "completed"]);
    assert_eq!(texts(&events)[1], r#"you said: ["SAY: one"]"#);
}

#[tokio::test]
async fn a_sandbox_that_dies_under_a_turn_fails_it_in_seconds() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: so far\nHOLD: never").await;
    stage.until(id, "the words", said("so far")).await;
    stage.world.destroy_box(id).await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    let first = &ends(&events)[0];
    assert!(
        ["sandbox_died", "sandbox_gone"].contains(&first.as_str()),
        "{first}"
    );
    assert_eq!(ends(&events)[1], "completed");
    assert!(texts(&events)[1].contains("so far"), "{:?}", texts(&events));
}

#[tokio::test]
async fn a_false_idle_ends_nothing() {
    let mut stage = Stage::new().await;
    let id = stage.create("IDLE\nHOLD: go\nSAY: still here").await;
    stage
        .until(id, "the status", |events| {
            names(events).contains(&"diagnostic.raw").then_some(())
        })
        .await;
    assert_eq!(
        stage.view(id).await.expect("there").session.state,
        SessionState::Busy
    );
    stage.world.release(id, "go").await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["still here"]);
}

#[tokio::test]
async fn a_failure_of_the_engines_own_keeps_its_reason() {
    let mut stage = Stage::new().await;
    let id = stage.create("FAIL: model_error").await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["model_error", "completed"]);
}
