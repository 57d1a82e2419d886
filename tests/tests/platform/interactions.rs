//! What the engine asks, and who answers.

use std::collections::BTreeMap;
use std::time::Duration;

use astrabox_platform::AgentDraft;
use astrabox_types::{
    ApprovalDecision, ApprovalRule, ErrorReason, EventPayload, InteractionAnswer, InteractionId,
    InteractionState, JournalEvent, Presentation, SessionId, SessionState,
};

use crate::fault::Faults;
use crate::server::{Broken, agent, caller, key, reason};
use crate::stage::Stage;
use crate::told::{asked, check, ended, ends, is_now, names, rests, said, states, texts};
use crate::world::{World, settings};

pub(crate) fn choose(id: &str) -> InteractionAnswer {
    InteractionAnswer::Choose {
        choice_id: id.into(),
        comment: None,
        input: None,
    }
}

fn reply(answers: &[(&str, &[&str])]) -> InteractionAnswer {
    let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let answers: BTreeMap<_, _> = answers
        .iter()
        .map(|(id, all)| ((*id).to_owned(), values(all)))
        .collect();
    InteractionAnswer::Reply { answers }
}

/// The id of the question that was asked as this one of all, from 1.
pub(crate) async fn question(stage: &mut Stage, id: SessionId, number: usize) -> InteractionId {
    let find = |events: &[JournalEvent]| asked(events).get(number - 1).map(|one| one.id);
    stage.until(id, "a question", find).await
}

#[tokio::test]
async fn an_answer_of_each_kind_reaches_the_engine() {
    let cases = [
        ("ASK: approval rm", choose("yes"), "answer: yes"),
        ("ASK: approval rm", choose("always"), "answer: always"),
        ("ASK: approval rm", choose("no"), "answer: no"),
        (
            "ASK: approval rm",
            InteractionAnswer::Decline { comment: None },
            "answer: declined",
        ),
        (
            "ASK: question which",
            reply(&[("q", &["red"])]),
            "answer: red",
        ),
        (
            "ASK: question which",
            reply(&[("q", &["my own"])]),
            "answer: my own",
        ),
        ("ASK: decision way", choose("right"), "answer: right"),
    ];
    let mut stage = Stage::new().await;
    for (prompt, answer, expected) in cases {
        let id = stage.create(prompt).await;
        let interaction = question(&mut stage, id, 1).await;
        stage
            .until(id, "the wait", is_now(SessionState::WaitingInput))
            .await;
        let seq = stage.try_respond(id, interaction, answer.clone()).await;
        stage.until(id, "the end", ended(1)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(texts(&events), [expected], "{prompt}");
        let resolved = &events[usize::try_from(seq.expect("it is taken")).expect("small") - 1];
        let EventPayload::InteractionResolved {
            interaction_id,
            answer: told,
            actor,
        } = &resolved.payload
        else {
            panic!("the seq is that of the answer: {resolved:?}");
        };
        assert_eq!(
            (*interaction_id, told, actor.as_str()),
            (interaction, &answer, "test:one")
        );
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_and_the_question_stays() {
    let cases = [
        ("ASK: approval x", choose("maybe")),
        ("ASK: approval x", reply(&[("q", &["red"])])),
        ("ASK: question x", choose("red")),
        ("ASK: question x", reply(&[])),
        ("ASK: question x", reply(&[("other", &["red"])])),
        ("ASK: question x", reply(&[("q", &["red", "blue"])])),
        ("ASK: decision x", choose("up")),
    ];
    let mut stage = Stage::new().await;
    for (prompt, answer) in cases {
        let id = stage.create(prompt).await;
        let interaction = question(&mut stage, id, 1).await;
        let refused = stage.try_respond(id, interaction, answer).await;
        assert_eq!(
            reason(refused),
            ErrorReason::InteractionAnswerInvalid,
            "{prompt}"
        );
        let open = stage.open_interactions(id).await;
        assert_eq!(open[0].interaction.id, interaction);
        assert_eq!(open[0].state, InteractionState::Active);
        let decline = InteractionAnswer::Decline { comment: None };
        stage
            .try_respond(id, interaction, decline)
            .await
            .expect("it is open");
        stage.until(id, "the end", ended(1)).await;
    }
}

#[tokio::test]
async fn parallel_questions_queue_in_order_and_one_is_active() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASKS: 3").await;
    for number in 1..=3 {
        let interaction = question(&mut stage, id, number).await;
        let open = stage.open_interactions(id).await;
        assert_eq!(open.len(), 4 - number);
        assert_eq!(open[0].interaction.id, interaction);
        assert_eq!(open[0].state, InteractionState::Active);
        assert!(
            open[1..]
                .iter()
                .all(|one| one.state == InteractionState::Queued)
        );
        if let Some(later) = open.get(1) {
            let early = stage
                .try_respond(id, later.interaction.id, choose("no"))
                .await;
            assert_eq!(reason(early), ErrorReason::InteractionClosed);
        }
        let Presentation::ToolApproval { input, .. } = &open[0].interaction.presentation else {
            panic!("an approval");
        };
        assert!(
            input.text().contains(&format!("number {number}")),
            "in order"
        );
        let answer = choose(if number == 2 { "no" } else { "yes" });
        stage
            .try_respond(id, interaction, answer)
            .await
            .expect("it is active");
    }
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["answers: yes, no, yes"]);
}

#[tokio::test]
async fn of_two_answers_one_is_taken() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: decision way").await;
    let interaction = question(&mut stage, id, 1).await;
    let answers = ["left", "right"].map(|side| {
        stage.server().call(move |platform| async move {
            platform
                .respond(&caller(), key(side, side), id, interaction, choose(side))
                .await
        })
    });
    let answers = futures::future::join_all(answers).await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 1));
    match &lost[0] {
        Err(Broken::Refused(error)) => assert_eq!(error.reason(), ErrorReason::InteractionClosed),
        other => panic!("{other:?}"),
    }
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    let resolved = names(&events)
        .into_iter()
        .filter(|n| *n == "interaction.resolved");
    assert_eq!(resolved.count(), 1);
}

