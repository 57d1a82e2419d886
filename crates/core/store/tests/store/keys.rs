//! Idempotency keys.

use std::collections::BTreeSet;

use astrabox_store::{Error, Key, Store};
use astrabox_types::InputId;

use crate::support::{Place, agent, environment, key, made_agent, new_session, says, step};

#[tokio::test]
async fn a_repeated_call_has_the_first_answer_and_one_effect() {
    let place = Place::new().await;
    let first = place
        .store
        .insert_environment(key("k", "a"), environment("one"))
        .await;
    let first = first.expect("inserted");
    let again = place
        .store
        .insert_environment(key("k", "a"), environment("one"))
        .await;
    assert_eq!(again.expect("the same answer"), first);
    let listed = place.store.environments(10, None).await.expect("a list");
    assert_eq!(listed.items, [first]);
}

#[tokio::test]
async fn another_body_with_a_used_key_is_refused() {
    let place = Place::new().await;
    let first = place
        .store
        .insert_environment(key("k", "a"), environment("one"))
        .await;
    first.expect("inserted");
    let other = place
        .store
        .insert_environment(key("k", "b"), environment("two"))
        .await;
    assert!(matches!(other, Err(Error::KeyReused)), "{other:?}");
    let used = key("k", "b").expect("a key");
    let look = place.store.answer_of::<serde_json::Value>(&used).await;
    assert!(matches!(look, Err(Error::KeyReused)), "{look:?}");
    assert_eq!(
        place
            .store
            .environments(10, None)
            .await
            .expect("a list")
            .items
            .len(),
        1
    );
}

#[tokio::test]
async fn a_key_belongs_to_one_caller_and_one_operation() {
    let place = Place::new().await;
    let make = |actor: &str, operation, name: &str| {
        let key = Key {
            actor: actor.to_owned(),
            operation,
            key: "k".to_owned(),
            digest: name.to_owned(),
        };
        place.store.insert_environment(Some(key), environment(name))
    };
    make("one", "A", "a").await.expect("inserted");
    make("two", "A", "b").await.expect("another caller");
    make("one", "B", "c").await.expect("another operation");
    assert!(matches!(make("one", "A", "d").await, Err(Error::KeyReused)));
}

#[tokio::test]
async fn a_call_that_failed_is_not_remembered() {
    let place = Place::new().await;
    place
        .store
        .insert_environment(None, environment("one"))
        .await
        .expect("inserted");
    let taken = place
        .store
        .insert_environment(key("k", "a"), environment("one"))
        .await;
    assert!(matches!(taken, Err(Error::Exists)), "{taken:?}");
    let free = place
        .store
        .insert_environment(key("k", "b"), environment("two"))
        .await;
    free.expect("the key is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_at_the_same_time_has_one_effect() {
    let place = Place::new().await;
    let agent = made_agent(&place.store).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, agent) = (place.store.clone(), agent.clone());
        calls.spawn(async move {
            let mut new = new_session(&store, Some("hello")).await;
            new.session.agent_id = agent.id;
            store
                .insert_session(key("k", "a"), new)
                .await
                .expect("one answer")
        });
    }
    let mut answers = BTreeSet::new();
    while let Some(answer) = calls.join_next().await {
        answers.insert(answer.expect("no panic"));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let listed = place.store.sessions(&Default::default(), 100, None).await;
    assert_eq!(listed.expect("a list").items.len(), 1);
}

#[tokio::test]
async fn the_answer_of_a_step_is_kept_with_it_or_not_at_all() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let answered = |epoch| {
        let mut commit = step(epoch, vec![says("x")]);
        commit.answer = key("k", "a").map(|key| (key, "[1,\"x\"]".to_owned()));
        commit
    };
    let refused = place.store.commit(id, answered(epoch + 1)).await;
    assert!(matches!(refused, Err(Error::OwnerChanged)));
    let look = |store: Store| async move {
        store
            .answer_of::<(u32, String)>(&key("k", "a").expect("a key"))
            .await
            .expect("read")
    };
    assert_eq!(look(place.store.clone()).await, None);
    place
        .store
        .commit(id, answered(epoch))
        .await
        .expect("committed");
    assert_eq!(look(place.store.clone()).await, Some((1, "x".to_owned())));
    // The same key once more, from somewhere else: its step is refused as a whole.
    let (other, other_epoch) = place.owned().await;
    let mut commit = answered(other_epoch);
    commit.inputs = vec![astrabox_store::InputChange::Queue(InputId::new(), vec![])];
    let refused = place.store.commit(other, commit).await;
    assert!(matches!(refused, Err(Error::KeyReused)), "{refused:?}");
    assert!(
        place
            .store
            .open_inputs(other)
            .await
            .expect("read")
            .is_empty()
    );
}

#[tokio::test]
async fn every_kind_of_call_is_repeated_with_its_answer() {
    let place = Place::new().await;
    let store = &place.store;
    let made = environment("one");
    let id = made.id;
    store
        .insert_environment(None, made.clone())
        .await
        .expect("inserted");
    let write = astrabox_store::EnvironmentWrite {
        id,
        version: 1,
        spec: made.spec,
    };
    for _ in 0..2 {
        let updated = store.update_environment(key("u", ""), write.clone()).await;
        assert_eq!(updated.expect("updated").version, 2);
    }
    let one = agent(id);
    let mut spec = one.spec.clone();
    spec.name = "another".into();
    for _ in 0..2 {
        let inserted = store.insert_agent(key("a", ""), one.clone()).await;
        assert_eq!(inserted.expect("inserted"), one);
        let updated = store
            .update_agent(key("au", ""), one.id, 1, spec.clone())
            .await;
        assert_eq!(updated.expect("updated").version, 2);
        let archived = store.archive_agent(key("aa", ""), one.id).await;
        assert!(archived.expect("archived").archived);
    }
    let gone = environment("gone");
    store
        .insert_environment(None, gone.clone())
        .await
        .expect("inserted");
    for _ in 0..2 {
        store
            .delete_environment(key("d", ""), gone.id)
            .await
            .expect("deleted once");
    }
}
