//! What belongs to a session beside its events: inputs, interactions, native state; and its end.

use std::collections::BTreeSet;

use astrabox_store::{Error, InputChange, InputState, InteractionChange, NativeFile};
use astrabox_types::{
    Choice, ContentPart, EventPayload, InputId, Interaction, InteractionAnswer, InteractionId,
    InteractionState, Presentation, SandboxId, SessionState, TurnId, TurnOutcome,
};

use crate::support::{Place, key, says, step};

#[tokio::test]
async fn inputs_keep_their_order_until_they_are_settled() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let ids: Vec<_> = (0..5).map(|_| InputId::new()).collect();
    // Against the order of ids: the queue counts, not the name.
    for input in ids.iter().rev() {
        let mut commit = step(epoch, vec![]);
        commit.inputs = vec![InputChange::Queue(*input, vec![ContentPart::text("x")])];
        place.store.commit(id, commit).await.expect("committed");
    }
    let turn = TurnId::new();
    let mut commit = step(epoch, vec![]);
    commit.inputs = vec![
        InputChange::Move(ids[4], InputState::Delivered, Some(turn)),
        InputChange::Move(ids[4], InputState::Settled, None),
        InputChange::Move(ids[3], InputState::Consumed, None),
    ];
    place.store.commit(id, commit).await.expect("committed");
    let open = place.store.open_inputs(id).await.expect("read");
    let order: Vec<_> = open.iter().map(|input| input.id).collect();
    assert_eq!(order, [ids[3], ids[2], ids[1], ids[0]]);
    assert_eq!(open[0].state, InputState::Consumed);
    assert_eq!(open[1].state, InputState::Queued);
}

fn asks(id: InteractionId, state: InteractionState) -> InteractionChange {
    InteractionChange::Open {
        interaction: Interaction {
            id,
            presentation: Presentation::Decision {
                body: "which".into(),
                choices: vec![Choice {
                    id: "left".into(),
                    label: "Left".into(),
                    allows: true,
                }],
            },
        },
        native_id: format!("native {id}"),
        turn_id: Some(TurnId::new()),
        child_run: None,
        state,
    }
}

#[tokio::test]
async fn interactions_that_are_asked_at_once_keep_their_order() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let mut ids: Vec<_> = (0..6).map(|_| InteractionId::new()).collect();
    ids.reverse();
    let mut commit = step(epoch, vec![]);
    commit.interactions = ids
        .iter()
        .map(|one| asks(*one, InteractionState::Queued))
        .collect();
    place.store.commit(id, commit).await.expect("committed");
    let stored = place.store.interactions(id, false).await.expect("read");
    let order: Vec<_> = stored.iter().map(|row| row.interaction.id).collect();
    assert_eq!(order, ids);
}

#[tokio::test]
async fn an_interaction_is_closed_with_its_answer_or_its_reason() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let ids = [
        InteractionId::new(),
        InteractionId::new(),
        InteractionId::new(),
    ];
    let answer = InteractionAnswer::Choose {
        choice_id: "left".into(),
        comment: Some("ü".into()),
        input: None,
    };
    let mut commit = step(epoch, vec![]);
    commit.interactions = vec![
        asks(ids[0], InteractionState::Active),
        asks(ids[1], InteractionState::Queued),
        asks(ids[2], InteractionState::Queued),
        InteractionChange::Resolve {
            id: ids[0],
            answer: answer.clone(),
            actor: "test:one".into(),
        },
        InteractionChange::Activate(ids[1]),
        InteractionChange::Expire {
            id: ids[2],
            reason: "late".into(),
        },
    ];
    place.store.commit(id, commit).await.expect("committed");
    let open = place.store.interactions(id, false).await.expect("read");
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].interaction.id, open[0].state),
        (ids[1], InteractionState::Active)
    );
    let all = place.store.interactions(id, true).await.expect("read");
    let states: Vec<_> = all.iter().map(|row| row.state).collect();
    assert_eq!(
        states,
        [
            InteractionState::Resolved,
            InteractionState::Active,
            InteractionState::Expired
        ]
    );
    assert_eq!(all[0].answer, Some(answer));
    assert_eq!(all[0].native_id, format!("native {}", ids[0]));
    assert_eq!(all[1].answer, None);
}

#[tokio::test]
async fn an_interaction_that_is_asked_again_is_open_again_behind_the_others() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let ids = [InteractionId::new(), InteractionId::new()];
    let mut commit = step(epoch, vec![]);
    commit.interactions = vec![
        asks(ids[0], InteractionState::Active),
        asks(ids[1], InteractionState::Queued),
        InteractionChange::Expire {
            id: ids[0],
            reason: "late".into(),
        },
        asks(ids[0], InteractionState::Queued),
    ];
    place.store.commit(id, commit).await.expect("committed");
    let open = place.store.interactions(id, false).await.expect("read");
    let order: Vec<_> = open.iter().map(|row| row.interaction.id).collect();
    assert_eq!(order, [ids[1], ids[0]]);
}

