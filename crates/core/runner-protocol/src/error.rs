//! One error for both sides, and its one mapping to a gRPC status and back.

use astrabox_types::{SeamError, SeamErrorKind};
use bytes::Bytes;
use prost::Message as _;
use tonic::{Code, Status};

use crate::wire::{ErrorDetail, ErrorReason};

/// What went wrong in a call to a runner.
pub type RunnerError = SeamError<RunnerErrorKind>;

/// Why a call to a runner failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunnerErrorKind {
    /// A field is missing, out of bounds, or an unknown enum value.
    InvalidArgument,
    /// No process of that name, or no such file.
    NotFound,
    /// The name belongs to a process that another request spawned.
    NameTaken,
    /// The file is there and the call demanded that it is not.
    FileExists,
    /// The offset lies below what was freed.
    OffsetFreed {
        /// The lowest offset that exists.
        lowest: u64,
        /// The offset of the next byte.
        next: u64,
    },
    /// The offset lies above what exists.
    OffsetAhead {
        /// The lowest offset that exists.
        lowest: u64,
        /// The offset of the next byte.
        next: u64,
    },
    /// Other bytes were accepted at this stdin offset.
    StdinConflict,
    /// Stdin is closed, was not asked for, or its reader has gone.
    StdinClosed,
    /// The process has ended.
    ProcessEnded,
    /// The process is still running.
    ProcessRunning,
    /// The program could not be started.
    SpawnFailed {
        /// Why, as an errno.
        errno: i32,
    },
    /// The box has no processes any more and will never have one again.
    BoxGone,
    /// The box is frozen.
    BoxFrozen,
    /// The box takes no requests at the moment.
    BoxBusy,
    /// Runner and caller have no protocol version in common.
    VersionMismatch,
    /// The file is of another kind than the call needs, or a directory is not empty.
    WrongFileKind,
    /// The path leads outside what the call may touch, or the box's user has no right to it.
    PathDenied,
    /// No room on the volume.
    DiskFull,
    /// Too many processes on record.
    TooManyProcesses,
    /// This box cannot do that.
    Unsupported,
    /// The kernel refused something that should have worked.
    Internal,
    /// The runner could not be reached, or the connection broke. Says nothing about the sandbox.
    Unavailable,
    /// The deadline passed. The call may have taken effect; it can be repeated.
    TimedOut,
    /// The answer is not one that this version of the protocol has.
    Protocol,
}

impl SeamErrorKind for RunnerErrorKind {
    const SEAM: &'static str = "runner";

    fn phrase(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid argument",
            Self::NotFound => "not found",
            Self::NameTaken => "name taken",
            Self::FileExists => "file exists",
            Self::OffsetFreed { .. } => "offset freed",
            Self::OffsetAhead { .. } => "offset ahead",
            Self::StdinConflict => "stdin conflict",
            Self::StdinClosed => "stdin closed",
            Self::ProcessEnded => "process ended",
            Self::ProcessRunning => "process running",
            Self::SpawnFailed { .. } => "spawn failed",
            Self::BoxGone => "box gone",
            Self::BoxFrozen => "box frozen",
            Self::BoxBusy => "box busy",
            Self::VersionMismatch => "version mismatch",
            Self::WrongFileKind => "wrong kind of file",
            Self::PathDenied => "path denied",
            Self::DiskFull => "disk full",
            Self::TooManyProcesses => "too many processes",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed out",
            Self::Protocol => "protocol violation",
        }
    }

    fn retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::TimedOut | Self::BoxBusy)
    }
}

/// The status that tells `error` to the other side.
#[must_use]
pub fn to_status(error: &RunnerError) -> Status {
    use ErrorReason as Reason;
    use RunnerErrorKind as Kind;
    let mut detail = ErrorDetail::default();
    let (code, reason) = match error.kind() {
        Kind::InvalidArgument => (Code::InvalidArgument, Reason::InvalidArgument),
        Kind::NotFound => (Code::NotFound, Reason::NotFound),
        Kind::NameTaken => (Code::AlreadyExists, Reason::NameTaken),
        Kind::FileExists => (Code::AlreadyExists, Reason::FileExists),
        Kind::OffsetFreed { lowest, next } => {
            (detail.lowest_offset, detail.next_offset) = (lowest, next);
            (Code::OutOfRange, Reason::OffsetFreed)
        }
        Kind::OffsetAhead { lowest, next } => {
            (detail.lowest_offset, detail.next_offset) = (lowest, next);
            (Code::OutOfRange, Reason::OffsetAhead)
        }
        Kind::StdinConflict => (Code::Aborted, Reason::StdinConflict),
        Kind::StdinClosed => (Code::FailedPrecondition, Reason::StdinClosed),
        Kind::ProcessEnded => (Code::FailedPrecondition, Reason::ProcessEnded),
        Kind::ProcessRunning => (Code::FailedPrecondition, Reason::ProcessRunning),
        Kind::SpawnFailed { errno } => {
            detail.errno = errno;
            (Code::FailedPrecondition, Reason::SpawnFailed)
        }
        Kind::BoxGone => (Code::FailedPrecondition, Reason::BoxGone),
        Kind::BoxFrozen => (Code::FailedPrecondition, Reason::BoxFrozen),
        Kind::BoxBusy => (Code::Unavailable, Reason::BoxBusy),
        Kind::VersionMismatch => (Code::FailedPrecondition, Reason::VersionMismatch),
        Kind::WrongFileKind => (Code::FailedPrecondition, Reason::WrongFileKind),
        Kind::PathDenied => (Code::PermissionDenied, Reason::PathDenied),
        Kind::DiskFull => (Code::ResourceExhausted, Reason::DiskFull),
        Kind::TooManyProcesses => (Code::ResourceExhausted, Reason::TooManyProcesses),
        Kind::Unsupported => (Code::Unimplemented, Reason::Unsupported),
        Kind::Internal | Kind::Unavailable | Kind::TimedOut | Kind::Protocol => {
            (Code::Internal, Reason::Internal)
        }
    };
    detail.reason = reason.into();
    Status::with_details(code, error.context(), Bytes::from(detail.encode_to_vec()))
}

