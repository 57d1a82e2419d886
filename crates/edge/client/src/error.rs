//! The error of every call.

use std::collections::BTreeMap;
use std::fmt;

use tonic::Status;
use tonic_types::StatusExt as _;

/// The class of an error, as gRPC numbers them.
pub use tonic::Code;

/// The reason of an error that no server gave: nobody was reached, or the connection broke.
pub const UNREACHABLE: &str = "UNREACHABLE";

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The class.
    pub code: Code,
    /// The stable reason, as `SESSION_NOT_FOUND`; [`UNREACHABLE`] when no server answered, empty when a server
    /// answered without a reason.
    pub reason: String,
    /// A text for people.
    pub message: String,
    /// Whether the same call may succeed later without a change. A mutating call is repeated safely with its key.
    pub retryable: bool,
    /// Machine-readable details, as `field`.
    pub metadata: BTreeMap<String, String>,
}

impl ClientError {
    /// An error of this client: the request never reached a server.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self {
            code: Code::Unavailable,
            reason: UNREACHABLE.to_owned(),
            message: message.into(),
            retryable: true,
            metadata: BTreeMap::new(),
        }
    }

    /// An error of this client: it was asked for something impossible.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: Code::InvalidArgument,
            reason: String::new(),
            message: message.into(),
            retryable: false,
            metadata: BTreeMap::new(),
        }
    }

    /// Whether no server was reached, or the connection broke before it answered.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.reason == UNREACHABLE
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for ClientError {}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        if let Some(info) = details.error_info() {
            return Self {
                code: status.code(),
                reason: info.reason.clone(),
                message: status.message().to_owned(),
                retryable: details.retry_info().is_some(),
                metadata: info.metadata.clone().into_iter().collect(),
            };
        }
        // The transport makes a status without details; a server of ours never does, but for unknown methods.
        if matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
        ) {
            return Self::unreachable(cause(&status));
        }
        Self {
            code: status.code(),
            reason: String::new(),
            message: status.message().to_owned(),
            retryable: false,
            metadata: BTreeMap::new(),
        }
    }
}

/// The innermost cause says what happened; the outer ones only that something did.
fn cause(status: &Status) -> String {
    let mut innermost = None;
    let mut next = std::error::Error::source(status);
    while let Some(error) = next {
        innermost = Some(error.to_string());
        next = error.source();
    }
    match innermost {
        Some(cause) => format!("the server is not reached: {cause}"),
        None => format!("the server is not reached: {}", status.message()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_servers_status_becomes_reason_and_details() {
        let metadata = HashMap::from([("field".to_owned(), "spec.name".to_owned())]);
        let mut details = ErrorDetails::with_error_info("DRAINING", "astrabox.dev", metadata);
        details.set_retry_info(Some(Duration::from_secs(1)));
        let error = ClientError::from(Status::with_error_details(
            Code::Unavailable,
            "later",
            details,
        ));
        assert_eq!(
            (error.code, error.reason.as_str(), error.retryable),
            (Code::Unavailable, "DRAINING", true)
        );
        assert_eq!(error.metadata["field"], "spec.name");
        assert_eq!(error.to_string(), "later (DRAINING)");
        assert!(!error.is_unreachable());
    }

    #[test]
    fn a_broken_connection_is_told_from_an_answer() {
        assert!(ClientError::from(Status::unavailable("tcp connect error")).is_unreachable());
        assert!(ClientError::from(Status::unknown("transport error")).is_unreachable());
        let answer = ClientError::from(Status::unimplemented("this server has no such method"));
        assert!(!answer.is_unreachable());
        assert!(!answer.retryable);
    }
}
