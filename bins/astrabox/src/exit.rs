//! How commands end: exit codes, and the line that says why.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use astrabox_client::{ClientError, Code};
use serde_json::json;

/// A failure of the command itself, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The command cannot be meant.
pub(crate) const USAGE: u8 = 2;
/// No server answers.
const UNREACHABLE: u8 = 3;
/// What is named does not exist.
pub(crate) const NOT_FOUND: u8 = 4;
/// The server refuses, or the state does not allow it.
pub(crate) const REFUSED: u8 = 5;
/// The turn failed.
pub(crate) const TURN_FAILED: u8 = 6;
/// The turn or the command was interrupted (128 and the number of SIGINT).
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    /// A failure with this exit code.
    pub(crate) fn with_code(code: u8, message: impl Into<String>) -> anyhow::Error {
        Self {
            code,
            message: message.into(),
        }
        .into()
    }

    /// A command line that cannot be meant.
    pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
        Self::with_code(USAGE, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Says why a command failed, on standard error, and gives its exit code.
pub(crate) fn report(error: &anyhow::Error, as_json: bool) -> ExitCode {
    if error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(is_closed_pipe)
    }) {
        // Who reads our output has seen enough.
        return ExitCode::SUCCESS;
    }
    let code = code_of(error);
    let text = if as_json {
        describe(error, code).to_string()
    } else {
        format!("astrabox: {error:#}")
    };
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}

/// Lets a closed pipe pass.
pub(crate) fn ignore_closed_pipe(error: io::Error) -> io::Result<()> {
    if is_closed_pipe(&error) {
        Ok(())
    } else {
        Err(error)
    }
}

fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return client_code(error);
        }
        if let Some(error) = cause.downcast_ref::<astrabox_images::Error>() {
            return image_code(error);
        }
    }
    FAILED
}

fn client_code(error: &ClientError) -> u8 {
    if error.is_unreachable() {
        return UNREACHABLE;
    }
    match error.code {
        Code::NotFound => NOT_FOUND,
        Code::InvalidArgument
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::Unimplemented
        | Code::OutOfRange
        // A session that needs recovery.
        | Code::DataLoss => REFUSED,
        Code::Ok | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded | Code::Internal | Code::Unavailable => FAILED,
    }
}

fn image_code(error: &astrabox_images::Error) -> u8 {
    match error {
        astrabox_images::Error::Missing { .. } => NOT_FOUND,
        astrabox_images::Error::BadName { .. } => USAGE,
        astrabox_images::Error::InUse { .. } => REFUSED,
        _ => FAILED,
    }
}

fn describe(error: &anyhow::Error, code: u8) -> serde_json::Value {
    let client = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>());
    let mut object = json!({ "message": format!("{error:#}"), "exit_code": code });
    if let Some(client) = client {
        object["message"] = json!(client.message);
        object["code"] = json!(format!("{:?}", client.code));
        object["reason"] = json!(client.reason);
        object["retryable"] = json!(client.retryable);
        object["metadata"] = json!(client.metadata);
    }
    json!({ "error": object })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn client(code: Code, reason: &str) -> anyhow::Error {
        let error = ClientError {
            code,
            reason: reason.into(),
            message: "m".into(),
            retryable: false,
            metadata: BTreeMap::new(),
        };
        anyhow::Error::new(error).context("while trying")
    }

    #[test]
    fn every_way_to_fail_has_its_code() {
        for (error, code) in [
            (client(Code::Unavailable, astrabox_client::UNREACHABLE), 3),
            (client(Code::Unavailable, "ENGINE_FAILED"), 1),
            (client(Code::NotFound, "SESSION_NOT_FOUND"), 4),
            (client(Code::FailedPrecondition, "SESSION_STATE_WRONG"), 5),
            (client(Code::DataLoss, "RECOVERY_REQUIRED"), 5),
            (client(Code::Unauthenticated, "UNAUTHENTICATED"), 5),
            (client(Code::Internal, "INTERNAL"), 1),
            (Failure::usage("x"), 2),
            (Failure::with_code(TURN_FAILED, "x"), 6),
            (anyhow::anyhow!("x"), 1),
        ] {
            assert_eq!(code_of(&error), code, "{error:#}");
        }
    }

    #[test]
    fn an_error_as_json_has_the_servers_reason() {
        let described = describe(&client(Code::NotFound, "SESSION_NOT_FOUND"), 4);
        assert_eq!(described["error"]["reason"], "SESSION_NOT_FOUND");
        assert_eq!(described["error"]["exit_code"], 4);
    }
}
