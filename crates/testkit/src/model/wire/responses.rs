//! OpenAI Responses. Event order and fields as the vendor documents them and as Codex 0.169.0
//! reads them.

use serde_json::{Value, json};

use super::super::beat::Beat;
use super::super::conversation::{Conversation, Entry, ToolKind, ToolOffer, Wire, user_entry};
use super::super::tools::{Call, Input};
use super::{Encoder, Event, Head, joined, list, model, reasoning_tokens, text_of, texts};

pub(super) fn decode(body: &Value) -> Result<Conversation, String> {
    let model = model(body)?;
    let mut entries = Vec::new();
    let mut tools = Vec::new();
    if let Some(instructions) = body["instructions"].as_str() {
        entries.push(Entry::Context(instructions.to_owned()));
    }
    if let Some(text) = body["input"].as_str() {
        entries.push(user_entry(text));
    } else {
        for item in list(body, "input")? {
            read_item(item, &mut entries, &mut tools);
        }
    }
    read_tools(&body["tools"], None, &mut tools);
    Ok(Conversation {
        wire: Wire::Responses,
        model,
        stream: body["stream"] == true,
        entries,
        tools,
        thread: text_of(&body["prompt_cache_key"]),
        attempt: 0,
    })
}

fn read_item(item: &Value, entries: &mut Vec<Entry>, tools: &mut Vec<ToolOffer>) {
    let kind = item["type"].as_str().unwrap_or("message");
    let id = || text_of(&item["call_id"]);
    match kind {
        "message" => {
            for text in texts(&item["content"]) {
                entries.push(match item["role"].as_str() {
                    Some("user") => user_entry(text),
                    Some("assistant") => Entry::Assistant(text.to_owned()),
                    _ => Entry::Context(text.to_owned()),
                });
            }
        }
        "function_call" | "custom_tool_call" | "local_shell_call" => entries.push(Entry::Call {
            id: id(),
            name: item["name"].as_str().unwrap_or(kind).to_owned(),
        }),
        "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
            entries.push(Entry::Result {
                id: id(),
                text: joined(&item["output"]),
            });
        }
        "agent_message" => entries.push(agent_message(item)),
        "additional_tools" => read_tools(&item["tools"], None, tools),
        _ => {}
    }
}

/// A message between agents (Codex 0.169.0): a new task is the receiver's prompt. Its payload is
/// encrypted by the vendor's endpoint, and comes back here as it was given.
fn agent_message(item: &Value) -> Entry {
    let head = joined(&item["content"]);
    let parts = item["content"].as_array().into_iter().flatten();
    let payload: String = parts
        .filter_map(|part| part["encrypted_content"].as_str())
        .collect();
    if head.starts_with("Message Type: NEW_TASK\n") {
        user_entry(&payload)
    } else {
        Entry::Context(head + &payload)
    }
}

fn read_tools(list: &Value, namespace: Option<&str>, tools: &mut Vec<ToolOffer>) {
    for tool in list.as_array().into_iter().flatten() {
        let kind = match tool["type"].as_str() {
            Some("function") => ToolKind::Function,
            Some("custom") => ToolKind::Custom,
            Some("local_shell") => ToolKind::LocalShell,
            Some("namespace") => {
                read_tools(&tool["tools"], tool["name"].as_str(), tools);
                continue;
            }
            _ => continue,
        };
        tools.push(ToolOffer {
            name: tool["name"].as_str().unwrap_or("local_shell").to_owned(),
            namespace: namespace.map(str::to_owned),
            kind,
            schema: tool["parameters"].clone(),
            description: text_of(&tool["description"]),
        });
    }
}

/// An answer under way.
pub(super) struct Answer {
    head: Head,
    id: String,
    sequence: u64,
    output: Vec<Value>,
    open: Option<Open>,
    thought: usize,
    said: usize,
    done: bool,
}

/// The item that deltas go to.
struct Open {
    id: String,
    text: String,
}

