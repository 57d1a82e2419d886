//! Lines to JSON-RPC messages, and a view on objects whose values stay verbatim.

use std::borrow::Cow;
use std::collections::BTreeMap;

use astrabox_types::Json;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// "Method not found" of JSON-RPC 2.0.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// "Invalid request" of JSON-RPC 2.0.
pub const INVALID_REQUEST: i64 = -32600;
/// "Invalid params" of JSON-RPC 2.0.
pub const INVALID_PARAMS: i64 = -32602;
/// "Internal error" of JSON-RPC 2.0.
pub const INTERNAL_ERROR: i64 = -32603;
/// "Request cancelled" of ACP.
pub const REQUEST_CANCELLED: i64 = -32800;
/// "Authentication required" of ACP.
pub const AUTH_REQUIRED: i64 = -32000;
/// "Resource not found" of ACP.
pub const RESOURCE_NOT_FOUND: i64 = -32002;

/// One message of the program.
#[derive(Debug)]
pub enum Message<'a> {
    /// It wants an answer.
    Request {
        /// Its id of the request, verbatim.
        id: &'a str,
        /// What it wants.
        method: Cow<'a, str>,
        /// With what, verbatim.
        params: &'a str,
    },
    /// It tells something.
    Notification {
        /// What kind of thing.
        method: Cow<'a, str>,
        /// What, verbatim.
        params: &'a str,
    },
    /// It answers our request.
    Response {
        /// Our id of the request.
        id: String,
        /// The result, verbatim, or the error.
        result: Answer<'a>,
    },
}

/// What the program answers: a result, verbatim, or an error.
pub type Answer<'a> = Result<&'a str, RpcError>;

/// An error that the program answers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct RpcError {
    /// Its class.
    #[serde(default)]
    pub code: i64,
    /// What went wrong.
    #[serde(default)]
    pub message: String,
    /// More about it.
    #[serde(default)]
    pub data: Option<Json>,
}

impl RpcError {
    /// An error that we make up, as for an answer that cannot be read.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: INTERNAL_ERROR,
            message: message.into(),
            data: None,
        }
    }

    /// The message, with what `data` says in words. Programs write `Internal error` and the cause into `data`.
    #[must_use]
    pub fn text(&self) -> String {
        let data = self.data.as_ref().map(Json::text).unwrap_or_default();
        let fields = Fields::of(data);
        let more = ["details", "message", "error"]
            .iter()
            .find_map(|key| fields.text(key))
            .or_else(|| serde_json::from_str(data).ok());
        match more.filter(|more: &String| !more.is_empty() && !self.message.contains(more)) {
            Some(more) => format!("{}: {more}", self.message),
            None => self.message.clone(),
        }
    }
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
#[must_use]
pub fn parse(line: &str) -> Option<Message<'_>> {
    // serde takes an array for an object, member by member.
    let object = line.trim_start().starts_with('{').then_some(line)?;
    let line: Line<'_> = serde_json::from_str(object).ok()?;
    let params = line.params.map_or("null", RawValue::get);
    match (line.method, line.id.map(RawValue::get)) {
        (Some(method), Some(id)) => Some(Message::Request { id, method, params }),
        (Some(method), None) => Some(Message::Notification { method, params }),
        (None, Some(id)) => {
            let result = match line.error {
                Some(error) => Err(error),
                None => Ok(line.result.map_or("null", RawValue::get)),
            };
            let id = plain(id).to_owned();
            Some(Message::Response { id, result })
        }
        (None, None) => None,
    }
}

/// An id without the quotes that a text has.
#[must_use]
pub fn plain(id: &str) -> &str {
    id.trim_matches('"')
}

