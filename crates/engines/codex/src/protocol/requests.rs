//! Requests of the program: approvals and questions, and their answers.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{Choice, InteractionAnswer, Json, Presentation, Question};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::elicitation;
use super::state::{Answers, Body, CodexProtocol, OpenItem, OpenRequest};
use super::wire::{Fields, METHOD_NOT_FOUND, plain, verbatim};

/// A choice with the result that it sends.
pub(super) struct Offer {
    id: String,
    label: String,
    allows: bool,
    result: Value,
}

impl Offer {
    pub(super) fn new(id: &str, label: &str, allows: bool, result: Value) -> Self {
        Self {
            id: id.to_owned(),
            label: label.to_owned(),
            allows,
            result,
        }
    }
}

/// What a person is asked, and which answers there are.
pub(super) struct Asking {
    pub(super) presentation: Presentation,
    pub(super) answers: Answers,
}

impl Asking {
    /// May this tool call run?
    pub(super) fn approval(
        call_id: Option<String>,
        tool: &str,
        input: Json,
        reason: Option<String>,
        offers: Vec<Offer>,
        declined: Value,
    ) -> Self {
        let (choices, answers) = split(offers, declined);
        let tool = tool.to_owned();
        let presentation = Presentation::ToolApproval {
            call_id,
            tool,
            input,
            reason,
            choices,
        };
        Self {
            presentation,
            answers,
        }
    }

    /// Which way on?
    pub(super) fn decision(body: String, offers: Vec<Offer>, declined: Value) -> Self {
        let (choices, answers) = split(offers, declined);
        Self {
            presentation: Presentation::Decision { body, choices },
            answers,
        }
    }
}

fn split(offers: Vec<Offer>, declined: Value) -> (Vec<Choice>, Answers) {
    let choices = offers.iter().map(|offer| Choice {
        id: offer.id.clone(),
        label: offer.label.clone(),
        allows: offer.allows,
    });
    let choices = choices.collect();
    let results = offers.into_iter().map(|offer| (offer.id, offer.result));
    let results = results.collect();
    (choices, Answers::Choices { results, declined })
}

impl CodexProtocol {
    pub(super) fn requested(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &str,
        effects: &mut Effects,
    ) {
        let fields = Fields::of(params);
        // The requests of the first protocol version name the thread otherwise.
        let thread = fields
            .text("threadId")
            .or_else(|| fields.text("conversationId"));
        let thread = thread.unwrap_or_default();
        let item = fields.text("itemId").or_else(|| fields.text("callId"));
        let mut call = self.call_of(&thread, method, item.as_deref(), &fields);
        let item = item.or(call.item.take());
        let asking = match method {
            "item/commandExecution/requestApproval" => Some(command(call.id, &fields)),
            "item/fileChange/requestApproval" => Some(patch(call, &fields)),
            "item/permissions/requestApproval" => Some(permissions(call.id, &fields)),
            "item/tool/requestUserInput" => Some(user_input(&fields)),
            "mcpServer/elicitation/request" => elicitation::read(call.id, &fields),
            "execCommandApproval" => {
                Some(first_version(call.id, "exec", &["command", "cwd"], &fields))
            }
            "applyPatchApproval" => Some(first_version(
                call.id,
                "apply_patch",
                &["fileChanges", "grantRoot"],
                &fields,
            )),
            _ => None,
        };
        let Some(asking) = asking else {
            return self.refuse(id, method, params, effects);
        };
        let native_id = self.native_id(id.get());
        let request = OpenRequest {
            id: verbatim(id.get()),
            thread,
            item,
            answers: asking.answers,
        };
        self.requests.insert(native_id.clone(), request);
        let native = Some(verbatim(params));
        effects
            .emit
            .interaction_requested(&native_id, asking.presentation, native);
    }

    /// Answers what cannot be answered, so that the program does not wait (EN13).
    fn refuse(&mut self, id: &RawValue, method: &str, params: &str, effects: &mut Effects) {
        let error = json!({
            "code": METHOD_NOT_FOUND,
            "message": format!("`{method}` is not supported here"),
        });
        respond(id.get(), "error", &error, effects);
        let native = Some(verbatim(params));
        self.note("unknown_request", method, native, effects);
    }

    /// Our id of a request. The program counts its requests anew in each process.
    fn native_id(&self, id: &str) -> String {
        format!("{}.{}", self.born, plain(id))
    }

    fn call_of(&self, thread: &str, method: &str, item: Option<&str>, fields: &Fields<'_>) -> Call {
        let mut open = self.items.iter().filter(|open| open.thread == thread);
        let found = match (item, method) {
            (Some(item), _) => open.find(|open| open.id == item),
            // An approval of an MCP call names its tool only.
            (None, "mcpServer/elicitation/request") => {
                let wanted = elicitation::tool_name(fields);
                open.rfind(|open| matches!(&open.body, Body::Tool { name, .. } if *name == wanted))
            }
            (None, _) => None,
        };
        found.map(Call::of).unwrap_or_default()
    }

