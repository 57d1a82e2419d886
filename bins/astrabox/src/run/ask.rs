//! Who answers what the engine asks, and how a person does.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};

use astrabox_client::v1;
use astrabox_client::v1::interaction::Presentation;
use astrabox_client::v1::interaction_answer::Answer;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use crate::out::note;
use crate::session::{approval, choices, question_text, refusal};

/// Who answers.
pub(super) enum Asking {
    /// Everything is allowed.
    Approve,
    /// Nothing is allowed.
    Decline,
    /// The person at the terminal.
    Person(Terminal),
    /// Somebody with another client.
    Elsewhere,
}

/// A terminal to read from.
pub(super) struct Terminal(Lines<BufReader<Stdin>>);

impl Terminal {
    /// Standard input, when it is a terminal.
    pub(super) fn open() -> Option<Self> {
        std::io::stdin()
            .is_terminal()
            .then(|| Self(BufReader::new(tokio::io::stdin()).lines()))
    }

    /// The next line, after a prompt. Cancel-safe.
    pub(super) async fn line(&mut self, prompt: &str) -> anyhow::Result<Option<String>> {
        prompt_with(prompt);
        Ok(self.0.next_line().await?)
    }
}

impl Asking {
    /// The next line of the person; waits for ever when nobody is there. Cancel-safe.
    pub(super) async fn line(&mut self) -> anyhow::Result<Option<String>> {
        match self {
            Self::Person(terminal) => Ok(terminal.0.next_line().await?),
            Self::Approve | Self::Decline | Self::Elsewhere => std::future::pending().await,
        }
    }

    /// What to do with a new interaction: a question for the person, an answer at once, or nothing.
    pub(super) fn begin(
        &self,
        asked: v1::Interaction,
        session_id: &str,
    ) -> Option<Result<Question, v1::InteractionAnswer>> {
        let answer = match self {
            Self::Person(_) => return Some(Ok(Question::new(asked))),
            Self::Approve => approval(&asked, String::new()),
            Self::Decline => Some(refusal(&asked, String::new())),
            Self::Elsewhere => None,
        };
        if answer.is_none() {
            note(&format!(
                "the agent asks: {}\nanswer with: astrabox session respond {session_id} {} ...",
                question_text(&asked),
                asked.id
            ));
        }
        answer.map(|answer| {
            Err(v1::InteractionAnswer {
                answer: Some(answer),
            })
        })
    }
}

/// What a person is asked, and the answers so far.
pub(super) struct Question {
    asked: v1::Interaction,
    given: HashMap<String, v1::ReplyValues>,
}

