//! Errors of runners and of the host, in the seam's words.

use astrabox_runner_protocol::launch::{Failure, FailureKind};
use astrabox_runner_protocol::{RunnerError, RunnerErrorKind};
use astrabox_sandbox::{Error, ErrorKind};

/// An input or output error of the host. Its text has no path: the path is in the log.
pub(crate) fn host(operation: &'static str, what: &str, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            ErrorKind::NoCapacity
        }
        std::io::ErrorKind::PermissionDenied => ErrorKind::Refused,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, operation, format!("{what}: {}", error.kind())).with_source(error)
}

/// A failure that the runner program reported.
pub(crate) fn failure(operation: &'static str, failure: Failure) -> Error {
    let kind = match failure.kind {
        FailureKind::InvalidSpec => ErrorKind::Invalid,
        FailureKind::NotFound => ErrorKind::NotFound,
        FailureKind::Busy => ErrorKind::WrongState,
        FailureKind::Unsupported => ErrorKind::Refused,
        FailureKind::Exhausted => ErrorKind::NoCapacity,
        FailureKind::Internal => ErrorKind::Internal,
    };
    Error::new(kind, operation, failure.message)
}

/// An error of a call to a runner.
pub(crate) fn runner(operation: &'static str, error: RunnerError) -> Error {
    use RunnerErrorKind as Kind;
    let kind = match error.kind() {
        Kind::InvalidArgument | Kind::PathDenied | Kind::WrongFileKind => ErrorKind::Invalid,
        Kind::NotFound => ErrorKind::NotFound,
        Kind::NameTaken | Kind::FileExists | Kind::StdinConflict => ErrorKind::AlreadyExists,
        Kind::OffsetFreed { .. } | Kind::OffsetAhead { .. } => ErrorKind::OutOfRange,
        Kind::StdinClosed
        | Kind::ProcessEnded
        | Kind::ProcessRunning
        | Kind::BoxFrozen
        | Kind::BoxBusy => ErrorKind::WrongState,
        Kind::BoxGone => ErrorKind::NotFound,
        Kind::SpawnFailed { .. } => ErrorKind::Invalid,
        Kind::DiskFull | Kind::TooManyProcesses => ErrorKind::NoCapacity,
        Kind::Unsupported => ErrorKind::Unsupported,
        Kind::Unavailable => ErrorKind::Detached,
        Kind::TimedOut => ErrorKind::DeadlineExceeded,
        // A kind of a newer protocol is no better known than these.
        _ => ErrorKind::Internal,
    };
    Error::new(kind, operation, error.context())
        .with_retryable(error.is_retryable())
        .with_source(error)
}

/// A call on a sandbox that is gone.
pub(crate) fn gone(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        operation,
        "no sandbox of this id runs here",
    )
}
