//! The three wires: what comes in becomes a conversation, what goes out becomes frames.

mod chat;
mod messages;
mod responses;

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::beat::Beat;
use super::conversation::{Conversation, Entry, Wire};
use super::ids::Ids;
use super::reply::{Reply, Step, Usage};

/// What an answer needs besides its beats.
pub(crate) struct Head {
    pub(crate) ids: Ids,
    pub(crate) model: String,
    pub(crate) usage: Usage,
    /// Seconds since 1970.
    pub(crate) created: i64,
    /// Whether a chat stream ends with a usage chunk.
    pub(crate) usage_chunk: bool,
}

/// One server-sent event.
pub(crate) struct Event {
    name: Option<&'static str>,
    data: String,
}

impl Event {
    fn named(name: &'static str, data: &Value) -> Self {
        Self {
            name: Some(name),
            data: data.to_string(),
        }
    }

    fn bare(data: String) -> Self {
        Self { name: None, data }
    }

    fn bytes(&self) -> String {
        match self.name {
            Some(name) => format!("event: {name}\ndata: {}\n\n", self.data),
            None => format!("data: {}\n\n", self.data),
        }
    }
}

/// Turns beats into the events of one wire, and knows the answer as a whole.
trait Encoder {
    /// The events of a beat.
    fn beat(&mut self, beat: &Beat) -> Vec<Event>;
    /// The body that a client gets who asked for no stream.
    fn whole(&self) -> Value;
}

/// What the connection does next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    Bytes(Bytes),
    Pause(Duration),
    Hold(String),
    /// Cuts the connection.
    Cut,
}

/// Reads a request body. The error says what is wrong with it.
pub(crate) fn decode(wire: Wire, body: &Value) -> Result<Conversation, String> {
    match wire {
        Wire::Messages => messages::decode(body),
        Wire::Responses => responses::decode(body),
        Wire::Chat => chat::decode(body),
    }
}

/// The frames of an answer.
pub(crate) fn frames(wire: Wire, head: Head, beats: &[Beat], stream: bool) -> Vec<Frame> {
    let mut encoder: Box<dyn Encoder> = match wire {
        Wire::Messages => Box::new(messages::Answer::new(head)),
        Wire::Responses => Box::new(responses::Answer::new(head)),
        Wire::Chat => Box::new(chat::Answer::new(head)),
    };
    if stream {
        streamed(encoder.as_mut(), beats)
    } else {
        at_once(encoder.as_mut(), beats)
    }
}

fn streamed(encoder: &mut dyn Encoder, beats: &[Beat]) -> Vec<Frame> {
    let mut frames = Vec::new();
    for beat in beats {
        match beat {
            Beat::Pause(pause) => frames.push(Frame::Pause(*pause)),
            Beat::Hold(name) => frames.push(Frame::Hold(name.clone())),
            Beat::Drop => frames.push(Frame::Cut),
            Beat::Half => {
                let events = encoder.beat(&Beat::TextDelta(" that is never finished".to_owned()));
                let whole: String = events.iter().map(Event::bytes).collect();
                frames.push(Frame::Bytes(half(whole)));
                frames.push(Frame::Cut);
            }
            beat => {
                let events = encoder.beat(beat);
                frames.extend(
                    events
                        .iter()
                        .map(|event| Frame::Bytes(event.bytes().into())),
                );
            }
        }
    }
    frames
}

fn at_once(encoder: &mut dyn Encoder, beats: &[Beat]) -> Vec<Frame> {
    let mut frames = Vec::new();
    for beat in beats {
        match beat {
            Beat::Pause(pause) => frames.push(Frame::Pause(*pause)),
            Beat::Hold(name) => frames.push(Frame::Hold(name.clone())),
            Beat::Half => frames.push(Frame::Bytes(half(encoder.whole().to_string()))),
            Beat::Drop => {}
            beat => {
                encoder.beat(beat);
            }
        }
    }
    match beats.last() {
        Some(Beat::Half | Beat::Drop) => frames.push(Frame::Cut),
        _ => frames.push(Frame::Bytes(encoder.whole().to_string().into())),
    }
    frames
}

fn half(text: String) -> Bytes {
    let bytes = Bytes::from(text);
    bytes.slice(..bytes.len() / 2)
}

/// The error body of a vendor for a status.
pub(crate) fn error_body(wire: Wire, status: u16, message: &str) -> Value {
    match wire {
        Wire::Messages => messages::error_body(status, message),
        Wire::Responses | Wire::Chat => responses::error_body(status, message),
    }
}

/// Token counts where none are scripted: words of the history and of the answer.
pub(crate) fn counted(conversation: &Conversation, reply: &Reply) -> Usage {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let input = conversation.entries.iter().map(|entry| match entry {
        Entry::User(text) | Entry::Context(text) | Entry::Assistant(text) => words(text),
        Entry::Call { name, .. } => words(name),
        Entry::Result { text, .. } => words(text),
    });
    let output = reply.steps.iter().map(|step| match step {
        Step::Say(text) | Step::Think(text) | Step::Run(text) | Step::Spawn(text) => words(text),
        Step::Write { content, .. } => words(content),
        Step::Tool { input, .. } => words(&input.to_string()),
        Step::Wait(_) => 1,
        Step::Hold(_) | Step::Half | Step::Drop => 0,
    });
    Usage {
        input: input.sum(),
        output: output.sum(),
        cached: 0,
    }
}

/// The tokens of the answer that were spent on reasoning: its share by characters.
fn reasoning_tokens(usage: Usage, thought: usize, said: usize) -> u64 {
    let all = (thought + said) as u64;
    (usage.output * thought as u64)
        .checked_div(all)
        .unwrap_or(0)
}

/// The text of a content that is a string or a list of parts; parts that are not text are left out.
fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.as_str().or_else(|| part["text"].as_str()))
            .collect(),
        _ => Vec::new(),
    }
}

/// The texts of a content, each on its own line.
fn joined(content: &Value) -> String {
    let mut all = String::new();
    for text in texts(content) {
        if !all.is_empty() && !all.ends_with('\n') {
            all.push('\n');
        }
        all.push_str(text);
    }
    all
}

/// A field that must be a list.
fn list<'a>(body: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match &body[key] {
        Value::Array(items) => Ok(items),
        Value::Null => Err(format!("missing required parameter: `{key}`")),
        _ => Err(format!("invalid type for `{key}`: expected an array")),
    }
}

fn model(body: &Value) -> Result<String, String> {
    match body["model"].as_str() {
        Some(model) => Ok(model.to_owned()),
        None => Err("missing required parameter: `model`".to_owned()),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
