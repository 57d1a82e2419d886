//! Interactions and their answers.

use astrabox_platform::{Error, InteractionRecord, Result};
use astrabox_proto::v1;
use astrabox_types::{
    Choice, Interaction, InteractionAnswer, InteractionState, Presentation, Question,
};

use super::from_proto::{given, optional};
use super::to_proto::id;

pub(crate) fn record_to_proto(record: InteractionRecord) -> v1::InteractionRecord {
    let InteractionRecord {
        interaction,
        state,
        turn_id,
    } = record;
    let state = match state {
        InteractionState::Queued => v1::InteractionState::Queued,
        InteractionState::Active => v1::InteractionState::Active,
        InteractionState::Resolved => v1::InteractionState::Resolved,
        InteractionState::Expired => v1::InteractionState::Expired,
    };
    v1::InteractionRecord {
        interaction: Some(to_proto(interaction)),
        state: state.into(),
        turn_id: id(turn_id),
    }
}

pub(crate) fn to_proto(interaction: Interaction) -> v1::Interaction {
    use v1::interaction::Presentation as Wire;
    let Interaction { id, presentation } = interaction;
    let presentation = match presentation {
        Presentation::ToolApproval {
            call_id,
            tool,
            input,
            reason,
            choices,
        } => Wire::ToolApproval(v1::ToolApproval {
            call_id: call_id.unwrap_or_default(),
            tool,
            input: input.text().to_owned(),
            reason: reason.unwrap_or_default(),
            choices: choices.into_iter().map(choice).collect(),
        }),
        Presentation::Question { questions } => Wire::Question(v1::QuestionForm {
            questions: questions.into_iter().map(question).collect(),
        }),
        Presentation::Decision { body, choices } => Wire::Decision(v1::DecisionForm {
            body,
            choices: choices.into_iter().map(choice).collect(),
        }),
    };
    v1::Interaction {
        id: id.to_string(),
        presentation: Some(presentation),
    }
}

fn choice(choice: Choice) -> v1::Choice {
    let Choice { id, label, allows } = choice;
    v1::Choice { id, label, allows }
}

fn question(question: Question) -> v1::Question {
    let Question {
        id,
        header,
        question,
        options,
        multi_select,
        allow_free_text,
    } = question;
    v1::Question {
        id,
        header: header.unwrap_or_default(),
        question,
        options,
        multi_select,
        allow_free_text,
    }
}

pub(crate) fn answer_to_proto(answer: InteractionAnswer) -> v1::InteractionAnswer {
    use v1::interaction_answer::Answer as Wire;
    let answer = match answer {
        InteractionAnswer::Choose {
            choice_id,
            comment,
            input,
        } => Wire::Choose(v1::Choose {
            choice_id,
            comment: comment.unwrap_or_default(),
            input: input.unwrap_or_default(),
        }),
        InteractionAnswer::Reply { answers } => Wire::Reply(v1::Reply {
            answers: answers
                .into_iter()
                .map(|(id, values)| (id, v1::ReplyValues { values }))
                .collect(),
        }),
        InteractionAnswer::Decline { comment } => Wire::Decline(v1::Decline {
            comment: comment.unwrap_or_default(),
        }),
    };
    v1::InteractionAnswer {
        answer: Some(answer),
    }
}

/// # Errors
/// `INVALID_FIELD` without an answer, or for a choice without its id.
pub(crate) fn answer_from_proto(
    answer: Option<v1::InteractionAnswer>,
) -> Result<InteractionAnswer> {
    use v1::interaction_answer::Answer as Wire;
    match answer.and_then(|answer| answer.answer) {
        None => Err(Error::field("answer", "must be given")),
        Some(Wire::Choose(v1::Choose {
            choice_id,
            comment,
            input,
        })) => Ok(InteractionAnswer::Choose {
            choice_id: given("answer.choose.choice_id", choice_id)?,
            comment: optional(comment),
            input: optional(input),
        }),
        Some(Wire::Reply(v1::Reply { answers })) => Ok(InteractionAnswer::Reply {
            answers: answers
                .into_iter()
                .map(|(id, v1::ReplyValues { values })| (id, values))
                .collect(),
        }),
        Some(Wire::Decline(v1::Decline { comment })) => Ok(InteractionAnswer::Decline {
            comment: optional(comment),
        }),
    }
}
