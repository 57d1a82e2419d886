//! From the begin of a session to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use astrabox_platform::PlatformSettings;
use astrabox_types::{ErrorReason, SessionId, SessionState};

use crate::fault::Faults;
use crate::server::{caller, eventually, reason};
use crate::stage::Stage;
use crate::told::{asked, check, ended, ends, is_now, names, rests, said, texts};
use crate::world::{World, settings};

#[tokio::test]
async fn a_running_turn_is_not_released() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: so far\nHOLD: go").await;
    stage.until(id, "the words", said("so far")).await;
    let refused = stage.release_sandbox(id).await;
    assert_eq!(reason(refused), ErrorReason::SessionStateWrong);
    stage.world.release(id, "go").await;
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(ends(&stage.journal(id).await), ["completed"]);
}

#[tokio::test]
async fn an_idle_session_releases_its_sandbox_by_itself() {
    let world = World::with(PlatformSettings {
        idle_timeout: Duration::from_millis(200),
        ..settings()
    });
    let mut stage = Stage::of(world, Faults::none()).await;
    let id = stage.create("SAY: one").await;
    stage
        .until(id, "rest", is_now(SessionState::Hibernated))
        .await;
    assert!(stage.world.boxes(id).await.is_empty());
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events)[1], r#"you said: ["SAY: one"]"#);
}

/// Brings a session into a state.
async fn in_state(stage: &mut Stage, state: SessionState) -> SessionId {
    let prompt = match state {
        SessionState::Busy => "HOLD: never",
        SessionState::Interrupting => "SILENT",
        SessionState::WaitingInput => "ASKS: 2",
        SessionState::BackgroundRunning => "BACKGROUND: never x",
        _ => "SAY: one",
    };
    let id = stage.create(prompt).await;
    match state {
        SessionState::Creating => {}
        SessionState::Interrupting => {
            let begun = |events: &[_]| names(events).contains(&"input.consumed").then_some(());
            stage.until(id, "the turn", begun).await;
            stage.interrupt(id).await;
        }
        SessionState::Hibernated => {
            stage.until(id, "the end", ended(1)).await;
            stage.release_sandbox(id).await.expect("it is released");
        }
        SessionState::RecoveryRequired => {
            stage.until(id, "the end", ended(1)).await;
            stage.release_sandbox(id).await.expect("it is released");
            stage.world.lose_volume(id).await;
            stage.world.lose_saved_state(id).await;
            stage.send(id, "RECALL").await;
            stage.until(id, "recovery", is_now(state)).await;
        }
        _ => stage.until(id, "the state", is_now(state)).await,
    }
    id
}

const STATES: [SessionState; 8] = [
    SessionState::Creating,
    SessionState::Ready,
    SessionState::Busy,
    SessionState::Interrupting,
    SessionState::WaitingInput,
    SessionState::BackgroundRunning,
    SessionState::Hibernated,
    SessionState::RecoveryRequired,
];

#[tokio::test]
async fn a_session_is_deleted_in_every_state_and_leaves_nothing() {
    for state in STATES {
        let mut stage = Stage::new().await;
        let id = in_state(&mut stage, state).await;
        stage
            .delete(id)
            .await
            .unwrap_or_else(|error| panic!("{state:?}: {error}"));
        assert!(stage.world.boxes(id).await.is_empty(), "{state:?}");
        assert_eq!(
            reason(stage.view(id).await),
            ErrorReason::SessionNotFound,
            "{state:?}"
        );
        assert_eq!(stage.world.words_left(id).await, 0, "{state:?}");
        let listed = stage.call(|platform| async move {
            platform
                .list_sessions(&caller(), Default::default(), Default::default())
                .await
        });
        assert!(listed.await.expect("a list").items.is_empty(), "{state:?}");
        assert_eq!(reason(stage.delete(id).await), ErrorReason::SessionNotFound);
    }
}

#[tokio::test]
async fn a_deletion_is_repeated_with_its_key() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    for _ in 0..2 {
        let deleted = stage.call(move |platform| async move {
            platform
                .delete(&caller(), crate::server::key("gone", ""), id)
                .await
        });
        deleted.await.expect("the same answer");
    }
}

