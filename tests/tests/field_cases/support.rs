//! What the cases share.

use std::time::{Duration, Instant};

use astrabox_client::v1;
use astrabox_tests::{Conversation, FaultStage, Turn, must, payload_name};
use v1::event::Payload;

/// By when an outcome that needs no watchdog must be there. A busy machine needs a part of it.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Runs every case once for each program that the fault engine stands in for.
macro_rules! for_each_program {
    ($($case:ident),* $(,)?) => {
        mod codex {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(astrabox_testkit::fault_engine::Protocol::Codex).await;
                }
            )*
        }
        mod claude_code {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(astrabox_testkit::fault_engine::Protocol::Claude).await;
                }
            )*
        }
        mod acp {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(astrabox_testkit::fault_engine::Protocol::Acp).await;
                }
            )*
        }
        mod deepseek_harness {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(astrabox_testkit::fault_engine::Protocol::DeepseekHarness).await;
                }
            )*
        }
        mod pi {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(astrabox_testkit::fault_engine::Protocol::Pi).await;
                }
            )*
        }
        mod hermes {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(astrabox_testkit::fault_engine::Protocol::Hermes).await;
                }
            )*
        }
    };
}
pub(crate) use for_each_program;

/// Sends a prompt and reads its turn, which must end in time.
pub(crate) async fn say_within(talk: &mut Conversation, prompt: &str, within: Duration) -> Turn {
    let begin = Instant::now();
    let turn = must(talk.say(prompt).await);
    let took = begin.elapsed();
    assert!(
        took < within,
        "the turn took {took:?}: {}",
        show(&turn.events)
    );
    turn
}

/// The turn completed.
pub(crate) fn completed(turn: &Turn) {
    let outcome = turn.ended().outcome();
    assert_eq!(
        outcome,
        v1::TurnOutcome::Completed,
        "{}",
        show(&turn.events)
    );
}

/// The turn was interrupted.
pub(crate) fn interrupted(turn: &Turn) {
    let outcome = turn.ended().outcome();
    assert_eq!(
        outcome,
        v1::TurnOutcome::Interrupted,
        "{}",
        show(&turn.events)
    );
}

/// The turn failed for this reason; gives its text for people.
pub(crate) fn failed<'t>(turn: &'t Turn, reason: &str) -> &'t str {
    let ended = turn.ended();
    assert_eq!(
        (ended.outcome(), ended.failure_reason.as_str()),
        (v1::TurnOutcome::Failed, reason),
        "{}",
        show(&turn.events)
    );
    &ended.failure_message
}

/// The conversation takes another turn, and remembers what was said before.
pub(crate) async fn goes_on(talk: &mut Conversation, remembers: &str) {
    let turn = must(talk.say("RECALL").await);
    completed(&turn);
    let text = turn.text();
    assert!(text.contains(remembers), "it remembers {text}");
}

/// How often each kind of event is there.
pub(crate) fn count(events: &[v1::Event], name: &str) -> usize {
    let names = events.iter().filter_map(|event| event.payload.as_ref());
    names
        .filter(|payload| payload_name(payload) == name)
        .count()
}

/// Whether a diagnostic of this topic is there.
pub(crate) fn has_diagnostic(events: &[v1::Event], topic: &str) -> bool {
    events.iter().any(
        |event| matches!(&event.payload, Some(Payload::DiagnosticRaw(raw)) if raw.topic == topic),
    )
}

/// A journal for a failed test.
pub(crate) fn show(events: &[v1::Event]) -> String {
    let lines = events.iter().map(|event| {
        let mut text = format!("{:?}", event.payload);
        text.truncate(text.floor_char_boundary(400));
        format!("{} {} {text}\n", event.seq, event.turn_id)
    });
    lines.collect()
}

/// Asks for an interrupt.
pub(crate) async fn interrupt(talk: &Conversation) {
    let request = v1::InterruptSessionRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.interrupt_session(request).await);
}

/// Reads into `turn` until an event like this has come.
pub(crate) async fn until(talk: &mut Conversation, turn: &mut Turn, wanted: fn(&Payload) -> bool) {
    while !must(talk.read_into(turn, wanted).await) {}
}

/// Reads into `turn` until it has ended.
pub(crate) async fn until_ended(talk: &mut Conversation, turn: &mut Turn) {
    until(talk, turn, |payload| {
        matches!(payload, Payload::TurnEnded(_))
    })
    .await;
}

/// Releases the session's sandbox.
pub(crate) async fn release(talk: &Conversation) {
    let request = v1::ReleaseSandboxRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.release_sandbox(request).await);
}

/// Where the session stands.
pub(crate) async fn session(stage: &FaultStage, id: &str) -> v1::Session {
    let request = v1::GetSessionRequest {
        session_id: id.to_owned(),
    };
    let answer = must(stage.client.get_session(request).await);
    answer.session.expect("a session in the answer")
}
