//! Who answers what the engine asks, and how a person does.

use std::collections::HashMap;

use astrabox_client::v1;
use astrabox_client::v1::interaction::Presentation;
use astrabox_client::v1::interaction_answer::Answer;

use super::terminal::Terminal;
use crate::session::{approval, choices, refusal};
use crate::view::{Screen, whole_input};

/// Lines of what is asked. Who wants to see more than that has to look with another command.
const LINES: usize = 200;

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

/// What becomes of a new interaction.
pub(super) enum Begun {
    /// The person is asked.
    Ask(Question),
    /// This one is answered at once.
    Answer((String, v1::InteractionAnswer)),
    /// Somebody else has to answer.
    Wait(v1::Interaction),
}

impl Asking {
    /// The next line of the person; waits for ever when nobody is there. Cancel-safe.
    pub(super) async fn line(&mut self) -> Option<String> {
        match self {
            Self::Person(terminal) => terminal.line().await,
            Self::Approve | Self::Decline | Self::Elsewhere => std::future::pending().await,
        }
    }

    /// What to do with a new interaction.
    pub(super) fn begin(&self, asked: v1::Interaction) -> Begun {
        let answer = match self {
            Self::Person(_) => return Begun::Ask(Question::new(asked)),
            Self::Approve => approval(&asked, String::new()),
            Self::Decline => Some(refusal(&asked, String::new())),
            Self::Elsewhere => None,
        };
        match answer {
            Some(answer) => {
                let answer = v1::InteractionAnswer {
                    answer: Some(answer),
                };
                Begun::Answer((asked.id, answer))
            }
            None => Begun::Wait(asked),
        }
    }

    /// Throws away what the person typed before they were asked.
    pub(super) fn forget(&mut self) -> Vec<String> {
        match self {
            Self::Person(terminal) => terminal.forget(),
            Self::Approve | Self::Decline | Self::Elsewhere => Vec::new(),
        }
    }
}

/// What a person is asked, and the answers so far.
pub(super) struct Question {
    asked: v1::Interaction,
    given: HashMap<String, v1::ReplyValues>,
}

/// What a line of the person was.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// The answer is whole.
    Whole(v1::InteractionAnswer),
    /// There is another question.
    More,
    /// It was none of what is offered; this is what is.
    Unclear(&'static str),
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

    /// Shows what is to be answered next, and a prompt.
    pub(super) fn show(&self, screen: &mut Screen) -> anyhow::Result<()> {
        match &self.asked.presentation {
            Some(Presentation::Question(form)) => {
                if let Some(question) = self.next_of(form) {
                    show_question(question, screen)?;
                }
            }
            Some(Presentation::ToolApproval(approval)) => show_approval(approval, screen)?,
            Some(Presentation::Decision(form)) => {
                screen.ask("? The agent asks how to go on:")?;
                indented(&form.body, screen)?;
            }
            None => screen.ask("? The agent asks something that this program does not know")?,
        }
        for (index, choice) in choices(&self.asked).iter().enumerate() {
            screen.say(&format!("  [{}] {}", index + 1, label(choice)))?;
        }
        screen.prompt(self.hint())
    }

    /// What can be typed.
    fn hint(&self) -> &'static str {
        let Some(Presentation::Question(form)) = &self.asked.presentation else {
            return match choices(&self.asked).is_empty() {
                true => "Enter declines: ",
                false => "number, y or n, and a word to the agent if you like: ",
            };
        };
        match self.next_of(form) {
            Some(question) if question.options.is_empty() => "your answer: ",
            Some(question) => match (question.multi_select, question.allow_free_text) {
                (true, true) => "numbers by commas, or your own words: ",
                (true, false) => "numbers by commas: ",
                (false, true) => "number, or your own words: ",
                (false, false) => "number: ",
            },
            None => "",
        }
    }

    fn next_of<'f>(&self, form: &'f v1::QuestionForm) -> Option<&'f v1::Question> {
        form.questions
            .iter()
            .find(|question| !self.given.contains_key(&question.id))
    }

    /// Takes a line.
    pub(super) fn take(&mut self, line: &str) -> Taken {
        let line = line.trim();
        let answer = match &self.asked.presentation {
            Some(Presentation::Question(form)) => {
                let form = form.clone();
                return self.take_reply(&form, line);
            }
            Some(Presentation::ToolApproval(_) | Presentation::Decision(_)) | None => {
                self.take_choice(line)
            }
        };
        match answer {
            Some(answer) => whole(answer),
            None => Taken::Unclear("a number of the list, y, or n: "),
        }
    }

    fn take_choice(&self, line: &str) -> Option<Answer> {
        let choices = choices(&self.asked);
        if choices.is_empty() {
            return Some(Answer::Decline(v1::Decline {
                comment: line.to_owned(),
            }));
        }
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        // A choice may have a label of several words.
        let (choice, comment) = match chosen(choices, line) {
            Some(choice) => (choice, ""),
            None => (chosen(choices, first)?, rest.trim()),
        };
        Some(Answer::Choose(v1::Choose {
            choice_id: choice.id.clone(),
            comment: comment.to_owned(),
            input: String::new(),
        }))
    }

    fn take_reply(&mut self, form: &v1::QuestionForm, line: &str) -> Taken {
        if let Some(question) = self.next_of(form) {
            let Some(values) = values(question, line) else {
                return Taken::Unclear(match question.multi_select {
                    true => "numbers of the list, by commas: ",
                    false => "a number of the list: ",
                });
            };
            let id = question.id.clone();
            self.given.insert(id, v1::ReplyValues { values });
        }
        if self.next_of(form).is_some() {
            return Taken::More;
        }
        whole(Answer::Reply(v1::Reply {
            answers: std::mem::take(&mut self.given),
        }))
    }
}

