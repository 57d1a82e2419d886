//! Steps of sessions: all or nothing, by the owner only, numbered without gaps.

use std::collections::BTreeSet;

use astrabox_store::{
    Error, InputChange, InputState, InteractionChange, NativeFile, RuntimePatch, SessionCommit,
    SessionPatch,
};
use astrabox_types::{
    AssignmentId, ChildRunId, Choice, ContentPart, EventPayload, InputId, Interaction,
    InteractionAnswer, InteractionId, InteractionState, Json, Presentation, SandboxId,
    SessionState, TurnId, TurnOutcome,
};

use crate::support::{Place, key, says, step, texts};

#[tokio::test]
async fn events_get_dense_numbers_and_keep_every_part() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let mut whole = says("whole");
    whole.turn_id = Some(TurnId::new());
    whole.child_run = Some(ChildRunId("child".to_owned()));
    whole.native = Some(Json::parse(r#"{"b":1.50,"a":"\u2028"}"#).expect("JSON"));
    let first = place
        .store
        .commit(id, step(epoch, vec![whole.clone(), says("two")]))
        .await;
    let first = first.expect("committed");
    let second = place
        .store
        .commit(id, step(epoch, vec![says("three")]))
        .await;
    let stored = place.store.events(id, 0, 100).await.expect("read");
    assert_eq!(stored[1..3], first);
    assert_eq!(stored[3..], second.expect("committed"));
    let seqs: Vec<_> = stored.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    assert_eq!(stored[1].id, whole.id);
    assert_eq!(stored[1].turn_id, whole.turn_id);
    assert_eq!(stored[1].child_run, whole.child_run);
    assert_eq!(
        stored[1].native, whole.native,
        "the native text is verbatim"
    );
    assert_eq!(
        place
            .store
            .session(id)
            .await
            .expect("there")
            .session
            .last_seq,
        4
    );
}

#[tokio::test]
async fn an_event_that_is_there_is_not_written_again() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let (one, two) = (says("one"), says("two"));
    let written = place.store.commit(id, step(epoch, vec![one.clone()])).await;
    assert_eq!(written.expect("committed").len(), 1);
    let again = place
        .store
        .commit(id, step(epoch, vec![one, two.clone(), two]))
        .await;
    let again = again.expect("committed");
    assert_eq!((again.len(), again[0].seq), (1, 3));
    assert_eq!(texts(&place.store, id).await, ["one", "two"]);
}

#[tokio::test]
async fn a_stale_epoch_is_refused_and_changes_nothing() {
    let place = Place::new().await;
    let (id, old) = place.owned().await;
    let new = place.store.claim(id).await.expect("claimed");
    assert_eq!(new, old + 1);
    for epoch in [0, old, new + 1] {
        let mut commit = step(epoch, vec![says("stale")]);
        commit.session.state = Some((SessionState::Ready, None));
        commit.inputs = vec![InputChange::Queue(InputId::new(), vec![])];
        commit.native_state = Some(vec![]);
        let refused = place.store.commit(id, commit).await;
        assert!(
            matches!(refused, Err(Error::OwnerChanged)),
            "{epoch}: {refused:?}"
        );
    }
    let row = place.store.session(id).await.expect("there");
    assert_eq!(row.session.state, SessionState::Creating);
    assert_eq!(row.session.last_seq, 1);
    assert!(place.store.open_inputs(id).await.expect("read").is_empty());
    place
        .store
        .commit(id, step(new, vec![says("mine")]))
        .await
        .expect("the owner writes");
}

#[tokio::test]
async fn a_claim_is_renewed_by_its_owner_only() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let next = place
        .store
        .renew_claim(id, epoch)
        .await
        .expect("it is its own");
    assert_eq!(next, epoch + 1);
    let refused = place.store.renew_claim(id, epoch).await;
    assert!(matches!(refused, Err(Error::OwnerChanged)), "{refused:?}");
    let refused = place
        .store
        .commit(id, step(epoch, vec![says("late")]))
        .await;
    assert!(matches!(refused, Err(Error::OwnerChanged)), "{refused:?}");
    place
        .store
        .commit(id, step(next, vec![]))
        .await
        .expect("the new one writes");
}

