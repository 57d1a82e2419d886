//! Requests that MCP servers make through the program: approvals of their tools, forms, links.

use std::collections::BTreeMap;

use astrabox_types::{Json, Presentation, Question};
use serde_json::{Map, Value, json};

use super::requests::{Asking, Offer};
use super::state::{Answers, Field, FieldKind};
use super::tools::mcp_name;
use super::wire::Fields;

/// The name of the tool whose call is to be approved.
pub(super) fn tool_name(fields: &Fields<'_>) -> String {
    let server = fields.text("serverName").unwrap_or_default();
    let tool = fields.fields("_meta").text("tool_name");
    mcp_name(&server, &tool.unwrap_or_default())
}

/// What is asked; `None` for what nobody here can answer.
pub(super) fn read(call_id: Option<String>, fields: &Fields<'_>) -> Option<Asking> {
    let meta = fields.fields("_meta");
    if meta.text("codex_approval_kind").as_deref() == Some("mcp_tool_call") {
        return Some(tool_call(call_id, &meta, fields));
    }
    match fields.text("mode").as_deref() {
        Some("form" | "openai/form" | "openaiForm") => Some(form(fields)),
        Some("url") => {
            let message = fields.text("message").unwrap_or_default();
            let url = fields.text("url").unwrap_or_default();
            Some(confirmation(format!("{message}\n{url}")))
        }
        _ => None,
    }
}

fn action(action: &str, content: Value) -> Value {
    json!({"action": action, "content": content, "_meta": null})
}

/// The answer of somebody who does not want to.
pub(super) fn declined() -> Value {
    action("decline", Value::Null)
}

fn refusals() -> [Offer; 2] {
    [
        Offer::new("decline", "Decline", false, declined()),
        Offer::new("cancel", "Cancel", false, action("cancel", Value::Null)),
    ]
}

fn tool_call(call_id: Option<String>, meta: &Fields<'_>, fields: &Fields<'_>) -> Asking {
    let accept = |persist: Value| json!({"action": "accept", "content": {}, "_meta": persist});
    let mut offers = vec![Offer::new(
        "accept",
        "Allow once",
        true,
        accept(Value::Null),
    )];
    // How long an approval holds, in Codex's words; seen to work with `session`.
    for persist in meta.texts("persist") {
        let label = match persist.as_str() {
            "session" => "Allow for this session",
            "always" => "Always allow",
            other => other,
        };
        let result = accept(json!({"persist": persist}));
        offers.push(Offer::new(&persist, label, true, result));
    }
    offers.extend(refusals());
    let input = meta
        .json("tool_params")
        .unwrap_or_else(|| Json::from(json!({})));
    let reason = fields.text("message");
    Asking::approval(
        call_id,
        &tool_name(fields),
        input,
        reason,
        offers,
        declined(),
    )
}

/// A question that is answered by yes or no.
fn confirmation(body: String) -> Asking {
    let mut offers = vec![Offer::new(
        "accept",
        "Accept",
        true,
        action("accept", json!({})),
    )];
    offers.extend(refusals());
    Asking::decision(body, offers, declined())
}

fn form(fields: &Fields<'_>) -> Asking {
    let message = fields.text("message").unwrap_or_default();
    let schema: Value = fields
        .raw("requestedSchema")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let Some(Value::Object(properties)) = schema.get("properties").filter(|it| **it != json!({}))
    else {
        return confirmation(message);
    };
    let is_required = |name: &str| {
        let required = schema["required"].as_array();
        required.is_some_and(|names| names.iter().any(|it| it == name))
    };
    let (mut questions, mut form) = (Vec::new(), Vec::new());
    for (name, property) in properties {
        let kind = field_kind(property);
        // The message belongs to the whole form; a question has to say it.
        let mut text = property["description"].as_str().unwrap_or(name).to_owned();
        if questions.is_empty() {
            text = format!("{message}\n{text}");
        }
        questions.push(question(name, property, text, &kind));
        form.push(Field {
            name: name.clone(),
            required: is_required(name),
            kind,
        });
    }
    Asking {
        presentation: Presentation::Question { questions },
        answers: Answers::Form { fields: form },
    }
}

