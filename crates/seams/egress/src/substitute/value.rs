//! The values of credentials, as the caller lends them.

/// The longest value, in bytes.
pub const MOST_VALUE_BYTES: usize = 65_536;

/// Lends the value of each credential. This crate keeps none of them.
pub trait Values {
    /// The value of the credential with this id; `None` when it has none at the moment.
    fn value(&self, credential_id: &str) -> Option<&[u8]>;
}

/// A value that cannot be put into a request. Says nothing of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// It is empty.
    #[error("the value is empty")]
    Empty,
    /// It is longer than [`MOST_VALUE_BYTES`].
    #[error("the value is longer than {MOST_VALUE_BYTES} bytes")]
    TooLong,
    /// It holds a control character.
    #[error("the value holds a line feed or another control character")]
    Control,
}

/// Whether a value may be put into a request; asked when it is stored and again when it is used (EG20).
///
/// # Errors
/// When it is empty, too long, or holds a control character: with one it could begin a header of its own.
pub fn check_value(value: &[u8]) -> Result<(), InvalidValue> {
    if value.is_empty() {
        return Err(InvalidValue::Empty);
    }
    if value.len() > MOST_VALUE_BYTES {
        return Err(InvalidValue::TooLong);
    }
    if value.iter().any(u8::is_ascii_control) {
        return Err(InvalidValue::Control);
    }
    Ok(())
}
