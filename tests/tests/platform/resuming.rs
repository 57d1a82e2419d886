//! Going on with a conversation in another sandbox, and what that needs.

use astrabox_sandbox::{BoxPath, HOME};
use astrabox_types::{ErrorReason, EventPayload, SessionState};

use crate::server::{caller, draft, reason};
use crate::stage::Stage;
use crate::told::{check, ended, ends, is_now, rests, said, texts};

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
    let told = events.iter().any(|event| match &event.payload {
        EventPayload::DiagnosticRaw { topic, message } => {
            topic == "native_state_cut" && message.contains("(19 bytes)")
        }
        _ => false,
    });
    assert!(told, "the cut is told: {events:?}");
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
async fn a_program_that_died_before_it_wrote_anything_begins_anew_and_says_so() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: lost\nHOLD: never").await;
    stage.until(id, "the words", said("lost")).await;
    stage.world.destroy_box(id).await;
    stage.until(id, "the end", ended(1)).await;
    stage.world.lose_volume(id).await;
    // The tool comes first because this program numbers what it says anew in each conversation.
    stage.send(id, "RUN: true\nNOTICE").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events)[1], "completed");
    let told = events.iter().any(|event| {
        matches!(
            &event.payload,
            astrabox_types::EventPayload::DiagnosticRaw { topic, .. } if topic == "conversation_begun_anew"
        )
    });
    assert!(told);
    let notice = texts(&events).pop().unwrap_or_default();
    assert!(
        notice.contains("ended abnormally"),
        "the program is told: {notice}"
    );
}