fn question(name: &str, property: &Value, text: String, kind: &FieldKind) -> Question {
    let options = match kind {
        FieldKind::One(options) | FieldKind::Many(options) => {
            options.iter().map(|(label, _)| label.clone()).collect()
        }
        FieldKind::Flag => vec!["true".to_owned(), "false".to_owned()],
        FieldKind::Text | FieldKind::Integer | FieldKind::Number => Vec::new(),
    };
    Question {
        id: name.to_owned(),
        header: property["title"].as_str().map(str::to_owned),
        question: text,
        allow_free_text: options.is_empty(),
        multi_select: matches!(kind, FieldKind::Many(_)),
        options,
    }
}

/// The kinds of fields of MCP's form schema (2025-11-25).
fn field_kind(property: &Value) -> FieldKind {
    match property["type"].as_str() {
        Some("integer") => FieldKind::Integer,
        Some("number") => FieldKind::Number,
        Some("boolean") => FieldKind::Flag,
        Some("array") => FieldKind::Many(options(&property["items"])),
        _ => match options(property) {
            none if none.is_empty() => FieldKind::Text,
            options => FieldKind::One(options),
        },
    }
}

/// Labels and values of a choice: `enum` with or without `enumNames`, or `oneOf`/`anyOf` with titles.
fn options(schema: &Value) -> Vec<(String, String)> {
    let titled = schema["oneOf"]
        .as_array()
        .or_else(|| schema["anyOf"].as_array());
    if let Some(titled) = titled {
        let pairs = titled.iter().filter_map(|option| {
            let value = option["const"].as_str()?;
            let label = option["title"].as_str().unwrap_or(value);
            Some((label.to_owned(), value.to_owned()))
        });
        return pairs.collect();
    }
    let values = schema["enum"].as_array().into_iter().flatten();
    let pairs = values.enumerate().filter_map(|(at, value)| {
        let value = value.as_str()?;
        let label = schema["enumNames"][at].as_str().unwrap_or(value);
        Some((label.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// The result of a filled form, with values of the fields' types.
///
/// # Errors
/// A text for people when an answer does not fit.
pub(super) fn fill(
    fields: &[Field],
    answers: &BTreeMap<String, Vec<String>>,
) -> Result<Value, String> {
    let known = |key: &String| fields.iter().any(|field| field.name == *key);
    if let Some(unknown) = answers.keys().find(|key| !known(key)) {
        return Err(format!("no question has the id `{unknown}`"));
    }
    let mut content = Map::new();
    for field in fields {
        let given = answers.get(&field.name).map_or(&[][..], Vec::as_slice);
        if given.is_empty() {
            if field.required {
                return Err(format!("`{}` needs an answer", field.name));
            }
            continue;
        }
        let value = typed(&field.kind, given).ok_or_else(|| {
            let given = given.join(", ");
            format!("`{given}` does not fit `{}`", field.name)
        })?;
        content.insert(field.name.clone(), value);
    }
    Ok(action("accept", Value::Object(content)))
}

fn typed(kind: &FieldKind, given: &[String]) -> Option<Value> {
    if let FieldKind::Many(options) = kind {
        let values = given.iter().map(|label| value_of(options, label));
        return values.collect::<Option<Vec<_>>>().map(Value::from);
    }
    let [given] = given else {
        return None;
    };
    match kind {
        FieldKind::Text => Some(json!(given)),
        FieldKind::Integer => given.trim().parse::<i64>().ok().map(Value::from),
        FieldKind::Number => {
            let number: f64 = given.trim().parse().ok()?;
            serde_json::Number::from_f64(number).map(Value::Number)
        }
        FieldKind::Flag => given.trim().parse::<bool>().ok().map(Value::from),
        FieldKind::One(options) | FieldKind::Many(options) => value_of(options, given),
    }
}

fn value_of(options: &[(String, String)], label: &str) -> Option<Value> {
    let found = options
        .iter()
        .find(|(shown, value)| shown == label || value == label);
    found.map(|(_, value)| json!(value))
}
