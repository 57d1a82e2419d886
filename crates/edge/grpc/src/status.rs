//! The one mapping from the platform's errors to gRPC status.

use std::collections::HashMap;
use std::time::Duration;

use astrabox_platform::Error;
use astrabox_types::{ErrorKind, ErrorReason};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of every `google.rpc.ErrorInfo` of this server.
pub const DOMAIN: &str = "astrabox.dev";

/// How long a client should wait before it repeats a call that may succeed then.
const RETRY_DELAY: Duration = Duration::from_secs(1);

// A status travels in headers, which clients limit to 16 KiB in all; the text is in it twice.
const MAX_MESSAGE_BYTES: usize = 2048;
const MAX_DETAIL_BYTES: usize = 512;

/// The status code of this class of error.
#[must_use]
pub const fn grpc_code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::FailedPrecondition => Code::FailedPrecondition,
        ErrorKind::Aborted => Code::Aborted,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Unimplemented => Code::Unimplemented,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorKind::DataLoss => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// The status of an error: code, text, `ErrorInfo`, and `RetryInfo` or `BadRequest` where they apply.
pub(crate) fn to_status(error: &Error) -> Status {
    let message = cut(&error.to_string(), MAX_MESSAGE_BYTES);
    let metadata: HashMap<String, String> = error
        .metadata()
        .iter()
        .map(|(key, value)| ((*key).to_owned(), cut(value, MAX_DETAIL_BYTES)))
        .collect();
    let field = metadata.get("field").cloned();
    let mut details = ErrorDetails::with_error_info(error.reason().code(), DOMAIN, metadata);
    if error.is_retryable() {
        details.set_retry_info(Some(RETRY_DELAY));
    }
    if let Some(field) = field {
        details.add_bad_request_violation(field, cut(&message, MAX_DETAIL_BYTES));
    }
    Status::with_error_details(grpc_code(error.reason().kind()), message, details)
}

/// The status of calls that come, or streams that are open, while the server shuts down.
pub(crate) fn draining() -> Status {
    to_status(&Error::new(
        ErrorReason::Draining,
        "the server is shutting down; connect again and go on",
    ))
}

/// Writes what clients are not told to the log, once.
pub(crate) fn log(method: &str, error: &Error) {
    let reason = error.reason().code();
    match error.reason().kind() {
        ErrorKind::Internal | ErrorKind::DataLoss | ErrorKind::Unavailable => {
            let cause = std::error::Error::source(error).map(chain);
            tracing::warn!(method, reason, cause, "{error}");
        }
        ErrorKind::InvalidArgument
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::FailedPrecondition
        | ErrorKind::Aborted
        | ErrorKind::PermissionDenied
        | ErrorKind::Unauthenticated
        | ErrorKind::ResourceExhausted
        | ErrorKind::Unimplemented
        | ErrorKind::DeadlineExceeded => tracing::debug!(method, reason, "{error}"),
    }
}

