//! A JSON value kept as the text that it came in.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One JSON value, verbatim: number forms, key order and duplicate keys of a vendor's payload survive.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Takes one complete JSON value; surrounding white space is dropped.
    ///
    /// # Errors
    /// When the text is not exactly one JSON value.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// Writes any serialisable value as JSON.
    ///
    /// # Errors
    /// When the value cannot be written as JSON, as a map with keys that are not strings.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The text as it came in.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The value as a tree, for looking into it.
    #[must_use]
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).unwrap_or(serde_json::Value::Null)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self(serde_json::value::to_raw_value(&value).expect("a Value is always JSON"))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
