//! Watching sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use astrabox_platform::{Subscription, WatchItem};
use astrabox_types::{ErrorReason, EventId, EventPayload, JournalEvent, SessionState};

use crate::server::{PATIENCE, caller, eventually, reason};
use crate::stage::Stage;
use crate::told::{ended, rests, said};

async fn next(watch: &mut Subscription) -> Option<WatchItem> {
    let item = tokio::time::timeout(PATIENCE, watch.next());
    let item = item.await.expect("something comes");
    item.map(|item| item.expect("the store can be read"))
}

/// What a watcher saw, put together.
#[derive(Default)]
struct Seen {
    events: Vec<JournalEvent>,
    texts: BTreeMap<EventId, String>,
    caught_up: Option<u64>,
}

impl Seen {
    #[track_caller]
    fn take(&mut self, item: WatchItem) {
        match item {
            WatchItem::Event(event) => {
                let last = self.events.last().map(|event| event.seq);
                assert!(
                    last.is_none_or(|last| event.seq == last + 1),
                    "in order, without a gap"
                );
                if let EventPayload::MessageCompleted { text, .. } = &event.payload
                    && let Some(so_far) = self.texts.get(&event.id)
                {
                    assert!(text.starts_with(so_far), "pieces are of the whole");
                }
                self.events.push(event);
            }
            WatchItem::Delta(delta) => {
                let text = self.texts.entry(delta.event_id).or_default();
                assert_eq!(delta.offset, text.len() as u64, "no gap and no repetition");
                text.push_str(&delta.text);
                let begun = self.events.iter().any(|event| {
                    event.turn_id == delta.turn_id
                        && matches!(event.payload, EventPayload::TurnStarted { .. })
                });
                assert!(begun, "a piece of a turn that is not durable");
            }
            WatchItem::CaughtUp { seq } => {
                assert_eq!(self.caught_up, None, "once");
                self.caught_up = Some(seq);
            }
        }
    }

    async fn until(&mut self, watch: &mut Subscription, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let item = next(watch).await.expect("the watch goes on");
            self.take(item);
        }
    }
}

#[tokio::test]
async fn a_live_watcher_gets_each_piece_once_and_then_the_whole() {
    let mut stage = Stage::new().await;
    let id = stage.create("").await;
    stage.until(id, "readiness", rests(0)).await;
    let mut watch = stage.watch(id, 0).await;
    let mut seen = Seen::default();
    seen.until(&mut watch, |seen| seen.caught_up.is_some())
        .await;
    stage.send(id, "STREAM: 10 go").await;
    seen.until(&mut watch, |seen| {
        seen.texts.values().any(|text| text == "d1 d2 d3 d4 d5")
    })
    .await;
    stage.world.release(id, "go").await;
    seen.until(&mut watch, |seen| {
        !crate::told::ends(&seen.events).is_empty()
    })
    .await;
    assert_eq!(
        crate::told::texts(&seen.events),
        ["d1 d2 d3 d4 d5 d6 d7 d8 d9 d10"]
    );
}

#[tokio::test]
async fn pieces_of_a_turn_come_after_its_begin_also_when_the_engine_began_it() {
    let mut stage = Stage::new().await;
    let id = stage.create("LINGER: go later").await;
    let mut watch = stage.watch(id, 0).await;
    let mut seen = Seen::default();
    seen.until(&mut watch, |seen| {
        crate::told::ends(&seen.events).len() == 1
    })
    .await;
    stage.world.release(id, "go").await;
    seen.until(&mut watch, |seen| {
        seen.texts.values().any(|text| text == "la")
    })
    .await;
    stage.world.release(id, "go-end").await;
    seen.until(&mut watch, |seen| {
        crate::told::ends(&seen.events).len() == 2
    })
    .await;
    assert_eq!(crate::told::texts(&seen.events), ["later"]);
}

#[tokio::test]
async fn who_joins_in_the_middle_of_a_message_gets_the_text_so_far_and_then_the_rest() {
    for (restart, checkpoint) in [(false, false), (true, false), (true, true)] {
        let mut stage = Stage::new().await;
        let id = stage.create("STREAM: 10 go").await;
        let mut first = stage.watch(id, 0).await;
        let mut seen = Seen::default();
        let half = |seen: &Seen| seen.texts.values().any(|text| text == "d1 d2 d3 d4 d5");
        seen.until(&mut first, half).await;
        if checkpoint {
            // What goes to the program is made durable with all that it has said.
            stage.set_mode(id, "bold").await.expect("it is known");
            eventually("the program is told", || async {
                let lines = stage.world.log.stdin_lines().concat();
                lines.iter().any(|line| line.contains("bold"))
            })
            .await;
        }
        if restart {
            stage.restart().await;
        }
        let mut watch = stage.watch(id, 0).await;
        let mut late = Seen::default();
        late.until(&mut watch, half).await;
        assert_eq!(
            late.texts.keys().next(),
            seen.texts.keys().next(),
            "the same message"
        );
        stage.world.release(id, "go").await;
        late.until(&mut watch, |seen| {
            !crate::told::ends(&seen.events).is_empty()
        })
        .await;
        assert_eq!(
            crate::told::texts(&late.events)[0],
            "d1 d2 d3 d4 d5 d6 d7 d8 d9 d10"
        );
    }
}

