use std::time::Duration;

use astrabox_types::Timestamp;

use super::*;

async fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(&directory.path().join("db"))
        .await
        .expect("a store");
    (directory, store)
}

fn event(session_id: SessionId, seq: u64, id: EventId) -> JournalEvent {
    JournalEvent {
        id,
        session_id,
        seq,
        turn_id: None,
        child_run: None,
        at: Timestamp::now(),
        payload: EventPayload::MessageCompleted {
            kind: MessageKind::Text,
            text: "whole".into(),
            truncated: false,
        },
        native: None,
    }
}

fn delta(event_id: EventId, offset: u64, text: &str) -> Delta {
    Delta {
        event_id,
        turn_id: None,
        child_run: None,
        channel: DeltaChannel::Text,
        offset,
        text: text.into(),
    }
}

async fn next(watch: &mut Subscription) -> WatchItem {
    tokio::time::timeout(Duration::from_secs(5), watch.next())
        .await
        .expect("something comes within 5 s")
        .expect("the watch goes on")
        .expect("the store can be read")
}

fn text_of(item: &WatchItem) -> (u64, &str) {
    match item {
        WatchItem::Delta(delta) => (delta.offset, delta.text.as_str()),
        other => panic!("a delta, not {other:?}"),
    }
}

#[tokio::test]
async fn who_joins_in_the_middle_gets_the_text_so_far_and_then_the_rest() {
    let (_directory, store) = store().await;
    let session = SessionId::new();
    let hub = Hub::new(session, 0, None);
    let message = EventId::new();
    hub.publish(
        vec![],
        vec![delta(message, 0, "one "), delta(message, 4, "two ")],
    );
    let mut watch = hub.subscribe(store, 0, true);
    assert_eq!(next(&mut watch).await, WatchItem::CaughtUp { seq: 0 });
    assert_eq!(text_of(&next(&mut watch).await), (0, "one two "));
    hub.publish(vec![], vec![delta(message, 8, "three")]);
    assert_eq!(text_of(&next(&mut watch).await), (8, "three"));
    hub.publish(vec![event(session, 1, message)], vec![]);
    assert!(matches!(next(&mut watch).await, WatchItem::Event(event) if event.id == message));
}

#[tokio::test]
async fn a_repeated_delta_is_given_once() {
    let (_directory, store) = store().await;
    let hub = Hub::new(SessionId::new(), 0, None);
    let message = EventId::new();
    let mut watch = hub.subscribe(store, 0, true);
    assert_eq!(next(&mut watch).await, WatchItem::CaughtUp { seq: 0 });
    hub.publish(vec![], vec![delta(message, 0, "abc")]);
    hub.publish(
        vec![],
        vec![
            delta(message, 0, "abc"),
            delta(message, 1, "bcdé"),
            delta(message, 6, "f"),
        ],
    );
    let mut text = String::new();
    while text.len() < 7 {
        let item = next(&mut watch).await;
        let (offset, piece) = text_of(&item);
        assert_eq!(offset, text.len() as u64);
        text.push_str(piece);
    }
    assert_eq!(text, "abcdéf");
}

#[tokio::test]
async fn open_messages_survive_in_their_stored_form() {
    let (_directory, store) = store().await;
    let session = SessionId::new();
    let hub = Hub::new(session, 3, None);
    let message = EventId::new();
    hub.publish(vec![], vec![delta(message, 0, "so far")]);
    let stored = hub
        .open_messages(&[], &[])
        .expect("there is an open message");
    let again = Hub::new(session, 3, Some(&stored));
    let mut watch = again.subscribe(store, 3, true);
    assert_eq!(next(&mut watch).await, WatchItem::CaughtUp { seq: 3 });
    assert_eq!(text_of(&next(&mut watch).await), (0, "so far"));
}

#[tokio::test]
async fn a_slow_watcher_loses_nothing_and_gets_long_pieces() {
    let (_directory, store) = store().await;
    let session = SessionId::new();
    let hub = Hub::new(session, 0, None);
    let mut watch = hub.subscribe(store, 0, true);
    assert_eq!(next(&mut watch).await, WatchItem::CaughtUp { seq: 0 });
    let message = EventId::new();
    for at in 0..20_000u64 {
        hub.publish(vec![], vec![delta(message, at * 3, "abc")]);
    }
    let mut length = 0;
    while length < 60_000 {
        let item = next(&mut watch).await;
        let (offset, piece) = text_of(&item);
        assert_eq!(offset, length);
        length += piece.len() as u64;
    }
}

#[tokio::test]
async fn a_closed_hub_ends_its_watches_after_what_is_there() {
    let (_directory, store) = store().await;
    let session = SessionId::new();
    let hub = Hub::new(session, 0, None);
    let mut watch = hub.subscribe(store, 0, true);
    hub.publish(vec![event(session, 1, EventId::new())], vec![]);
    hub.close();
    assert!(matches!(next(&mut watch).await, WatchItem::Event(_)));
    assert_eq!(next(&mut watch).await, WatchItem::CaughtUp { seq: 1 });
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_turns_end_drops_its_unfinished_messages() {
    let (_directory, store) = store().await;
    let session = SessionId::new();
    let hub = Hub::new(session, 0, None);
    let turn = Some(TurnId::new());
    hub.publish(
        vec![],
        vec![Delta {
            turn_id: turn,
            ..delta(EventId::new(), 0, "cut off")
        }],
    );
    let ended = EventPayload::TurnEnded {
        outcome: astrabox_types::TurnOutcome::Interrupted,
        usage: None,
    };
    hub.publish(
        vec![JournalEvent {
            turn_id: turn,
            payload: ended,
            ..event(session, 1, EventId::new())
        }],
        vec![],
    );
    assert!(hub.open_messages(&[], &[]).is_none());
    drop(store);
}

#[tokio::test]
async fn pieces_add_up_to_the_whole_before_it_is_told() {
    let (_directory, store) = store().await;
    let session = SessionId::new();
    let hub = Hub::new(session, 0, None);
    let mut watch = hub.subscribe(store, 0, true);
    assert_eq!(next(&mut watch).await, WatchItem::CaughtUp { seq: 0 });
    let message = EventId::new();
    hub.publish(vec![], vec![delta(message, 0, "who")]);
    assert_eq!(text_of(&next(&mut watch).await), (0, "who"));
    hub.publish(vec![], vec![delta(message, 3, "l")]);
    hub.publish(vec![event(session, 1, message)], vec![]);
    assert_eq!(text_of(&next(&mut watch).await), (3, "le"));
    assert!(matches!(next(&mut watch).await, WatchItem::Event(event) if event.id == message));
}