fn whole(answer: Answer) -> Taken {
    Taken::Whole(v1::InteractionAnswer {
        answer: Some(answer),
    })
}

/// The choice that a word means: its number, its id or label, `y` for the first that allows and `n` for the first
/// that does not.
fn chosen<'c>(choices: &'c [v1::Choice], word: &str) -> Option<&'c v1::Choice> {
    if let Ok(number) = word.parse::<usize>() {
        return choices.get(number.checked_sub(1)?);
    }
    let named = choices.iter().find(|choice| {
        choice.id.eq_ignore_ascii_case(word) || choice.label.eq_ignore_ascii_case(word)
    });
    named.or_else(|| match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => choices.iter().find(|choice| choice.allows),
        "n" | "no" => choices.iter().find(|choice| !choice.allows),
        _ => None,
    })
}

/// What a line means for a question: option numbers or options, where several may be chosen by commas, or a text of
/// one's own.
fn values(question: &v1::Question, line: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = if question.multi_select {
        line.split(',').map(str::trim).collect()
    } else {
        vec![line]
    };
    // An option that is itself a number is meant by its text before it is meant by a place in the list.
    let option = |word: &&str| {
        let named = question
            .options
            .iter()
            .find(|option| option.eq_ignore_ascii_case(word));
        let numbered = || {
            let number = word.parse::<usize>().ok()?;
            question.options.get(number.checked_sub(1)?)
        };
        named.or_else(numbered).cloned()
    };
    let options: Option<Vec<String>> = words.iter().map(option).collect();
    let options = options.map(|mut options| {
        let mut seen = std::collections::HashSet::new();
        options.retain(|option| seen.insert(option.clone()));
        options
    });
    // A bare number is a slip rather than an answer in one's own words, where there are options.
    let slip = !question.options.is_empty() && words.iter().all(|word| word.parse::<i64>().is_ok());
    let free =
        (question.allow_free_text || question.options.is_empty()) && !line.is_empty() && !slip;
    options.or_else(|| free.then(|| vec![line.to_owned()]))
}

fn show_approval(approval: &v1::ToolApproval, screen: &mut Screen) -> anyhow::Result<()> {
    screen.ask(&format!("? The agent wants to use {}:", approval.tool))?;
    indented(&whole_input(&approval.input), screen)?;
    if !approval.reason.is_empty() {
        screen.say(&format!("  because: {}", approval.reason))?;
    }
    Ok(())
}

fn show_question(question: &v1::Question, screen: &mut Screen) -> anyhow::Result<()> {
    let header = if question.header.is_empty() {
        String::new()
    } else {
        format!("{}: ", question.header)
    };
    screen.ask(&format!("? {header}{}", question.question))?;
    for (index, option) in question.options.iter().enumerate() {
        screen.say(&format!("  [{}] {option}", index + 1))?;
    }
    Ok(())
}