#[tokio::test]
async fn nobody_claims_a_session_that_does_not_exist() {
    let place = Place::new().await;
    let none = astrabox_types::SessionId::new();
    assert!(matches!(
        place.store.claim(none).await,
        Err(Error::NotFound)
    ));
    let refused = place.store.commit(none, SessionCommit::default()).await;
    assert!(matches!(refused, Err(Error::NotFound)));
    assert!(matches!(
        place.store.session(none).await,
        Err(Error::NotFound)
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_writers_at_once_leave_no_gap() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..50 {
        let store = place.store.clone();
        tasks.spawn(async move {
            let mut seqs = Vec::new();
            for n in 0..10 {
                let events = vec![
                    says(&format!("{writer}/{n}/a")),
                    says(&format!("{writer}/{n}/b")),
                ];
                let written = store
                    .commit(id, step(epoch, events))
                    .await
                    .expect("committed");
                assert_eq!(written[0].seq + 1, written[1].seq, "a step is together");
                seqs.extend(written.iter().map(|event| event.seq));
            }
            assert!(seqs.is_sorted(), "one writer's steps are in order");
            seqs
        });
    }
    let mut all = BTreeSet::new();
    while let Some(seqs) = tasks.join_next().await {
        all.extend(seqs.expect("no panic"));
    }
    assert_eq!(all, (2..=1001).collect());
    let stored = place.store.events(id, 0, 2000).await.expect("read");
    let seqs: Vec<_> = stored.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=1001).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_nothing_else() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let turn = TurnId::new();
    let sandbox = SandboxId::new();
    let commit = SessionCommit {
        session: SessionPatch {
            state: Some((SessionState::Busy, Some("why".into()))),
            current_turn: Some(Some(turn)),
            permission_mode: Some(Some("bold".into())),
            archived: None,
        },
        runtime: RuntimePatch {
            assignment_id: Some(Some(AssignmentId::new("a-1").expect("plain"))),
            sandbox_id: Some(Some(sandbox)),
            native_key: Some("key".into()),
            program: Some("fake 1".into()),
            checkpoint: Some(Some("at 7".into())),
            open_messages: Some(Some("[]".into())),
            background: Some(true),
        },
        ..step(epoch, vec![])
    };
    place.store.commit(id, commit).await.expect("committed");
    place
        .store
        .commit(id, step(epoch, vec![says("x")]))
        .await
        .expect("committed");
    let row = place.store.session(id).await.expect("there");
    assert_eq!(row.session.state, SessionState::Busy);
    assert_eq!(row.session.state_reason.as_deref(), Some("why"));
    assert_eq!(row.session.current_turn, Some(turn));
    assert_eq!(row.session.permission_mode.as_deref(), Some("bold"));
    assert_eq!(
        row.assignment_id.as_ref().map(AssignmentId::as_str),
        Some("a-1")
    );
    assert_eq!(row.sandbox_id, Some(sandbox));
    assert_eq!(row.native_key.as_deref(), Some("key"));
    assert_eq!(row.program.as_deref(), Some("fake 1"));
    assert_eq!(row.checkpoint.as_deref(), Some("at 7"));
    assert_eq!(row.open_messages.as_deref(), Some("[]"));
    assert!(row.background);
    let commit = SessionCommit {
        session: SessionPatch {
            current_turn: Some(None),
            permission_mode: Some(None),
            archived: Some(true),
            state: None,
        },
        runtime: RuntimePatch {
            assignment_id: Some(None),
            sandbox_id: Some(None),
            checkpoint: Some(None),
            open_messages: Some(None),
            background: Some(false),
            ..RuntimePatch::default()
        },
        ..step(epoch, vec![])
    };
    place.store.commit(id, commit).await.expect("committed");
    let row = place.store.session(id).await.expect("there");
    assert_eq!(
        (row.session.current_turn, row.session.permission_mode),
        (None, None)
    );
    assert!(row.session.archived && !row.background);
    assert_eq!((row.assignment_id, row.sandbox_id), (None, None));
    assert_eq!((row.checkpoint, row.open_messages), (None, None));
    assert_eq!(row.session.state, SessionState::Busy);
    assert_eq!(row.native_key.as_deref(), Some("key"));
}

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
async fn a_step_that_fails_in_its_middle_changes_nothing_and_harms_no_other() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let input = InputId::new();
    let queue = |commit: &mut SessionCommit| {
        commit.inputs = vec![InputChange::Queue(input, vec![])];
    };
    let mut first = step(epoch, vec![says("first")]);
    queue(&mut first);
    place.store.commit(id, first).await.expect("committed");
    let mut wrong = step(epoch, vec![says("wrong")]);
    wrong.session.state = Some((SessionState::Busy, None));
    queue(&mut wrong);
    let other = place.session().await;
    let other_epoch = place.store.claim(other).await.expect("claimed");
    let (refused, fine) = tokio::join!(
        place.store.commit(id, wrong),
        place
            .store
            .commit(other, step(other_epoch, vec![says("fine")]))
    );
    assert!(refused.is_err());
    fine.expect("another session's step");
    assert_eq!(texts(&place.store, id).await, ["first"]);
    let row = place.store.session(id).await.expect("there");
    assert_eq!(row.session.state, SessionState::Creating);
    assert_eq!(row.session.last_seq, 2);
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