/// The line of a request.
#[must_use]
pub fn request(id: &str, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// The line of a notification.
#[must_use]
pub fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// The line of an answer. `id` is the program's, verbatim.
#[must_use]
pub fn answer(id: &str, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The line of an error. `id` is the program's, verbatim.
#[must_use]
pub fn error(id: &str, code: i64, message: &str) -> String {
    let error = json!({"code": code, "message": message});
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// The members of an object, each verbatim. A value that is no object has none.
#[derive(Debug, Default)]
pub struct Fields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Fields<'a> {
    /// The members of the object that this text is.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// A member that is there and not null.
    #[must_use]
    pub fn raw(&self, key: &str) -> Option<&'a str> {
        let value = self.0.get(key)?.get();
        (value != "null").then_some(value)
    }

    /// Whether there is such a member, be it null.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// A text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    /// A whole number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    /// Yes or no.
    #[must_use]
    pub fn flag(&self, key: &str) -> Option<bool> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    /// The members of an inner object.
    #[must_use]
    pub fn fields(&self, key: &str) -> Fields<'a> {
        self.raw(key).map(Fields::of).unwrap_or_default()
    }

    /// The elements of an array.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<&'a str> {
        let list: Vec<&'a RawValue> = self
            .raw(key)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        list.into_iter().map(RawValue::get).collect()
    }

    /// The texts of an array of texts.
    #[must_use]
    pub fn texts(&self, key: &str) -> Vec<String> {
        self.raw(key)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// A member as it stands.
    #[must_use]
    pub fn json(&self, key: &str) -> Option<Json> {
        Json::parse(self.raw(key)?).ok()
    }

    /// An object of these members, as far as they are there.
    #[must_use]
    pub fn pick(&self, keys: &[&str]) -> Json {
        let picked: BTreeMap<&str, &RawValue> = keys
            .iter()
            .filter_map(|key| Some((*key, *self.0.get(*key)?)))
            .filter(|(_, value)| value.get() != "null")
            .collect();
        Json::of(&picked).expect("verbatim JSON under text keys is JSON")
    }
}

/// A text as JSON.
#[must_use]
pub fn json_text(text: &str) -> Json {
    Json::from(Value::from(text))
}

/// JSON text as it came in; a text when it is not JSON after all.
#[must_use]
pub fn verbatim(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| json_text(text))
}

/// An object as a map of its members.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_a_notification_an_answer_or_nothing() {
        let told = |line: &str| match parse(line) {
            None => "nothing".to_owned(),
            Some(Message::Request { id, method, params }) => {
                format!("request {id} {method} {params}")
            }
            Some(Message::Notification { method, params }) => format!("tell {method} {params}"),
            Some(Message::Response { id, result: Ok(it) }) => format!("answer {id} {it}"),
            Some(Message::Response {
                id,
                result: Err(it),
            }) => format!("error {id} {} {}", it.code, it.text()),
        };
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","method":"a/b","id":0,"params":{"x":1.0}}"#,
                r#"request 0 a/b {"x":1.0}"#,
            ),
            (r#"{"id":"q","method":"a"}"#, r#"request "q" a null"#),
            (r#"{"method":"a\u002fb","params":[]}"#, "tell a/b []"),
            (r#"{"id":"1-2","result":{"a":1}}"#, r#"answer 1-2 {"a":1}"#),
            (r#"{"id":7,"result":null}"#, "answer 7 null"),
            (
                r#"{"error":{"code":-3,"message":"no"},"id":"1-2"}"#,
                "error 1-2 -3 no",
            ),
            (
                r#"{"id":1,"error":{"code":-32603,"message":"Internal error","data":{"details":"why"}}}"#,
                "error 1 -32603 Internal error: why",
            ),
            (
                r#"{"id":1,"error":{"code":1,"message":"x","data":"why"}}"#,
                "error 1 1 x: why",
            ),
            (
                r#"{"id":1,"error":{"code":1,"message":"x: why","data":{"message":"why"}}}"#,
                "error 1 1 x: why",
            ),
            (r#"{"id":"1-2","error":{}}"#, "error 1-2 0 "),
            (r#"{"params":{}}"#, "nothing"),
            ("", "nothing"),
            ("[1]", "nothing"),
            ("garbage", "nothing"),
            (r#"{"method":5}"#, "nothing"),
            (r#"{"method":"a"} trailing"#, "nothing"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }

    #[test]
    fn an_answer_has_the_id_as_the_program_wrote_it() {
        let line = answer("0", &json!({"a": 1}));
        assert_eq!(line, r#"{"jsonrpc":"2.0","id":0,"result":{"a":1}}"#);
        let line = error(r#""x""#, METHOD_NOT_FOUND, "no");
        assert_eq!(
            line,
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no"}}"#
        );
    }

    #[test]
    fn members_stay_verbatim() {
        let fields = Fields::of(r#"{"b":1.0,"a":[1e2,"x"],"n":null,"t":"\u00e4"}"#);
        assert_eq!(fields.raw("b"), Some("1.0"));
        assert_eq!(fields.raw("n"), None);
        assert!(fields.has("n") && !fields.has("z"));
        assert_eq!(fields.text("t").as_deref(), Some("ä"));
        assert_eq!(fields.list("a"), ["1e2", "\"x\""]);
        assert_eq!(fields.pick(&["n", "b", "gone"]).text(), r#"{"b":1.0}"#);
        assert!(Fields::of("[]").raw("b").is_none());
    }
}
