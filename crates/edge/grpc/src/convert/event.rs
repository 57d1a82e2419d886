//! Journal events and deltas.

use astrabox_platform::{Error, Result};
use astrabox_proto::v1;
use astrabox_types::{
    ChildRun, ChildRunState, ContentPart, Delta, DeltaChannel, ErrorReason, EventPayload,
    FileChangeKind, JournalEvent, MessageKind, TurnFailure, TurnOrigin, TurnOutcome, Usage,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use v1::event::Payload;

use super::interaction;
use super::to_proto::{id, session_state, timestamp};

/// # Errors
/// `INTERNAL` when a stored picture is not base64.
pub(crate) fn to_proto(event: JournalEvent) -> Result<v1::Event> {
    let JournalEvent {
        id: event_id,
        session_id,
        seq,
        turn_id,
        child_run,
        at,
        payload: what,
        native,
    } = event;
    Ok(v1::Event {
        id: event_id.to_string(),
        session_id: session_id.to_string(),
        seq,
        turn_id: id(turn_id),
        child_run_id: child_run.map(|run| run.0).unwrap_or_default(),
        at: timestamp(at),
        native: native
            .map(|json| json.text().to_owned())
            .unwrap_or_default(),
        payload: Some(payload(what)?),
    })
}

pub(crate) fn delta_to_proto(delta: Delta) -> v1::Delta {
    let Delta {
        event_id,
        turn_id,
        child_run,
        channel,
        offset,
        text,
    } = delta;
    let channel = match channel {
        DeltaChannel::Text => v1::DeltaChannel::Text,
        DeltaChannel::Reasoning => v1::DeltaChannel::Reasoning,
        DeltaChannel::ToolOutput => v1::DeltaChannel::ToolOutput,
    };
    v1::Delta {
        event_id: event_id.to_string(),
        turn_id: id(turn_id),
        child_run_id: child_run.map(|run| run.0).unwrap_or_default(),
        channel: channel.into(),
        offset,
        text,
    }
}

fn payload(payload: EventPayload) -> Result<Payload> {
    Ok(match payload {
        EventPayload::SessionStatus { state, reason } => {
            Payload::SessionStatus(v1::SessionStatus {
                state: session_state(state).into(),
                reason: reason.unwrap_or_default(),
            })
        }
        EventPayload::TurnStarted { origin } => Payload::TurnStarted(turn_started(origin)),
        EventPayload::TurnEnded { outcome, usage } => {
            Payload::TurnEnded(turn_ended(outcome, usage))
        }
        EventPayload::InputAccepted {
            input_id,
            content: parts,
        } => Payload::InputAccepted(v1::InputAccepted {
            input_id: input_id.to_string(),
            content: content(parts)?,
        }),
        EventPayload::InputConsumed { input_id } => Payload::InputConsumed(v1::InputConsumed {
            input_id: input_id.to_string(),
        }),
        EventPayload::MessageCompleted {
            kind,
            text,
            truncated,
        } => {
            let kind = match kind {
                MessageKind::Text => v1::MessageKind::Text,
                MessageKind::Reasoning => v1::MessageKind::Reasoning,
            };
            Payload::MessageCompleted(v1::MessageCompleted {
                kind: kind.into(),
                text,
                truncated,
            })
        }
        EventPayload::ToolCall {
            call_id,
            name,
            input,
        } => Payload::ToolCall(v1::ToolCall {
            call_id,
            name,
            input: input.text().to_owned(),
        }),
        EventPayload::ToolResult {
            call_id,
            name,
            output,
            is_error,
        } => Payload::ToolResult(v1::ToolResult {
            call_id,
            name,
            output: output.text().to_owned(),
            is_error,
        }),
        EventPayload::InteractionRequested { interaction } => {
            Payload::InteractionRequested(v1::InteractionRequested {
                interaction: Some(interaction::to_proto(interaction)),
            })
        }
        EventPayload::InteractionResolved {
            interaction_id,
            answer,
            actor,
        } => Payload::InteractionResolved(v1::InteractionResolved {
            interaction_id: interaction_id.to_string(),
            answer: Some(interaction::answer_to_proto(answer)),
            actor,
        }),
        EventPayload::InteractionExpired {
            interaction_id,
            reason,
        } => Payload::InteractionExpired(v1::InteractionExpired {
            interaction_id: interaction_id.to_string(),
            reason,
        }),
        EventPayload::FileChanged { path, kind, diff } => {
            let kind = match kind {
                FileChangeKind::Added => v1::FileChangeKind::Added,
                FileChangeKind::Modified => v1::FileChangeKind::Modified,
                FileChangeKind::Deleted => v1::FileChangeKind::Deleted,
            };
            Payload::FileChanged(v1::FileChanged {
                path,
                kind: kind.into(),
                diff: diff.unwrap_or_default(),
            })
        }
        EventPayload::ChildRunChanged { run } => Payload::ChildRunChanged(child_run(run)),
        EventPayload::ContextCompacted => Payload::ContextCompacted(v1::ContextCompacted {}),
        EventPayload::Usage { usage: figures } => Payload::Usage(v1::UsageReported {
            usage: Some(usage(figures)),
        }),
        EventPayload::DiagnosticRaw { topic, message } => {
            Payload::DiagnosticRaw(v1::DiagnosticRaw { topic, message })
        }
    })
}

fn turn_started(origin: TurnOrigin) -> v1::TurnStarted {
    match origin {
        TurnOrigin::Input { input_id } => v1::TurnStarted {
            origin: v1::TurnOrigin::Input.into(),
            input_id: input_id.to_string(),
        },
        TurnOrigin::Engine => v1::TurnStarted {
            origin: v1::TurnOrigin::Engine.into(),
            input_id: String::new(),
        },
    }
}

fn turn_ended(outcome: TurnOutcome, used: Option<Usage>) -> v1::TurnEnded {
    let (outcome, failure) = match outcome {
        TurnOutcome::Completed => (v1::TurnOutcome::Completed, None),
        TurnOutcome::Interrupted => (v1::TurnOutcome::Interrupted, None),
        TurnOutcome::Failed { failure } => (v1::TurnOutcome::Failed, Some(failure)),
    };
    let (failure_reason, failure_message) = failure
        .map(|TurnFailure { reason, message }| (reason, message))
        .unwrap_or_default();
    v1::TurnEnded {
        outcome: outcome.into(),
        failure_reason,
        failure_message,
        usage: used.map(usage),
    }
}

pub(crate) fn child_run(run: ChildRun) -> v1::ChildRunChanged {
    let ChildRun {
        id,
        state,
        title,
        call_id,
    } = run;
    v1::ChildRunChanged {
        child_run_id: id.0,
        state: child_run_state(state).into(),
        title: title.unwrap_or_default(),
        call_id: call_id.unwrap_or_default(),
    }
}

pub(crate) fn child_run_state(state: ChildRunState) -> v1::ChildRunState {
    match state {
        ChildRunState::Running => v1::ChildRunState::Running,
        ChildRunState::Completed => v1::ChildRunState::Completed,
        ChildRunState::Failed => v1::ChildRunState::Failed,
        ChildRunState::Stopped => v1::ChildRunState::Stopped,
    }
}

fn usage(usage: Usage) -> v1::Usage {
    let Usage {
        input_tokens,
        cached_input_tokens,
        output_tokens,
        reasoning_tokens,
    } = usage;
    v1::Usage {
        input_tokens,
        cached_input_tokens,
        output_tokens,
        reasoning_tokens,
    }
}

fn content(parts: Vec<ContentPart>) -> Result<Vec<v1::ContentPart>> {
    parts.into_iter().map(content_part).collect()
}

fn content_part(part: ContentPart) -> Result<v1::ContentPart> {
    let part = match part {
        ContentPart::Text { text } => v1::content_part::Part::Text(text),
        ContentPart::Image { media_type, data } => {
            let data = STANDARD.decode(data).map_err(|error| {
                Error::new(ErrorReason::Internal, "a stored picture cannot be read")
                    .with_source(error)
            })?;
            v1::content_part::Part::Image(v1::Image {
                media_type: media_type.as_str().to_owned(),
                data: data.into(),
            })
        }
    };
    Ok(v1::ContentPart { part: Some(part) })
}
