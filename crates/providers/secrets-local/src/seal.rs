//! Closing and opening: a key, a text that is bound to the result, a value.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

/// The bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;
/// The bytes of a nonce, so many that random ones do not meet.
const NONCE_BYTES: usize = 24;

/// A key, wiped when it is dropped.
#[derive(Clone)]
pub(crate) struct SealKey(Zeroizing<[u8; KEY_BYTES]>);

/// It does not open: another key, another binding, or changed bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DoesNotOpen;

impl SealKey {
    /// A new random key.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; KEY_BYTES] = bytes.try_into().ok()?;
        Some(Self(Zeroizing::new(bytes)))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(*self.0))
    }

    /// A nonce and the closed value. `bound` is needed again to open it.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub(crate) fn close(&self, bound: &[u8], value: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        fill(&mut nonce)?;
        let payload = Payload {
            msg: value,
            aad: bound,
        };
        let closed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| std::io::Error::other("the value is too long to be closed"))?;
        let mut all = Vec::with_capacity(NONCE_BYTES + closed.len());
        all.extend_from_slice(&nonce);
        all.extend_from_slice(&closed);
        Ok(all)
    }

    /// Opens what [`SealKey::close`] made with this binding.
    ///
    /// # Errors
    /// [`DoesNotOpen`].
    pub(crate) fn open(
        &self,
        bound: &[u8],
        closed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, DoesNotOpen> {
        let (nonce, closed) = closed.split_at_checked(NONCE_BYTES).ok_or(DoesNotOpen)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| DoesNotOpen)?;
        let payload = Payload {
            msg: closed,
            aad: bound,
        };
        let value = self.cipher().decrypt(&XNonce::from(nonce), payload);
        value.map(Zeroizing::new).map_err(|_| DoesNotOpen)
    }
}

fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(|_| std::io::Error::other("no randomness"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_with_its_key_and_binding_and_whole_only() {
        let key = SealKey::random().expect("randomness");
        let closed = key.close(b"bound", b"value").expect("it is closed");
        assert_eq!(&**key.open(b"bound", &closed).expect("it opens"), b"value");
        let other = SealKey::random().expect("randomness");
        assert_eq!(other.open(b"bound", &closed).err(), Some(DoesNotOpen));
        assert_eq!(key.open(b"other", &closed).err(), Some(DoesNotOpen));
        for at in 0..closed.len() {
            let mut changed = closed.clone();
            changed[at] ^= 1;
            assert_eq!(
                key.open(b"bound", &changed).err(),
                Some(DoesNotOpen),
                "{at}"
            );
            assert_eq!(key.open(b"bound", &closed[..at]).err(), Some(DoesNotOpen));
        }
    }

    #[test]
    fn the_same_value_is_never_closed_alike() {
        let key = SealKey::random().expect("randomness");
        let closed = || key.close(b"", b"value").expect("it is closed");
        assert_ne!(closed(), closed());
    }
}
