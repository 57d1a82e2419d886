//! Lines to messages, and a view on objects whose values stay verbatim.

use std::borrow::Cow;
use std::collections::BTreeMap;

use astrabox_types::Json;
use serde_json::value::RawValue;

/// Reads a line; `None` when it is no message, which is an object with a `type`.
pub(super) fn parse(line: &str) -> Option<(String, Fields<'_>)> {
    // serde takes an array for an object, member by member.
    let object = line.trim_start().starts_with('{').then_some(line)?;
    let fields = Fields(serde_json::from_str(object).ok()?);
    Some((fields.text("type")?, fields))
}

/// The members of an object, each verbatim. A value that is no object has none.
#[derive(Default)]
pub(super) struct Fields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Fields<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// A member that is there and not null.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        let value = self.0.get(key)?.get();
        (value != "null").then_some(value)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    pub(super) fn fields(&self, key: &str) -> Fields<'a> {
        self.raw(key).map(Fields::of).unwrap_or_default()
    }

    /// The elements of an array.
    pub(super) fn list(&self, key: &str) -> Vec<&'a str> {
        let list: Vec<&'a RawValue> = self
            .raw(key)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        list.into_iter().map(RawValue::get).collect()
    }

    /// The texts of an array of texts.
    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        self.raw(key)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    pub(super) fn json(&self, key: &str) -> Option<Json> {
        Json::parse(self.raw(key)?).ok()
    }
}

/// A text as JSON.
pub(super) fn json_text(text: &str) -> Json {
    Json::from(serde_json::Value::from(text))
}

/// JSON text as it came in; a text when it is not JSON after all.
pub(super) fn verbatim(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| json_text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_an_object_with_a_type() {
        for (line, kind) in [
            (r#"{"type":"system","subtype":"init"}"#, Some("system")),
            (r#" {"a":1,"type":"result"}"#, Some("result")),
            (r#"{"type":7}"#, None),
            (r#"{"kind":"x"}"#, None),
            (r#"["type"]"#, None),
            (r#"{"type":"a"} trailing"#, None),
            ("garbage", None),
            ("", None),
        ] {
            let read = parse(line).map(|(kind, _)| kind);
            assert_eq!(read.as_deref(), kind, "{line}");
        }
    }

    #[test]
    fn members_stay_verbatim() {
        let fields = Fields::of(r#"{"b":1.0,"a":[1e2,"x"],"n":null,"t":"\u00e4"}"#);
        assert_eq!(fields.raw("b"), Some("1.0"));
        assert_eq!(fields.raw("n"), None);
        assert_eq!(fields.text("t").as_deref(), Some("ä"));
        assert_eq!(fields.list("a"), ["1e2", "\"x\""]);
        assert!(Fields::of("[]").raw("b").is_none());
    }
}