    pub(super) fn answer_request(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        let Some(request) = self.requests.get(native_id) else {
            return Err(invalid(format!(
                "no open question has the id `{native_id}`"
            )));
        };
        let result = result_of(&request.answers, answer)?;
        respond(request.id.text(), "result", &result, effects);
        self.requests.remove(native_id);
        Ok(())
    }

    pub(super) fn request_resolved(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let native_id = self.native_id(fields.raw("requestId").unwrap_or_default());
        // After our own answer it is not open any more.
        if self.requests.remove(&native_id).is_some() {
            effects
                .emit
                .interaction_withdrawn(&native_id, "the program no longer waits for it");
        }
    }

    /// Closes the open questions of a thread, or all. The calls that waited for an answer will not run: the
    /// program does not tell of them any more.
    pub(super) fn withdraw_requests(
        &mut self,
        thread: Option<&str>,
        reason: &str,
        effects: &mut Effects,
    ) {
        let closed: Vec<_> = self
            .requests
            .extract_if(.., |_, request| {
                thread.is_none_or(|thread| request.thread == thread)
            })
            .collect();
        for (native_id, request) in closed {
            self.items.retain(|item| {
                item.thread != request.thread || Some(&item.id) != request.item.as_ref()
            });
            effects.emit.interaction_withdrawn(&native_id, reason);
        }
    }
}

/// The open call that a request is about.
#[derive(Default)]
struct Call {
    /// Its key in our events.
    id: Option<String>,
    /// Its native id.
    item: Option<String>,
    input: Option<Json>,
}

impl Call {
    fn of(open: &OpenItem) -> Self {
        let input = match &open.body {
            Body::Tool { input, .. } => input.clone(),
            _ => None,
        };
        Self {
            id: Some(open.key.clone()),
            item: Some(open.id.clone()),
            input,
        }
    }
}

