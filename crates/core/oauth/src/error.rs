//! Why there is no new token.

/// What class of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The authorisation server says no: the refresh token or the client is not good any more.
    Refused,
    /// The endpoint is one that this operator does not let through.
    Forbidden,
    /// The answer is none that RFC 6749 has.
    Invalid,
    /// The endpoint does not answer now.
    Unavailable,
}

/// Why there is no new token. The text has no token, no secret, and nothing that the endpoint wrote but an error code.
#[derive(Debug, thiserror::Error)]
#[error("the access token is not refreshed: {what}")]
pub struct Error {
    kind: ErrorKind,
    what: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
        }
    }

    pub(crate) fn caused(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The class.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