#[tokio::test]
async fn native_state_is_replaced_as_a_whole() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let file = |path: &str, content: &[u8]| NativeFile {
        path: path.into(),
        content: content.into(),
    };
    let large = file("a/large", &[7; 3 << 20]);
    for files in [
        vec![file("a/one", b"1"), file("b/two", b"\xff\x00")],
        vec![large.clone(), file("c", b"")],
        vec![],
    ] {
        let mut commit = step(epoch, vec![]);
        commit.native_state = Some(files.clone());
        place.store.commit(id, commit).await.expect("committed");
        assert_eq!(place.store.native_state(id).await.expect("read"), files);
        place
            .store
            .commit(id, step(epoch, vec![says("x")]))
            .await
            .expect("committed");
        assert_eq!(
            place.store.native_state(id).await.expect("read"),
            files,
            "it is kept"
        );
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_a_row_and_no_word() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let mut commit = step(epoch, vec![says("a secret word")]);
    commit.inputs = vec![InputChange::Queue(
        InputId::new(),
        vec![ContentPart::text("a secret word")],
    )];
    commit.interactions = vec![asks(InteractionId::new(), InteractionState::Active)];
    commit.native_state = Some(vec![NativeFile {
        path: "a".into(),
        content: b"a secret word".to_vec(),
    }]);
    commit.runtime.checkpoint = Some(Some("a secret word".into()));
    place.store.commit(id, commit).await.expect("committed");
    let mut commit = step(epoch, vec![says("gone")]);
    commit.session.state = Some((SessionState::Deleted, None));
    commit.answer = key("delete", "").map(|key| (key, "null".to_owned()));
    let last = place.store.commit(id, commit).await.expect("committed");
    assert_eq!(last.len(), 1, "watchers get the last event");
    assert!(matches!(
        place.store.session(id).await,
        Err(Error::NotFound)
    ));
    assert!(
        place
            .store
            .events(id, 0, 10)
            .await
            .expect("read")
            .is_empty()
    );
    assert!(place.store.open_inputs(id).await.expect("read").is_empty());
    assert!(
        place
            .store
            .interactions(id, true)
            .await
            .expect("read")
            .is_empty()
    );
    assert!(place.store.native_state(id).await.expect("read").is_empty());
    assert!(
        place
            .store
            .sessions_to_tend()
            .await
            .expect("read")
            .is_empty()
    );
    let answer: Option<()> = place
        .store
        .answer_of(&key("delete", "").expect("a key"))
        .await
        .expect("read");
    assert_eq!(answer, Some(()), "the call is remembered");
}

#[tokio::test]
async fn the_last_end_and_the_history_are_found() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    assert!(!place.store.has_history(id).await.expect("read"));
    assert_eq!(place.store.last_turn_end(id).await.expect("read"), None);
    let event = |payload| {
        let mut event = says("");
        event.payload = payload;
        event
    };
    let end = |outcome| {
        event(EventPayload::TurnEnded {
            outcome,
            usage: None,
        })
    };
    let consumed = event(EventPayload::InputConsumed {
        input_id: InputId::new(),
    });
    // A text that looks like an event is none.
    let trap = says(r#"{"turn.ended":{}}"#);
    let events = vec![
        consumed,
        end(TurnOutcome::Completed),
        end(TurnOutcome::Interrupted),
        trap,
    ];
    place
        .store
        .commit(id, step(epoch, events))
        .await
        .expect("committed");
    assert!(place.store.has_history(id).await.expect("read"));
    let last = place
        .store
        .last_turn_end(id)
        .await
        .expect("read")
        .expect("there is one");
    assert_eq!(last.seq, 4);
}

#[tokio::test]
async fn sessions_to_tend_are_those_that_are_not_at_rest() {
    let place = Place::new().await;
    let (creating, _) = place.owned().await;
    let (resting, epoch) = place.owned().await;
    let mut commit = step(epoch, vec![]);
    commit.session.state = Some((SessionState::Hibernated, None));
    place
        .store
        .commit(resting, commit.clone())
        .await
        .expect("committed");
    let tend = || async {
        let ids = place.store.sessions_to_tend().await.expect("read");
        ids.into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(tend().await, BTreeSet::from([creating]));
    let sandbox = SandboxId::new();
    commit.runtime.sandbox_id = Some(Some(sandbox));
    place
        .store
        .commit(resting, commit)
        .await
        .expect("committed");
    assert_eq!(tend().await, BTreeSet::from([creating, resting]));
    let holder = place.store.holder_of(sandbox, "none").await.expect("read");
    assert_eq!(holder, Some(resting));
    let nobody = place
        .store
        .holder_of(SandboxId::new(), "none")
        .await
        .expect("read");
    assert_eq!(nobody, None);
    let mut commit = step(epoch, vec![]);
    commit.runtime.sandbox_id = Some(None);
    commit.inputs = vec![InputChange::Queue(InputId::new(), vec![])];
    place
        .store
        .commit(resting, commit)
        .await
        .expect("committed");
    assert_eq!(
        tend().await,
        BTreeSet::from([creating, resting]),
        "an input waits"
    );
}