impl Answer {
    pub(super) fn new(mut head: Head) -> Self {
        Self {
            id: head.ids.mint("resp_"),
            head,
            sequence: 0,
            output: Vec::new(),
            open: None,
            thought: 0,
            said: 0,
            done: false,
        }
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> Event {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        Event::named(name, &data)
    }

    fn open_item(&mut self, prefix: &str) -> String {
        let id = self.head.ids.mint(prefix);
        self.open = Some(Open {
            id: id.clone(),
            text: String::new(),
        });
        id
    }

    fn added(&mut self, item: Value) -> Event {
        let index = self.output.len();
        self.event(
            "response.output_item.added",
            json!({ "output_index": index, "item": item }),
        )
    }

    fn item_done(&mut self, item: Value) -> Event {
        let index = self.output.len();
        self.output.push(item.clone());
        self.event(
            "response.output_item.done",
            json!({ "output_index": index, "item": item }),
        )
    }

    /// An event about the open item; `part` is the key that counts its parts.
    fn part(&mut self, name: &'static str, part: &str, mut data: Value) -> Event {
        let id = self.open.as_ref().map(|open| open.id.clone());
        data["item_id"] = json!(id.unwrap_or_default());
        data["output_index"] = json!(self.output.len());
        data[part] = json!(0);
        self.event(name, data)
    }

    fn grow(&mut self, delta: &str) {
        if let Some(open) = &mut self.open {
            open.text.push_str(delta);
        }
    }

    fn open_text(&mut self) -> Vec<Event> {
        let id = self.open_item("msg_");
        vec![
            self.added(message(&id, "in_progress", None)),
            self.part(
                "response.content_part.added",
                "content_index",
                json!({ "part": text_part("") }),
            ),
        ]
    }

    fn close_text(&mut self) -> Vec<Event> {
        let text = self.open.as_ref().map(|open| open.text.clone());
        let text = text.unwrap_or_default();
        self.said += text.len();
        let mut events = vec![
            self.part(
                "response.output_text.done",
                "content_index",
                json!({ "text": text, "logprobs": [] }),
            ),
            self.part(
                "response.content_part.done",
                "content_index",
                json!({ "part": text_part(&text) }),
            ),
        ];
        if let Some(open) = self.open.take() {
            events.push(self.item_done(message(&open.id, "completed", Some(&text))));
        }
        events
    }

    fn open_thought(&mut self) -> Vec<Event> {
        let id = self.open_item("rs_");
        vec![
            self.added(json!({ "id": id, "type": "reasoning", "summary": [] })),
            self.part(
                "response.reasoning_summary_part.added",
                "summary_index",
                json!({ "part": summary_part("") }),
            ),
        ]
    }

    fn close_thought(&mut self) -> Vec<Event> {
        let text = self.open.as_ref().map(|open| open.text.clone());
        let text = text.unwrap_or_default();
        self.thought += text.len();
        let mut events = vec![
            self.part(
                "response.reasoning_summary_text.done",
                "summary_index",
                json!({ "text": text }),
            ),
            self.part(
                "response.reasoning_summary_part.done",
                "summary_index",
                json!({ "part": summary_part(&text) }),
            ),
        ];
        if let Some(open) = self.open.take() {
            events.push(self.item_done(json!({
                "id": open.id,
                "type": "reasoning",
                "summary": [summary_part(&text)],
                "encrypted_content": "scripted",
            })));
        }
        events
    }

    fn call(&mut self, call: &Call) -> Vec<Event> {
        let call_id = self.head.ids.mint("call_");
        match &call.input {
            Input::Json(arguments) => {
                self.input_call(call, &call_id, &FUNCTION, &arguments.to_string())
            }
            Input::Text(text) => self.input_call(call, &call_id, &CUSTOM, text),
            Input::Shell(command) => {
                let id = self.head.ids.mint("lsh_");
                let item = |status: &str| {
                    json!({
                        "id": id,
                        "type": "local_shell_call",
                        "status": status,
                        "call_id": call_id,
                        "action": { "type": "exec", "command": command, "env": {} },
                    })
                };
                vec![
                    self.added(item("in_progress")),
                    self.item_done(item("completed")),
                ]
            }
        }
    }

    fn input_call(&mut self, call: &Call, call_id: &str, shape: &Shape, input: &str) -> Vec<Event> {
        let id = self.open_item(shape.prefix);
        let item = |status: &str, input: &str| {
            let mut item = json!({
                "id": id,
                "type": shape.kind,
                "status": status,
                "call_id": call_id,
                "name": call.name,
            });
            item[shape.key] = json!(input);
            if let Some(namespace) = &call.namespace {
                item["namespace"] = json!(namespace);
            }
            item
        };
        let index = self.output.len();
        let about = |key: &str, value: &str| {
            let mut data = json!({ "item_id": id, "output_index": index });
            data[key] = json!(value);
            data
        };
        let events = vec![
            self.added(item("in_progress", "")),
            self.event(shape.delta, about("delta", input)),
            self.event(shape.done, about(shape.key, input)),
            self.item_done(item("completed", input)),
        ];
        self.said += input.len();
        self.open = None;
        events
    }

    fn response(&self) -> Value {
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.head.created,
            "status": if self.done { "completed" } else { "in_progress" },
            "background": false,
            "error": null,
            "incomplete_details": null,
            "model": self.head.model,
            "output": if self.done { json!(self.output) } else { json!([]) },
            "parallel_tool_calls": true,
            "store": false,
            "usage": if self.done { self.usage() } else { Value::Null },
        })
    }

    fn usage(&self) -> Value {
        let usage = self.head.usage;
        json!({
            "input_tokens": usage.input,
            "input_tokens_details": { "cached_tokens": usage.cached },
            "output_tokens": usage.output,
            "output_tokens_details": {
                "reasoning_tokens": reasoning_tokens(usage, self.thought, self.said),
            },
            "total_tokens": usage.input + usage.output,
        })
    }
}

