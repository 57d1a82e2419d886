//! The provider's failures in the seam's error. No message holds evidence, a token or a path.

use astrabox_identity::{Error, ErrorKind};

pub(crate) const IDENTIFY: &str = "identify";
const BUILD: &str = "build";

/// A setting is wrong; an empty key means the whole block.
pub(crate) fn invalid(key: &str, what: &str) -> Error {
    let text = if key.is_empty() {
        format!("`identity.local` {what}")
    } else {
        let shown: String = key.chars().take(64).collect();
        format!("`identity.local.{}` {what}", shown.escape_debug())
    };
    Error::new(ErrorKind::Invalid, BUILD, text)
}

/// The token file is wrong.
pub(crate) fn token_file(what: &str) -> Error {
    invalid("token_file", what)
}
