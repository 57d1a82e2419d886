//! Anthropic Messages. Event order and fields as the vendor documents them.

use serde_json::{Value, json};

use super::super::beat::Beat;
use super::super::conversation::{Conversation, Entry, ToolKind, ToolOffer, Wire, user_entry};
use super::super::tools::{Call, Input};
use super::{Encoder, Event, Head, joined, list, model, text_of, texts};

pub(super) fn decode(body: &Value) -> Result<Conversation, String> {
    let model = model(body)?;
    let mut entries: Vec<Entry> = texts(&body["system"])
        .into_iter()
        .map(|text| Entry::Context(text.to_owned()))
        .collect();
    let messages = list(body, "messages")?;
    demand_results(messages)?;
    for message in messages {
        let user = message["role"] == "user";
        match &message["content"] {
            Value::String(text) => entries.push(words(user, text)),
            content => {
                for block in content.as_array().into_iter().flatten() {
                    read_block(user, block, &mut entries);
                }
            }
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    Ok(Conversation {
        wire: Wire::Messages,
        model,
        stream: body["stream"] == true,
        entries,
        tools: tools.map(offer).collect(),
        thread: text_of(&body["metadata"]["user_id"]),
        attempt: 0,
    })
}

/// Each call is answered in the user's next message, as the vendor demands.
fn demand_results(messages: &[Value]) -> Result<(), String> {
    let ids = |message: &Value, kind: &str, key: &str| -> Vec<String> {
        let blocks = message["content"].as_array().into_iter().flatten();
        let blocks = blocks.filter(|block| block["type"] == kind);
        blocks.map(|block| text_of(&block[key])).collect()
    };
    let mut open: Vec<String> = Vec::new();
    let mut answered = false;
    for message in messages {
        if message["role"] == "user" {
            let results = ids(message, "tool_result", "tool_use_id");
            open.retain(|id| !results.contains(id));
            answered = true;
            continue;
        }
        if answered && !open.is_empty() {
            break;
        }
        answered = false;
        open.extend(ids(message, "tool_use", "id"));
    }
    if answered && !open.is_empty() {
        return Err(format!(
            "`tool_use` ids were found without `tool_result` blocks immediately after: {}",
            open.join(", ")
        ));
    }
    Ok(())
}

fn words(user: bool, text: &str) -> Entry {
    if user {
        user_entry(text)
    } else {
        Entry::Assistant(text.to_owned())
    }
}

fn read_block(user: bool, block: &Value, entries: &mut Vec<Entry>) {
    match block["type"].as_str() {
        Some("text") => entries.push(words(user, block["text"].as_str().unwrap_or_default())),
        Some("tool_use") => entries.push(Entry::Call {
            id: text_of(&block["id"]),
            name: text_of(&block["name"]),
        }),
        Some("tool_result") => entries.push(Entry::Result {
            id: text_of(&block["tool_use_id"]),
            text: joined(&block["content"]),
        }),
        _ => {}
    }
}

fn offer(tool: &Value) -> ToolOffer {
    ToolOffer {
        name: text_of(&tool["name"]),
        namespace: None,
        kind: ToolKind::Function,
        schema: tool["input_schema"].clone(),
        description: text_of(&tool["description"]),
    }
}

/// An answer under way.
pub(super) struct Answer {
    head: Head,
    id: String,
    content: Vec<Value>,
    calls: bool,
    done: bool,
}

impl Answer {
    pub(super) fn new(mut head: Head) -> Self {
        Self {
            id: head.ids.mint("msg_"),
            head,
            content: Vec::new(),
            calls: false,
            done: false,
        }
    }

    /// Opens a block; `grown` is what it becomes, `shown` is what its start event says.
    fn open(&mut self, grown: Value, shown: Value) -> Event {
        let index = self.content.len();
        self.content.push(grown);
        event(json!({
            "type": "content_block_start",
            "index": index,
            "content_block": shown,
        }))
    }

    fn delta(&self, delta: Value) -> Event {
        event(json!({
            "type": "content_block_delta",
            "index": self.last(),
            "delta": delta,
        }))
    }

    fn close(&self) -> Event {
        event(json!({ "type": "content_block_stop", "index": self.last() }))
    }

    fn last(&self) -> usize {
        self.content.len().saturating_sub(1)
    }

    fn grow(&mut self, key: &str, delta: &str) {
        if let Some(block) = self.content.last_mut() {
            let text = block[key].as_str().unwrap_or_default();
            block[key] = json!(format!("{text}{delta}"));
        }
    }

    fn call(&mut self, call: &Call) -> Vec<Event> {
        self.calls = true;
        let id = self.head.ids.mint("toolu_");
        let input = match &call.input {
            Input::Json(input) => input.clone(),
            Input::Text(text) => json!({ "input": text }),
            Input::Shell(command) => json!({ "command": command }),
        };
        let block = |input: &Value| json!({ "type": "tool_use", "id": id, "name": call.name, "input": input });
        let text = input.to_string();
        let mut middle = text.len() / 2;
        while !text.is_char_boundary(middle) {
            middle -= 1;
        }
        let (head, tail) = text.split_at(middle);
        let mut events = vec![self.open(block(&input), block(&json!({})))];
        for part in [head, tail] {
            events.push(self.delta(json!({ "type": "input_json_delta", "partial_json": part })));
        }
        events.push(self.close());
        events
    }

    fn stop_reason(&self) -> Value {
        match (self.done, self.calls) {
            (false, _) => Value::Null,
            (true, true) => json!("tool_use"),
            (true, false) => json!("end_turn"),
        }
    }

    fn usage(&self) -> Value {
        let usage = self.head.usage;
        json!({
            "input_tokens": usage.input.saturating_sub(usage.cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": if self.done { usage.output } else { 1 },
        })
    }

    fn message(&self, content: &[Value]) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.head.model,
            "content": content,
            "stop_reason": self.stop_reason(),
            "stop_sequence": null,
            "usage": self.usage(),
        })
    }
}

