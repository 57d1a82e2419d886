//! OpenAI Chat Completions. Reasoning goes out as `reasoning_content`, as the vendors with
//! reasoning models on this wire spell it.

use serde_json::{Value, json};

use super::super::beat::Beat;
use super::super::conversation::{Conversation, Entry, ToolKind, ToolOffer, Wire, user_entry};
use super::super::tools::{Call, Input};
use super::{Encoder, Event, Head, joined, list, model, reasoning_tokens, text_of, texts};

pub(super) fn decode(body: &Value) -> Result<Conversation, String> {
    let model = model(body)?;
    let mut entries = Vec::new();
    for message in list(body, "messages")? {
        read_message(message, &mut entries);
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    Ok(Conversation {
        wire: Wire::Chat,
        model,
        stream: body["stream"] == true,
        entries,
        tools: tools.filter_map(offer).collect(),
        thread: text_of(&body["prompt_cache_key"]),
        attempt: 0,
    })
}

/// How LiteLLM 1.108.7 begins a message of the user's role that it made from a system message in the middle of a
/// conversation (`prompt_templates/mid_conversation_system.py`).
const OPERATOR_NOTE: &str = "Operator note (not from the user):";

fn read_message(message: &Value, entries: &mut Vec<Entry>) {
    let texts = texts(&message["content"]);
    let noted = texts
        .first()
        .is_some_and(|text| text.starts_with(OPERATOR_NOTE));
    match message["role"].as_str() {
        Some("user") if noted => {
            entries.extend(
                texts
                    .into_iter()
                    .map(|text| Entry::Context(text.to_owned())),
            );
        }
        Some("user") => entries.extend(texts.into_iter().map(user_entry)),
        Some("tool") => entries.push(Entry::Result {
            id: text_of(&message["tool_call_id"]),
            text: joined(&message["content"]),
        }),
        Some("assistant") => {
            entries.extend(
                texts
                    .into_iter()
                    .map(|text| Entry::Assistant(text.to_owned())),
            );
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            entries.extend(calls.map(|call| Entry::Call {
                id: text_of(&call["id"]),
                name: text_of(&call["function"]["name"]),
            }));
        }
        _ => entries.extend(
            texts
                .into_iter()
                .map(|text| Entry::Context(text.to_owned())),
        ),
    }
}

fn offer(tool: &Value) -> Option<ToolOffer> {
    let function = &tool["function"];
    Some(ToolOffer {
        name: function["name"].as_str()?.to_owned(),
        namespace: None,
        kind: ToolKind::Function,
        schema: function["parameters"].clone(),
        description: text_of(&function["description"]),
    })
}

/// An answer under way.
pub(super) struct Answer {
    head: Head,
    id: String,
    thought: String,
    said: String,
    calls: Vec<Value>,
}

impl Answer {
    pub(super) fn new(mut head: Head) -> Self {
        Self {
            id: head.ids.mint("chatcmpl-"),
            head,
            thought: String::new(),
            said: String::new(),
            calls: Vec::new(),
        }
    }

    fn object(&self, object: &str, choices: Value, usage: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
            "usage": usage,
        })
    }

    fn chunk(&self, delta: Value, finish: Value) -> Event {
        let choices = json!([{
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish,
        }]);
        let chunk = self.object("chat.completion.chunk", choices, Value::Null);
        Event::bare(chunk.to_string())
    }

    fn call(&mut self, call: &Call) -> Vec<Event> {
        let index = self.calls.len();
        let id = self.head.ids.mint("call_");
        let arguments = match &call.input {
            Input::Json(input) => input.to_string(),
            Input::Text(text) => json!({ "input": text }).to_string(),
            Input::Shell(command) => json!({ "command": command }).to_string(),
        };
        let whole = |arguments: &str| {
            json!({
                "id": id,
                "type": "function",
                "function": { "name": call.name, "arguments": arguments },
            })
        };
        self.calls.push(whole(&arguments));
        let mut opening = whole("");
        opening["index"] = json!(index);
        let rest = json!({ "index": index, "function": { "arguments": arguments } });
        vec![
            self.chunk(json!({ "tool_calls": [opening] }), Value::Null),
            self.chunk(json!({ "tool_calls": [rest] }), Value::Null),
        ]
    }

    fn finish(&self) -> Value {
        json!(if self.calls.is_empty() {
            "stop"
        } else {
            "tool_calls"
        })
    }

    fn usage(&self) -> Value {
        let usage = self.head.usage;
        json!({
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": { "cached_tokens": usage.cached },
            "completion_tokens_details": {
                "reasoning_tokens": reasoning_tokens(usage, self.thought.len(), self.said.len()),
            },
        })
    }
}

impl Encoder for Answer {
    fn beat(&mut self, beat: &Beat) -> Vec<Event> {
        match beat {
            Beat::Open => {
                vec![self.chunk(json!({ "role": "assistant", "content": "" }), Value::Null)]
            }
            Beat::ThinkDelta(delta) => {
                self.thought.push_str(delta);
                vec![self.chunk(json!({ "reasoning_content": delta }), Value::Null)]
            }
            Beat::TextDelta(delta) => {
                self.said.push_str(delta);
                vec![self.chunk(json!({ "content": delta }), Value::Null)]
            }
            Beat::Call(call) => self.call(call),
            Beat::Close => {
                let mut events = vec![self.chunk(json!({}), self.finish())];
                if self.head.usage_chunk {
                    let chunk = self.object("chat.completion.chunk", json!([]), self.usage());
                    events.push(Event::bare(chunk.to_string()));
                }
                events.push(Event::bare("[DONE]".to_owned()));
                events
            }
            Beat::ThinkOpen | Beat::ThinkClose | Beat::TextOpen | Beat::TextClose => Vec::new(),
            Beat::Pause(_) | Beat::Hold(_) | Beat::Half | Beat::Drop => Vec::new(),
        }
    }

    fn whole(&self) -> Value {
        let mut message = json!({ "role": "assistant", "refusal": null });
        message["content"] = if self.said.is_empty() && !self.calls.is_empty() {
            Value::Null
        } else {
            json!(self.said)
        };
        if !self.thought.is_empty() {
            message["reasoning_content"] = json!(self.thought);
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        let choices = json!([{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": self.finish(),
        }]);
        self.object("chat.completion", choices, self.usage())
    }
}