/// The error that the other side told, in an answer to `operation`.
#[must_use]
pub fn from_status(operation: &'static str, status: &Status) -> RunnerError {
    let kind = match ErrorDetail::decode(status.details()) {
        Ok(detail) if detail.reason != 0 => kind_of(&detail),
        // No detail: the answer comes from the transport, not from the runner.
        _ => match status.code() {
            Code::DeadlineExceeded => RunnerErrorKind::TimedOut,
            Code::Unavailable | Code::Cancelled | Code::Unknown => RunnerErrorKind::Unavailable,
            _ => RunnerErrorKind::Protocol,
        },
    };
    RunnerError::new(kind, operation, status.message())
}

fn kind_of(detail: &ErrorDetail) -> RunnerErrorKind {
    use ErrorReason as Reason;
    use RunnerErrorKind as Kind;
    let (lowest, next) = (detail.lowest_offset, detail.next_offset);
    match Reason::try_from(detail.reason) {
        Ok(Reason::InvalidArgument) => Kind::InvalidArgument,
        Ok(Reason::NotFound) => Kind::NotFound,
        Ok(Reason::NameTaken) => Kind::NameTaken,
        Ok(Reason::FileExists) => Kind::FileExists,
        Ok(Reason::OffsetFreed) => Kind::OffsetFreed { lowest, next },
        Ok(Reason::OffsetAhead) => Kind::OffsetAhead { lowest, next },
        Ok(Reason::StdinConflict) => Kind::StdinConflict,
        Ok(Reason::StdinClosed) => Kind::StdinClosed,
        Ok(Reason::ProcessEnded) => Kind::ProcessEnded,
        Ok(Reason::ProcessRunning) => Kind::ProcessRunning,
        Ok(Reason::SpawnFailed) => Kind::SpawnFailed {
            errno: detail.errno,
        },
        Ok(Reason::BoxGone) => Kind::BoxGone,
        Ok(Reason::BoxFrozen) => Kind::BoxFrozen,
        Ok(Reason::BoxBusy) => Kind::BoxBusy,
        Ok(Reason::VersionMismatch) => Kind::VersionMismatch,
        Ok(Reason::WrongFileKind) => Kind::WrongFileKind,
        Ok(Reason::PathDenied) => Kind::PathDenied,
        Ok(Reason::DiskFull) => Kind::DiskFull,
        Ok(Reason::TooManyProcesses) => Kind::TooManyProcesses,
        Ok(Reason::Unsupported) => Kind::Unsupported,
        Ok(Reason::Internal) => Kind::Internal,
        Ok(Reason::Unspecified) | Err(_) => Kind::Protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        let mut number = 1;
        while let Ok(reason) = ErrorReason::try_from(number) {
            let kind = kind_of(&ErrorDetail {
                reason: number,
                lowest_offset: 3,
                next_offset: 9,
                errno: 2,
            });
            let error = RunnerError::new(kind, "attach", "engine");
            let back = from_status("attach", &to_status(&error));
            assert_eq!(back.kind(), kind, "{reason:?}");
            assert_eq!(back.context(), "engine");
            number += 1;
        }
        assert!(number > 20, "the loop has seen every reason");
    }

    #[test]
    fn a_status_without_detail_is_the_transport_speaking() {
        for (code, kind, retryable) in [
            (Code::Unavailable, RunnerErrorKind::Unavailable, true),
            (Code::Cancelled, RunnerErrorKind::Unavailable, true),
            (Code::DeadlineExceeded, RunnerErrorKind::TimedOut, true),
            (Code::Unimplemented, RunnerErrorKind::Protocol, false),
        ] {
            let error = from_status("status", &Status::new(code, "x"));
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable));
        }
    }

    #[test]
    fn an_unknown_reason_is_refused_not_guessed() {
        let detail = ErrorDetail {
            reason: 10_000,
            ..Default::default()
        };
        let status = Status::with_details(Code::NotFound, "x", detail.encode_to_vec().into());
        assert_eq!(
            from_status("status", &status).kind(),
            RunnerErrorKind::Protocol
        );
    }
}
