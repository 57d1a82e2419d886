//! From the begin of a session to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use astrabox_platform::PlatformSettings;
use astrabox_sandbox::{BoxPath, HOME};
use astrabox_types::{ErrorReason, SessionId, SessionState};

use crate::fault::Faults;
use crate::server::{Stage, caller, draft, eventually, reason};
use crate::told::{asked, check, ended, ends, is_now, names, rests, said, texts};
use crate::world::{World, settings};

#[tokio::test]
async fn a_released_session_resumes_in_a_new_sandbox_and_recalls() {
    let mut stage = Stage::new().await;
    let id = stage.create("RUN: echo kept > note\nSAY: one").await;
    stage.until(id, "the end", ended(1)).await;
    let (first, _) = stage.world.inside(id).await;
    assert_eq!(
        stage.release_sandbox(id).await.expect("it is released"),
        Some(first)
    );
    assert!(stage.world.boxes(id).await.is_empty());
    let view = stage.view(id).await.expect("it is there");
    assert_eq!(
        (view.session.state, view.sandbox_id),
        (SessionState::Hibernated, None)
    );
    assert_eq!(stage.release_sandbox(id).await.expect("again"), None);
    stage.send(id, "RECALL\nRUN: cat note").await;
    stage.until(id, "the second end", ended(2)).await;
    let (second, _) = stage.world.inside(id).await;
    assert_ne!(first, second);
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(
        texts(&events)[1],
        r#"you said: ["RUN: echo kept > note\nSAY: one"]"#
    );
    assert!(crate::told::show(&events).contains(r#""output":"kept""#));
}

#[tokio::test]
async fn a_conversation_resumes_from_its_saved_state_where_the_volume_has_none() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: a word").await;
    stage.until(id, "the end", ended(1)).await;
    stage.release_sandbox(id).await.expect("it is released");
    // Another machine: the volume comes back empty.
    stage.world.lose_volume(id).await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events)[1], r#"you said: ["SAY: a word"]"#);
}

#[tokio::test]
async fn a_conversation_that_is_nowhere_needs_recovery_and_is_never_begun_anew() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: a word").await;
    stage.until(id, "the end", ended(1)).await;
    stage.release_sandbox(id).await.expect("it is released");
    stage.world.lose_volume(id).await;
    stage.world.lose_saved_state(id).await;
    let input = stage.send(id, "RECALL").await;
    stage
        .until(id, "recovery", is_now(SessionState::RecoveryRequired))
        .await;
    let refused = stage.try_send(id, "SAY: more").await;
    assert_eq!(reason(refused), ErrorReason::RecoveryRequired);
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["a word"], "the history is kept");
    assert!(stage.world.boxes(id).await.is_empty());
    // Trying again tells the same, and deleting works.
    stage.recover(id).await.expect("it may be tried");
    stage
        .until(id, "a try", |events| {
            let again = |event: &&astrabox_types::JournalEvent| {
                matches!(
                    event.payload,
                    astrabox_types::EventPayload::SessionStatus {
                        state: SessionState::RecoveryRequired,
                        ..
                    }
                )
            };
            (events.iter().filter(again).count() == 2).then_some(())
        })
        .await;
    assert!(crate::told::inputs(&stage.journal(id).await).contains(&input));
    stage.delete(id).await.expect("it is deleted");
}

#[tokio::test]
async fn recovery_goes_on_with_the_input_that_waited() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: a word").await;
    stage.until(id, "the end", ended(1)).await;
    stage.release_sandbox(id).await.expect("it is released");
    stage.world.lose_volume(id).await;
    let saved = stage.world.lose_saved_state(id).await;
    stage.send(id, "RECALL").await;
    stage
        .until(id, "recovery", is_now(SessionState::RecoveryRequired))
        .await;
    stage.world.set_saved_state(id, saved).await;
    stage.recover(id).await.expect("it may be tried");
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events)[1], r#"you said: ["SAY: a word"]"#);
    let refused = stage.recover(id).await;
    assert_eq!(reason(refused), ErrorReason::SessionStateWrong);
}

