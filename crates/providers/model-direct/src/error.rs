//! The provider's failures in the seam's error. No message holds a value of the configuration.

use astrabox_model::{Error, ErrorKind};

pub(crate) const RESOLVE: &str = "resolve";
const BUILD: &str = "build";

/// A setting is missing.
pub(crate) fn not_configured(key: &str) -> Error {
    let text = format!("set `model.direct.{key}`");
    Error::new(ErrorKind::NotConfigured, RESOLVE, text)
}

/// A setting is wrong; an empty key means the whole block.
pub(crate) fn invalid(key: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        BUILD,
        format!("{} {what}", setting(key)),
    )
}

/// The endpoint is not allowed.
pub(crate) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Refused, BUILD, what)
}

/// Somebody gives a credential, which this provider has no safe use for.
pub(crate) fn credential_refused(key: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        BUILD,
        format!(
            "{} holds a credential, and injection of credentials is not there yet: a key would enter the \
             sandbox, where the agent can read it; use an endpoint that needs none",
            setting(key)
        ),
    )
}

fn setting(key: &str) -> String {
    if key.is_empty() {
        return "`model.direct`".to_owned();
    }
    let shown: String = key.chars().take(64).collect();
    format!("`model.direct.{}`", shown.escape_debug())
}
