//! One input, one turn, one outcome.

use std::collections::BTreeSet;
use std::sync::Arc;

use astrabox_types::{
    ContentPart, ErrorReason, EventPayload, MAX_INPUT_BYTES, SessionState, TurnOrigin,
};

use crate::server::{Broken, caller, draft, key, reason};
use crate::stage::Stage;
use crate::told::{check, ended, ends, inputs, is_now, names, rests, said, states, texts, turns};

#[tokio::test]
async fn a_prompt_given_at_the_begin_is_a_whole_turn() {
    let mut stage = Stage::new().await;
    let id = stage.create("hello").await;
    stage.until(id, "the end", ended(1)).await;
    stage.until(id, "readiness", rests(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(
        names(&events),
        [
            "session.status",
            "input.accepted",
            "session.status",
            "turn.started",
            "session.status",
            "input.consumed",
            "message.completed",
            "turn.ended",
            "session.status",
        ]
    );
    assert_eq!(texts(&events), ["echo: hello"]);
    assert_eq!(
        states(&events),
        [
            SessionState::Creating,
            SessionState::Ready,
            SessionState::Busy,
            SessionState::Ready
        ]
    );
    let view = stage.view(id).await.expect("it is there");
    assert_eq!(view.session.state, SessionState::Ready);
    assert_eq!(view.session.current_turn, None);
    assert_eq!(view.session.last_seq, events.len() as u64);
}

#[tokio::test]
async fn inputs_have_their_turns_in_their_order_and_exactly_one_outcome_each() {
    let mut stage = Stage::new().await;
    let id = stage.create("HOLD: go").await;
    let mut sent = Vec::new();
    for n in 1..=5 {
        sent.push(stage.send(id, &format!("SAY: number {n}")).await);
    }
    stage
        .until(id, "consumption", |events| {
            names(events).contains(&"input.consumed").then_some(())
        })
        .await;
    assert_eq!(turns(&stage.journal(id).await).len(), 1, "the others wait");
    stage.world.release(id, "go").await;
    stage.until(id, "the ends", ended(6)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(inputs(&events)[1..], sent);
    assert!(turns(&events).iter().all(|(_, _, ends)| *ends == 1));
    let said: Vec<_> = (1..=5).map(|n| format!("number {n}")).collect();
    assert_eq!(texts(&events), said);
}

#[tokio::test]
async fn the_same_key_gives_the_same_input_and_one_turn() {
    let mut stage = Stage::new().await;
    let id = stage.create("").await;
    stage.until(id, "readiness", rests(0)).await;
    let content = vec![ContentPart::text("SAY: once")];
    let mut answers = BTreeSet::new();
    for _ in 0..3 {
        let content = content.clone();
        let call = stage.server().call(move |platform| async move {
            platform
                .send_input(&caller(), key("retried", "once"), id, content)
                .await
        });
        let answer = call.await.expect("it is taken");
        answers.insert(answer);
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let other = stage.server().call(move |platform| async move {
        let content = vec![ContentPart::text("SAY: another")];
        platform
            .send_input(&caller(), key("retried", "another"), id, content)
            .await
    });
    match other.await {
        Err(Broken::Refused(error)) => {
            assert_eq!(error.reason(), ErrorReason::IdempotencyKeyReused);
        }
        other => panic!("the key was used: {other:?}"),
    }
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: after").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["once", "after"]);
}

#[tokio::test]
async fn calls_with_one_key_at_the_same_time_are_one_input() {
    let mut stage = Stage::new().await;
    let id = stage.create("").await;
    let calls = (0..20).map(|_| {
        stage.server().call(move |platform| async move {
            let content = vec![ContentPart::text("SAY: once")];
            platform
                .send_input(&caller(), key("same", "once"), id, content)
                .await
        })
    });
    let answers = futures::future::join_all(calls).await;
    let answers: BTreeSet<_> = answers.into_iter().map(|a| a.expect("taken")).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(inputs(&stage.journal(id).await).len(), 1);
}

#[tokio::test]
async fn a_session_is_made_once_for_one_key_with_its_first_prompt() {
    let mut stage = Stage::new().await;
    let agent = stage.agent().await;
    let calls = (0..10).map(|_| {
        stage.server().call(move |platform| async move {
            let draft = draft(agent, "SAY: once");
            platform
                .create_session(&caller(), key("create", "once"), draft)
                .await
        })
    });
    let made = futures::future::join_all(calls).await;
    let made: BTreeSet<_> = made
        .into_iter()
        .map(|made| {
            let (view, input) = made.expect("it is made");
            (view.session.id, input)
        })
        .collect();
    assert_eq!(made.len(), 1, "{made:?}");
    let id = made.first().expect("there is one").0;
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(stage.world.boxes(id).await.len(), 1);
    let other = stage.call(move |platform| async move {
        let draft = draft(agent, "SAY: other");
        platform
            .create_session(&caller(), key("create", "other"), draft)
            .await
    });
    assert_eq!(reason(other.await), ErrorReason::IdempotencyKeyReused);
}

#[tokio::test]
async fn a_key_belongs_to_its_caller_and_to_one_session() {
    let mut stage = Stage::new().await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        let id = stage.create("").await;
        stage.until(id, "readiness", rests(0)).await;
        ids.push(id);
    }
    let send = |id, who: &'static str| {
        stage.server().call(move |platform| async move {
            let actor = astrabox_platform::Actor::new(who).expect("a plain subject");
            let ctx = astrabox_platform::OpContext::of(actor);
            let content = vec![ContentPart::text("SAY: x")];
            let key = key("shared", &format!("{id}"));
            platform.send_input(&ctx, key, id, content).await
        })
    };
    // At the same time, so that several pass the first look at the key.
    let sends = ids.iter().map(|id| send(*id, "test:one"));
    let answers = futures::future::join_all(sends).await;
    let taken = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(taken, 1, "{answers:?}");
    send(ids[0], "test:two")
        .await
        .expect("another caller's key");
    for (id, answer) in ids.into_iter().zip(answers) {
        let before = usize::from(answer.is_ok());
        stage.send(id, "SAY: it works").await;
        stage.until(id, "it works", said("it works")).await;
        let events = stage.journal(id).await;
        check(&events);
        let refused = inputs(&events).len() <= before + 2;
        assert!(
            refused,
            "a refused input is none: {}",
            crate::told::show(&events)
        );
    }
}

#[tokio::test]
async fn a_second_message_waits_and_the_running_turn_is_untouched() {
    let mut stage = Stage::new().await;
    let id = stage.create("STREAM: 4 go").await;
    stage
        .until(id, "the turn", |events| {
            names(events).contains(&"input.consumed").then_some(())
        })
        .await;
    stage.send(id, "SAY: second").await;
    stage.world.release(id, "go").await;
    stage.until(id, "both ends", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["d1 d2 d3 d4", "second"]);
    assert_eq!(ends(&events), ["completed", "completed"]);
}

#[tokio::test]
async fn a_full_queue_is_refused_and_changes_nothing() {
    let mut stage = Stage::new().await;
    let id = stage.create("HOLD: go").await;
    let mut taken = 1;
    let refusal = loop {
        match stage.try_send(id, "SAY: x").await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal.reason(), ErrorReason::InputQueueFull);
    assert_eq!(taken, stage.world.settings.max_queued_inputs);
    stage
        .until(id, "a sandbox", is_now(SessionState::Busy))
        .await;
    stage.world.release(id, "go").await;
    stage.until(id, "all ends", ended(taken)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(inputs(&events).len(), taken);
}

#[tokio::test]
async fn bad_content_is_refused_and_changes_nothing() {
    let mut stage = Stage::new().await;
    let id = stage.create("").await;
    stage.until(id, "readiness", rests(0)).await;
    let before = stage.journal(id).await;
    let picture = ContentPart::Image {
        media_type: astrabox_types::ImageMediaType::Png,
        data: "AAAA".into(),
    };
    let cases = [
        (vec![], ErrorReason::InvalidField),
        (vec![ContentPart::text("")], ErrorReason::InvalidField),
        (vec![picture], ErrorReason::CapabilityUnavailable),
        (
            vec![ContentPart::text("x".repeat(MAX_INPUT_BYTES + 1))],
            ErrorReason::TooLarge,
        ),
        (vec![ContentPart::text("x"); 101], ErrorReason::InvalidField),
    ];
    for (content, expected) in cases {
        let content = Arc::new(content);
        let sent = stage.call(move |platform| {
            let content = content.as_ref().clone();
            async move { platform.send_input(&caller(), None, id, content).await }
        });
        assert_eq!(reason(sent.await), expected);
    }
    assert_eq!(stage.journal(id).await, before);
}

#[tokio::test]
async fn a_large_prompt_arrives_whole() {
    let mut stage = Stage::new().await;
    let text = "ü".repeat(100_000);
    let id = stage.create(&text).await;
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(texts(&stage.journal(id).await), [format!("echo: {text}")]);
}

#[tokio::test]
async fn output_that_the_engine_had_begun_by_itself_does_not_end_the_inputs_turn() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: first").await;
    stage.until(id, "the first end", ended(1)).await;
    stage.send(id, "PRELUDE: by the way\nSAY: second").await;
    stage.until(id, "the second", said("second")).await;
    stage.until(id, "the second end", ended(2)).await;
    stage.send(id, "SAY: third").await;
    stage.until(id, "the third end", ended(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["first", "by the way", "second", "third"]);
    let origins = turns(&events).into_iter().map(|(_, origin, _)| origin);
    assert!(
        origins
            .into_iter()
            .all(|o| matches!(o, TurnOrigin::Input { .. }))
    );
}

#[tokio::test]
async fn a_turn_ends_at_its_result_though_the_program_lives_on() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: two").await;
    stage.until(id, "the second end", ended(2)).await;
    assert_eq!(stage.world.log.processes().len(), 1);
}

#[tokio::test]
async fn an_engine_that_ends_a_turn_twice_ends_one() {
    let mut stage = Stage::new().await;
    let id = stage.create("TWICE").await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: after").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["after"]);
    assert_eq!(ends(&events).len(), 2);
}

#[tokio::test]
async fn every_accepted_input_is_consumed_or_settled() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.send(id, "EXIT: 3").await;
    stage.send(id, "SAY: three").await;
    stage.until(id, "all ends", ended(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    let consumed = |events: &[astrabox_types::JournalEvent]| {
        let id = |event: &astrabox_types::JournalEvent| match event.payload {
            EventPayload::InputConsumed { input_id } => Some(input_id),
            _ => None,
        };
        events.iter().filter_map(id).collect::<Vec<_>>()
    };
    assert_eq!(consumed(&events), inputs(&events));
    assert_eq!(ends(&events), ["completed", "engine_exited", "completed"]);
}
