//! The provider's failures in the seam's error. No message holds a credential or what the proxy wrote.

use astrabox_model::{Error, ErrorKind};

use crate::client::Fault;

/// The place of the configuration block.
pub(crate) const BLOCK: &str = "model.litellm";

/// A setting is missing.
pub(crate) fn not_configured(operation: &'static str, key: &str) -> Error {
    let text = format!("set `{BLOCK}.{key}`");
    Error::new(ErrorKind::NotConfigured, operation, text)
}

/// The credential that the configuration names was not given to the call.
pub(crate) fn no_credential(operation: &'static str) -> Error {
    let text = format!(
        "the proxy's key is missing: put it into a vault and name it in `{BLOCK}.credential`"
    );
    Error::new(ErrorKind::NotConfigured, operation, text)
}

/// A model that the configuration does not have.
pub(crate) fn unknown_model(operation: &'static str, model: &str, models: &[String]) -> Error {
    // The name comes from a caller; it may be anything.
    let shown: String = model.chars().take(100).collect();
    let text = format!(
        "{shown:?} is not in `{BLOCK}.models`, which has: {}",
        models.join(", ")
    );
    Error::new(ErrorKind::UnknownModel, operation, text)
}

/// Nobody issues credentials here.
pub(crate) fn issues_none() -> Error {
    let text = format!("`{BLOCK}.per_session` is not set, so that no session has a key of its own");
    Error::new(ErrorKind::Unsupported, "revoke", text)
}

/// The proxy answers something else than LiteLLM.
pub(crate) fn strange(operation: &'static str, what: &str) -> Error {
    let text = format!(
        "{what}: is `{BLOCK}.base_url` the root of a LiteLLM proxy of a version that is known?"
    );
    Error::new(ErrorKind::Invalid, operation, text)
}

/// The request came to nothing.
pub(crate) fn unreached(operation: &'static str, fault: Fault) -> Error {
    let kind = match fault {
        Fault::Credential | Fault::TooLarge | Fault::Request(_) => ErrorKind::Invalid,
        Fault::ConnectTimeout
        | Fault::Timeout
        | Fault::Connect(_)
        | Fault::Tls(_)
        | Fault::Broken(_) => ErrorKind::Unavailable,
    };
    Error::new(kind, operation, fault.to_string()).with_source(fault)
}

/// The proxy refused the request. `told` is the type of its error, a word of LiteLLM's own.
pub(crate) fn answered(operation: &'static str, status: u16, told: &str) -> Error {
    let (kind, what) = match (status, told) {
        (_, "no_db_connection") => (
            ErrorKind::Denied,
            "the proxy does not know the key, and has no database to look it up in".to_owned(),
        ),
        (401 | 403, _) => (
            ErrorKind::Denied,
            format!("the proxy does not accept the key in `{BLOCK}.credential` for this"),
        ),
        (404 | 405, _) => return strange(operation, "the proxy has no such path"),
        (300..=399, _) => return strange(operation, "the proxy answers with another address"),
        (408 | 425 | 429 | 500..=599, _) => (
            ErrorKind::Unavailable,
            format!("the proxy answered with status {status}"),
        ),
        _ => (
            ErrorKind::Invalid,
            format!("the proxy answered with status {status}"),
        ),
    };
    Error::new(kind, operation, what)
}

/// The proxy has nowhere to keep keys.
pub(crate) fn no_database(operation: &'static str) -> Error {
    let text = format!(
        "the proxy has no database and keeps no keys: connect it to one, or leave out `{BLOCK}.per_session`"
    );
    Error::new(ErrorKind::Invalid, operation, text)
}
