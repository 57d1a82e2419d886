//! Looking at journals.

use std::collections::HashMap;

use astrabox_types::{
    EventPayload, InputId, Interaction, JournalEvent, MessageKind, SessionState, TurnId,
    TurnOrigin, TurnOutcome,
};

/// How the turns ended, in order.
pub(crate) fn outcomes(events: &[JournalEvent]) -> Vec<TurnOutcome> {
    let outcome = |event: &JournalEvent| match &event.payload {
        EventPayload::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    };
    events.iter().filter_map(outcome).collect()
}

/// The outcomes as words: `completed`, `interrupted`, or the reason of a failure.
pub(crate) fn ends(events: &[JournalEvent]) -> Vec<String> {
    let word = |outcome: TurnOutcome| match outcome {
        TurnOutcome::Completed => "completed".to_owned(),
        TurnOutcome::Interrupted => "interrupted".to_owned(),
        TurnOutcome::Failed { failure } => failure.reason,
    };
    outcomes(events).into_iter().map(word).collect()
}

/// Something once so many turns have ended.
pub(crate) fn ended(count: usize) -> impl Fn(&[JournalEvent]) -> Option<Vec<String>> {
    move |events| {
        let ends = ends(events);
        (ends.len() >= count).then_some(ends)
    }
}

