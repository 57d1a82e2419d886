//! Two servers over one store: one of them owns a session.

use std::time::Duration;

use astrabox_platform::PageRequest;
use astrabox_types::{
    ContentPart, ErrorReason, EventPayload, JournalEvent, SessionId, SessionState,
};

use crate::fault::Faults;
use crate::server::{Broken, PATIENCE, Server, caller, reason};
use crate::stage::Stage;
use crate::told::{check, ends, names, rests, said, show, texts};

#[tokio::test]
async fn a_stale_owner_writes_nothing_and_destroys_nothing() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: before\nHOLD: go\nSAY: after").await;
    stage.until(id, "the words", said("before")).await;
    // The second server takes over what runs.
    let second = Server::start(&stage.world, Faults::none())
        .await
        .expect("it starts");
    own(&second, id).await;
    stage.world.release(id, "go").await;
    stage.until(id, "the end", rests(1)).await;
    assert_eq!(stage.world.boxes(id).await.len(), 1);
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["before", "after"]);
    assert_eq!(stage.world.log.processes().len(), 1);
    // Whoever is asked owns it from then on.
    for (round, server) in [stage.server(), &second, stage.server()]
        .into_iter()
        .enumerate()
    {
        let sent = loop {
            let sent = server.call(move |platform| async move {
                let content = vec![ContentPart::text(format!("SAY: round {round}"))];
                platform.send_input(&caller(), None, id, content).await
            });
            match sent.await {
                Err(Broken::Refused(error)) if error.is_retryable() => {}
                sent => break sent,
            }
        };
        sent.expect("an owner takes it");
        until(server, id, rests(round + 2)).await;
    }
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events)[2..], ["round 0", "round 1", "round 2"]);
    assert_eq!(stage.world.log.processes().len(), 1, "one runtime");
    second.kill().await;
}

/// Waits until this server owns the session: its owner answers.
async fn own(server: &Server, id: SessionId) {
    let watched = server.call(move |platform| async move {
        platform.watch(&caller(), id, 0, false).await.map(drop)
    });
    watched.await.expect("the session is there");
}

/// Reads the journal until it has what is looked for. A watch would make its server the owner.
async fn until(
    server: &Server,
    id: SessionId,
    look: impl Fn(&[JournalEvent]) -> Option<()>,
) -> Vec<JournalEvent> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let listed = server.call(move |platform| async move {
            let page = PageRequest {
                size: 1000,
                token: None,
            };
            platform.list_events(&caller(), id, 0, page).await
        });
        let events = listed.await.expect("the journal").items;
        if look(&events).is_some() {
            return events;
        }
        assert!(tokio::time::Instant::now() < deadline, "{}", show(&events));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_stale_owner_does_not_end_the_turn_of_the_new_one() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", rests(1)).await;
    let second = Server::start(&stage.world, Faults::none())
        .await
        .expect("it starts");
    own(&second, id).await;
    let sent = second.call(move |platform| async move {
        let content = vec![ContentPart::text("HOLD: go\nSAY: two")];
        platform.send_input(&caller(), None, id, content).await
    });
    sent.await.expect("it owns the session");
    let consumed = |events: &[JournalEvent]| {
        let consumed = names(events)
            .into_iter()
            .filter(|name| *name == "input.consumed");
        (consumed.count() == 2).then_some(())
    };
    until(&second, id, consumed).await;
    // The first server does not know of the turn.
    for attempt in 0.. {
        match stage.release_sandbox(id).await {
            Err(error) if error.is_retryable() => assert!(attempt < 10, "{error}"),
            refused => {
                assert_eq!(reason(refused), ErrorReason::SessionStateWrong);
                break;
            }
        }
    }
    stage.world.release(id, "go").await;
    let events = until(&second, id, rests(2)).await;
    check(&events);
    assert_eq!(ends(&events), ["completed", "completed"]);
    assert_eq!(texts(&events), ["one", "two"]);
}

#[tokio::test]
async fn a_stale_owner_that_is_asked_to_release_takes_over_in_order() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "the end", rests(1)).await;
    let second = Server::start(&stage.world, Faults::none())
        .await
        .expect("it starts");
    own(&second, id).await;
    let released = loop {
        match stage.release_sandbox(id).await {
            Err(error) if error.is_retryable() => {
                assert_ne!(error.reason(), ErrorReason::SandboxCleanupUnconfirmed);
            }
            released => break released,
        }
    };
    assert!(released.expect("it is released").is_some());
    let sent = second.call(move |platform| async move {
        let content = vec![ContentPart::text("RECALL")];
        loop {
            match platform
                .send_input(&caller(), None, id, content.clone())
                .await
            {
                Err(error) if error.is_retryable() => {}
                sent => return sent,
            }
        }
    });
    sent.await.expect("the other server goes on");
    let events = until(&second, id, rests(2)).await;
    check(&events);
    assert_eq!(texts(&events)[1], r#"you said: ["SAY: one"]"#);
    assert_eq!(stage.world.boxes(id).await.len(), 1);
    // Nobody saw the engine end before its end was in order.
    let rest = events.iter().find_map(|event| match &event.payload {
        EventPayload::SessionStatus {
            state: SessionState::Hibernated,
            reason,
        } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(rest, Some(None), "{}", show(&events));
}
