//! What outlives what: the conversation its sandbox, the turn its server.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::time::Duration;

use crate::{Conversation, Program, Stage, Turn, comparable, must};
use astrabox_client::v1;
use v1::event::Payload;

const PATIENCE: Duration = Duration::from_secs(60);

pub async fn a_released_session_goes_on_in_a_new_sandbox(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.say("SAY: the word is heliotrope").await);
    must(talk.say("RUN: echo kept > /workspace/kept.txt").await);
    let before = must(session(&talk).await).sandbox_id;
    let request = v1::ReleaseSandboxRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    let released = must(talk.client.release_sandbox(request).await).sandbox_id;
    assert_eq!(released, before);
    assert_eq!(
        must(session(&talk).await).state(),
        v1::SessionState::Hibernated
    );
    assert!(
        must(
            talk.client
                .list_sandboxes(v1::ListSandboxesRequest {})
                .await
        )
        .sandboxes
        .is_empty()
    );

    let turn = must(talk.say("RECALL").await);
    assert!(turn.text().contains("heliotrope"), "{}", turn.text());
    let after = must(session(&talk).await).sandbox_id;
    assert_ne!(after, before);
    let turn = must(talk.say("RUN: cat /workspace/kept.txt").await);
    assert!(
        turn.results()[0].output.contains("kept"),
        "{:?}",
        turn.results()
    );
    must(stage.clear().await);
}

pub async fn a_turn_survives_the_death_of_its_server(program: &Program) {
    let prompt = "SAY: one two three\nHOLD: middle\nSAY: four five six\nDELTAS: 20";
    let stage = must(Stage::of(program).await);
    let mut undisturbed = must(stage.conversation(program.unasked).await);
    must(undisturbed.send(prompt).await);
    must(stage.model.wait_until_held("middle", PATIENCE).await);
    stage.model.release("middle");
    must(undisturbed.turn().await);
    let expected = comparable(&must(undisturbed.journal().await));
    must(stage.clear().await);

    let mut stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.send(prompt).await);
    must(stage.model.wait_until_held("middle", PATIENCE).await);
    let mut turn = Turn::default();
    while turn.streamed().len() < "one two".len() {
        must(talk.read_into(&mut turn, |_| false).await);
    }
    let asked = stage.model.requests().len();
    must(stage.server.kill().await);
    stage.model.release("middle");
    must(stage.server.start_again().await);
    while !must(
        talk.read_into(&mut turn, |payload| {
            matches!(payload, Payload::TurnEnded(_))
        })
        .await,
    ) {}
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(
        turn.text().contains("one two three") && turn.text().contains("four five six"),
        "{}",
        turn.text()
    );
    assert_eq!(
        turn.streamed(),
        turn.text(),
        "the watch went on without a gap or a repetition"
    );
    assert_eq!(comparable(&must(talk.journal().await)), expected);
    if program.is_quiet() {
        let seen = stage.model.requests().len();
        assert_eq!(seen, asked, "the model saw each request once");
    }
    must(stage.clear().await);
}

pub async fn an_approval_is_answered_after_a_restart(program: &Program) {
    let mut stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(talk.send("RUN: touch /workspace/late").await);
    let asked = must(talk.until_asked().await);
    must(stage.server.kill().await);
    must(stage.server.start_again().await);
    talk.client = must(stage.server.client().await);
    must(talk.choose(&asked, program.allow).await);
    assert_eq!(
        must(talk.turn().await).ended().outcome(),
        v1::TurnOutcome::Completed
    );
    assert_eq!(must(talk.file("/workspace/late").await), "");
    must(stage.clear().await);
}

pub async fn a_server_that_ends_in_order_leaves_its_turns_running(program: &Program) {
    let mut stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.send("SAY: begun\nHOLD: gate\nSAY: ended").await);
    must(stage.model.wait_until_held("gate", PATIENCE).await);
    must(stage.server.stop().await);
    stage.model.release("gate");
    must(stage.server.start_again().await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(turn.text().contains("ended"), "{}", turn.text());
    must(stage.clear().await);
}

pub async fn two_sessions_in_the_same_directory_remember_their_own_word(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut one = must(stage.conversation(program.unasked).await);
    let mut two = must(stage.conversation(program.unasked).await);
    must(one.say("SAY: the word is heliotrope").await);
    must(two.say("SAY: the word is chartreuse").await);
    for talk in [&one, &two] {
        let request = v1::ReleaseSandboxRequest {
            session_id: talk.id.clone(),
            ..Default::default()
        };
        must(talk.client.release_sandbox(request).await);
    }
    let first = must(one.say("RECALL").await).text();
    let second = must(two.say("RECALL").await).text();
    assert!(
        first.contains("heliotrope") && !first.contains("chartreuse"),
        "{first}"
    );
    assert!(
        second.contains("chartreuse") && !second.contains("heliotrope"),
        "{second}"
    );
    must(stage.clear().await);
}

async fn session(talk: &Conversation) -> Result<v1::Session, anyhow::Error> {
    let request = v1::GetSessionRequest {
        session_id: talk.id.clone(),
    };
    talk.client
        .get_session(request)
        .await?
        .session
        .ok_or_else(|| anyhow::anyhow!("a session in the answer"))
}

/// Its shell kills the program once the call is in what it resumes from; the model refuses a call without a result, as
/// the vendors' do.
pub async fn a_program_killed_in_a_tool_resumes_a_conversation_that_the_model_takes(
    program: &Program,
) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.say("SAY: apple").await);
    let kill = format!(
        "RUN: until {}; do sleep 0.05; done; for p in /proc/[0-9]*; do \
         [ \"$(cat $p/comm 2>/dev/null)\" = {} ] && kill -9 ${{p#/proc/}}; done; sleep 60",
        program.call_is_saved, program.process
    );
    let turn = must(talk.say(&kill).await);
    assert_eq!(turn.ended().failure_reason, "engine_exited");
    let turn = must(talk.say("RECALL").await);
    assert_eq!(
        turn.ended().outcome(),
        v1::TurnOutcome::Completed,
        "{turn:?}"
    );
    assert!(turn.text().contains("SAY: apple"), "{}", turn.text());
    let told = must(talk.journal().await).into_iter().any(|event| {
        matches!(event.payload, Some(Payload::DiagnosticRaw(note)) if note.topic == program.repair)
    });
    assert!(told || program.repair.is_empty(), "the repair is told");
    must(stage.clear().await);
}
