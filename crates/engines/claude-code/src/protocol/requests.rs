//! Requests of the program: approvals, questions and plans, and their answers.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRunId, Choice, InteractionAnswer, Json, Presentation, Question};
use serde_json::{Map, Value, json};

use super::refuse;
use super::state::{Answers, ClaudeProtocol, OpenRequest, Verdict};
use super::wire::{Fields, verbatim};

/// What the model is told of a call that a person declined without a word.
const DECLINED: &str = "The user declined this tool call.";
/// What the model is told of questions that a person did not answer.
const UNANSWERED: &str = "The user did not answer the questions.";

/// A choice with what it tells the program.
struct Offer {
    id: String,
    label: String,
    verdict: Verdict,
}

impl Offer {
    fn allow(id: impl Into<String>, label: impl Into<String>, updates: Vec<Value>) -> Self {
        let verdict = Verdict::Allow { updates };
        Self {
            id: id.into(),
            label: label.into(),
            verdict,
        }
    }

    fn deny(id: &str, label: &str, interrupt: bool) -> Self {
        Self {
            id: id.to_owned(),
            label: label.to_owned(),
            verdict: Verdict::Deny { interrupt },
        }
    }
}

impl ClaudeProtocol {
    pub(super) fn requested(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let id = fields.text("request_id").unwrap_or_default();
        let request = fields.fields("request");
        let subtype = request.text("subtype").unwrap_or_default();
        if subtype != "can_use_tool" {
            // Unanswered, it would be waited for (EN13).
            refuse(&id, &format!("`{subtype}` is not supported here"), effects);
            return self.note("unknown_request", subtype, Some(verbatim(line)), effects);
        }
        let child = request.text("agent_id");
        let (presentation, answers) = self.asking(&request, child.as_deref());
        if child.is_none() {
            self.speaks();
        }
        effects.emit.speak_for(child.clone().map(ChildRunId));
        let native = fields.raw("request").map(verbatim);
        effects
            .emit
            .interaction_requested(&id, presentation, native);
        let input = request.json("input").unwrap_or_else(|| verbatim("{}"));
        let open = OpenRequest {
            child,
            input,
            answers,
        };
        self.requests.insert(id, open);
    }

    fn asking(&self, request: &Fields<'_>, child: Option<&str>) -> (Presentation, Answers) {
        let native = request.text("tool_use_id");
        let call = self
            .calls
            .iter()
            .find(|call| Some(&call.id) == native.as_ref() && call.child.as_deref() == child);
        let tool = request.text("tool_name").unwrap_or_default();
        match tool.as_str() {
            "AskUserQuestion" => questions(request),
            "ExitPlanMode" => {
                let told = call.and_then(|call| call.input.clone());
                plan(request, told.as_ref())
            }
            _ => approval(request, tool, call.map(|call| call.key.clone())),
        }
    }

    pub(super) fn answer_request(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        let Some(open) = self.requests.get(native_id) else {
            return Err(invalid(format!(
                "no open question has the id `{native_id}`"
            )));
        };
        let response = response_to(open, answer)?;
        let response = json!({"subtype": "success", "request_id": native_id, "response": response});
        effects.send(json!({"type": "control_response", "response": response}).to_string());
        self.requests.remove(native_id);
        Ok(())
    }

    /// The program no longer waits for an answer.
    pub(super) fn cancelled(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let id = fields.text("request_id").unwrap_or_default();
        if self.requests.remove(&id).is_some() {
            effects
                .emit
                .interaction_withdrawn(&id, "the program no longer waits for it");
        }
    }

    /// Closes the open questions of one of these: the conversation itself, or a child run.
    pub(super) fn withdraw_requests(
        &mut self,
        of: Option<&str>,
        reason: &str,
        effects: &mut Effects,
    ) {
        let closed = self
            .requests
            .extract_if(.., |_, request| request.child.as_deref() == of);
        for (id, _) in closed {
            effects.emit.interaction_withdrawn(&id, reason);
        }
    }

    /// Closes every open question.
    pub(super) fn withdraw_all(&mut self, reason: &str, effects: &mut Effects) {
        for id in std::mem::take(&mut self.requests).into_keys() {
            effects.emit.interaction_withdrawn(&id, reason);
        }
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidAnswer, "answer", text)
}