#[tokio::test]
async fn a_torn_tail_of_the_native_state_is_cut_and_the_rest_resumes() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: a word").await;
    stage.until(id, "the end", ended(1)).await;
    let (_, workload) = stage.world.inside(id).await;
    let directory = BoxPath::new(format!("{HOME}/.fake")).expect("plain");
    let files = workload.list_files(&directory).await.expect("it is there");
    let path = directory.join(&files[0].name).expect("plain");
    let mut content = workload
        .read_file(&path, 0, 1 << 20)
        .await
        .expect("read")
        .to_vec();
    content.extend_from_slice(br#"{"user":"half a rec"#);
    let options = astrabox_sandbox::WriteOptions::default();
    workload
        .write_file(&path, content.into(), options)
        .await
        .expect("written");
    stage.world.kill_engine(id).await;
    stage
        .until(id, "rest", is_now(SessionState::Hibernated))
        .await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events)[1], r#"you said: ["SAY: a word"]"#);
}

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
async fn a_mode_holds_for_the_turns_that_follow_whenever_it_is_set() {
    let mut stage = Stage::new().await;
    let id = stage.create("MODE").await;
    stage.until(id, "the end", ended(1)).await;
    let before = stage.set_mode(id, "bold").await.expect("it is known");
    assert_eq!(before.as_deref(), Some("careful"));
    stage.send(id, "MODE").await;
    stage.until(id, "the second end", ended(2)).await;
    stage.restart().await;
    stage.send(id, "MODE").await;
    stage.until(id, "the third end", ended(3)).await;
    stage.release_sandbox(id).await.expect("it is released");
    assert_eq!(
        stage
            .set_mode(id, "careful")
            .await
            .expect("known")
            .as_deref(),
        Some("bold")
    );
    stage.send(id, "MODE").await;
    stage.until(id, "the fourth end", ended(4)).await;
    let events = stage.journal(id).await;
    check(&events);
    let modes = ["mode: careful", "mode: bold", "mode: bold", "mode: careful"];
    assert_eq!(texts(&events), modes);
    for unknown in ["wild", "reckless", ""] {
        let refused = stage.set_mode(id, unknown).await;
        assert_eq!(
            reason(refused),
            ErrorReason::PermissionModeUnknown,
            "{unknown}"
        );
    }
}

#[tokio::test]
async fn a_mode_that_is_set_while_the_engine_starts_holds_for_the_first_turn() {
    let mut stage = Stage::new().await;
    let id = stage.create("").await;
    stage.set_mode(id, "bold").await.expect("it is known");
    stage.send(id, "MODE").await;
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(texts(&stage.journal(id).await), ["mode: bold"]);
}

#[tokio::test]
async fn a_missing_image_is_refused_with_the_command_and_fails_a_waiting_input_later() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", ended(1)).await;
    stage.release_sandbox(id).await.expect("it is released");
    std::fs::remove_dir(stage.world.image()).expect("it was there");
    let agent = stage.agent().await;
    let refused = stage.call(move |platform| async move {
        platform
            .create_session(&caller(), None, draft(agent, "SAY: x"))
            .await
    });
    let error = refused.await.expect_err("it is refused");
    assert_eq!(error.reason(), ErrorReason::ImageMissing);
    assert!(error.to_string().contains("build fake"), "{error}");
    stage.send(id, "SAY: two").await;
    stage.until(id, "the second end", ended(2)).await;
    std::fs::create_dir(stage.world.image()).expect("it is built again");
    stage.send(id, "SAY: three").await;
    stage.until(id, "the third end", ended(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed", "image_missing", "completed"]);
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
async fn a_session_whose_engine_is_not_linked_any_more_is_read_and_recovered_or_deleted() {
    for prompt in ["SAY: one", "SAY: one\nHOLD: never"] {
        let mut stage = Stage::new().await;
        let id = stage.create(prompt).await;
        stage.until(id, "the words", said("one")).await;
        stage.kill().await;
        stage.world.linked = false;
        stage.start().await;
        let needs = is_now(SessionState::RecoveryRequired);
        stage.until(id, "recovery", needs).await;
        assert_eq!(texts(&stage.journal(id).await), ["one"]);
        assert!(stage.world.boxes(id).await.is_empty());
        let refused = stage.try_send(id, "SAY: two").await;
        assert_eq!(reason(refused), ErrorReason::RecoveryRequired);
        stage.kill().await;
        stage.world.linked = true;
        stage.start().await;
        stage.recover(id).await.expect("it may be tried");
        stage.send(id, "RECALL").await;
        stage.until(id, "the second end", rests(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        let first = &ends(&events)[0];
        assert!(
            ["completed", "engine_unknown"].contains(&first.as_str()),
            "{first}"
        );
        stage.kill().await;
        stage.world.linked = false;
        stage.start().await;
        stage.delete(id).await.expect("it is legal in every state");
    }
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
