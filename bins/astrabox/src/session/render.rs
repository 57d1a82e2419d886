//! Events as lines for people.

use astrabox_client::v1;
use astrabox_client::v1::event::Payload;

use crate::out::{enum_name, one_line};

const LIMIT: usize = 160;

/// One event in one line: seq, name, and what matters of it.
pub(super) fn event(event: &v1::Event) -> String {
    let (name, text) = match &event.payload {
        Some(payload) => describe(payload),
        None => ("unknown", String::new()),
    };
    let child = if event.child_run_id.is_empty() {
        String::new()
    } else {
        format!("[{}] ", event.child_run_id)
    };
    let line = format!(
        "{:>5}  {name:<21}  {child}{}",
        event.seq,
        one_line(&text, LIMIT)
    );
    line.trim_end().to_owned()
}

/// A piece of a message.
pub(super) fn delta(delta: &v1::Delta) -> String {
    let channel = match delta.channel() {
        v1::DeltaChannel::Text => "text",
        v1::DeltaChannel::Reasoning => "reasoning",
        v1::DeltaChannel::ToolOutput => "tool_output",
        v1::DeltaChannel::Unspecified => "?",
    };
    format!(
        "       delta.{channel:<15}  {}",
        one_line(&delta.text, LIMIT)
    )
}

fn describe(payload: &Payload) -> (&'static str, String) {
    match payload {
        Payload::SessionStatus(status) => ("session.status", status_text(status)),
        Payload::TurnStarted(turn) => ("turn.started", turn.input_id.clone()),
        Payload::TurnEnded(turn) => ("turn.ended", turn_text(turn)),
        Payload::InputAccepted(input) => ("input.accepted", content_text(&input.content)),
        Payload::InputConsumed(input) => ("input.consumed", input.input_id.clone()),
        Payload::MessageCompleted(message) => {
            let kind = match message.kind() {
                v1::MessageKind::Reasoning => "(reasoning) ",
                v1::MessageKind::Text | v1::MessageKind::Unspecified => "",
            };
            ("message.completed", format!("{kind}{}", message.text))
        }
        Payload::ToolCall(call) => ("tool.call", format!("{} {}", call.name, call.input)),
        Payload::ToolResult(result) => {
            let failed = if result.is_error { "failed " } else { "" };
            (
                "tool.result",
                format!("{} {failed}{}", result.name, result.output),
            )
        }
        Payload::InteractionRequested(asked) => {
            let text = asked
                .interaction
                .as_ref()
                .map(|asked| format!("{} {}", asked.id, question(asked)));
            ("interaction.requested", text.unwrap_or_default())
        }
        Payload::InteractionResolved(resolved) => (
            "interaction.resolved",
            format!(
                "{} by {}: {}",
                resolved.interaction_id,
                resolved.actor,
                resolved.answer.as_ref().map(answer).unwrap_or_default()
            ),
        ),
        Payload::InteractionExpired(expired) => (
            "interaction.expired",
            format!("{} {}", expired.interaction_id, expired.reason),
        ),
        Payload::FileChanged(change) => (
            "file.changed",
            format!("{} {}", file_change(change.kind()), change.path),
        ),
        Payload::ChildRunChanged(run) => (
            "child_run.changed",
            format!("{} {}", run.child_run_id, run.title),
        ),
        Payload::ContextCompacted(_) => ("context.compacted", String::new()),
        Payload::Usage(reported) => (
            "usage",
            reported.usage.as_ref().map(usage_text).unwrap_or_default(),
        ),
        Payload::DiagnosticRaw(raw) => ("diagnostic.raw", format!("{} {}", raw.topic, raw.message)),
    }
}