fn response_to(open: &OpenRequest, answer: &InteractionAnswer) -> Result<Value> {
    match (&open.answers, answer) {
        (
            Answers::Choices(choices),
            InteractionAnswer::Choose {
                choice_id,
                comment,
                input,
            },
        ) => {
            let found = choices.iter().find(|(id, _)| id == choice_id);
            let Some((_, verdict)) = found else {
                let offered: Vec<_> = choices.iter().map(|(id, _)| id.as_str()).collect();
                let offered = offered.join(", ");
                return Err(invalid(format!(
                    "no choice `{choice_id}`; offered: {offered}"
                )));
            };
            Ok(match verdict {
                Verdict::Allow { updates } => {
                    allowed(other_input(open, input.as_deref())?, updates)
                }
                Verdict::Deny { .. } if input.is_some() => {
                    return Err(invalid("a declined call takes no other input"));
                }
                Verdict::Deny { interrupt } => denied(comment.as_deref(), DECLINED, *interrupt),
            })
        }
        (Answers::Choices(_), InteractionAnswer::Decline { comment }) => {
            Ok(denied(comment.as_deref(), DECLINED, false))
        }
        (Answers::Choices(_), InteractionAnswer::Reply { .. }) => {
            Err(invalid("one of the choices is wanted, not a text"))
        }
        (Answers::Texts { questions }, InteractionAnswer::Reply { answers }) => {
            if let Some(unknown) = answers.keys().find(|key| !questions.contains(key)) {
                return Err(invalid(format!("no question has the id `{unknown}`")));
            }
            let texts = answers
                .iter()
                .map(|(question, texts)| (question.clone(), json!(texts.join(", "))));
            let texts: Map<String, Value> = texts.collect();
            let mut input = open.input.value();
            if let Value::Object(input) = &mut input {
                input.insert("answers".to_owned(), Value::Object(texts));
            }
            Ok(allowed(input, &[]))
        }
        (Answers::Texts { .. }, InteractionAnswer::Decline { comment }) => {
            Ok(denied(comment.as_deref(), UNANSWERED, false))
        }
        (Answers::Texts { .. }, InteractionAnswer::Choose { .. }) => Err(invalid(
            "an answer to the questions is wanted, not a choice",
        )),
    }
}

/// What an allowed call is made with: what was asked for, or what the person put in its place.
fn other_input(open: &OpenRequest, other: Option<&str>) -> Result<Value> {
    let Some(other) = other else {
        return Ok(open.input.value());
    };
    match serde_json::from_str(other) {
        Ok(Value::Object(input)) => Ok(Value::Object(input)),
        _ => Err(invalid("the input is not a JSON object")),
    }
}

fn allowed(input: Value, updates: &[Value]) -> Value {
    let mut response = json!({"behavior": "allow", "updatedInput": input});
    if !updates.is_empty() {
        response["updatedPermissions"] = json!(updates);
    }
    response
}

fn denied(comment: Option<&str>, default: &str, interrupt: bool) -> Value {
    let message = comment.filter(|comment| !comment.is_empty());
    let mut response = json!({"behavior": "deny", "message": message.unwrap_or(default)});
    if interrupt {
        response["interrupt"] = json!(true);
    }
    response
}

fn split(offers: Vec<Offer>) -> (Vec<Choice>, Answers) {
    let choices = offers.iter().map(|offer| Choice {
        id: offer.id.clone(),
        label: offer.label.clone(),
        allows: matches!(offer.verdict, Verdict::Allow { .. }),
    });
    let choices = choices.collect();
    let answers = offers.into_iter().map(|offer| (offer.id, offer.verdict));
    (choices, Answers::Choices(answers.collect()))
}

/// May this tool call run?
fn approval(
    request: &Fields<'_>,
    tool: String,
    call_id: Option<String>,
) -> (Presentation, Answers) {
    let suggestions: Vec<Value> = request
        .list("permission_suggestions")
        .into_iter()
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect();
    let mut offers = vec![Offer::allow("allow", "Allow once", Vec::new())];
    let for_session = for_session(&suggestions);
    if !for_session.is_empty() {
        let label = format!("Allow {} for this session", rules(&for_session));
        offers.push(Offer::allow("allow_session", label, for_session));
    }
    // The program's own suggestions, as they stand.
    for (at, suggestion) in suggestions.into_iter().enumerate() {
        let label = suggested(&suggestion);
        let id = format!("suggestion_{}", at + 1);
        offers.push(Offer::allow(id, label, vec![suggestion]));
    }
    offers.push(Offer::deny("deny", "Decline", false));
    offers.push(Offer::deny("deny_stop", "Decline and stop the turn", true));
    let (choices, answers) = split(offers);
    // `description` is the command again, or what the model says that it does; both are in the input.
    let reason = request.text("decision_reason");
    let presentation = Presentation::ToolApproval {
        call_id,
        tool,
        input: request.json("input").unwrap_or_else(|| verbatim("{}")),
        reason,
        choices,
    };
    (presentation, answers)
}

