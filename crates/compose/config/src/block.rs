//! Blocks that this crate carries and does not read.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Settings that their own component reads and checks: those of an adapter, of the egress proxy.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Block(Map<String, Value>);

impl Block {
    /// The block as the component takes it.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Sets one of its keys, as an embedder does.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces what looks like a secret.
    pub(crate) fn redact(&mut self) {
        redact(&mut self.0);
    }
}

/// What is shown in place of a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// Nobody should put a secret into a setting, but somebody will.
fn redact(map: &mut Map<String, Value>) {
    for (key, value) in map {
        if looks_secret(key) {
            *value = Value::String(REDACTED.to_owned());
        } else {
            redact_value(value);
        }
    }
}

fn redact_value(value: &mut Value) {
    match value {
        Value::Object(map) => redact(map),
        Value::Array(values) => values.iter_mut().for_each(redact_value),
        Value::String(text) if holds_user_info(text) => *text = REDACTED.to_owned(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn looks_secret(key: &str) -> bool {
    const WORDS: &[&str] = &[
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "credential",
        "key",
        "auth",
    ];
    const PLACES: &[&str] = &["_file", "_dir", "_path"];
    let key = key.to_ascii_lowercase();
    WORDS.iter().any(|word| key.contains(word)) && !PLACES.iter().any(|place| key.ends_with(place))
}

/// Whether this is a URL with a name or password before its host.
fn holds_user_info(text: &str) -> bool {
    text.split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?', '#']).next())
        .is_some_and(|authority| authority.contains('@'))
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact();
        fmt::Debug::fmt(&shown.0, f)
    }
}

impl FromIterator<(String, Value)> for Block {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_never_shown() {
        let block: Block = serde_json::from_value(json!({
            "base_url": "https://models.example",
            "proxy": "http://user:hunter2@proxy.example/x@y",
            "api_key": "hunter2",
            "token_file": "/etc/tokens",
            "inner": { "Authorization": "hunter2", "list": [{ "password": "hunter2" }] },
            "mail": "a@b",
        }))
        .expect("a block");
        let shown = format!("{block:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        for kept in ["https://models.example", "/etc/tokens", "a@b"] {
            assert!(shown.contains(kept), "{shown}");
        }
    }
}
