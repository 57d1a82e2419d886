//! Dialogs of extensions, the platform's own among them, and their answers.
//!
//! A dialog may have a time limit of its own: then the program goes on without an answer and does not tell. An
//! answer that comes later is passed over by it.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{Choice, InteractionAnswer, Presentation, Question};
use serde_json::{Value, json};

use super::state::{Dialog, PiProtocol};
use super::wire::{Fields, verbatim};

/// The title of a dialog of the platform's own extension.
const APPROVAL: &str = "astrabox:approval";
/// The key of a dialog's one question.
const QUESTION: &str = "answer";

/// The choices of an approval: id, label, and whether the call runs.
const CHOICES: [(&str, &str, bool); 4] = [
    ("allow", "Allow once", true),
    ("allow_session", "Allow for this session", true),
    ("deny", "Decline", false),
    ("deny_stop", "Decline and stop the turn", false),
];
/// The choices of a confirmation.
const CONFIRM: [(&str, &str, bool); 2] = [("yes", "Yes", true), ("no", "No", false)];

/// Answers a dialog with nothing.
pub(super) fn dismiss(id: &str, effects: &mut Effects) {
    respond(id, &json!({"cancelled": true}), effects);
}

fn respond(id: &str, answer: &Value, effects: &mut Effects) {
    let mut response = answer.clone();
    response["type"] = json!("extension_ui_response");
    response["id"] = json!(id);
    effects.send(response.to_string());
}

impl PiProtocol {
    pub(super) fn dialog_asked(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let id = fields.text("id").unwrap_or_default();
        let method = fields.text("method").unwrap_or_default();
        let native = Some(verbatim(line));
        match method.as_str() {
            "notify" => {
                let message = fields.text("message").unwrap_or_default();
                self.note("program_notice", message, native, effects);
            }
            // Things to show in a terminal; nobody waits for them.
            "setStatus" | "setWidget" | "setTitle" | "set_editor_text" => {
                self.note("program_display", method, native, effects);
            }
            "select" | "confirm" | "input" | "editor" if self.turn.is_some() => {
                // A command of an extension asks before it is answered for; it has the input by then (EN6).
                self.consume(effects);
                let (presentation, dialog) = self.asking(&method, fields);
                effects
                    .emit
                    .interaction_requested(&id, presentation, native);
                self.dialogs.insert(id, dialog);
            }
            "select" | "confirm" | "input" | "editor" => {
                dismiss(&id, effects);
                let text = "a dialog outside of a turn was dismissed";
                self.note("dialog_dismissed", text, native, effects);
            }
            _ => {
                // Unanswered, it may be waited for (EN13).
                dismiss(&id, effects);
                self.note("unknown_request", method, native, effects);
            }
        }
    }

    fn asking(&self, method: &str, fields: &Fields<'_>) -> (Presentation, Dialog) {
        let title = fields.text("title").unwrap_or_default();
        match method {
            "confirm" => {
                let message = fields.text("message").unwrap_or_default();
                let presentation = Presentation::Decision {
                    body: joined(&title, &message),
                    choices: choices(&CONFIRM),
                };
                (presentation, Dialog::Confirm)
            }
            "select" => {
                let options = fields.texts("options");
                let presentation = question(title, options.clone());
                (presentation, Dialog::Select(options))
            }
            "input" if title == APPROVAL => {
                let told = fields.text("placeholder").unwrap_or_default();
                let presentation = self.approval(&Fields::of(&told));
                (presentation, Dialog::Approval)
            }
            _ => {
                let begun = fields
                    .text("placeholder")
                    .or_else(|| fields.text("prefill"));
                let text = joined(&title, &begun.unwrap_or_default());
                (question(text, Vec::new()), Dialog::Text)
            }
        }
    }

    /// May this tool call run?
    fn approval(&self, told: &Fields<'_>) -> Presentation {
        let id = told.text("call").unwrap_or_default();
        let call = self.calls.iter().find(|call| call.id == id);
        Presentation::ToolApproval {
            call_id: call.map(|call| call.key.clone()),
            tool: told.text("tool").unwrap_or_default(),
            input: told.json("input").unwrap_or_else(|| verbatim("{}")),
            reason: None,
            choices: choices(&CHOICES),
        }
    }

