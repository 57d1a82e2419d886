//! The provider's failures in the seam's error. No message holds a value of the configuration.

use astrabox_model::{Error, ErrorKind};

/// The place of the configuration block.
pub(crate) const BLOCK: &str = "model.direct";
const RESOLVE: &str = "resolve";

/// A setting is missing.
pub(crate) fn not_configured(key: &str) -> Error {
    let text = format!("set `{BLOCK}.{key}`");
    Error::new(ErrorKind::NotConfigured, RESOLVE, text)
}

/// A model that the configuration does not have.
pub(crate) fn unknown_model(model: &str, models: &[String]) -> Error {
    // The name comes from a caller; it may be anything.
    let shown: String = model.chars().take(100).collect();
    let text = format!(
        "{shown:?} is not in `{BLOCK}.models`, which has: {}",
        models.join(", ")
    );
    Error::new(ErrorKind::UnknownModel, RESOLVE, text)
}

/// Nobody issues credentials here.
pub(crate) fn issues_none() -> Error {
    let text = "an endpoint that is used directly has one key and issues no others";
    Error::new(ErrorKind::Unsupported, "revoke", text)
}