fn chain(first: &(dyn std::error::Error + 'static)) -> String {
    let mut text = first.to_string();
    let mut next = first.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::expect;

    use super::*;

    #[test]
    fn every_reason_has_its_status() {
        let mut table = String::new();
        for reason in ErrorReason::ALL {
            let status = to_status(&Error::new(*reason, "x"));
            let details = status.get_error_details();
            let info = details.error_info().expect("every status has ErrorInfo");
            assert_eq!(
                (info.reason.as_str(), info.domain.as_str()),
                (reason.code(), DOMAIN)
            );
            let retry = if details.retry_info().is_some() {
                " retry"
            } else {
                ""
            };
            writeln!(table, "{} {:?}{retry}", info.reason, status.code()).expect("a String");
        }
        expect![[r#"
            INVALID_FIELD InvalidArgument
            UNKNOWN_FIELD InvalidArgument
            TOO_LARGE ResourceExhausted
            FOREIGN_CURSOR InvalidArgument
            IDEMPOTENCY_KEY_REUSED AlreadyExists
            AGENT_NOT_FOUND NotFound
            AGENT_ARCHIVED FailedPrecondition
            VERSION_CONFLICT Aborted retry
            ENVIRONMENT_NOT_FOUND NotFound
            ENVIRONMENT_NAME_TAKEN AlreadyExists
            ENVIRONMENT_IN_USE FailedPrecondition
            ENGINE_UNKNOWN InvalidArgument
            SANDBOX_PROVIDER_UNKNOWN InvalidArgument
            MODEL_PROVIDER_UNKNOWN InvalidArgument
            IMAGE_MISSING FailedPrecondition
            MODEL_NOT_CONFIGURED FailedPrecondition
            REPOSITORY_UNAVAILABLE FailedPrecondition
            SESSION_NOT_FOUND NotFound
            SESSION_ARCHIVED FailedPrecondition
            SESSION_STATE_WRONG FailedPrecondition
            RECOVERY_REQUIRED DataLoss
            INPUT_QUEUE_FULL ResourceExhausted
            INTERACTION_NOT_FOUND NotFound
            INTERACTION_CLOSED FailedPrecondition
            INTERACTION_ANSWER_INVALID InvalidArgument
            CHILD_RUN_NOT_FOUND NotFound
            PERMISSION_MODE_UNKNOWN InvalidArgument
            CAPABILITY_UNAVAILABLE Unimplemented
            SANDBOX_NOT_FOUND NotFound
            SANDBOX_UNAVAILABLE Unavailable retry
            SANDBOX_CLEANUP_UNCONFIRMED Unavailable retry
            ENGINE_FAILED Unavailable retry
            FILE_NOT_FOUND NotFound
            VAULT_NOT_FOUND NotFound
            VAULT_ARCHIVED FailedPrecondition
            VAULT_IN_USE FailedPrecondition
            VAULT_CREDENTIAL_NOT_FOUND NotFound
            VAULT_CREDENTIAL_ARCHIVED FailedPrecondition
            VAULT_CREDENTIAL_CONFLICT AlreadyExists
            VAULT_CREDENTIAL_LIMIT ResourceExhausted
            VAULT_CREDENTIAL_EXPIRED FailedPrecondition
            VAULT_CREDENTIAL_REFRESH_FAILED FailedPrecondition
            VAULT_CREDENTIAL_UNAVAILABLE Unavailable retry
            SECRET_STORE_UNAVAILABLE FailedPrecondition
            DRAINING Unavailable retry
            OWNER_CHANGED Aborted retry
            DEADLINE_EXCEEDED DeadlineExceeded retry
            UNAUTHENTICATED Unauthenticated
            PERMISSION_DENIED PermissionDenied
            STORE_FAILED Unavailable retry
            INTERNAL Internal
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn a_wrong_field_is_told_as_a_field_violation_too() {
        let status = to_status(&Error::field("spec.name", "must be given"));
        let details = status.get_error_details();
        let violations = &details.bad_request().expect("a violation").field_violations;
        assert_eq!(violations[0].field, "spec.name");
        assert_eq!(status.message(), "spec.name: must be given");
    }

    #[test]
    fn a_status_fits_into_the_headers_that_clients_take() {
        let long = "ü".repeat(20_000);
        let status = to_status(&Error::field(&long, &long));
        assert!(status.message().len() < 2 * MAX_MESSAGE_BYTES);
        assert!(status.details().len() < 6 * 1024);
    }

    #[test]
    fn what_caused_an_error_is_not_told_to_clients() {
        let error =
            Error::new(ErrorReason::StoreFailed, "the store failed").with_source("disk I/O error");
        let status = to_status(&error);
        assert!(!format!("{status:?}").contains("disk I/O"));
    }

    #[test]
    fn the_documentation_has_every_reason_with_its_status() {
        let document = include_str!("../../../../docs/grpc.md");
        let table = document
            .lines()
            .skip_while(|line| !line.starts_with("| reason |"))
            .skip(2);
        let rows: Vec<Vec<&str>> = table
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let told: Vec<[&str; 3]> = rows.iter().map(|row| [row[0], row[1], row[2]]).collect();
        let real: Vec<[String; 3]> = ErrorReason::ALL
            .iter()
            .map(|reason| {
                let status = to_status(&Error::new(*reason, "x"));
                let retry = status
                    .get_error_details()
                    .retry_info()
                    .map_or("", |_| "yes");
                [
                    format!("`{}`", reason.code()),
                    format!("{:?}", status.code()),
                    retry.to_owned(),
                ]
            })
            .collect();
        assert_eq!(told, real);
        assert!(
            rows.iter().all(|row| row[3].ends_with('.')),
            "every reason has its meaning"
        );
    }
}