/// What an interaction asks, in one line.
pub(crate) fn question(asked: &v1::Interaction) -> String {
    use v1::interaction::Presentation;
    match &asked.presentation {
        Some(Presentation::ToolApproval(approval)) => {
            let reason = if approval.reason.is_empty() {
                String::new()
            } else {
                format!(" ({})", approval.reason)
            };
            format!("{} {}{reason}", approval.tool, approval.input)
        }
        Some(Presentation::Question(form)) => form
            .questions
            .iter()
            .map(|question| question.question.as_str())
            .collect::<Vec<_>>()
            .join(" / "),
        Some(Presentation::Decision(form)) => form.body.clone(),
        None => String::new(),
    }
}

/// An answer, in one line.
pub(crate) fn answer(answer: &v1::InteractionAnswer) -> String {
    use v1::interaction_answer::Answer;
    let with = |told: String, comment: &str| match comment {
        "" => told,
        comment => format!("{told} ({comment})"),
    };
    match &answer.answer {
        Some(Answer::Choose(choose)) if !choose.input.is_empty() => with(
            format!("{} with {}", choose.choice_id, choose.input),
            &choose.comment,
        ),
        Some(Answer::Choose(choose)) => with(choose.choice_id.clone(), &choose.comment),
        Some(Answer::Reply(reply)) => {
            let mut answers: Vec<_> = reply.answers.iter().collect();
            answers.sort_by_key(|(question, _)| question.as_str());
            let values = answers.iter().map(|(_, given)| given.values.join(", "));
            values.collect::<Vec<_>>().join(" / ")
        }
        Some(Answer::Decline(decline)) => with("declined".to_owned(), &decline.comment),
        None => String::new(),
    }
}

fn status_text(status: &v1::SessionStatus) -> String {
    let state = enum_name(status.state().as_str_name()).unwrap_or_default();
    if status.reason.is_empty() {
        state
    } else {
        format!("{state}: {}", status.reason)
    }
}

fn turn_text(turn: &v1::TurnEnded) -> String {
    let outcome = enum_name(turn.outcome().as_str_name()).unwrap_or_default();
    match turn.failure_reason.as_str() {
        "" => outcome,
        reason => format!("{outcome} {reason}: {}", turn.failure_message),
    }
}

/// What an input says.
pub(crate) fn content_text(parts: &[v1::ContentPart]) -> String {
    let part = |part: &v1::ContentPart| match &part.part {
        Some(v1::content_part::Part::Text(text)) => text.clone(),
        Some(v1::content_part::Part::Image(image)) => format!("[{}]", image.media_type),
        None => String::new(),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

fn file_change(kind: v1::FileChangeKind) -> &'static str {
    match kind {
        v1::FileChangeKind::Added => "added",
        v1::FileChangeKind::Modified => "modified",
        v1::FileChangeKind::Deleted => "deleted",
        v1::FileChangeKind::Unspecified => "changed",
    }
}

/// Figures of use, in one line.
pub(crate) fn usage_text(usage: &v1::Usage) -> String {
    let figures = [
        ("in", usage.input_tokens),
        ("cached", usage.cached_input_tokens),
        ("out", usage.output_tokens),
        ("reasoning", usage.reasoning_tokens),
    ];
    let told = figures
        .into_iter()
        .filter_map(|(name, figure)| Some(format!("{name} {}", figure?)));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let mut told = v1::Event {
            seq: 7,
            ..Default::default()
        };
        for (payload, line) in [
            (
                Payload::MessageCompleted(v1::MessageCompleted {
                    text: "a\nb".into(),
                    kind: 1,
                    truncated: false,
                }),
                "    7  message.completed      a b",
            ),
            (
                Payload::TurnEnded(v1::TurnEnded {
                    outcome: v1::TurnOutcome::Failed.into(),
                    failure_reason: "engine_exited".into(),
                    failure_message: "it ended".into(),
                    usage: None,
                }),
                "    7  turn.ended             failed engine_exited: it ended",
            ),
            (
                Payload::ContextCompacted(v1::ContextCompacted {}),
                "    7  context.compacted",
            ),
        ] {
            told.payload = Some(payload);
            assert_eq!(event(&told), line);
        }
    }
}
