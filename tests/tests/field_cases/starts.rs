//! Programs that do not come up, or come up with another conversation.

use std::time::{Duration, Instant};

use astrabox_client::v1;
use astrabox_testkit::fault_engine::{FaultImage, Protocol, Quirk};
use astrabox_tests::{FaultStage, must};

use crate::support::{
    SOON, completed, failed, for_each_program, goes_on, release, say_within, session,
};

for_each_program!(
    a_handshake_that_is_never_answered_fails_the_input_at_its_deadline,
    a_program_that_does_not_come_up_fails_the_input_with_its_last_words,
    a_resume_of_another_conversation_needs_recovery,
    a_resume_of_a_conversation_that_is_gone_needs_recovery,
);

async fn a_handshake_that_is_never_answered_fails_the_input_at_its_deadline(protocol: Protocol) {
    let settings = ["sessions.start_timeout = \"2s\""];
    let stage = must(FaultStage::with(FaultImage::of(protocol), &settings).await);
    let mut talk = must(stage.talk().await);
    release(&talk).await;
    must(stage.change(|image| image.quirk = Quirk::Mute));
    let turn = say_within(&mut talk, "SAY: lost", SOON).await;
    failed(&turn, "engine_not_started");
    must(stage.change(|image| image.quirk = Quirk::Faithful));
    let turn = say_within(&mut talk, "SAY: next", SOON).await;
    completed(&turn);
    must(stage.clear().await);
}

async fn a_program_that_does_not_come_up_fails_the_input_with_its_last_words(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    release(&talk).await;
    must(stage.change(|image| image.quirk = Quirk::StillBorn));
    let turn = say_within(&mut talk, "SAY: lost", SOON).await;
    let message = failed(&turn, "engine_not_started");
    assert!(message.contains("cannot open a conversation"), "{message}");
    must(stage.change(|image| image.quirk = Quirk::Faithful));
    let turn = say_within(&mut talk, "SAY: next", SOON).await;
    completed(&turn);
    must(stage.clear().await);
}

async fn a_resume_of_another_conversation_needs_recovery(protocol: Protocol) {
    needs_recovery(protocol, Quirk::OtherConversation).await;
}

async fn a_resume_of_a_conversation_that_is_gone_needs_recovery(protocol: Protocol) {
    needs_recovery(protocol, Quirk::Forgetful).await;
}

/// The conversation cannot be resumed: nothing fresh takes its place, its history stays, and once the program can
/// do it again, it goes on.
async fn needs_recovery(protocol: Protocol, quirk: Quirk) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    completed(&must(talk.say("SAY: the word is heliotrope").await));
    release(&talk).await;
    must(stage.change(|image| image.quirk = quirk));
    must(talk.send("RECALL").await);
    let begin = Instant::now();
    loop {
        let stands = session(&stage, &talk.id).await;
        if stands.state() == v1::SessionState::RecoveryRequired {
            assert!(
                stands.state_reason.contains("conversation"),
                "{}",
                stands.state_reason
            );
            break;
        }
        assert!(begin.elapsed() < SOON, "it is {:?}", stands.state());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let journal = must(talk.journal().await);
    assert_eq!(crate::support::count(&journal, "message.completed"), 1);
    must(stage.change(|image| image.quirk = Quirk::Faithful));
    let request = v1::RecoverSessionRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.recover_session(request).await);
    let turn = must(talk.turn().await);
    completed(&turn);
    assert!(turn.text().contains("heliotrope"), "{}", turn.text());
    goes_on(&mut talk, "heliotrope").await;
    must(stage.clear().await);
}