/// The suggested rules, so that they hold as long as the session. The program suggests them for the settings file
/// of the workspace, where they would hold for every session that shares it.
fn for_session(suggestions: &[Value]) -> Vec<Value> {
    let rules = suggestions
        .iter()
        .filter(|suggestion| suggestion["type"] == "addRules" && suggestion["behavior"] == "allow");
    rules
        .map(|suggestion| {
            let mut suggestion = suggestion.clone();
            suggestion["destination"] = json!("session");
            suggestion
        })
        .collect()
}

/// `Bash(touch a)`, as the program writes rules.
fn rules(suggestions: &[Value]) -> String {
    let rules = suggestions
        .iter()
        .filter_map(|suggestion| suggestion["rules"].as_array())
        .flatten();
    let rules: Vec<_> = rules
        .map(|rule| {
            let tool = rule["toolName"].as_str().unwrap_or_default();
            match rule["ruleContent"].as_str() {
                Some(content) => format!("`{tool}({content})`"),
                None => format!("`{tool}`"),
            }
        })
        .collect();
    rules.join(", ")
}

/// A suggestion in words.
fn suggested(suggestion: &Value) -> String {
    let list = |key: &str| {
        let items = suggestion[key].as_array().into_iter().flatten();
        let items: Vec<_> = items.filter_map(Value::as_str).collect();
        items.join(", ")
    };
    let place = suggestion["destination"].as_str().unwrap_or("session");
    let what = match suggestion["type"].as_str() {
        Some("addRules") => format!("always allow {}", rules(std::slice::from_ref(suggestion))),
        Some("addDirectories") => format!("allow the directories {}", list("directories")),
        Some("setMode") => {
            let mode = suggestion["mode"].as_str().unwrap_or_default();
            format!("go on in mode `{mode}`")
        }
        _ => format!("change permissions: {suggestion}"),
    };
    format!("Allow, and {what} ({place})")
}

fn questions(request: &Fields<'_>) -> (Presentation, Answers) {
    let input = request.fields("input");
    let asked = input.list("questions").into_iter().map(Fields::of);
    let questions: Vec<Question> = asked
        .map(|question| {
            let options = question.list("options").into_iter().map(Fields::of);
            let text = question.text("question").unwrap_or_default();
            Question {
                // The program takes its answers by the questions' texts.
                id: text.clone(),
                header: question.text("header").filter(|header| !header.is_empty()),
                question: text,
                options: options.filter_map(|option| option.text("label")).collect(),
                multi_select: question.flag("multiSelect") == Some(true),
                allow_free_text: true,
            }
        })
        .collect();
    let ids = questions.iter().map(|question| question.id.clone());
    let answers = Answers::Texts {
        questions: ids.collect(),
    };
    (Presentation::Question { questions }, answers)
}

/// Is the plan good? 2.1.328 leaves the plan out of the question and puts it in a file; the call may have it.
fn plan(request: &Fields<'_>, told: Option<&Json>) -> (Presentation, Answers) {
    let of_call = |input: &Json| Fields::of(input.text()).text("plan");
    let body = request
        .fields("input")
        .text("plan")
        .or_else(|| told.and_then(of_call))
        .unwrap_or_else(|| "The plan is in the program's own plan file.".to_owned());
    let mode = json!({"type": "setMode", "mode": "acceptEdits", "destination": "session"});
    let offers = vec![
        Offer::allow("approve", "Approve the plan", Vec::new()),
        Offer::allow(
            "approve_accept_edits",
            "Approve the plan, and edit files unasked",
            vec![mode],
        ),
        Offer::deny("reject", "Keep planning", false),
        Offer::deny("reject_stop", "Decline and stop the turn", true),
    ];
    let (choices, answers) = split(offers);
    (Presentation::Decision { body, choices }, answers)
}
