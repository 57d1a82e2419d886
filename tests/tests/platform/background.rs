//! What the engine does by itself, and what its children say.

use std::time::Duration;

use astrabox_platform::PlatformSettings;
use astrabox_types::{
    ChildRunState, EventPayload, InteractionState, MessageKind, SessionState, TurnOrigin,
};

use crate::fault::Faults;
use crate::interactions::{choose, question};
use crate::stage::Stage;
use crate::told::{check, ended, ends, is_now, rests, said, states, texts, turns};
use crate::world::{World, settings};

#[tokio::test]
async fn output_that_the_engine_starts_by_itself_is_a_turn_without_an_input() {
    let mut stage = Stage::new().await;
    let id = stage
        .create("BACKGROUND: go the work is done\nSAY: it runs")
        .await;
    stage
        .until(
            id,
            "the background",
            is_now(SessionState::BackgroundRunning),
        )
        .await;
    stage.world.release(id, "go").await;
    stage
        .until(id, "the report", said("the work is done"))
        .await;
    stage.until(id, "readiness", rests(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed", "completed"]);
    let origins: Vec<_> = turns(&events)
        .into_iter()
        .map(|(_, origin, _)| origin)
        .collect();
    assert!(matches!(origins[0], TurnOrigin::Input { .. }));
    assert_eq!(origins[1], TurnOrigin::Engine);
    assert_eq!(
        states(&events)[2..],
        [
            SessionState::Busy,
            SessionState::BackgroundRunning,
            SessionState::Busy,
            SessionState::Ready
        ]
    );
}

#[tokio::test]
async fn a_turn_that_the_engine_began_is_stopped_as_any_other() {
    let mut stage = Stage::new().await;
    let id = stage.create("LINGER: go report").await;
    let background = is_now(SessionState::BackgroundRunning);
    stage.until(id, "the background", background).await;
    stage.world.release(id, "go").await;
    let begun = |events: &[_]| (turns(events).len() == 2).then_some(());
    stage.until(id, "the turn", begun).await;
    // An input that comes now waits for its end.
    stage.send(id, "SAY: next").await;
    assert!(stage.interrupt(id).await.is_some());
    stage.until(id, "all ends", rests(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed", "interrupted", "completed"]);
    assert_eq!(turns(&events)[1].1, TurnOrigin::Engine);
}

#[tokio::test]
async fn an_input_is_taken_while_work_goes_on_in_the_background() {
    let mut stage = Stage::new().await;
    let id = stage.create("BACKGROUND: go later").await;
    stage
        .until(
            id,
            "the background",
            is_now(SessionState::BackgroundRunning),
        )
        .await;
    stage.send(id, "SAY: meanwhile").await;
    stage.until(id, "the second end", ended(2)).await;
    stage
        .until(
            id,
            "the background",
            is_now(SessionState::BackgroundRunning),
        )
        .await;
    stage.world.release(id, "go").await;
    stage.until(id, "readiness", rests(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["meanwhile", "later"]);
}

#[tokio::test]
async fn background_work_is_known_after_a_restart_at_any_moment() {
    for in_turn in [true, false] {
        let mut stage = Stage::new().await;
        let id = stage
            .create("BACKGROUND: go later\nSAY: it runs\nHOLD: end")
            .await;
        stage.until(id, "the words", said("it runs")).await;
        if in_turn {
            stage.restart().await;
        }
        stage.world.release(id, "end").await;
        stage
            .until(
                id,
                "the background",
                is_now(SessionState::BackgroundRunning),
            )
            .await;
        stage.restart().await;
        stage.world.release(id, "go").await;
        stage.until(id, "readiness", rests(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(texts(&events), ["it runs", "later"]);
    }
}

#[tokio::test]
async fn an_engine_that_ends_takes_its_background_work_along() {
    let mut stage = Stage::new().await;
    let id = stage.create("BACKGROUND: never x").await;
    stage
        .until(
            id,
            "the background",
            is_now(SessionState::BackgroundRunning),
        )
        .await;
    stage.world.kill_engine(id).await;
    stage
        .until(id, "rest", is_now(SessionState::Hibernated))
        .await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "readiness", rests(2)).await;
    check(&stage.journal(id).await);
}

#[tokio::test]
async fn a_turn_that_ends_with_a_question_and_background_work_open_ends_well() {
    let mut stage = Stage::new().await;
    let id = stage.create("BACKGROUND: never x\nASK: decision way").await;
    stage
        .until(id, "the wait", is_now(SessionState::WaitingInput))
        .await;
    stage.interrupt(id).await;
    stage
        .until(
            id,
            "the background",
            is_now(SessionState::BackgroundRunning),
        )
        .await;
    check(&stage.journal(id).await);
}

#[tokio::test]
async fn a_childs_output_carries_its_id_and_is_not_the_parents() {
    let mut stage = Stage::new().await;
    let id = stage.create("CHILD: from below\nSAY: from above").await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["from above"]);
    let mut runs = Vec::new();
    let mut child_texts = Vec::new();
    for event in &events {
        match &event.payload {
            EventPayload::ChildRunChanged { run } => runs.push((run.id.clone(), run.state)),
            EventPayload::MessageCompleted {
                kind: MessageKind::Text,
                text,
                ..
            } if event.child_run.is_some() => child_texts.push((event.child_run.clone(), text)),
            _ => {}
        }
    }
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].1, ChildRunState::Running);
    assert_eq!(runs[1], (runs[0].0.clone(), ChildRunState::Completed));
    assert_eq!(
        child_texts,
        [(Some(runs[0].0.clone()), &"from below".to_owned())]
    );
}

#[tokio::test]
async fn a_tool_that_ends_after_its_turn_begins_no_other() {
    for restarts in [false, true] {
        let mut stage = Stage::new().await;
        let id = stage.create("LEAVE: go late words").await;
        stage
            .until(
                id,
                "the background",
                is_now(SessionState::BackgroundRunning),
            )
            .await;
        if restarts {
            stage.restart().await;
        }
        stage.world.release(id, "go").await;
        stage.until(id, "rest", rests(1)).await;
        // The next input is not held up by what is left of the turn before.
        stage.send(id, "SAY: next").await;
        stage.until(id, "readiness", rests(2)).await;
        let events = stage.journal(id).await;
        assert_eq!(ends(&events), ["completed", "completed"]);
        let turn_of = |wanted: fn(&EventPayload) -> bool| {
            let found = events.iter().find(|event| wanted(&event.payload));
            found.expect("the event").turn_id
        };
        let call = turn_of(|payload| matches!(payload, EventPayload::ToolCall { .. }));
        let result = turn_of(|payload| matches!(payload, EventPayload::ToolResult { .. }));
        assert_eq!(call, result, "a result is its call's turn's");
        assert!(call.is_some());
    }
}

#[tokio::test]
async fn a_child_may_ask_after_its_parents_turn_has_ended() {
    for restarts in [false, true] {
        let mut stage = Stage::new().await;
        let id = stage.create("CHILDASK: go may I").await;
        stage
            .until(
                id,
                "the background",
                is_now(SessionState::BackgroundRunning),
            )
            .await;
        stage.world.release(id, "go").await;
        stage
            .until(id, "the wait", is_now(SessionState::WaitingInput))
            .await;
        if restarts {
            stage.restart().await;
        }
        let asked = question(&mut stage, id, 1).await;
        stage
            .try_respond(id, asked, choose("yes"))
            .await
            .expect("taken");
        stage.until(id, "readiness", rests(1)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(ends(&events), ["completed"]);
        assert_eq!(
            states(&events)[2..],
            [
                SessionState::Busy,
                SessionState::BackgroundRunning,
                SessionState::WaitingInput,
                SessionState::BackgroundRunning,
                SessionState::Ready
            ]
        );
        let request = events
            .iter()
            .find(|event| matches!(event.payload, EventPayload::InteractionRequested { .. }))
            .expect("the request");
        assert!(request.turn_id.is_none());
        assert!(request.child_run.is_some(), "it says which child asks");
    }
}

#[tokio::test]
async fn a_childs_question_is_closed_when_its_program_ends() {
    let mut stage = Stage::new().await;
    let id = stage.create("CHILDASK: go may I").await;
    stage
        .until(
            id,
            "the background",
            is_now(SessionState::BackgroundRunning),
        )
        .await;
    stage.world.release(id, "go").await;
    stage
        .until(id, "the wait", is_now(SessionState::WaitingInput))
        .await;
    stage.world.kill_engine(id).await;
    stage
        .until(id, "rest", is_now(SessionState::Hibernated))
        .await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "readiness", rests(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    let expired = |event: &&astrabox_types::JournalEvent| {
        matches!(event.payload, EventPayload::InteractionExpired { .. })
    };
    assert_eq!(events.iter().filter(expired).count(), 1);
}

#[tokio::test]
async fn a_childs_question_is_closed_when_its_sandbox_is_gone() {
    let mut stage = Stage::new().await;
    let id = stage.create("CHILDASK: go may I").await;
    let background = is_now(SessionState::BackgroundRunning);
    stage.until(id, "the background", background).await;
    stage.world.release(id, "go").await;
    stage
        .until(id, "the wait", is_now(SessionState::WaitingInput))
        .await;
    stage.world.destroy_box(id).await;
    stage
        .until(id, "rest", is_now(SessionState::Hibernated))
        .await;
    assert!(
        stage
            .open_interactions(id)
            .await
            .iter()
            .all(|one| one.state == InteractionState::Expired)
    );
    // The engine that follows is asked for its own, not behind a question of the dead.
    stage.send(id, "ASK: approval on").await;
    let asked = question(&mut stage, id, 2).await;
    let answered = stage.try_respond(id, asked, choose("yes")).await;
    answered.expect("taken");
    stage.until(id, "readiness", rests(2)).await;
    check(&stage.journal(id).await);
}

#[tokio::test]
async fn a_child_that_nobody_answers_gets_a_no_and_the_session_goes_on() {
    let world = World::with(PlatformSettings {
        interaction_timeout: Duration::from_millis(300),
        ..settings()
    });
    let mut stage = Stage::of(world, Faults::none()).await;
    let id = stage.create("CHILDASK: go may I").await;
    let background = is_now(SessionState::BackgroundRunning);
    stage.until(id, "the background", background).await;
    stage.world.release(id, "go").await;
    stage.until(id, "rest", rests(1)).await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "readiness", rests(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed", "completed"]);
    let told = events.iter().any(|event| {
        matches!(&event.payload, EventPayload::MessageCompleted { text, .. } if text == "answer: declined")
    });
    assert!(told, "the child was told no");
    let expired = events
        .iter()
        .filter(|event| matches!(event.payload, EventPayload::InteractionExpired { .. }));
    assert_eq!(expired.count(), 1);
}
