//! One step's changes, collected and then made durable as a whole.

use astrabox_store::{InputChange, InteractionChange, Key, NewEvent, SessionCommit};
use astrabox_types::{ChildRunId, Delta, EventId, EventPayload, Json, TurnId};
use serde::Serialize;

/// What a step changes.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) commit: SessionCommit,
    pub(super) deltas: Vec<Delta>,
}

impl Draft {
    /// An event that the platform makes.
    pub(super) fn event(&mut self, turn_id: Option<TurnId>, payload: EventPayload) {
        self.push(EventId::new(), turn_id, None, payload, None);
    }

    pub(super) fn push(
        &mut self,
        id: EventId,
        turn_id: Option<TurnId>,
        child_run: Option<ChildRunId>,
        payload: EventPayload,
        native: Option<Json>,
    ) {
        self.commit.events.push(NewEvent {
            id,
            turn_id,
            child_run,
            payload,
            native,
        });
    }

    pub(super) fn input(&mut self, change: InputChange) {
        self.commit.inputs.push(change);
    }

    pub(super) fn interaction(&mut self, change: InteractionChange) {
        self.commit.interactions.push(change);
    }

    /// Keeps the answer for a repeated call with the same key.
    pub(super) fn answer<T: Serialize>(&mut self, key: Option<Key>, value: &T) {
        if let Some(key) = key {
            let text = serde_json::to_string(value).expect("answers are ids and numbers");
            self.commit.answer = Some((key, text));
        }
    }
}
