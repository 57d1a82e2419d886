//! The seam's error.

use astrabox_types::{SeamError, SeamErrorKind};

/// What went wrong at the engine seam.
pub type Error = SeamError<ErrorKind>;

/// A result of the engine seam.
pub type Result<T> = std::result::Result<T, Error>;

/// Classes of failure, to branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The agent's configuration is not what this engine takes.
    InvalidConfiguration,
    /// The engine does not have this power.
    Unsupported,
    /// The program did not start.
    StartFailed,
    /// The program ended while it was needed.
    Exited,
    /// The program did not keep its protocol.
    Protocol,
    /// The native conversation is not there or is another one.
    ConversationLost,
    /// The connection to the sandbox is lost; the program may live (EN10).
    Detached,
    /// The program did not answer in time.
    DeadlineExceeded,
    /// No open interaction has this native id, or the answer does not fit it.
    InvalidAnswer,
}

impl SeamErrorKind for ErrorKind {
    const SEAM: &'static str = "engine";

    fn phrase(self) -> &'static str {
        match self {
            Self::InvalidConfiguration => "invalid configuration",
            Self::Unsupported => "not supported by this engine",
            Self::StartFailed => "the program did not start",
            Self::Exited => "the program ended",
            Self::Protocol => "the program did not keep its protocol",
            Self::ConversationLost => "the native conversation is lost",
            Self::Detached => "connection lost",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::InvalidAnswer => "invalid answer",
        }
    }

    fn retryable(self) -> bool {
        matches!(
            self,
            Self::Detached | Self::DeadlineExceeded | Self::StartFailed
        )
    }
}

/// Tells a sandbox error in the engine's words; for `map_err`.
#[must_use]
pub fn from_sandbox(error: astrabox_sandbox::Error) -> Error {
    let kind = match error.kind() {
        astrabox_sandbox::ErrorKind::Detached => ErrorKind::Detached,
        astrabox_sandbox::ErrorKind::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        astrabox_sandbox::ErrorKind::NotFound => ErrorKind::Exited,
        _ => ErrorKind::StartFailed,
    };
    Error::new(kind, error.operation(), error.to_string()).with_source(error)
}