fn respond(id: &str, member: &str, value: &Value, effects: &mut Effects) {
    // The id goes back as it came.
    effects.send(format!(r#"{{"id":{id},"{member}":{value}}}"#));
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidAnswer, "answer", text)
}

fn result_of(answers: &Answers, answer: &InteractionAnswer) -> Result<Value> {
    match (answers, answer) {
        (_, InteractionAnswer::Choose { input: Some(_), .. }) => {
            Err(invalid("this program takes no other input for a call"))
        }
        (Answers::Choices { results, .. }, InteractionAnswer::Choose { choice_id, .. }) => {
            let found = results.iter().find(|(id, _)| id == choice_id);
            let Some((_, result)) = found else {
                let offered: Vec<_> = results.iter().map(|(id, _)| id.as_str()).collect();
                let offered = offered.join(", ");
                return Err(invalid(format!(
                    "no choice `{choice_id}`; offered: {offered}"
                )));
            };
            Ok(result.clone())
        }
        (Answers::Choices { declined, .. }, InteractionAnswer::Decline { .. }) => {
            Ok(declined.clone())
        }
        (Answers::Choices { .. }, InteractionAnswer::Reply { .. }) => {
            Err(invalid("one of the choices is wanted, not a text"))
        }
        (Answers::Texts { questions }, InteractionAnswer::Reply { answers }) => {
            if let Some(unknown) = answers.keys().find(|key| !questions.contains(key)) {
                return Err(invalid(format!("no question has the id `{unknown}`")));
            }
            let texts = answers
                .iter()
                .map(|(id, texts)| (id.clone(), json!({"answers": texts})));
            Ok(json!({"answers": texts.collect::<Map<_, _>>()}))
        }
        // Without answers the model is told that there are none.
        (Answers::Texts { .. }, InteractionAnswer::Decline { .. }) => Ok(json!({"answers": {}})),
        (Answers::Form { fields }, InteractionAnswer::Reply { answers }) => {
            elicitation::fill(fields, answers).map_err(invalid)
        }
        (Answers::Form { .. }, InteractionAnswer::Decline { .. }) => Ok(elicitation::declined()),
        (Answers::Texts { .. } | Answers::Form { .. }, InteractionAnswer::Choose { .. }) => Err(
            invalid("an answer to the questions is wanted, not a choice"),
        ),
    }
}

fn decision(value: Value) -> Value {
    json!({"decision": value})
}

/// Approval of a command, of input for a running one, or of a host.
fn command(call_id: Option<String>, fields: &Fields<'_>) -> Asking {
    let mut offers: Vec<Offer> = fields
        .list("availableDecisions")
        .into_iter()
        .filter_map(|text| serde_json::from_str(text).ok())
        .map(offered)
        .collect();
    // Codex 0.169.0 lists a part of what it takes. Declining and stopping are always possible; allowing for the
    // session was seen to work for commands.
    let plain_command = fields.text("kind").is_none_or(|kind| kind == "command");
    for (id, wanted) in [
        ("accept", offers.is_empty()),
        ("acceptForSession", plain_command),
        ("decline", true),
        ("cancel", true),
    ] {
        if wanted && !offers.iter().any(|offer| offer.id == id) {
            offers.push(offered(json!(id)));
        }
    }
    offers.sort_by_key(|offer| rank(&offer.id));
    let input = fields.pick(&[
        "kind",
        "command",
        "cwd",
        "commandActions",
        "networkApprovalContext",
        "additionalPermissions",
    ]);
    let reason = fields.text("reason");
    let declined = decision(json!("decline"));
    Asking::approval(call_id, "commandExecution", input, reason, offers, declined)
}

/// The order in which people see the choices.
fn rank(id: &str) -> usize {
    const ORDER: [&str; 4] = ["accept", "acceptForSession", "decline", "cancel"];
    match ORDER.iter().position(|known| *known == id) {
        Some(at) if at < 2 => at,
        Some(at) => at + 1,
        None => 2,
    }
}

/// One decision that Codex offers: a word, or an object with one member that says what goes with it.
fn offered(value: Value) -> Offer {
    let (name, inner) = match &value {
        Value::String(name) => (name.clone(), &Value::Null),
        Value::Object(object) => match object.iter().next() {
            Some((name, inner)) => (name.clone(), inner),
            None => (String::new(), &Value::Null),
        },
        _ => (value.to_string(), &Value::Null),
    };
    let (id, label, allows) = match name.as_str() {
        "accept" => (name, "Allow once".to_owned(), true),
        "acceptForSession" => (name, "Allow for this session".to_owned(), true),
        "decline" => (name, "Decline".to_owned(), false),
        "cancel" => (name, "Decline and stop the turn".to_owned(), false),
        "acceptWithExecpolicyAmendment" => {
            let words = &inner["execpolicy_amendment"];
            let words: Vec<_> = words
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let label = format!(
                "Allow, and always allow commands that begin with `{}`",
                words.join(" ")
            );
            (name, label, true)
        }
        "applyNetworkPolicyAmendment" => {
            let amendment = &inner["network_policy_amendment"];
            let action = amendment["action"].as_str().unwrap_or_default();
            let host = amendment["host"].as_str().unwrap_or_default();
            // It is offered once to allow and once to deny.
            let id = format!("{name}/{action}");
            (id, format!("Always {action} {host}"), action == "allow")
        }
        _ => (name.clone(), name, true),
    };
    Offer {
        id,
        label,
        allows,
        result: decision(value),
    }
}

fn patch(call: Call, fields: &Fields<'_>) -> Asking {
    let offers = ["accept", "acceptForSession", "decline", "cancel"].map(|id| offered(json!(id)));
    let input = call.input.unwrap_or_else(|| fields.pick(&["grantRoot"]));
    let reason = fields.text("reason");
    let declined = decision(json!("decline"));
    Asking::approval(
        call.id,
        "fileChange",
        input,
        reason,
        offers.into(),
        declined,
    )
}

fn permissions(call_id: Option<String>, fields: &Fields<'_>) -> Asking {
    let asked: Value = fields
        .raw("permissions")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    // The answer's members are absent where the question's are null.
    let granted: Map<String, Value> = match asked {
        Value::Object(asked) => asked
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect(),
        _ => Map::new(),
    };
    let grant = |scope: &str| json!({"permissions": granted, "scope": scope});
    let declined = json!({"permissions": {}, "scope": "turn"});
    let offers = vec![
        Offer::new("turn", "Allow for this turn", true, grant("turn")),
        Offer::new("session", "Allow for this session", true, grant("session")),
        Offer::new("decline", "Decline", false, declined.clone()),
    ];
    let input = fields.pick(&["permissions", "cwd"]);
    let reason = fields.text("reason");
    Asking::approval(
        call_id,
        "request_permissions",
        input,
        reason,
        offers,
        declined,
    )
}

fn user_input(fields: &Fields<'_>) -> Asking {
    let asked = fields.list("questions").into_iter().map(Fields::of);
    let questions: Vec<Question> = asked
        .map(|question| {
            let options = question.list("options").into_iter().map(Fields::of);
            let options: Vec<_> = options.filter_map(|option| option.text("label")).collect();
            Question {
                id: question.text("id").unwrap_or_default(),
                header: question.text("header").filter(|header| !header.is_empty()),
                question: question.text("question").unwrap_or_default(),
                multi_select: false,
                allow_free_text: options.is_empty() || question.flag("isOther") == Some(true),
                options,
            }
        })
        .collect();
    let ids = questions.iter().map(|question| question.id.clone());
    let answers = Answers::Texts {
        questions: ids.collect(),
    };
    Asking {
        presentation: Presentation::Question { questions },
        answers,
    }
}

/// The approvals of the protocol's first version, which are in the schema still.
fn first_version(
    call_id: Option<String>,
    tool: &str,
    input: &[&str],
    fields: &Fields<'_>,
) -> Asking {
    let declined = decision(json!({"denied": {"rejection": "declined by the user"}}));
    let offers = vec![
        Offer::new("approved", "Allow once", true, decision(json!("approved"))),
        Offer::new(
            "approved_for_session",
            "Allow for this session",
            true,
            decision(json!("approved_for_session")),
        ),
        Offer::new("denied", "Decline", false, declined.clone()),
        Offer::new(
            "abort",
            "Decline and stop the turn",
            false,
            decision(json!("abort")),
        ),
    ];
    let reason = fields.text("reason");
    Asking::approval(call_id, tool, fields.pick(input), reason, offers, declined)
}