#[tokio::test]
async fn an_answer_with_the_same_key_is_the_same_answer() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: decision way").await;
    let interaction = question(&mut stage, id, 1).await;
    let mut seqs = Vec::new();
    for _ in 0..2 {
        let answered = stage.server().call(move |platform| async move {
            platform
                .respond(&caller(), key("a", "left"), id, interaction, choose("left"))
                .await
        });
        seqs.push(answered.await.expect("it is taken"));
        stage.until(id, "the end", ended(1)).await;
    }
    assert_eq!(seqs[0], seqs[1]);
}

#[tokio::test]
async fn an_id_of_another_session_is_not_found() {
    let mut stage = Stage::new().await;
    let one = stage.create("ASK: decision way").await;
    let two = stage.create("ASK: decision way").await;
    let (first, second) = (
        question(&mut stage, one, 1).await,
        question(&mut stage, two, 1).await,
    );
    for foreign in [second, InteractionId::new()] {
        let refused = stage.try_respond(one, foreign, choose("left")).await;
        assert_eq!(reason(refused), ErrorReason::InteractionNotFound);
    }
    stage
        .try_respond(one, first, choose("left"))
        .await
        .expect("its own");
    stage
        .try_respond(two, second, choose("right"))
        .await
        .expect("its own");
    stage.until(one, "the end", ended(1)).await;
    stage.until(two, "the end", ended(1)).await;
}

#[tokio::test]
async fn a_question_that_nobody_answers_expires_and_the_session_works_on() {
    let world = World::with(astrabox_platform::PlatformSettings {
        interaction_timeout: Duration::from_millis(300),
        ..settings()
    });
    let mut stage = Stage::of(world, Faults::none()).await;
    let id = stage.create("ASKS: 2").await;
    let interaction = question(&mut stage, id, 1).await;
    stage.until(id, "the end", ended(1)).await;
    let late = stage.try_respond(id, interaction, choose("yes")).await;
    assert_eq!(reason(late), ErrorReason::InteractionClosed);
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["interaction_expired", "completed"]);
    let expired = names(&events)
        .into_iter()
        .filter(|n| *n == "interaction.expired");
    assert_eq!(expired.count(), 2);
}

