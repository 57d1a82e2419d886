//! A plain HTTP client that tells a cut from an end, and a dialogue in each vendor's spelling.

use std::time::Duration;

use astrabox_testkit::model::{ScriptedModel, Wire};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub(crate) const WIRES: [Wire; 3] = [Wire::Messages, Wire::Responses, Wire::Chat];
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// An answer that is being read.
pub(crate) struct Open {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    read: String,
    /// Ends with the answer that it belongs to.
    _connection: JoinSet<()>,
}

/// An answer that was read.
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// The connection broke off before the body's end.
    pub(crate) cut: bool,
}

pub(crate) async fn model() -> ScriptedModel {
    ScriptedModel::builder().start().await.expect("a free port")
}

/// Sends a request and gives the answer's head; an error if the connection closed before it.
pub(crate) async fn send(
    model: &ScriptedModel,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Open {
    let stream = TcpStream::connect(model.address()).await.expect("connect");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("http");
    let mut task = JoinSet::new();
    task.spawn(async {
        // A cut shows in the body, where the tests look for it.
        let _ = connection.await;
    });
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "model.test");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let bytes = body.map(Value::to_string).unwrap_or_default();
    let request = request
        .body(Full::new(Bytes::from(bytes)))
        .expect("a request");
    let response: Response<Incoming> = sender.send_request(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    Open {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
        read: String::new(),
        _connection: task,
    }
}

impl Open {
    /// Reads until `text` was read.
    pub(crate) async fn read_until(&mut self, text: &str) {
        let reading = async {
            while !self.read.contains(text) {
                assert!(
                    !self.read_more().await,
                    "the end before {text:?}: {}",
                    self.read
                );
            }
        };
        tokio::time::timeout(SOON, reading)
            .await
            .unwrap_or_else(|_| panic!("{text:?} did not come"));
    }

    /// Reads to the end.
    pub(crate) async fn rest(mut self) -> Got {
        let mut cut = false;
        let reading = async {
            while let Some(frame) = self.body.frame().await {
                let Ok(frame) = frame else {
                    cut = true;
                    break;
                };
                self.read.push_str(&text(&frame));
            }
        };
        tokio::time::timeout(SOON, reading).await.expect("an end");
        Got {
            status: self.status,
            headers: std::mem::take(&mut self.headers),
            body: std::mem::take(&mut self.read),
            cut,
        }
    }

    /// Reads one piece; true at the end.
    async fn read_more(&mut self) -> bool {
        match self.body.frame().await {
            Some(Ok(frame)) => {
                self.read.push_str(&text(&frame));
                false
            }
            _ => true,
        }
    }
}

fn text(frame: &hyper::body::Frame<Bytes>) -> String {
    let bytes = frame.data_ref().map(|data| data.to_vec());
    String::from_utf8(bytes.unwrap_or_default()).expect("text")
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// The events as name (empty on the chat wire) and data.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        self.body
            .split_terminator("\n\n")
            .map(|event| {
                let (name, data) = match event.split_once('\n') {
                    Some((name, data)) => (name.strip_prefix("event: ").expect("a name"), data),
                    None => ("", event),
                };
                let data = data.strip_prefix("data: ").expect("data");
                (name.to_owned(), data.to_owned())
            })
            .collect()
    }

    /// What the model did.
    pub(crate) fn said(&self, wire: Wire) -> Said {
        if self.body.starts_with('{') {
            return whole(wire, &self.json());
        }
        let mut said = Said::default();
        for (_, data) in self.events() {
            match serde_json::from_str::<Value>(&data) {
                Ok(data) => said.hear(wire, &data),
                Err(_) => assert_eq!(data, "[DONE]"),
            }
        }
        said
    }
}

/// What the model did, in common terms.
#[derive(Debug, Default, PartialEq, Clone)]
pub(crate) struct Said {
    pub(crate) thought: String,
    pub(crate) text: String,
    pub(crate) deltas: usize,
    /// Id, name, input.
    pub(crate) calls: Vec<(String, String, Value)>,
    /// Input, output, cached.
    pub(crate) usage: Option<(u64, u64, u64)>,
    partial: String,
}

impl Said {
    fn hear(&mut self, wire: Wire, data: &Value) {
        match wire {
            Wire::Responses => self.hear_responses(data),
            Wire::Messages => self.hear_messages(data),
            Wire::Chat => self.hear_chat(data),
        }
    }