    pub(super) fn answer_dialog(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        let Some(dialog) = self.dialogs.get(native_id) else {
            return Err(invalid(format!(
                "no open question has the id `{native_id}`"
            )));
        };
        let response = response_to(dialog, answer)?;
        respond(native_id, &response, effects);
        self.dialogs.remove(native_id);
        Ok(())
    }
}

fn joined(title: &str, text: &str) -> String {
    match (title.is_empty(), text.is_empty()) {
        (true, _) => text.to_owned(),
        (_, true) => title.to_owned(),
        _ => format!("{title}\n\n{text}"),
    }
}

fn choices(offered: &[(&str, &str, bool)]) -> Vec<Choice> {
    let choices = offered.iter().map(|(id, label, allows)| Choice {
        id: (*id).to_owned(),
        label: (*label).to_owned(),
        allows: *allows,
    });
    choices.collect()
}

fn question(text: String, options: Vec<String>) -> Presentation {
    let question = Question {
        id: QUESTION.to_owned(),
        header: None,
        question: text,
        allow_free_text: options.is_empty(),
        options,
        multi_select: false,
    };
    Presentation::Question {
        questions: vec![question],
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidAnswer, "answer", text)
}

fn response_to(dialog: &Dialog, answer: &InteractionAnswer) -> Result<Value> {
    match (dialog, answer) {
        (
            Dialog::Approval,
            InteractionAnswer::Choose {
                choice_id,
                comment,
                input,
            },
        ) => {
            let allows = offered(&CHOICES, choice_id)?;
            let mut verdict = json!({"choice": choice_id});
            if let Some(comment) = comment {
                verdict["comment"] = json!(comment);
            }
            if let Some(input) = input.as_deref() {
                if !allows {
                    return Err(invalid("a declined call takes no other input"));
                }
                verdict["input"] = object(input)?;
            }
            Ok(json!({"value": verdict.to_string()}))
        }
        (Dialog::Approval, InteractionAnswer::Decline { comment }) => {
            let verdict = json!({"choice": "deny", "comment": comment});
            Ok(json!({"value": verdict.to_string()}))
        }
        (
            Dialog::Confirm,
            InteractionAnswer::Choose {
                choice_id, input, ..
            },
        ) => {
            let confirmed = offered(&CONFIRM, choice_id)?;
            if input.is_some() {
                return Err(invalid("there is no input to change"));
            }
            Ok(json!({"confirmed": confirmed}))
        }
        (Dialog::Select(options), InteractionAnswer::Reply { .. }) => {
            let value = reply(answer)?;
            if !options.contains(&value) {
                let options = options.join(", ");
                return Err(invalid(format!("no option `{value}`; offered: {options}")));
            }
            Ok(json!({"value": value}))
        }
        (Dialog::Text, InteractionAnswer::Reply { .. }) => Ok(json!({"value": reply(answer)?})),
        (Dialog::Confirm | Dialog::Select(_) | Dialog::Text, InteractionAnswer::Decline { .. }) => {
            Ok(json!({"cancelled": true}))
        }
        (Dialog::Approval | Dialog::Confirm, InteractionAnswer::Reply { .. }) => {
            Err(invalid("one of the choices is wanted, not a text"))
        }
        (Dialog::Select(_) | Dialog::Text, InteractionAnswer::Choose { .. }) => {
            Err(invalid("an answer to the question is wanted, not a choice"))
        }
    }
}

/// Whether a choice allows; an error when it was not offered.
fn offered(choices: &[(&str, &str, bool)], chosen: &str) -> Result<bool> {
    if let Some((_, _, allows)) = choices.iter().find(|(id, _, _)| *id == chosen) {
        return Ok(*allows);
    }
    let ids: Vec<_> = choices.iter().map(|(id, _, _)| *id).collect();
    let ids = ids.join(", ");
    Err(invalid(format!("no choice `{chosen}`; offered: {ids}")))
}

fn object(text: &str) -> Result<Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        _ => Err(invalid("the input is not a JSON object")),
    }
}

/// The one text of a reply.
fn reply(answer: &InteractionAnswer) -> Result<String> {
    let InteractionAnswer::Reply { answers } = answer else {
        return Err(invalid("a text is wanted"));
    };
    if let Some(unknown) = answers.keys().find(|key| *key != QUESTION) {
        return Err(invalid(format!("no question has the id `{unknown}`")));
    }
    let texts = answers.get(QUESTION).map(Vec::as_slice).unwrap_or_default();
    match texts {
        [text] => Ok(text.clone()),
        _ => Err(invalid("one text is wanted")),
    }
}