fn indented(text: &str, screen: &mut Screen) -> anyhow::Result<()> {
    let lines: Vec<&str> = text.lines().collect();
    for line in lines.iter().take(LINES) {
        screen.say(&format!("    {line}"))?;
    }
    if lines.len() > LINES {
        screen.ask(&format!(
            "    {} more lines are not shown; see `astrabox session interactions --json`",
            lines.len() - LINES
        ))?;
    }
    Ok(())
}

fn label(choice: &v1::Choice) -> String {
    if choice.label.is_empty() || choice.label == choice.id {
        choice.id.clone()
    } else {
        format!("{} ({})", choice.label, choice.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval_of(choices: &[(&str, bool)]) -> v1::Interaction {
        let choices = choices
            .iter()
            .map(|(id, allows)| v1::Choice {
                id: (*id).into(),
                label: format!("Label of {id}"),
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
    fn a_decision_is_taken_by_number_name_or_key_and_nothing_else() {
        let mut question = Question::new(approval_of(&[("accept", true), ("decline", false)]));
        for wrong in ["", "0", "3", "maybe", "acc", "-1", "1,2"] {
            assert!(matches!(question.take(wrong), Taken::Unclear(_)), "{wrong}");
        }
        for (line, id, comment) in [
            ("1", "accept", ""),
            (" 2 ", "decline", ""),
            ("decline", "decline", ""),
            ("label of decline", "decline", ""),
            ("Y", "accept", ""),
            ("no", "decline", ""),
            ("n use the other file", "decline", "use the other file"),
            ("2 not now", "decline", "not now"),
        ] {
            let Taken::Whole(v1::InteractionAnswer {
                answer: Some(Answer::Choose(choose)),
            }) = question.take(line)
            else {
                panic!("{line} is a decision");
            };
            assert_eq!(
                (choose.choice_id.as_str(), choose.comment.as_str()),
                (id, comment),
                "{line}"
            );
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
                question("free", &[], false, false),
            ],
        };
        let asked = v1::Interaction {
            id: "int_1".into(),
            presentation: Some(Presentation::Question(form)),
        };
        let mut question = Question::new(asked);
        assert!(matches!(question.take("something else"), Taken::Unclear(_)));
        assert_eq!(question.take("2"), Taken::More);
        assert!(
            matches!(question.take("1,9"), Taken::Unclear(_)),
            "9 is a slip"
        );
        assert_eq!(question.take("1, 3, E"), Taken::More);
        let Taken::Whole(v1::InteractionAnswer {
            answer: Some(Answer::Reply(reply)),
        }) = question.take("7")
        else {
            panic!("all are answered");
        };
        assert_eq!(reply.answers["one"].values, ["b"]);
        assert_eq!(reply.answers["many"].values, ["c", "e"]);
        assert_eq!(reply.answers["free"].values, ["7"]);
    }

    #[test]
    fn words_of_ones_own_are_taken_where_the_question_allows_them() {
        let mut question = v1::Question {
            options: vec!["red".into(), "blue".into()],
            allow_free_text: true,
            ..Default::default()
        };
        assert_eq!(
            values(&question, "a dark green"),
            Some(vec!["a dark green".to_owned()])
        );
        assert_eq!(values(&question, "Blue"), Some(vec!["blue".to_owned()]));
        assert_eq!(values(&question, ""), None);
        question.allow_free_text = false;
        assert_eq!(values(&question, "a dark green"), None);
    }

    #[test]
    fn without_a_person_the_options_decide() {
        let asked = approval_of(&[("decline", false), ("accept", true)]);
        let chosen = |asking: Asking| match asking.begin(asked.clone()) {
            Begun::Answer((
                _,
                v1::InteractionAnswer {
                    answer: Some(Answer::Choose(choose)),
                },
            )) => Some(choose.choice_id),
            _ => None,
        };
        assert_eq!(chosen(Asking::Approve).as_deref(), Some("accept"));
        assert_eq!(chosen(Asking::Decline).as_deref(), Some("decline"));
        assert_eq!(chosen(Asking::Elsewhere), None);
    }
}
