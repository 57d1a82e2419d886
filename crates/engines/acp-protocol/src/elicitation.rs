//! Forms that the program wants filled in: `elicitation/create`.

use std::collections::BTreeMap;

use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{InteractionAnswer, Question};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::wire::Fields;

/// One field of a form that is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Field {
    /// Its key in the program's schema.
    id: String,
    takes: Takes,
    /// The key of the field that takes a text of one's own instead of an option.
    custom: Option<String>,
}

/// What a field takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Takes {
    /// Any text.
    Text,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
    /// One of these: what is shown, and what the program calls it.
    One(Vec<(String, String)>),
    /// Any of these.
    Many(Vec<(String, String)>),
}

/// What is shown for yes and no.
const YES_NO: [&str; 2] = ["yes", "no"];

/// The questions of a form, and what is to be known to answer them. `None` for a form without fields.
pub(crate) fn form(params: &Fields<'_>) -> Option<(Vec<Question>, Vec<Field>)> {
    let schema = params.fields("requestedSchema");
    let properties: BTreeMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(schema.raw("properties")?).ok()?;
    let message = params.text("message").unwrap_or_default();
    let (mut questions, mut fields) = (Vec::new(), Vec::new());
    for (id, property) in &properties {
        let property = Fields::of(property.get());
        let takes = takes(&property);
        // claude-agent-acp 0.101.0 has a second field beside each choice, for an answer of one's own.
        let beside = id.strip_suffix("_custom");
        if takes == Takes::Text && beside.is_some_and(|beside| properties.contains_key(beside)) {
            continue;
        }
        let custom = Some(format!("{id}_custom"))
            .filter(|custom| properties.contains_key(custom) && takes.has_options());
        let question = property
            .text("description")
            .unwrap_or_else(|| message.clone());
        questions.push(Question {
            id: id.clone(),
            header: property.text("title").filter(|title| !title.is_empty()),
            question,
            options: takes.options(),
            multi_select: matches!(takes, Takes::Many(_)),
            allow_free_text: custom.is_some() || !takes.has_options(),
        });
        fields.push(Field {
            id: id.clone(),
            takes,
            custom,
        });
    }
    (!questions.is_empty()).then_some((questions, fields))
}

fn takes(property: &Fields<'_>) -> Takes {
    match property.text("type").as_deref() {
        Some("boolean") => Takes::Boolean,
        Some("number" | "integer") => Takes::Number,
        Some("array") => Takes::Many(choices(&property.fields("items"))),
        _ => match choices(property) {
            choices if choices.is_empty() => Takes::Text,
            choices => Takes::One(choices),
        },
    }
}

fn choices(of: &Fields<'_>) -> Vec<(String, String)> {
    let titled = [of.list("oneOf"), of.list("anyOf")].concat();
    let titled = titled.into_iter().map(Fields::of).filter_map(|option| {
        let value = option.text("const")?;
        Some((option.text("title").unwrap_or_else(|| value.clone()), value))
    });
    let plain = of
        .texts("enum")
        .into_iter()
        .map(|value| (value.clone(), value));
    titled.chain(plain).collect()
}

impl Takes {
    fn has_options(&self) -> bool {
        !self.options().is_empty()
    }

    fn options(&self) -> Vec<String> {
        match self {
            Self::Text | Self::Number => Vec::new(),
            Self::Boolean => YES_NO.map(str::to_owned).to_vec(),
            Self::One(choices) | Self::Many(choices) => {
                choices.iter().map(|(shown, _)| shown.clone()).collect()
            }
        }
    }
}

/// A person's answer in the program's words.
///
/// # Errors
/// `InvalidAnswer` when it does not fit.
pub(crate) fn filled(fields: &[Field], answer: &InteractionAnswer) -> Result<Value> {
    let answers = match answer {
        InteractionAnswer::Decline { .. } => return Ok(json!({"action": "decline"})),
        InteractionAnswer::Choose { .. } => {
            return Err(invalid(
                "an answer to the questions is wanted, not a choice",
            ));
        }
        InteractionAnswer::Reply { answers } => answers,
    };
    let mut content = Map::new();
    for (id, texts) in answers {
        let Some(field) = fields.iter().find(|field| field.id == *id) else {
            return Err(invalid(format!("no question has the id `{id}`")));
        };
        field.fill(texts, &mut content)?;
    }
    Ok(json!({"action": "accept", "content": content}))
}

