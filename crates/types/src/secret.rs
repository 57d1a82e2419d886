//! A value that nobody prints.

use zeroize::Zeroizing;

/// A secret value. It has no Debug, no Display, no Serialize; its memory is wiped when it is dropped.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value.
    #[must_use]
    pub fn new(value: Vec<u8>) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value, for the one place that puts it on a wire.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}