#[tokio::test]
async fn a_question_is_answered_after_the_client_left_and_the_server_was_started_again() {
    for in_order in [true, false] {
        let mut stage = Stage::new().await;
        let id = stage.create("ASKS: 3").await;
        question(&mut stage, id, 1).await;
        if in_order {
            stage.drain_and_restart().await;
        } else {
            stage.restart().await;
        }
        for number in 1..=3 {
            let interaction = question(&mut stage, id, number).await;
            let answered = stage.try_respond(id, interaction, choose("yes")).await;
            answered.expect("any client answers after any restart");
        }
        stage.until(id, "the end", ended(1)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(texts(&events), ["answers: yes, yes, yes"]);
        assert_eq!(asked(&events).len(), 3, "none is asked twice");
    }
}

#[tokio::test]
async fn a_question_whose_engine_is_gone_is_expired_with_a_reason() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: approval rm").await;
    let interaction = question(&mut stage, id, 1).await;
    stage.world.kill_engine(id).await;
    stage.until(id, "the end", ended(1)).await;
    let late = stage.try_respond(id, interaction, choose("yes")).await;
    assert_eq!(reason(late), ErrorReason::InteractionClosed);
    let events = stage.journal(id).await;
    check(&events);
    let why = events.iter().find_map(|event| match &event.payload {
        EventPayload::InteractionExpired { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(why.is_some_and(|why| !why.is_empty()));
}

#[tokio::test]
async fn a_question_that_the_engine_takes_back_is_closed_and_the_turn_goes_on() {
    let mut stage = Stage::new().await;
    let id = stage.create("WITHDRAW: rm\nASK: decision way").await;
    let interaction = question(&mut stage, id, 2).await;
    let first = question(&mut stage, id, 1).await;
    let late = stage.try_respond(id, first, choose("yes")).await;
    assert_eq!(reason(late), ErrorReason::InteractionClosed);
    stage
        .try_respond(id, interaction, choose("left"))
        .await
        .expect("it is active");
    stage.until(id, "the answer", said("answer: left")).await;
    stage.until(id, "the end", ended(1)).await;
    check(&stage.journal(id).await);
}

#[tokio::test]
async fn nothing_is_allowed_by_default() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: approval rm\nFILE: proof done").await;
    let interaction = question(&mut stage, id, 1).await;
    // The client that could have answered is gone, and so is the server for a while.
    stage.restart().await;
    stage
        .until(id, "the wait", is_now(SessionState::WaitingInput))
        .await;
    let events = stage.journal(id).await;
    assert!(!names(&events).contains(&"file.changed"));
    stage
        .try_respond(id, interaction, choose("no"))
        .await
        .expect("it is open");
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(texts(&stage.journal(id).await), ["answer: no"]);
}

#[tokio::test]
async fn the_state_follows_the_questions() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: decision way\nHOLD: go").await;
    let interaction = question(&mut stage, id, 1).await;
    stage
        .try_respond(id, interaction, choose("left"))
        .await
        .expect("it is active");
    stage.until(id, "the answer", said("answer: left")).await;
    stage.world.release(id, "go").await;
    stage.until(id, "readiness", rests(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(
        states(&events)[2..],
        [
            SessionState::Busy,
            SessionState::WaitingInput,
            SessionState::Busy,
            SessionState::Ready
        ]
    );
}

#[tokio::test]
async fn a_rule_of_the_agent_answers_what_the_program_asks() {
    use ApprovalDecision::{Allow, Ask, Deny};
    type Rules = &'static [(&'static str, ApprovalDecision)];
    let cases: [(Rules, Option<&str>); 6] = [
        (&[("sh", Allow)], Some("answer: yes")),
        (&[("*", Deny)], Some("answer: declined")),
        (&[("other", Deny), ("s*", Allow)], Some("answer: yes")),
        (&[("sh", Ask), ("*", Allow)], None),
        (&[("other", Allow)], None),
        (&[], None),
    ];
    for (rules, expected) in cases {
        let mut stage = Stage::new().await;
        let rules = rules.iter().map(|(tool, decision)| ApprovalRule {
            tool: (*tool).to_owned(),
            decision: *decision,
        });
        let draft = AgentDraft {
            approval_rules: rules.collect(),
            ..agent("test")
        };
        stage.make_agent(draft).await;
        let id = stage.create("ASK: approval rm").await;
        match expected {
            Some(words) => {
                stage.until(id, "the answer", said(words)).await;
                stage.until(id, "readiness", rests(1)).await;
                let events = stage.journal(id).await;
                check(&events);
                let actor = events.iter().find_map(|event| match &event.payload {
                    EventPayload::InteractionResolved { actor, .. } => Some(actor.as_str()),
                    _ => None,
                });
                assert_eq!(
                    actor,
                    Some("approval-rule"),
                    "the journal says who answered"
                );
            }
            None => {
                let asked = question(&mut stage, id, 1).await;
                let answered = stage.try_respond(id, asked, choose("no")).await;
                answered.expect("a person is asked");
                stage.until(id, "readiness", rests(1)).await;
            }
        }
    }
}

#[tokio::test]
async fn a_rule_answers_approvals_in_order_and_no_question() {
    let mut stage = Stage::new().await;
    let rule = ApprovalRule {
        tool: "*".to_owned(),
        decision: ApprovalDecision::Allow,
    };
    let draft = AgentDraft {
        approval_rules: vec![rule],
        ..agent("test")
    };
    stage.make_agent(draft).await;
    let id = stage.create("ASKS: 3\nASK: question which").await;
    stage
        .until(id, "the answers", said("answers: yes, yes, yes"))
        .await;
    let asked = question(&mut stage, id, 4).await;
    stage.restart().await;
    let answered = stage
        .try_respond(id, asked, reply(&[("q", &["red"])]))
        .await;
    answered.expect("a person is asked");
    stage.until(id, "the last", said("answer: red")).await;
    check(&stage.journal(id).await);
}
