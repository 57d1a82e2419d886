//! Steps of sessions: all or nothing, by the owner only, numbered without gaps.

use std::collections::BTreeSet;

use astrabox_store::{Error, InputChange, RuntimePatch, SessionCommit, SessionPatch};
use astrabox_types::{AssignmentId, ChildRunId, InputId, Json, SandboxId, SessionState, TurnId};

use crate::support::{Place, says, step, texts};

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
            native_key: Some(Some("key".into())),
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
