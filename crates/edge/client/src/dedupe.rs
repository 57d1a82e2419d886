//! What a watcher has seen, so that a watch that is begun again says nothing twice.

use std::collections::HashMap;

use crate::v1;

/// The events and pieces that were given.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The last event that was given.
    pub(crate) seq: u64,
    /// Messages that are not complete: event id to turn and the length that was given.
    open: HashMap<String, (String, u64)>,
}

impl Seen {
    /// Starts after this event.
    pub(crate) fn after(seq: u64) -> Self {
        Self {
            seq,
            open: HashMap::new(),
        }
    }

    /// The event, unless it was given before.
    pub(crate) fn event(&mut self, event: v1::Event) -> Option<v1::Event> {
        if event.seq <= self.seq {
            return None;
        }
        self.seq = event.seq;
        self.open.remove(&event.id);
        if let Some(v1::event::Payload::TurnEnded(_)) = event.payload {
            // Messages that an interrupt left open are never completed.
            self.open.retain(|_, (turn, _)| *turn != event.turn_id);
        }
        Some(event)
    }

    /// What was not given yet of the message that this event completes, when a part of it was: pieces add up to the
    /// whole, also across a connection that broke in its middle.
    pub(crate) fn rest_of(&self, event: &v1::Event) -> Option<v1::Delta> {
        let Some(v1::event::Payload::MessageCompleted(message)) = &event.payload else {
            return None;
        };
        let (_, given) = self.open.get(&event.id)?;
        let rest = message.text.get(usize::try_from(*given).ok()?..)?;
        let channel = match message.kind() {
            v1::MessageKind::Text => v1::DeltaChannel::Text,
            v1::MessageKind::Reasoning => v1::DeltaChannel::Reasoning,
            v1::MessageKind::Unspecified => v1::DeltaChannel::Unspecified,
        };
        (!rest.is_empty()).then(|| v1::Delta {
            event_id: event.id.clone(),
            turn_id: event.turn_id.clone(),
            child_run_id: event.child_run_id.clone(),
            channel: channel.into(),
            offset: *given,
            text: rest.to_owned(),
        })
    }

    /// What of the piece was not given before. A server that begins a message again sends it from its start.
    pub(crate) fn delta(&mut self, mut delta: v1::Delta) -> Option<v1::Delta> {
        let (_, given) = self
            .open
            .entry(delta.event_id.clone())
            .or_insert_with(|| (delta.turn_id.clone(), delta.offset));
        let end = delta.offset + delta.text.len() as u64;
        if end <= *given {
            return None;
        }
        if delta.offset < *given {
            let known = usize::try_from(*given - delta.offset).ok()?;
            // A cut inside a character is not the same text; then the piece is given whole.
            if let Some(rest) = delta.text.get(known..) {
                delta.text = rest.to_owned();
                delta.offset = *given;
            }
        }
        *given = end;
        Some(delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(offset: u64, text: &str) -> v1::Delta {
        v1::Delta {
            event_id: "e".into(),
            turn_id: "t".into(),
            offset,
            text: text.into(),
            ..Default::default()
        }
    }

    fn event(seq: u64, id: &str) -> v1::Event {
        v1::Event {
            seq,
            id: id.into(),
            turn_id: "t".into(),
            ..Default::default()
        }
    }

    fn text(delta: Option<v1::Delta>) -> Option<(u64, String)> {
        delta.map(|delta| (delta.offset, delta.text))
    }

    #[test]
    fn an_event_comes_once() {
        let mut seen = Seen::after(2);
        assert!(seen.event(event(2, "a")).is_none());
        assert!(seen.event(event(3, "b")).is_some());
        assert!(seen.event(event(3, "b")).is_none());
        assert_eq!(seen.seq, 3);
    }

    #[test]
    fn only_the_new_part_of_a_repeated_piece_comes() {
        let mut seen = Seen::default();
        assert_eq!(text(seen.delta(delta(0, "Hel"))), Some((0, "Hel".into())));
        assert_eq!(text(seen.delta(delta(0, "Hel"))), None);
        assert_eq!(text(seen.delta(delta(0, "Hello"))), Some((3, "lo".into())));
        assert_eq!(text(seen.delta(delta(3, "lo wo"))), Some((5, " wo".into())));
        assert_eq!(text(seen.delta(delta(8, "rld"))), Some((8, "rld".into())));
    }

    #[test]
    fn the_rest_of_a_message_comes_before_its_event() {
        let mut seen = Seen::default();
        let mut whole = event(1, "e");
        whole.payload = Some(v1::event::Payload::MessageCompleted(v1::MessageCompleted {
            kind: v1::MessageKind::Text.into(),
            text: "Hello".into(),
            truncated: false,
        }));
        assert_eq!(text(seen.rest_of(&whole)), None, "nothing of it was given");
        seen.delta(delta(0, "Hel"));
        assert_eq!(text(seen.rest_of(&whole)), Some((3, "lo".into())));
        seen.delta(delta(3, "lo"));
        assert_eq!(text(seen.rest_of(&whole)), None);
    }

    #[test]
    fn who_joins_in_the_middle_gets_what_comes() {
        let mut seen = Seen::default();
        assert_eq!(
            text(seen.delta(delta(5, "later"))),
            Some((5, "later".into()))
        );
    }

    #[test]
    fn finished_and_abandoned_messages_are_forgotten() {
        let mut seen = Seen::default();
        seen.delta(delta(0, "Hel"));
        seen.event(event(1, "e"));
        assert!(seen.open.is_empty());
        seen.delta(delta(0, "Hel"));
        let mut end = event(2, "end");
        end.payload = Some(v1::event::Payload::TurnEnded(v1::TurnEnded::default()));
        seen.event(end);
        assert!(seen.open.is_empty());
    }
}