/// What the conversation itself said, in order.
pub(crate) fn texts(events: &[JournalEvent]) -> Vec<String> {
    let text = |event: &JournalEvent| match &event.payload {
        EventPayload::MessageCompleted {
            kind: MessageKind::Text,
            text,
            ..
        } if event.child_run.is_none() => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

pub(crate) fn states(events: &[JournalEvent]) -> Vec<SessionState> {
    let state = |event: &JournalEvent| match &event.payload {
        EventPayload::SessionStatus { state, .. } => Some(*state),
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

/// Something once the session is in this state, after all that is known.
pub(crate) fn is_now(state: SessionState) -> impl Fn(&[JournalEvent]) -> Option<()> {
    move |events| (states(events).last() == Some(&state)).then_some(())
}

/// Something once the session rests after so many turns.
pub(crate) fn rests(turns: usize) -> impl Fn(&[JournalEvent]) -> Option<()> {
    move |events| {
        let done = ends(events).len() >= turns;
        (done && states(events).last() == Some(&SessionState::Ready)).then_some(())
    }
}

/// Something once this text was said.
pub(crate) fn said(text: &str) -> impl Fn(&[JournalEvent]) -> Option<()> + '_ {
    move |events| texts(events).iter().any(|one| one == text).then_some(())
}

/// The interactions that were asked, in order.
pub(crate) fn asked(events: &[JournalEvent]) -> Vec<Interaction> {
    let asked = |event: &JournalEvent| match &event.payload {
        EventPayload::InteractionRequested { interaction } => Some(interaction.clone()),
        _ => None,
    };
    events.iter().filter_map(asked).collect()
}

/// The turns, with what began them and how many ends each has.
pub(crate) fn turns(events: &[JournalEvent]) -> Vec<(TurnId, TurnOrigin, usize)> {
    let ends = |turn: TurnId| {
        let is_end = |event: &&JournalEvent| {
            event.turn_id == Some(turn) && matches!(event.payload, EventPayload::TurnEnded { .. })
        };
        events.iter().filter(is_end).count()
    };
    let turn = |event: &JournalEvent| match &event.payload {
        EventPayload::TurnStarted { origin } => {
            let id = event.turn_id.expect("a turn's begin has a turn");
            Some((id, *origin, ends(id)))
        }
        _ => None,
    };
    events.iter().filter_map(turn).collect()
}

/// The inputs that were accepted, in order.
pub(crate) fn inputs(events: &[JournalEvent]) -> Vec<InputId> {
    let input = |event: &JournalEvent| match &event.payload {
        EventPayload::InputAccepted { input_id, .. } => Some(*input_id),
        _ => None,
    };
    events.iter().filter_map(input).collect()
}

pub(crate) fn names(events: &[JournalEvent]) -> Vec<&'static str> {
    events.iter().map(|event| event.payload.name()).collect()
}

/// A journal without ids and times: ids are numbered in the order in which they come.
pub(crate) fn comparable(events: &[JournalEvent]) -> Vec<String> {
    let mut known = HashMap::new();
    let mut lines = Vec::new();
    for event in events {
        let line = serde_json::json!([
            event.seq,
            event.id,
            event.turn_id,
            event.child_run,
            event.payload,
            event.native,
        ]);
        lines.push(number_ids(&line.to_string(), &mut known));
    }
    lines
}

fn number_ids(text: &str, known: &mut HashMap<String, usize>) -> String {
    const PREFIXES: [&str; 6] = ["sevt_", "turn_", "inp_", "int_", "sesn_", "sbx_"];
    let mut out = String::new();
    let mut rest = text;
    'text: while !rest.is_empty() {
        for prefix in PREFIXES {
            let length = prefix.len() + 32;
            if rest.starts_with(prefix) && rest.len() >= length {
                let (id, tail) = rest.split_at(length);
                let next = known.len();
                let number = *known.entry(id.to_owned()).or_insert(next);
                out.push_str(&format!("{prefix}{number}"));
                rest = tail;
                continue 'text;
            }
        }
        let step = rest.chars().next().map_or(1, char::len_utf8);
        out.push_str(&rest[..step]);
        rest = &rest[step..];
    }
    out
}

/// A journal for people.
pub(crate) fn show(events: &[JournalEvent]) -> String {
    let line = |event: &JournalEvent| {
        let payload = serde_json::to_string(&event.payload).unwrap_or_default();
        format!("\n  {} {payload}", event.seq)
    };
    events.iter().map(line).collect()
}

/// What holds of every journal: dense numbers, one end a turn and none before its begin, every input that was taken
/// belongs to one turn, every open interaction is closed by its turn's end.
#[track_caller]
pub(crate) fn check(events: &[JournalEvent]) {
    let all = show(events);
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.seq, at as u64 + 1, "numbers are dense: {all}");
    }
    let mut open = None;
    let mut asked = Vec::new();
    let mut last = None;
    for event in events {
        match &event.payload {
            EventPayload::TurnStarted { .. } => {
                assert_eq!(open, None, "a turn begins in another: {all}");
                open = event.turn_id;
            }
            EventPayload::TurnEnded { .. } => {
                assert_eq!(open, event.turn_id, "another turn ends: {all}");
                assert!(asked.is_empty(), "an interaction outlives its turn: {all}");
                open = None;
            }
            EventPayload::InteractionRequested { interaction } => asked.push(interaction.id),
            EventPayload::InteractionResolved { interaction_id, .. } => {
                assert!(asked.contains(interaction_id), "answered twice: {all}");
                asked.retain(|id| id != interaction_id);
            }
            EventPayload::InteractionExpired { interaction_id, .. } => {
                asked.retain(|id| id != interaction_id);
            }
            EventPayload::SessionStatus { state, .. } => {
                let moved =
                    last.is_none_or(|from| from == *state || astrabox_types::may_go(from, *state));
                assert!(moved, "{last:?} -> {state:?} is not in the table: {all}");
                last = Some(*state);
            }
            _ => {}
        }
    }
    let mut begun: Vec<_> = turns(events)
        .into_iter()
        .filter_map(|(_, origin, _)| match origin {
            TurnOrigin::Input { input_id } => Some(input_id),
            TurnOrigin::Engine => None,
        })
        .collect();
    let order: Vec<_> = inputs(events).into_iter().take(begun.len()).collect();
    assert_eq!(begun, order, "inputs are taken in order: {all}");
    begun.sort();
    begun.dedup();
    assert_eq!(begun.len(), order.len(), "an input has one turn: {all}");
}