impl Question {
    fn new(asked: v1::Interaction) -> Self {
        Self {
            asked,
            given: HashMap::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.asked.id
    }

    /// Shows what is to be answered next.
    pub(super) fn show(&self) {
        match &self.asked.presentation {
            Some(Presentation::Question(form)) => {
                if let Some(question) = form
                    .questions
                    .iter()
                    .find(|question| !self.given.contains_key(&question.id))
                {
                    show_question(question);
                }
            }
            Some(Presentation::ToolApproval(_) | Presentation::Decision(_)) | None => {
                note(&format!("? {}", question_text(&self.asked)));
                for (index, choice) in choices(&self.asked).iter().enumerate() {
                    note(&format!("  [{}] {}", index + 1, label(choice)));
                }
            }
        }
        prompt_with("? ");
    }

    /// Takes a line; the answer when it is whole.
    pub(super) fn take(&mut self, line: &str) -> Option<v1::InteractionAnswer> {
        let line = line.trim();
        let answer = match &self.asked.presentation {
            Some(Presentation::Question(form)) => self.take_reply(form.clone(), line)?,
            Some(Presentation::ToolApproval(_) | Presentation::Decision(_)) | None => {
                self.take_choice(line)?
            }
        };
        Some(v1::InteractionAnswer {
            answer: Some(answer),
        })
    }

    fn take_choice(&self, line: &str) -> Option<Answer> {
        let choices = choices(&self.asked);
        if choices.is_empty() {
            return Some(Answer::Decline(v1::Decline {
                comment: line.to_owned(),
            }));
        }
        let by_number = line
            .parse::<usize>()
            .ok()
            .and_then(|number| choices.get(number.checked_sub(1)?));
        let chosen = by_number.or_else(|| choices.iter().find(|choice| choice.id == line));
        let Some(choice) = chosen else {
            prompt_with("a number, please: ");
            return None;
        };
        Some(Answer::Choose(v1::Choose {
            choice_id: choice.id.clone(),
            comment: String::new(),
            input: String::new(),
        }))
    }

    fn take_reply(&mut self, form: v1::QuestionForm, line: &str) -> Option<Answer> {
        if let Some(question) = form
            .questions
            .iter()
            .find(|question| !self.given.contains_key(&question.id))
        {
            let Some(values) = values(question, line) else {
                prompt_with("one of the numbers, please: ");
                return None;
            };
            self.given
                .insert(question.id.clone(), v1::ReplyValues { values });
        }
        if form
            .questions
            .iter()
            .any(|question| !self.given.contains_key(&question.id))
        {
            self.show();
            return None;
        }
        Some(Answer::Reply(v1::Reply {
            answers: std::mem::take(&mut self.given),
        }))
    }
}

/// What a line means for a question: option numbers, where several may be chosen by commas, or a text of one's own.
fn values(question: &v1::Question, line: &str) -> Option<Vec<String>> {
    let numbers: Vec<&str> = if question.multi_select {
        line.split(',').collect()
    } else {
        vec![line]
    };
    let options: Option<Vec<String>> = numbers
        .iter()
        .map(|number| {
            question
                .options
                .get(number.trim().parse::<usize>().ok()?.checked_sub(1)?)
                .cloned()
        })
        .collect();
    let free = (question.allow_free_text || question.options.is_empty()) && !line.is_empty();
    options.or_else(|| free.then(|| vec![line.to_owned()]))
}

fn show_question(question: &v1::Question) {
    let header = if question.header.is_empty() {
        String::new()
    } else {
        format!("{}: ", question.header)
    };
    note(&format!("? {header}{}", question.question));
    for (index, option) in question.options.iter().enumerate() {
        note(&format!("  [{}] {option}", index + 1));
    }
    if question.multi_select {
        note("  several numbers by commas");
    }
}

fn label(choice: &v1::Choice) -> &str {
    if choice.label.is_empty() {
        &choice.id
    } else {
        &choice.label
    }
}

fn prompt_with(prompt: &str) {
    let mut err = std::io::stderr();
    let _ = write!(err, "{prompt}").and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval_of(choices: &[(&str, bool)]) -> v1::Interaction {
        let choices = choices
            .iter()
            .map(|(id, allows)| v1::Choice {
                id: (*id).into(),
                label: String::new(),
                allows: *allows,
            })
            .collect();
        v1::Interaction {
            id: "int_1".into(),
            presentation: Some(Presentation::ToolApproval(v1::ToolApproval {
                choices,
                ..Default::default()
            })),
        }
    }

    #[test]
    fn a_decision_is_taken_by_number_or_id_and_nothing_else() {
        let mut question = Question::new(approval_of(&[("accept", true), ("decline", false)]));
        for wrong in ["", "0", "3", "yes"] {
            assert!(question.take(wrong).is_none(), "{wrong}");
        }
        for (line, id) in [("1", "accept"), (" 2 ", "decline"), ("decline", "decline")] {
            let Some(v1::InteractionAnswer {
                answer: Some(Answer::Choose(choose)),
            }) = question.take(line)
            else {
                panic!("{line} is a decision");
            };
            assert_eq!(choose.choice_id, id);
        }
    }

    #[test]
    fn questions_are_asked_one_by_one_and_answered_together() {
        let question = |id: &str, options: &[&str], multi_select, allow_free_text| v1::Question {
            id: id.into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            multi_select,
            allow_free_text,
            ..Default::default()
        };
        let form = v1::QuestionForm {
            questions: vec![
                question("one", &["a", "b"], false, false),
                question("many", &["c", "d", "e"], true, true),
            ],
        };
        let asked = v1::Interaction {
            id: "int_1".into(),
            presentation: Some(Presentation::Question(form)),
        };
        let mut question = Question::new(asked);
        assert!(question.take("something else").is_none());
        assert!(question.take("2").is_none(), "there is a second one");
        let Some(v1::InteractionAnswer {
            answer: Some(Answer::Reply(reply)),
        }) = question.take("1, 3")
        else {
            panic!("both are answered");
        };
        assert_eq!(reply.answers["one"].values, ["b"]);
        assert_eq!(reply.answers["many"].values, ["c", "e"]);
    }

    #[test]
    fn without_a_person_the_options_decide() {
        let asked = approval_of(&[("decline", false), ("accept", true)]);
        let chosen = |asking: Asking| match asking.begin(asked.clone(), "sesn_1") {
            Some(Err(v1::InteractionAnswer {
                answer: Some(Answer::Choose(choose)),
            })) => Some(choose.choice_id),
            _ => None,
        };
        assert_eq!(chosen(Asking::Approve).as_deref(), Some("accept"));
        assert_eq!(chosen(Asking::Decline).as_deref(), Some("decline"));
        assert_eq!(chosen(Asking::Elsewhere), None);
    }
}