    fn hear_responses(&mut self, data: &Value) {
        match data["type"].as_str() {
            Some("response.output_text.delta") => self.delta(&data["delta"]),
            Some("response.reasoning_summary_text.delta") => {
                self.thought.push_str(string(&data["delta"]));
            }
            Some("response.completed") => {
                let all = whole(Wire::Responses, &data["response"]);
                assert_eq!((&all.text, &all.thought), (&self.text, &self.thought));
                self.calls = all.calls;
                self.usage = all.usage;
            }
            _ => {}
        }
    }

    fn hear_messages(&mut self, data: &Value) {
        let delta = &data["delta"];
        match (data["type"].as_str(), delta["type"].as_str()) {
            (Some("content_block_start"), _) if data["content_block"]["type"] == "tool_use" => {
                let block = &data["content_block"];
                self.calls
                    .push((owned(&block["id"]), owned(&block["name"]), Value::Null));
            }
            (_, Some("text_delta")) => self.delta(&delta["text"]),
            (_, Some("thinking_delta")) => self.thought.push_str(string(&delta["thinking"])),
            (_, Some("input_json_delta")) => self.partial.push_str(string(&delta["partial_json"])),
            (Some("content_block_stop"), _) if !self.partial.is_empty() => {
                let input = serde_json::from_str(&std::mem::take(&mut self.partial));
                self.calls.last_mut().expect("a call").2 = input.expect("JSON");
            }
            (Some("message_delta"), _) => self.usage = usage(Wire::Messages, &data["usage"]),
            _ => {}
        }
    }

    fn hear_chat(&mut self, data: &Value) {
        let delta = &data["choices"][0]["delta"];
        if let Some(text) = delta["reasoning_content"].as_str() {
            self.thought.push_str(text);
        }
        if delta["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
        {
            self.delta(&delta["content"]);
        }
        let call = &delta["tool_calls"][0];
        if call["id"].is_string() {
            let name = owned(&call["function"]["name"]);
            self.calls.push((owned(&call["id"]), name, Value::Null));
        } else if let Some(arguments) = call["function"]["arguments"].as_str() {
            let last = self.calls.last_mut().expect("a call");
            last.2 = serde_json::from_str(arguments).expect("JSON");
        }
        if data["usage"].is_object() {
            self.usage = usage(Wire::Chat, &data["usage"]);
        }
    }

    fn delta(&mut self, delta: &Value) {
        self.deltas += 1;
        self.text.push_str(string(delta));
    }
}

/// What a body says that came without a stream.
fn whole(wire: Wire, body: &Value) -> Said {
    let mut said = Said {
        usage: usage(wire, &body["usage"]),
        ..Said::default()
    };
    match wire {
        Wire::Responses => {
            for item in list(&body["output"]) {
                match item["type"].as_str() {
                    Some("message") => said.text.push_str(string(&item["content"][0]["text"])),
                    Some("reasoning") => said.thought.push_str(string(&item["summary"][0]["text"])),
                    _ => {
                        let input = serde_json::from_str(string(&item["arguments"]));
                        let input = input.unwrap_or_else(|_| item["input"].clone());
                        said.calls
                            .push((owned(&item["call_id"]), owned(&item["name"]), input));
                    }
                }
            }
        }
        Wire::Messages => {
            for block in list(&body["content"]) {
                match block["type"].as_str() {
                    Some("text") => said.text.push_str(string(&block["text"])),
                    Some("thinking") => said.thought.push_str(string(&block["thinking"])),
                    _ => said.calls.push((
                        owned(&block["id"]),
                        owned(&block["name"]),
                        block["input"].clone(),
                    )),
                }
            }
        }
        Wire::Chat => {
            let message = &body["choices"][0]["message"];
            said.text.push_str(string(&message["content"]));
            said.thought.push_str(string(&message["reasoning_content"]));
            for call in list(&message["tool_calls"]) {
                let function = &call["function"];
                let input = serde_json::from_str(string(&function["arguments"]));
                said.calls.push((
                    owned(&call["id"]),
                    owned(&function["name"]),
                    input.expect("JSON"),
                ));
            }
        }
    }
    said
}

fn usage(wire: Wire, usage: &Value) -> Option<(u64, u64, u64)> {
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    match wire {
        Wire::Messages => {
            let cached = number("/cache_read_input_tokens")?;
            Some((
                number("/input_tokens")? + cached,
                number("/output_tokens")?,
                cached,
            ))
        }
        Wire::Responses => Some((
            number("/input_tokens")?,
            number("/output_tokens")?,
            number("/input_tokens_details/cached_tokens")?,
        )),
        Wire::Chat => Some((
            number("/prompt_tokens")?,
            number("/completion_tokens")?,
            number("/prompt_tokens_details/cached_tokens")?,
        )),
    }
}

/// A conversation that grows, in the vendor's spelling.
#[derive(Clone)]
pub(crate) struct Dialogue {
    wire: Wire,
    stream: bool,
    items: Vec<Value>,
}

impl Dialogue {
    pub(crate) fn new(wire: Wire, stream: bool) -> Self {
        Self {
            wire,
            stream,
            items: Vec::new(),
        }
    }

