//! What the endpoint was asked, with secrets replaced by their hash.

use std::fmt;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::conversation::{Conversation, Wire};
use super::ids::hex;

/// Headers whose value is a secret.
const SECRET_HEADERS: [&str; 5] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "cookie",
];

/// One request.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Recorded {
    /// Place in the order of arrival, from 0.
    pub number: usize,
    /// When it had arrived whole.
    pub at: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header names in lower case and values; the value of a secret one is `[redacted]`.
    pub headers: Vec<(String, String)>,
    /// The hash of the credential that came along (`authorization` without its scheme, else
    /// `x-api-key` or `api-key`).
    pub credential: Option<CredentialHash>,
    /// The API, if an answer of the model was asked for; none for lists, counts and the rest.
    pub wire: Option<Wire>,
    /// The body; null if there was none, a string if it was not JSON.
    pub body: Value,
    /// The same in common terms, if the body could be read as a model request.
    #[serde(skip)]
    pub conversation: Option<Conversation>,
}

impl Recorded {
    /// The first value of a header, by lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether exactly this credential came along.
    pub fn presented(&self, credential: &str) -> bool {
        self.credential == Some(CredentialHash::of(credential))
    }

    /// What the user said last; empty for anything but a model request.
    pub fn prompt(&self) -> &str {
        self.conversation
            .as_ref()
            .map(Conversation::prompt)
            .unwrap_or_default()
    }
}

/// SHA-256 of a credential: can be compared, cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialHash([u8; 32]);

impl CredentialHash {
    /// The hash of a credential.
    pub fn of(credential: &str) -> Self {
        Self(Sha256::digest(credential).into())
    }
}

impl fmt::Display for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for CredentialHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Header names and values as they may be shown.
pub(crate) fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = if SECRET_HEADERS.contains(&name.as_str()) {
                "[redacted]".into()
            } else {
                String::from_utf8_lossy(value.as_bytes())
            };
            (name.to_string(), value.into_owned())
        })
        .collect()
}

/// The credential of a request.
pub(crate) fn credential(headers: &HeaderMap) -> Option<CredentialHash> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let token = match text(AUTHORIZATION.as_str()) {
        Some(value) => value.split_once(' ').map_or(value, |(_, token)| token),
        None => text("x-api-key").or_else(|| text("api-key"))?,
    };
    Some(CredentialHash::of(token.trim()))
}
