//! Why a request is refused because of a placeholder in it.

use std::fmt;

use crate::{Doubt, InvalidTarget};

/// A placeholder, or what looks like one, that must not go where the request would take it. The request is not
/// forwarded, with the placeholder neither (EG13).
///
/// Holds ids and reasons, never a value and nothing that the request says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// Where it stood.
    pub place: Place,
    /// The credential, when the placeholder is one of this workload.
    pub credential_id: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.credential_id {
            Some(id) => write!(
                f,
                "the placeholder of {id} in {}: {}",
                self.place, self.reason
            ),
            None => write!(f, "a placeholder in {}: {}", self.place, self.reason),
        }
    }
}

/// Where in a request a placeholder stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The method.
    Method,
    /// The path or the query.
    Target,
    /// The name of a header or trailer.
    HeaderName,
    /// The value of a header.
    Header,
    /// The value of a trailer.
    Trailer,
    /// The body.
    Body,
    /// A text message of a WebSocket.
    Message,
    /// A binary message of a WebSocket.
    BinaryMessage,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the method",
            Self::Target => "the path or query",
            Self::HeaderName => "a header's name",
            Self::Header => "a header",
            Self::Trailer => "a trailer",
            Self::Body => "the body",
            Self::Message => "a WebSocket message",
            Self::BinaryMessage => "a binary WebSocket message",
        })
    }
}

/// Why a placeholder is refused; the code is stable and goes into the answer and the audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefusalReason {
    /// It is none of this workload's: stolen, stale or made up.
    #[error("this sandbox has no such credential; a placeholder is of use in its own sandbox only")]
    Unknown,
    /// The marker in an escaped form, which is never put in place.
    #[error("it is escaped; send it as it is")]
    Encoded,
    /// The credential may not go to this host and port.
    #[error("the credential may not go to this host and port; its owner names where it may go")]
    Destination,
    /// The credential may not go over plain HTTP.
    #[error("the credential may not go over plain HTTP; use https")]
    Cleartext,
    /// The credential may not go with this method, or a header asks the server for another one.
    #[error("the credential may not go with this method; its owner names the methods")]
    Method,
    /// The credential may not go to this path.
    #[error("the credential may not go to this path; its owner names the paths")]
    Path,
    /// The target has more than one reading.
    #[error("{0}")]
    Target(InvalidTarget),
    /// The credential has a rule about paths, and servers disagree about the segments of this one.
    #[error("{0}, and the credential may go to certain paths only")]
    Doubt(Doubt),
    /// The credential may not stand in this place.
    #[error("the credential may not stand there; its owner names the places")]
    Place,
    /// More than one credential could be meant.
    #[error("more than one credential could be meant; give them rules that exclude each other")]
    Ambiguous,
    /// There is no value at the moment.
    #[error("the credential has no value at the moment; it may be archived or expired")]
    Unavailable,
    /// The value holds a control character.
    #[error("the credential's value cannot be sent; store it again without control characters")]
    Unsafe,
    /// A credential may stand in the body, which is compressed.
    #[error("the body is compressed and a credential may stand in it; send it uncompressed")]
    ContentEncoding,
}

impl RefusalReason {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unknown => "credential_unknown",
            Self::Encoded => "credential_encoded",
            Self::Destination => "credential_destination",
            Self::Cleartext => "credential_cleartext",
            Self::Method => "credential_method",
            Self::Path => "credential_path",
            Self::Target(_) | Self::Doubt(_) => "credential_target",
            Self::Place => "credential_place",
            Self::Ambiguous => "credential_ambiguous",
            Self::Unavailable => "credential_unavailable",
            Self::Unsafe => "credential_unsafe",
            Self::ContentEncoding => "credential_content_encoding",
        }
    }
}