impl Encoder for Answer {
    fn beat(&mut self, beat: &Beat) -> Vec<Event> {
        match beat {
            Beat::Open => ["response.created", "response.in_progress"]
                .map(|name| self.event(name, json!({ "response": self.response() })))
                .into(),
            Beat::ThinkOpen => self.open_thought(),
            Beat::ThinkDelta(delta) => {
                self.grow(delta);
                vec![self.part(
                    "response.reasoning_summary_text.delta",
                    "summary_index",
                    json!({ "delta": delta }),
                )]
            }
            Beat::ThinkClose => self.close_thought(),
            Beat::TextOpen => self.open_text(),
            Beat::TextDelta(delta) => {
                self.grow(delta);
                vec![self.part(
                    "response.output_text.delta",
                    "content_index",
                    json!({ "delta": delta, "logprobs": [] }),
                )]
            }
            Beat::TextClose => self.close_text(),
            Beat::Call(call) => self.call(call),
            Beat::Close => {
                self.done = true;
                let response = self.response();
                vec![self.event("response.completed", json!({ "response": response }))]
            }
            Beat::Pause(_) | Beat::Hold(_) | Beat::Half | Beat::Drop => Vec::new(),
        }
    }

    fn whole(&self) -> Value {
        self.response()
    }
}

/// How a kind of call is spelled.
struct Shape {
    prefix: &'static str,
    kind: &'static str,
    key: &'static str,
    delta: &'static str,
    done: &'static str,
}

const FUNCTION: Shape = Shape {
    prefix: "fc_",
    kind: "function_call",
    key: "arguments",
    delta: "response.function_call_arguments.delta",
    done: "response.function_call_arguments.done",
};

const CUSTOM: Shape = Shape {
    prefix: "ctc_",
    kind: "custom_tool_call",
    key: "input",
    delta: "response.custom_tool_call_input.delta",
    done: "response.custom_tool_call_input.done",
};

fn message(id: &str, status: &str, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.into_iter().map(text_part).collect();
    json!({
        "id": id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

pub(super) fn error_body(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("not_found")),
        429 => ("rate_limit_error", json!("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", Value::Null),
        _ => ("server_error", Value::Null),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}