impl Field {
    fn fill(&self, texts: &[String], content: &mut Map<String, Value>) -> Result<()> {
        let value = match &self.takes {
            Takes::Text => json!(texts.join("\n")),
            Takes::Number => number(&texts.concat())?,
            Takes::Boolean => match texts.concat().as_str() {
                "yes" | "true" => json!(true),
                "no" | "false" => json!(false),
                other => return Err(invalid(format!("`{other}` is neither yes nor no"))),
            },
            Takes::One(choices) | Takes::Many(choices) => {
                return self.choose(choices, texts, content);
            }
        };
        content.insert(self.id.clone(), value);
        Ok(())
    }

    fn choose(
        &self,
        choices: &[(String, String)],
        texts: &[String],
        content: &mut Map<String, Value>,
    ) -> Result<()> {
        let mut chosen = Vec::new();
        for text in texts {
            match (
                choices.iter().find(|(shown, _)| shown == text),
                &self.custom,
            ) {
                (Some((_, value)), _) => chosen.push(value.clone()),
                (None, Some(custom)) => {
                    content.insert(custom.clone(), json!(text));
                }
                (None, None) => return Err(invalid(format!("`{text}` is not offered"))),
            }
        }
        if matches!(self.takes, Takes::Many(_)) {
            content.insert(self.id.clone(), json!(chosen));
        } else if let Some(one) = chosen.first() {
            if chosen.len() > 1 {
                return Err(invalid("one option is wanted, not several"));
            }
            content.insert(self.id.clone(), json!(one));
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<Value> {
    let number: Option<serde_json::Number> = serde_json::from_str(text.trim()).ok();
    number
        .map(Value::Number)
        .ok_or_else(|| invalid(format!("`{text}` is not a number")))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidAnswer, "answer", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = r#"{"message":"Which?","requestedSchema":{"type":"object","properties":{
        "q0":{"type":"string","title":"H","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]},
        "q0_custom":{"type":"string","title":"Other"},
        "q1":{"type":"array","description":"Many?","items":{"enum":["x","y"]}},
        "q2":{"type":"boolean"},"q3":{"type":"integer"},"q4":{"type":"string"}}}}"#;

    fn reply(answers: &[(&str, &[&str])]) -> InteractionAnswer {
        let answers = answers.iter().map(|(id, texts)| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            ((*id).to_owned(), texts)
        });
        InteractionAnswer::Reply {
            answers: answers.collect(),
        }
    }

    #[test]
    fn a_form_is_questions_with_their_options() {
        let (questions, _) = form(&Fields::of(FORM)).expect("there are questions");
        let shown: Vec<_> = questions
            .iter()
            .map(|it| {
                let options = it.options.join(",");
                format!(
                    "{} {} [{options}] {} {}",
                    it.id, it.question, it.multi_select, it.allow_free_text
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "q0 Which? [A,B] false true",
                "q1 Many? [x,y] true false",
                "q2 Which? [yes,no] false false",
                "q3 Which? [] false true",
                "q4 Which? [] false true",
            ]
        );
        assert!(form(&Fields::of(r#"{"requestedSchema":{"properties":{}}}"#)).is_none());
        assert!(form(&Fields::of("{}")).is_none());
    }

    #[test]
    fn answers_are_of_the_type_that_the_field_takes() {
        let (_, fields) = form(&Fields::of(FORM)).expect("there are questions");
        for (answer, content) in [
            (reply(&[("q0", &["B"])]), Some(json!({"q0": "b"}))),
            (
                reply(&[("q0", &["else"])]),
                Some(json!({"q0_custom": "else"})),
            ),
            (
                reply(&[("q1", &["x", "y"])]),
                Some(json!({"q1": ["x", "y"]})),
            ),
            (reply(&[("q1", &[])]), Some(json!({"q1": []}))),
            (
                reply(&[("q2", &["yes"]), ("q3", &["7"])]),
                Some(json!({"q2": true, "q3": 7})),
            ),
            (reply(&[("q4", &["a", "b"])]), Some(json!({"q4": "a\nb"}))),
            (reply(&[]), Some(json!({}))),
            (reply(&[("q0", &["A", "B"])]), None),
            (reply(&[("q1", &["z"])]), None),
            (reply(&[("q2", &["maybe"])]), None),
            (reply(&[("q3", &["x"])]), None),
            (reply(&[("q0_custom", &["x"])]), None),
        ] {
            let told = filled(&fields, &answer).ok();
            let expected = content.map(|content| json!({"action": "accept", "content": content}));
            assert_eq!(told, expected, "{answer:?}");
        }
        let decline = InteractionAnswer::Decline { comment: None };
        assert_eq!(
            filled(&fields, &decline).ok(),
            Some(json!({"action": "decline"}))
        );
    }
}
