//! The errors of this store. None has a value, a key or a path.

use std::io;

use astrabox_secrets::{Error, ErrorKind};

pub(crate) fn invalid(key: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        "build",
        format!("secrets.local.{key} {what}"),
    )
}

pub(crate) fn damaged(operation: &'static str, what: &str) -> Error {
    Error::new(ErrorKind::Damaged, operation, what)
}

/// What the system refused, in words without a path.
pub(crate) fn io(operation: &'static str, what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        let text = format!("cannot {what}: {}", error.kind());
        Error::new(ErrorKind::Unavailable, operation, text).with_source(error)
    }
}