#[tokio::test]
async fn a_watch_begins_after_the_event_that_is_known() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: one").await;
    stage.until(id, "readiness", rests(1)).await;
    let journal = stage.journal(id).await;
    for after in 0..=journal.len() as u64 {
        let mut watch = stage.watch(id, after).await;
        let mut seen = Seen::default();
        seen.until(&mut watch, |seen| seen.caught_up.is_some())
            .await;
        let from = usize::try_from(after).expect("small");
        assert_eq!(seen.events, journal[from..], "after {after}");
        assert_eq!(seen.caught_up, Some(journal.len() as u64));
    }
    let beyond = journal.len() as u64 + 1;
    let refused = stage.call(move |platform| async move {
        platform.watch(&caller(), id, beyond, true).await.map(drop)
    });
    assert_eq!(reason(refused.await), ErrorReason::ForeignCursor);
}

#[tokio::test]
async fn a_watcher_without_deltas_gets_events_only() {
    let mut stage = Stage::new().await;
    let id = stage.create("DELTAS: 50").await;
    let watch =
        stage.call(move |platform| async move { platform.watch(&caller(), id, 0, false).await });
    let mut watch = watch.await.expect("it is watched");
    let mut events = Vec::new();
    while crate::told::ends(&events).is_empty() {
        match next(&mut watch).await.expect("it goes on") {
            WatchItem::Event(event) => events.push(event),
            WatchItem::CaughtUp { .. } => {}
            WatchItem::Delta(delta) => panic!("no piece was wanted: {delta:?}"),
        }
    }
}

#[tokio::test]
async fn an_event_that_was_seen_is_in_every_read_that_follows() {
    let mut stage = Stage::new().await;
    let id = stage
        .create("DELTAS: 5\nSAY: one\nRUN: echo x\nSAY: two")
        .await;
    let mut watch = stage.watch(id, 0).await;
    let mut turns = 0;
    while turns == 0 {
        let WatchItem::Event(event) = next(&mut watch).await.expect("it goes on") else {
            continue;
        };
        let journal = stage.journal(id).await;
        assert!(journal.len() as u64 >= event.seq, "seq {}", event.seq);
        let view = stage.view(id).await.expect("it is there");
        assert!(view.session.last_seq >= event.seq);
        if let EventPayload::SessionStatus { state, .. } = event.payload
            && view.session.last_seq == event.seq
        {
            assert_eq!(view.session.state, state);
        }
        turns += usize::from(matches!(event.payload, EventPayload::TurnEnded { .. }));
    }
}

#[tokio::test]
async fn a_reader_slower_than_the_writer_loses_nothing() {
    let mut stage = Stage::new().await;
    let id = stage.create("").await;
    let mut watch = stage.watch(id, 0).await;
    let say = vec!["SAY: x"; 600].join("\n");
    // More events than are kept in memory for watchers.
    for turn in 1..=3 {
        stage.send(id, &say).await;
        stage.until(id, "the end", ended(turn)).await;
    }
    stage.until(id, "readiness", rests(3)).await;
    let journal = stage.journal(id).await;
    let mut seen = Seen::default();
    seen.until(&mut watch, |seen| seen.events.len() == journal.len())
        .await;
    assert_eq!(seen.events, journal);
}

#[tokio::test]
async fn many_watchers_see_the_same() {
    let mut stage = Stage::new().await;
    let id = stage.create("STREAM: 40 go\nSAY: end").await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(stage.watch(id, 0).await);
    }
    stage
        .until(id, "the turn", |events| {
            crate::told::names(events)
                .contains(&"input.consumed")
                .then_some(())
        })
        .await;
    stage.world.release(id, "go").await;
    stage.until(id, "the words", said("end")).await;
    stage.until(id, "readiness", rests(1)).await;
    let journal = stage.journal(id).await;
    let watching = watches.into_iter().map(|mut watch| {
        let length = journal.len();
        async move {
            let mut seen = Seen::default();
            seen.until(&mut watch, |seen| seen.events.len() == length)
                .await;
            seen.events
        }
    });
    for seen in futures::future::join_all(watching).await {
        assert_eq!(seen, journal);
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_session_and_with_its_server() {
    let mut stage = Stage::new().await;
    let (one, two) = (stage.create("SAY: x").await, stage.create("SAY: x").await);
    stage.until(one, "readiness", rests(1)).await;
    let (mut deleted, mut drained) = (stage.watch(one, 0).await, stage.watch(two, 0).await);
    stage.delete(one).await.expect("it is deleted");
    let mut last = None;
    while let Some(item) = next(&mut deleted).await {
        if let WatchItem::Event(event) = item {
            last = Some(event.payload);
        }
    }
    let gone = EventPayload::SessionStatus {
        state: SessionState::Deleted,
        reason: None,
    };
    assert_eq!(last, Some(gone));
    stage.drain_and_restart().await;
    while next(&mut drained).await.is_some() {}
    let refused = stage.call(move |platform| async move {
        platform.watch(&caller(), one, 0, true).await.map(drop)
    });
    assert_eq!(reason(refused.await), ErrorReason::SessionNotFound);
}

#[tokio::test]
async fn a_watch_of_an_idle_session_waits_without_work() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: x").await;
    stage.until(id, "readiness", rests(1)).await;
    let mut watch = stage.watch(id, 0).await;
    let mut seen = Seen::default();
    seen.until(&mut watch, |seen| seen.caught_up.is_some())
        .await;
    let quiet = tokio::time::timeout(Duration::from_millis(100), watch.next()).await;
    assert!(quiet.is_err(), "nothing happens: {quiet:?}");
}