    pub(crate) fn user(mut self, text: &str) -> Self {
        self.items.push(match self.wire {
            Wire::Messages => json!({"role": "user", "content": [{"type": "text", "text": text}]}),
            Wire::Responses => json!({
                "type": "message", "role": "user",
                "content": [{"type": "input_text", "text": text}],
            }),
            Wire::Chat => json!({"role": "user", "content": text}),
        });
        self
    }

    /// Appends what the model did, and the results of its calls.
    pub(crate) fn answered(mut self, said: &Said, result: &str) -> Self {
        match self.wire {
            Wire::Messages => {
                let mut content = vec![json!({"type": "text", "text": said.text})];
                let mut results = Vec::new();
                for (id, name, input) in &said.calls {
                    content
                        .push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
                    results.push(json!({
                        "type": "tool_result", "tool_use_id": id,
                        "content": [{"type": "text", "text": result}],
                    }));
                }
                self.items
                    .push(json!({"role": "assistant", "content": content}));
                if !results.is_empty() {
                    self.items.push(json!({"role": "user", "content": results}));
                }
            }
            Wire::Responses => {
                self.items.push(json!({
                    "type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": said.text}],
                }));
                for (id, name, input) in &said.calls {
                    self.items.push(json!({
                        "type": "function_call", "call_id": id, "name": name,
                        "arguments": input.to_string(),
                    }));
                    self.items.push(json!({
                        "type": "function_call_output", "call_id": id, "output": result,
                    }));
                }
            }
            Wire::Chat => {
                let calls: Vec<Value> = said
                    .calls
                    .iter()
                    .map(|(id, name, input)| {
                        json!({
                            "id": id, "type": "function",
                            "function": {"name": name, "arguments": input.to_string()},
                        })
                    })
                    .collect();
                self.items.push(json!({
                    "role": "assistant", "content": said.text, "tool_calls": calls,
                }));
                for (id, ..) in &said.calls {
                    self.items
                        .push(json!({"role": "tool", "tool_call_id": id, "content": result}));
                }
            }
        }
        self
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"model": "any", "stream": self.stream, "tools": tools(self.wire)});
        match self.wire {
            Wire::Responses => body["input"] = json!(self.items),
            Wire::Messages => {
                body["max_tokens"] = json!(100);
                body["messages"] = json!(self.items);
            }
            Wire::Chat => {
                body["stream_options"] = json!({"include_usage": true});
                body["messages"] = json!(self.items);
            }
        }
        body
    }

    pub(crate) async fn open(&self, model: &ScriptedModel) -> Open {
        send(model, "POST", path(self.wire), &[], Some(&self.body())).await
    }

    pub(crate) async fn ask(&self, model: &ScriptedModel) -> Got {
        self.open(model).await.rest().await
    }
}

pub(crate) fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "/v1/messages",
        Wire::Responses => "/v1/responses",
        Wire::Chat => "/v1/chat/completions",
    }
}

/// A shell, a file and a sub-agent tool.
fn tools(wire: Wire) -> Value {
    let tool = |name: &str, keys: &[&str]| {
        let properties: serde_json::Map<String, Value> = keys
            .iter()
            .map(|key| ((*key).to_owned(), json!({"type": "string"})))
            .collect();
        let schema = json!({"type": "object", "properties": properties, "required": keys});
        match wire {
            Wire::Messages => json!({"name": name, "input_schema": schema}),
            Wire::Responses => json!({"type": "function", "name": name, "parameters": schema}),
            Wire::Chat => json!({
                "type": "function", "function": {"name": name, "parameters": schema},
            }),
        }
    };
    json!([
        tool("bash", &["command"]),
        tool("write", &["path", "content"]),
        tool("subagent", &["description", "prompt"]),
    ])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owned(value: &Value) -> String {
    string(value).to_owned()
}