#[tokio::test]
async fn a_session_is_archived_in_every_state_and_only_read_from_then_on() {
    for state in STATES {
        let mut stage = Stage::new().await;
        let id = in_state(&mut stage, state).await;
        let view = stage
            .archive(id)
            .await
            .unwrap_or_else(|error| panic!("{state:?}: {error}"));
        assert!(view.session.archived, "{state:?}");
        assert!(stage.world.boxes(id).await.is_empty(), "{state:?}");
        let refused = stage.try_send(id, "SAY: more").await;
        assert_eq!(reason(refused), ErrorReason::SessionArchived, "{state:?}");
        let events = stage.journal(id).await;
        check(&events);
        let turns = crate::told::turns(&events);
        assert!(turns.iter().all(|(_, _, ends)| *ends == 1), "{state:?}");
        assert_eq!(turns.len(), crate::told::inputs(&events).len(), "{state:?}");
        assert!(stage.open_interactions(id).await.is_empty(), "{state:?}");
        stage.restart().await;
        assert!(stage.view(id).await.expect("it is read").session.archived);
        stage.delete(id).await.expect("it is deleted");
    }
}

#[tokio::test]
async fn a_sandbox_whose_end_is_not_proven_keeps_its_session() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "readiness", rests(1)).await;
    stage.world.stuck.store(true, Ordering::Relaxed);
    assert_eq!(
        reason(stage.delete(id).await),
        ErrorReason::SandboxCleanupUnconfirmed
    );
    assert_eq!(stage.world.boxes(id).await.len(), 1);
    stage.world.stuck.store(false, Ordering::Relaxed);
    stage.delete(id).await.expect("now it is proven");
    assert!(stage.world.boxes(id).await.is_empty());
}

#[tokio::test]
async fn a_sandbox_whose_program_ended_is_removed_by_the_next_server() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", rests(1)).await;
    stage.world.kill_engine(id).await;
    let rest = is_now(SessionState::Hibernated);
    stage.until(id, "rest", rest).await;
    assert_eq!(
        stage.world.boxes(id).await.len(),
        1,
        "it is good for the next program"
    );
    stage.restart().await;
    let world = &stage.world;
    eventually("the sandbox is removed", || async {
        world.boxes(id).await.is_empty()
    })
    .await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", rests(2)).await;
    check(&stage.journal(id).await);
}

#[tokio::test]
async fn a_provider_that_never_answers_does_not_keep_a_server_from_starting() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", rests(1)).await;
    stage.kill().await;
    stage.world.stuck.store(true, Ordering::Relaxed);
    stage.start().await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", rests(2)).await;
    check(&stage.journal(id).await);
}

#[tokio::test]
async fn a_sandbox_that_nobody_holds_is_removed_at_the_start() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", ended(1)).await;
    stage.kill().await;
    let orphan = stage.world.make_orphan().await;
    stage.start().await;
    let provider = &stage.world.provider;
    eventually("the orphan is removed", || async {
        let listed = provider.list().await.expect("memory lists");
        listed.iter().all(|info| info.id != orphan)
    })
    .await;
    assert_eq!(stage.world.boxes(id).await.len(), 1, "what is held stays");
}

#[tokio::test]
async fn files_of_a_running_sandbox_are_listed_and_read() {
    let mut stage = Stage::new().await;
    let id = stage.create("RUN: echo some text > note.txt").await;
    stage.until(id, "the end", ended(1)).await;
    let listed =
        stage.call(move |platform| async move { platform.list_files(&caller(), id, "").await });
    let listed = listed.await.expect("a list");
    assert_eq!((listed.len(), listed[0].name.as_str()), (1, "note.txt"));
    let read = stage.call(move |platform| async move {
        platform
            .read_file(&caller(), id, "/workspace/note.txt", 5, 100)
            .await
    });
    assert_eq!(read.await.expect("content"), "text");
    for (path, expected) in [
        ("/workspace/none", ErrorReason::FileNotFound),
        ("workspace", ErrorReason::InvalidField),
        ("/workspace/../etc", ErrorReason::InvalidField),
    ] {
        let read = stage.call(move |platform| async move {
            platform.read_file(&caller(), id, path, 0, 1).await
        });
        assert_eq!(reason(read.await), expected, "{path}");
    }
    stage.release_sandbox(id).await.expect("it is released");
    let listed =
        stage.call(move |platform| async move { platform.list_files(&caller(), id, "").await });
    assert_eq!(reason(listed.await), ErrorReason::SessionStateWrong);
}

#[tokio::test]
async fn an_interaction_does_not_outlive_a_release_by_deletion() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: approval x").await;
    stage
        .until(id, "a question", |events| asked(events).pop())
        .await;
    stage.delete(id).await.expect("it is deleted");
    let listed = stage
        .call(move |platform| async move { platform.list_interactions(&caller(), id, true).await });
    assert_eq!(reason(listed.await), ErrorReason::SessionNotFound);
}
