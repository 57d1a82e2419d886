//! Lines to JSON-RPC messages, and a view on objects whose values stay verbatim.

use std::borrow::Cow;
use std::collections::BTreeMap;

use astrabox_types::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

/// "Method not found" of JSON-RPC 2.0.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// One message of the program. Codex leaves the `jsonrpc` member out.
pub(super) enum Message<'a> {
    /// It wants an answer.
    Request {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: &'a str,
    },
    /// It tells something.
    Notification {
        method: Cow<'a, str>,
        params: &'a str,
    },
    /// It answers our request.
    Response {
        id: String,
        result: Result<&'a str, RpcError>,
    },
}

/// An error that the program answers.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RpcError {
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// Reads a line; `None` when it is no message.
pub(super) fn parse(line: &str) -> Option<Message<'_>> {
    // serde takes an array for an object, member by member.
    let object = line.trim_start().starts_with('{').then_some(line)?;
    let line: Line<'_> = serde_json::from_str(object).ok()?;
    let params = line.params.map_or("null", RawValue::get);
    match (line.method, line.id) {
        (Some(method), Some(id)) => Some(Message::Request { id, method, params }),
        (Some(method), None) => Some(Message::Notification { method, params }),
        (None, Some(id)) => {
            let result = match line.error {
                Some(error) => Err(error),
                None => Ok(line.result.map_or("null", RawValue::get)),
            };
            let id = plain(id.get()).to_owned();
            Some(Message::Response { id, result })
        }
        (None, None) => None,
    }
}

/// An id without the quotes that a text has.
pub(super) fn plain(id: &str) -> &str {
    id.trim_matches('"')
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

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }

    pub(super) fn json(&self, key: &str) -> Option<Json> {
        Json::parse(self.raw(key)?).ok()
    }

    /// An object of these members, as far as they are there.
    pub(super) fn pick(&self, keys: &[&str]) -> Json {
        let picked: BTreeMap<&str, &RawValue> = keys
            .iter()
            .filter_map(|key| Some((*key, *self.0.get(*key)?)))
            .filter(|(_, value)| value.get() != "null")
            .collect();
        Json::of(&picked).expect("verbatim JSON under text keys is JSON")
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
    fn a_line_is_a_request_a_notification_an_answer_or_nothing() {
        let told = |line: &str| match parse(line) {
            None => "nothing".to_owned(),
            Some(Message::Request { id, method, params }) => {
                format!("request {} {method} {params}", id.get())
            }
            Some(Message::Notification { method, params }) => format!("tell {method} {params}"),
            Some(Message::Response { id, result: Ok(it) }) => format!("answer {id} {it}"),
            Some(Message::Response {
                id,
                result: Err(it),
            }) => format!("error {id} {}", it.message),
        };
        for (line, expected) in [
            (
                r#"{"method":"a/b","id":0,"params":{"x":1.0}}"#,
                r#"request 0 a/b {"x":1.0}"#,
            ),
            (r#"{"id":"q","method":"a"}"#, r#"request "q" a null"#),
            (r#"{"method":"a\u002fb","params":[]}"#, "tell a/b []"),
            (r#"{"id":"1-2","result":{"a":1}}"#, r#"answer 1-2 {"a":1}"#),
            (r#"{"id":7,"result":null}"#, "answer 7 null"),
            (
                r#"{"error":{"code":-3,"message":"no"},"id":"1-2"}"#,
                "error 1-2 no",
            ),
            (r#"{"id":"1-2","error":{}}"#, "error 1-2 "),
            (r#"{"params":{}}"#, "nothing"),
            ("", "nothing"),
            ("[1]", "nothing"),
            ("7", "nothing"),
            ("garbage", "nothing"),
            (r#"{"method":5}"#, "nothing"),
            (r#"{"method":"a"} trailing"#, "nothing"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }

    #[test]
    fn members_stay_verbatim() {
        let fields = Fields::of(r#"{"b":1.0,"a":[1e2,"x"],"n":null,"t":"\u00e4"}"#);
        assert_eq!(fields.raw("b"), Some("1.0"));
        assert_eq!(fields.raw("n"), None);
        assert_eq!(fields.text("t").as_deref(), Some("ä"));
        assert_eq!(fields.list("a"), ["1e2", "\"x\""]);
        assert_eq!(fields.pick(&["n", "b", "gone"]).text(), r#"{"b":1.0}"#);
        assert_eq!(Fields::of("[]").keys().count(), 0);
    }
}
