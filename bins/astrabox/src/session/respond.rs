//! `astrabox session respond`.

use std::collections::HashMap;

use astrabox_client::v1::interaction::Presentation;
use astrabox_client::v1::interaction_answer::Answer;
use astrabox_client::{Client, v1};
use serde_json::json;

use crate::exit::{Failure, NOT_FOUND};
use crate::out::Out;
use crate::pairs;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct RespondArgs {
    /// The session's id
    session: String,
    /// The interaction's id [default: the one that can be answered now]
    interaction: Option<String>,
    #[command(flatten)]
    answer: AnswerArgs,
    /// A word to the engine, where it takes one
    #[arg(long, default_value = "", hide_default_value = true)]
    comment: String,
    /// With --approve or --choose: makes the call with this input instead, where the engine takes it
    #[arg(
        long,
        value_name = "JSON",
        default_value = "",
        hide_default_value = true,
        conflicts_with_all = ["decline", "answers"],
    )]
    input: String,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct AnswerArgs {
    /// Chooses this decision, by the engine's own id
    #[arg(long, value_name = "CHOICE")]
    choose: Option<String>,
    /// Lets the engine do it: the first decision that allows it
    #[arg(long)]
    approve: bool,
    /// Does not let the engine do it, or gives no answer
    #[arg(long)]
    decline: bool,
    /// Answers a question; may be given again, also for one question
    #[arg(long = "answer", value_name = "QUESTION=VALUE")]
    answers: Vec<String>,
}

pub(super) async fn run(client: &Client, out: &Out, args: RespondArgs) -> anyhow::Result<()> {
    let RespondArgs {
        session,
        interaction,
        answer,
        comment,
        input,
    } = args;
    let asked = find(client, &session, interaction.as_deref()).await?;
    let mut answer = read_answer(answer, comment, &asked)?;
    if let Some(Answer::Choose(choose)) = &mut answer.answer {
        choose.input = input;
    }
    let request = v1::RespondInteractionRequest {
        session_id: session,
        interaction_id: asked.id.clone(),
        answer: Some(answer),
        idempotency_key: String::new(),
    };
    let seq = client.respond_interaction(request).await?.seq;
    out.done(
        &json!({ "interaction_id": asked.id, "seq": seq }),
        &format!("{} is answered", asked.id),
    )
}

async fn find(client: &Client, session: &str, id: Option<&str>) -> anyhow::Result<v1::Interaction> {
    let request = v1::ListInteractionsRequest {
        session_id: session.to_owned(),
        include_closed: id.is_some(),
    };
    let records = client.list_interactions(request).await?.interactions;
    let wanted = |record: &v1::InteractionRecord| match id {
        Some(id) => record
            .interaction
            .as_ref()
            .is_some_and(|asked| asked.id == id),
        None => record.state() == v1::InteractionState::Active,
    };
    let found = records
        .into_iter()
        .find(wanted)
        .and_then(|record| record.interaction);
    found.ok_or_else(|| {
        let what = id.map_or_else(
            || "nothing waits for an answer".to_owned(),
            |id| format!("{id} is not of this session"),
        );
        Failure::with_code(NOT_FOUND, what)
    })
}

fn read_answer(
    args: AnswerArgs,
    comment: String,
    asked: &v1::Interaction,
) -> anyhow::Result<v1::InteractionAnswer> {
    let AnswerArgs {
        choose,
        approve,
        decline,
        answers,
    } = args;
    let answer = if let Some(choice_id) = choose {
        Answer::Choose(v1::Choose {
            choice_id,
            comment,
            input: String::new(),
        })
    } else if approve {
        approval(asked, comment).ok_or_else(|| {
            Failure::usage("it has no decision that allows it: use --choose or --answer")
        })?
    } else if decline {
        refusal(asked, comment)
    } else {
        Answer::Reply(reply(&answers)?)
    };
    Ok(v1::InteractionAnswer {
        answer: Some(answer),
    })
}

fn reply(texts: &[String]) -> anyhow::Result<v1::Reply> {
    let mut answers: HashMap<String, v1::ReplyValues> = HashMap::new();
    for text in texts {
        let (question, value) = pairs::split("--answer", text)?;
        answers
            .entry(question.to_owned())
            .or_default()
            .values
            .push(value.to_owned());
    }
    Ok(v1::Reply { answers })
}

/// The first decision that allows what is asked.
pub(crate) fn approval(asked: &v1::Interaction, comment: String) -> Option<Answer> {
    let choice = choices(asked).iter().find(|choice| choice.allows)?;
    Some(Answer::Choose(v1::Choose {
        choice_id: choice.id.clone(),
        comment,
        input: String::new(),
    }))
}

/// The first decision that does not allow it; no answer where there is none.
pub(crate) fn refusal(asked: &v1::Interaction, comment: String) -> Answer {
    match choices(asked).iter().find(|choice| !choice.allows) {
        Some(choice) => Answer::Choose(v1::Choose {
            choice_id: choice.id.clone(),
            comment,
            input: String::new(),
        }),
        None => Answer::Decline(v1::Decline { comment }),
    }
}

/// The decisions that are offered.
pub(crate) fn choices(asked: &v1::Interaction) -> &[v1::Choice] {
    match &asked.presentation {
        Some(Presentation::ToolApproval(approval)) => &approval.choices,
        Some(Presentation::Decision(form)) => &form.choices,
        Some(Presentation::Question(_)) | None => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(choices: &[(&str, bool)]) -> v1::Interaction {
        let choices = choices
            .iter()
            .map(|(id, allows)| v1::Choice {
                id: (*id).into(),
                label: String::new(),
                allows: *allows,
            })
            .collect();
        let approval = v1::ToolApproval {
            choices,
            ..Default::default()
        };
        v1::Interaction {
            id: "int_1".into(),
            presentation: Some(Presentation::ToolApproval(approval)),
        }
    }

    fn chosen(answer: Option<Answer>) -> Option<String> {
        match answer? {
            Answer::Choose(choose) => Some(choose.choice_id),
            Answer::Decline(_) => Some("(declined)".to_owned()),
            Answer::Reply(_) => None,
        }
    }

    #[test]
    fn approving_and_declining_take_the_first_decision_of_their_kind() {
        let both = asked(&[
            ("accept", true),
            ("acceptForSession", true),
            ("decline", false),
            ("cancel", false),
        ]);
        assert_eq!(
            chosen(approval(&both, String::new())).as_deref(),
            Some("accept")
        );
        assert_eq!(
            chosen(Some(refusal(&both, String::new()))).as_deref(),
            Some("decline")
        );
        let none = asked(&[]);
        assert!(approval(&none, String::new()).is_none());
        assert_eq!(
            chosen(Some(refusal(&none, String::new()))).as_deref(),
            Some("(declined)")
        );
    }

    #[test]
    fn a_question_can_get_several_values() {
        let texts = ["q=a", "q=b", "r=x=y"].map(str::to_owned);
        let reply = reply(&texts).expect("they are fine");
        assert_eq!(reply.answers["q"].values, ["a", "b"]);
        assert_eq!(reply.answers["r"].values, ["x=y"]);
    }
}
