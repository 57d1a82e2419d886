//! Environments, agents and new sessions.

use astrabox_store::{EnvironmentWrite, Error, SessionFilter};
use astrabox_types::{AgentId, EnvironmentId, EventPayload, SessionState};

use crate::support::{Place, agent, environment, made_agent, new_session};

#[tokio::test]
async fn an_environment_is_found_by_id_and_by_name() {
    let place = Place::new().await;
    let made = environment("one");
    place
        .store
        .insert_environment(None, made.clone())
        .await
        .expect("inserted");
    for name in [made.id.to_string(), "one".to_owned()] {
        let found = place.store.environment(&name).await.expect("found");
        assert_eq!(found, made);
    }
    assert!(matches!(
        place.store.environment("two").await,
        Err(Error::NotFound)
    ));
    let taken = place
        .store
        .insert_environment(None, environment("one"))
        .await;
    assert!(matches!(taken, Err(Error::Exists)), "{taken:?}");
}

#[tokio::test]
async fn an_environment_is_overwritten_from_the_version_that_is_known() {
    let place = Place::new().await;
    let made = environment("one");
    place
        .store
        .insert_environment(None, made.clone())
        .await
        .expect("inserted");
    let write = |version, text: &str| {
        let mut spec = made.spec.clone();
        spec.description = text.to_owned();
        let id = made.id;
        place
            .store
            .update_environment(None, EnvironmentWrite { id, version, spec })
    };
    let second = write(1, "second").await.expect("written");
    assert_eq!(
        (second.version, second.spec.description.as_str()),
        (2, "second")
    );
    let refused = write(1, "lost").await;
    assert!(
        matches!(refused, Err(Error::VersionConflict { stored: 2 })),
        "{refused:?}"
    );
    let none = EnvironmentWrite {
        id: EnvironmentId::new(),
        version: 1,
        spec: made.spec.clone(),
    };
    let refused = place.store.update_environment(None, none).await;
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
}

#[tokio::test]
async fn an_environment_in_use_stays() {
    let place = Place::new().await;
    let agent = made_agent(&place.store).await;
    let refused = place
        .store
        .delete_environment(None, agent.spec.environment_id)
        .await;
    assert!(matches!(refused, Err(Error::InUse)), "{refused:?}");
    let none = place
        .store
        .delete_environment(None, EnvironmentId::new())
        .await;
    assert!(matches!(none, Err(Error::NotFound)), "{none:?}");
    let free = environment("free");
    place
        .store
        .insert_environment(None, free.clone())
        .await
        .expect("inserted");
    place
        .store
        .delete_environment(None, free.id)
        .await
        .expect("nobody uses it");
}

#[tokio::test]
async fn an_agent_keeps_every_version() {
    let place = Place::new().await;
    let first = made_agent(&place.store).await;
    let mut spec = first.spec.clone();
    spec.system = "other".into();
    let second = place
        .store
        .update_agent(None, first.id, 1, spec.clone())
        .await;
    let second = second.expect("updated");
    assert_eq!(second.version, 2);
    let same = place
        .store
        .update_agent(None, first.id, 2, spec.clone())
        .await;
    assert_eq!(same.expect("nothing changes").version, 2);
    let refused = place
        .store
        .update_agent(None, first.id, 1, spec.clone())
        .await;
    assert!(
        matches!(refused, Err(Error::VersionConflict { stored: 2 })),
        "{refused:?}"
    );
    let refused = place
        .store
        .update_agent(None, AgentId::new(), 1, spec)
        .await;
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
    let latest = place.store.agent(first.id, None).await.expect("found");
    assert_eq!(latest.spec.system, "other");
    let old = place.store.agent(first.id, Some(1)).await.expect("found");
    assert_eq!(old.spec, first.spec);
    let none = place.store.agent(first.id, Some(3)).await;
    assert!(matches!(none, Err(Error::NotFound)), "{none:?}");
}

#[tokio::test]
async fn an_agent_needs_an_environment_that_exists() {
    let place = Place::new().await;
    let refused = place
        .store
        .insert_agent(None, agent(EnvironmentId::new()))
        .await;
    assert!(refused.is_err());
    assert!(
        place
            .store
            .agents(10, None, true)
            .await
            .expect("a list")
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn an_archived_agent_is_listed_on_request() {
    let place = Place::new().await;
    let (one, two) = (
        made_agent(&place.store).await,
        made_agent(&place.store).await,
    );
    let archived = place
        .store
        .archive_agent(None, one.id)
        .await
        .expect("archived");
    assert!(archived.archived);
    let ids = |archived| {
        let store = place.store.clone();
        async move {
            let page = store.agents(10, None, archived).await.expect("a list");
            page.items
                .into_iter()
                .map(|agent| agent.id)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(ids(false).await, [two.id]);
    assert_eq!(ids(true).await, [two.id, one.id], "newest first");
    let none = place.store.archive_agent(None, AgentId::new()).await;
    assert!(matches!(none, Err(Error::NotFound)), "{none:?}");
}

#[tokio::test]
async fn a_new_session_has_its_first_events_and_input() {
    let place = Place::new().await;
    for prompt in [None, Some("hello")] {
        let new = new_session(&place.store, prompt).await;
        let (id, input) = (new.session.id, new.input.as_ref().map(|input| input.0));
        let answer = place
            .store
            .insert_session(None, new.clone())
            .await
            .expect("inserted");
        assert_eq!(
            answer,
            (id.to_string(), input.map(|input| input.to_string()))
        );
        let row = place.store.session(id).await.expect("found");
        let expected = astrabox_types::Session {
            last_seq: 1 + u64::from(prompt.is_some()),
            ..new.session
        };
        assert_eq!(row.session, expected);
        assert_eq!(row.volume_id, new.volume_id);
        assert_eq!(
            (row.sandbox_id, row.checkpoint, row.background),
            (None, None, false)
        );
        let events = place.store.events(id, 0, 10).await.expect("read");
        assert_eq!(events.len() as u64, row.session.last_seq);
        assert!(matches!(
            events[0].payload,
            EventPayload::SessionStatus {
                state: SessionState::Creating,
                reason: None
            }
        ));
        let open = place.store.open_inputs(id).await.expect("read");
        assert_eq!(open.first().map(|row| row.id), input);
    }
    let listed = place
        .store
        .sessions(&SessionFilter::default(), 10, None)
        .await;
    assert_eq!(listed.expect("a list").items.len(), 2);
}
