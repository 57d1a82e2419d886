//! The seam's error.

use astrabox_types::{SeamError, SeamErrorKind};

/// What went wrong at the sandbox seam.
pub type Error = SeamError<ErrorKind>;

/// A result of the sandbox seam.
pub type Result<T> = std::result::Result<T, Error>;

/// Classes of failure, to branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The sandbox, process or file does not exist (proven).
    NotFound,
    /// It exists already, with other content.
    AlreadyExists,
    /// More than one sandbox carries the assignment.
    AssignmentAmbiguous,
    /// The request is wrong in itself.
    Invalid,
    /// The provider does not have this operation.
    Unsupported,
    /// The image is not there.
    ImageMissing,
    /// The state of the sandbox does not allow it.
    WrongState,
    /// An offset below what is kept, or with a gap.
    OutOfRange,
    /// The machine or service has no room.
    NoCapacity,
    /// The connection is lost; the sandbox may live.
    Detached,
    /// It took too long; whether it happened is not known.
    DeadlineExceeded,
    /// The host or service refuses.
    Refused,
    /// Everything else.
    Internal,
}

impl SeamErrorKind for ErrorKind {
    const SEAM: &'static str = "sandbox";

    fn phrase(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::AssignmentAmbiguous => "more than one sandbox has this assignment",
            Self::Invalid => "invalid request",
            Self::Unsupported => "not supported by this provider",
            Self::ImageMissing => "image missing",
            Self::WrongState => "wrong state",
            Self::OutOfRange => "offset out of range",
            Self::NoCapacity => "no capacity",
            Self::Detached => "connection lost",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Refused => "refused",
            Self::Internal => "failed",
        }
    }

    fn retryable(self) -> bool {
        matches!(
            self,
            Self::NoCapacity | Self::Detached | Self::DeadlineExceeded
        )
    }
}
