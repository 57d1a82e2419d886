//! What a session's watchers see: durable events, and the text of messages that are not complete.
//!
//! A watcher pulls: it has a cursor in the journal and, per open message, how much of it was given. A slow one
//! gets longer pieces, never a gap, and costs no queue.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_store::{NewEvent, Store};
use astrabox_types::{
    ChildRunId, Delta, DeltaChannel, EventId, EventPayload, JournalEvent, MessageKind, SessionId,
    TurnId,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{Result, WatchItem};

/// Events kept in memory; a watcher that is further behind reads the store.
const RECENT: usize = 1024;
/// Events that a watcher takes at a time.
const BATCH: u32 = 256;
/// The longest piece of text given at once, bytes.
const PIECE: usize = 256 << 10;

/// One session's meeting point of its owner and its watchers.
pub(crate) struct Hub {
    session_id: SessionId,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

struct State {
    last_seq: u64,
    recent: VecDeque<JournalEvent>,
    open: Vec<OpenMessage>,
    closed: bool,
}

/// A message on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenMessage {
    event_id: EventId,
    turn_id: Option<TurnId>,
    child_run: Option<ChildRunId>,
    channel: DeltaChannel,
    /// Where `text` begins in the message; above 0 only when its begin was lost.
    base: u64,
    text: String,
}

impl OpenMessage {
    fn end(&self) -> u64 {
        self.base + self.text.len() as u64
    }
}

impl Hub {
    /// A hub of a session whose journal ends at `last_seq`. `open` is what `open_messages` gave.
    pub(crate) fn new(session_id: SessionId, last_seq: u64, open: Option<&str>) -> Arc<Self> {
        let state = State {
            last_seq,
            recent: VecDeque::new(),
            open: parse_open(open),
            closed: false,
        };
        Arc::new(Self {
            session_id,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Tells of durable events and of pieces that came with them.
    pub(crate) fn publish(&self, events: Vec<JournalEvent>, deltas: Vec<Delta>) {
        if events.is_empty() && deltas.is_empty() {
            return;
        }
        let complete: HashSet<EventId> = events.iter().map(|event| event.id).collect();
        {
            let mut state = self.state();
            for event in events {
                state.take_event(event);
            }
            for delta in deltas
                .into_iter()
                .filter(|delta| !complete.contains(&delta.event_id))
            {
                take_delta(&mut state.open, delta);
            }
        }
        self.changed();
    }

    /// The messages that will be open after these events and pieces, in a form for `new`; `None` when there are
    /// none.
    pub(crate) fn open_messages(&self, events: &[NewEvent], deltas: &[Delta]) -> Option<String> {
        let mut open = self.state().open.clone();
        let closed = |message: &OpenMessage| {
            events.iter().any(|event| match event.payload {
                EventPayload::TurnEnded { .. } => event.turn_id == message.turn_id,
                _ => event.id == message.event_id,
            })
        };
        open.retain(|message| !closed(message));
        for delta in deltas {
            take_delta(&mut open, delta.clone());
        }
        (!open.is_empty()).then(|| serde_json::to_string(&open).unwrap_or_default())
    }

    /// Begins again from what is stored, after a write of which nobody knows whether it was made.
    pub(crate) fn reset(&self, last_seq: u64, open: Option<&str>) {
        {
            let mut state = self.state();
            state.last_seq = last_seq;
            state.recent.clear();
            state.open = parse_open(open);
        }
        self.changed();
    }

    /// The events after `cursor` that are in memory, whatever is missing before them.
    fn recent_after(&self, cursor: u64) -> Vec<JournalEvent> {
        let state = self.state();
        let later = state.recent.iter().filter(|event| event.seq > cursor);
        later.cloned().collect()
    }

    /// Ends all watches after what is there was given.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed();
    }

    /// Watches from after this event on.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        store: Store,
        after_seq: u64,
        deltas: bool,
    ) -> Subscription {
        Subscription {
            hub: Arc::clone(self),
            store,
            cursor: after_seq,
            deltas,
            given: HashMap::new(),
            waiting: VecDeque::new(),
            caught_up: false,
            changes: self.changes.subscribe(),
        }
    }
}

impl State {
    fn take_event(&mut self, event: JournalEvent) {
        debug_assert_eq!(event.seq, self.last_seq + 1, "events come in order");
        self.last_seq = event.seq;
        match &event.payload {
            // Nothing of the turn follows, so what is still open was cut off.
            EventPayload::TurnEnded { .. } => {
                self.open.retain(|message| message.turn_id != event.turn_id)
            }
            _ => self.open.retain(|message| message.event_id != event.id),
        }
        self.recent.push_back(event);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// The events after `cursor` that are in memory; `None` when the store has to be read.
    fn recent_after(&self, cursor: u64) -> Option<Vec<JournalEvent>> {
        let first = self.recent.front()?.seq;
        let skip = usize::try_from((cursor + 1).checked_sub(first)?).ok()?;
        Some(
            self.recent
                .iter()
                .skip(skip)
                .take(BATCH as usize)
                .cloned()
                .collect(),
        )
    }
}

fn parse_open(text: Option<&str>) -> Vec<OpenMessage> {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn take_delta(open: &mut Vec<OpenMessage>, delta: Delta) {
    let Delta {
        event_id,
        turn_id,
        child_run,
        channel,
        offset,
        text,
    } = delta;
    match open.iter_mut().find(|message| message.event_id == event_id) {
        None => open.push(OpenMessage {
            event_id,
            turn_id,
            child_run,
            channel,
            base: offset,
            text,
        }),
        Some(message) if offset > message.end() => {
            // A part is lost: go on behind the gap; the completing event has the whole text.
            message.base = offset;
            message.text = text;
        }
        Some(message) => {
            let known = usize::try_from(message.end() - offset).unwrap_or(usize::MAX);
            if let Some(fresh) = text.get(known..) {
                message.text.push_str(fresh);
            }
        }
    }
}

/// A watch on one session. Dropping it ends it.
pub struct Subscription {
    hub: Arc<Hub>,
    store: Store,
    cursor: u64,
    deltas: bool,
    given: HashMap<EventId, u64>,
    waiting: VecDeque<WatchItem>,
    caught_up: bool,
    changes: watch::Receiver<u64>,
}

/// What a look at the hub told.
enum Look {
    Events(Vec<JournalEvent>),
    ReadStore,
    Nothing { closed: bool },
}

impl Subscription {
    /// The next thing; `None` after the session's end or when the server drains. Cancel-safe.
    ///
    /// # Errors
    /// When the store cannot be read; the watch can be begun again after the last event.
    pub async fn next(&mut self) -> Option<Result<WatchItem>> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Some(Ok(item));
            }
            // Marked before looking, so that a change in between is not slept over.
            self.changes.borrow_and_update();
            match self.look() {
                Look::Events(events) => self.take(events),
                Look::ReadStore => match self
                    .store
                    .events(self.hub.session_id, self.cursor, BATCH)
                    .await
                {
                    Ok(events) if events.is_empty() => {
                        // The session is deleted and its journal with it, but for what is still in memory.
                        let last = self.hub.recent_after(self.cursor);
                        if last.is_empty() {
                            return None;
                        }
                        self.take(last);
                    }
                    Ok(events) => self.take(events),
                    Err(astrabox_store::Error::Closed) => return None,
                    Err(error) => return Some(Err(error.into())),
                },
                Look::Nothing { closed: true } => return None,
                Look::Nothing { closed: false } => {
                    if !self.waiting.is_empty() {
                        continue;
                    }
                    if self.changes.changed().await.is_err() {
                        return None;
                    }
                }
            }
        }
    }

    fn take(&mut self, events: Vec<JournalEvent>) {
        for event in events {
            self.cursor = event.seq;
            if let Some(given) = self.given.remove(&event.id) {
                self.waiting
                    .extend(last_piece(&event, given).map(WatchItem::Delta));
            }
            self.waiting.push_back(WatchItem::Event(event));
        }
    }

    fn look(&mut self) -> Look {
        let hub = Arc::clone(&self.hub);
        let state = hub.state();
        if self.cursor < state.last_seq {
            return state
                .recent_after(self.cursor)
                .map_or(Look::ReadStore, Look::Events);
        }
        if !self.caught_up {
            self.caught_up = true;
            self.waiting
                .push_back(WatchItem::CaughtUp { seq: self.cursor });
        }
        if self.deltas {
            self.given
                .retain(|id, _| state.open.iter().any(|message| message.event_id == *id));
            for message in &state.open {
                let given = self.given.entry(message.event_id).or_insert(message.base);
                give_pieces(message, given, &mut self.waiting);
            }
        }
        Look::Nothing {
            closed: state.closed && self.waiting.is_empty(),
        }
    }
}

/// What a watcher has not got yet of a message that is complete now, so that pieces always add up to the whole.
fn last_piece(event: &JournalEvent, given: u64) -> Option<Delta> {
    let EventPayload::MessageCompleted { kind, text, .. } = &event.payload else {
        return None;
    };
    let rest = text
        .get(usize::try_from(given).ok()?..)
        .filter(|rest| !rest.is_empty())?;
    Some(Delta {
        event_id: event.id,
        turn_id: event.turn_id,
        child_run: event.child_run.clone(),
        channel: match kind {
            MessageKind::Text => DeltaChannel::Text,
            MessageKind::Reasoning => DeltaChannel::Reasoning,
        },
        offset: given,
        text: rest.to_owned(),
    })
}

fn give_pieces(message: &OpenMessage, given: &mut u64, waiting: &mut VecDeque<WatchItem>) {
    *given = (*given).max(message.base);
    while *given < message.end() {
        let from = usize::try_from(*given - message.base).unwrap_or(usize::MAX);
        let rest = &message.text[from..];
        let mut cut = rest.len().min(PIECE);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        waiting.push_back(WatchItem::Delta(Delta {
            event_id: message.event_id,
            turn_id: message.turn_id,
            child_run: message.child_run.clone(),
            channel: message.channel,
            offset: *given,
            text: rest[..cut].to_owned(),
        }));
        *given += cut as u64;
    }
}

#[cfg(test)]
mod tests;
