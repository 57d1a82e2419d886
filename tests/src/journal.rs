//! Reading a journal: one turn of it, and a form in which two journals can be compared.

use astrabox_client::v1;
use v1::event::Payload;

/// What one turn said.
#[derive(Debug, Default)]
pub struct Turn {
    /// Its events, in order.
    pub events: Vec<v1::Event>,
    /// Its deltas, in order.
    pub deltas: Vec<v1::Delta>,
}

impl Turn {
    /// The agent's complete messages of the session's own conversation, one after the other.
    #[must_use]
    pub fn text(&self) -> String {
        self.messages(v1::MessageKind::Text)
    }

    /// The complete reasoning of the session's own conversation.
    #[must_use]
    pub fn reasoning(&self) -> String {
        self.messages(v1::MessageKind::Reasoning)
    }

    fn messages(&self, kind: v1::MessageKind) -> String {
        self.own()
            .filter_map(|payload| match payload {
                Payload::MessageCompleted(message) if message.kind() == kind => {
                    Some(message.text.as_str())
                }
                _ => None,
            })
            .collect()
    }

    /// The payloads of the session's own conversation.
    pub fn own(&self) -> impl Iterator<Item = &Payload> {
        self.events
            .iter()
            .filter(|event| event.child_run_id.is_empty())
            .filter_map(|event| event.payload.as_ref())
    }

    /// The first child run that was told of.
    #[must_use]
    pub fn first_child(&self) -> Option<String> {
        self.events
            .iter()
            .find_map(|event| match event.payload.as_ref()? {
                Payload::ChildRunChanged(changed) => Some(changed.child_run_id.clone()),
                _ => None,
            })
    }

    /// The text of the deltas of the session's own answer.
    #[must_use]
    pub fn streamed(&self) -> String {
        let own = |delta: &&v1::Delta| {
            delta.child_run_id.is_empty() && delta.channel() == v1::DeltaChannel::Text
        };
        self.deltas
            .iter()
            .filter(own)
            .map(|delta| delta.text.as_str())
            .collect()
    }

    /// How it ended.
    ///
    /// # Panics
    /// When it did not end.
    #[must_use]
    pub fn ended(&self) -> &v1::TurnEnded {
        self.own()
            .find_map(|payload| match payload {
                Payload::TurnEnded(ended) => Some(ended),
                _ => None,
            })
            .expect("the turn ended")
    }

    /// The tool results, as JSON text.
    #[must_use]
    pub fn results(&self) -> Vec<&v1::ToolResult> {
        self.own()
            .filter_map(|payload| match payload {
                Payload::ToolResult(result) => Some(result),
                _ => None,
            })
            .collect()
    }
}

/// The public name of a payload.
#[must_use]
pub fn payload_name(payload: &Payload) -> &'static str {
    match payload {
        Payload::SessionStatus(_) => "session.status",
        Payload::TurnStarted(_) => "turn.started",
        Payload::TurnEnded(_) => "turn.ended",
        Payload::InputAccepted(_) => "input.accepted",
        Payload::InputConsumed(_) => "input.consumed",
        Payload::MessageCompleted(_) => "message.completed",
        Payload::ToolCall(_) => "tool.call",
        Payload::ToolResult(_) => "tool.result",
        Payload::InteractionRequested(_) => "interaction.requested",
        Payload::InteractionResolved(_) => "interaction.resolved",
        Payload::InteractionExpired(_) => "interaction.expired",
        Payload::FileChanged(_) => "file.changed",
        Payload::ChildRunChanged(_) => "child_run.changed",
        Payload::ContextCompacted(_) => "context.compacted",
        Payload::Usage(_) => "usage",
        Payload::DiagnosticRaw(_) => "diagnostic.raw",
    }
}

/// A journal without ids and times: what two runs of the same conversation must have in common. The events in order,
/// and behind them the diagnostics, sorted, because a program says these from beside its turn, at a moment of its own.
///
/// # Panics
/// When the journal has a gap.
#[must_use]
pub fn comparable(events: &[v1::Event]) -> Vec<String> {
    for (at, event) in events.iter().enumerate() {
        assert_eq!(
            event.seq,
            events[0].seq + at as u64,
            "the numbers are dense"
        );
    }
    let (mut remarks, mut told): (Vec<_>, Vec<_>) = lines(events)
        .into_iter()
        .partition(|line| line.starts_with("diagnostic.raw"));
    remarks.sort();
    told.append(&mut remarks);
    told
}

fn lines(events: &[v1::Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let payload = event.payload.as_ref().expect("an event has a payload");
            let name = payload_name(payload);
            let own = if event.child_run_id.is_empty() {
                ""
            } else {
                " (child)"
            };
            let detail = match payload {
                Payload::SessionStatus(status) => status.state().as_str_name().to_owned(),
                Payload::TurnStarted(started) => started.origin().as_str_name().to_owned(),
                Payload::TurnEnded(ended) => {
                    format!(
                        "{} {} {:?}",
                        ended.outcome().as_str_name(),
                        ended.failure_reason,
                        ended.usage
                    )
                }
                Payload::InputAccepted(accepted) => format!("{:?}", accepted.content),
                Payload::MessageCompleted(message) => {
                    format!("{:?} {}", message.kind(), message.text)
                }
                Payload::ToolCall(call) => call.name.clone(),
                Payload::ToolResult(result) => format!("{} {}", result.name, result.is_error),
                Payload::FileChanged(file) => format!("{} {:?}", file.path, file.kind()),
                Payload::Usage(usage) => format!("{:?}", usage.usage),
                Payload::DiagnosticRaw(raw) => raw.topic.clone(),
                _ => String::new(),
            };
            format!("{name}{own} {detail}").trim_end().to_owned()
        })
        .collect()
}