impl Encoder for Answer {
    fn beat(&mut self, beat: &Beat) -> Vec<Event> {
        match beat {
            Beat::Open => vec![
                event(json!({ "type": "message_start", "message": self.message(&[]) })),
                event(json!({ "type": "ping" })),
            ],
            Beat::ThinkOpen => {
                let shown = json!({ "type": "thinking", "thinking": "", "signature": "" });
                vec![self.open(shown.clone(), shown)]
            }
            Beat::ThinkDelta(delta) => {
                self.grow("thinking", delta);
                vec![self.delta(json!({ "type": "thinking_delta", "thinking": delta }))]
            }
            Beat::ThinkClose => {
                self.grow("signature", SIGNATURE);
                vec![
                    self.delta(json!({ "type": "signature_delta", "signature": SIGNATURE })),
                    self.close(),
                ]
            }
            Beat::TextOpen => {
                let shown = json!({ "type": "text", "text": "" });
                vec![self.open(shown.clone(), shown)]
            }
            Beat::TextDelta(delta) => {
                self.grow("text", delta);
                vec![self.delta(json!({ "type": "text_delta", "text": delta }))]
            }
            Beat::TextClose => vec![self.close()],
            Beat::Call(call) => self.call(call),
            Beat::Close => {
                self.done = true;
                vec![
                    event(json!({
                        "type": "message_delta",
                        "delta": { "stop_reason": self.stop_reason(), "stop_sequence": null },
                        "usage": self.usage(),
                    })),
                    event(json!({ "type": "message_stop" })),
                ]
            }
            Beat::Pause(_) | Beat::Hold(_) | Beat::Half | Beat::Drop => Vec::new(),
        }
    }

    fn whole(&self) -> Value {
        self.message(&self.content)
    }
}

/// The signature of every thinking block; nobody checks it here.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

/// An event is named as its data is typed.
fn event(data: Value) -> Event {
    const NAMES: [&str; 7] = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    let name = NAMES.into_iter().find(|name| data["type"] == *name);
    Event::named(name.unwrap_or("error"), &data)
}

pub(super) fn error_body(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({
        "type": "error",
        "error": { "type": kind, "message": message },
        "request_id": "req_scripted",
    })
}
