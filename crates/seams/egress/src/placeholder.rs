//! What a workload holds in place of a credential.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

/// What every placeholder begins with, and nothing else should.
pub const MARKER: &str = "astrabox-cred-";

/// The digits behind the marker: 160 bits in base 32.
pub const DIGITS: usize = 32;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// What stands for a credential inside one sandbox: the marker and 32 digits of base 32, `astrabox-cred-...`.
///
/// Of letters, digits and `-` only, so that no program needs to escape it in a header, URL, JSON or XML: an escaped
/// form of it is always somebody's intention.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Placeholder(String);

/// A text that is not a placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a placeholder: it is `astrabox-cred-` and 32 of a-z 2-7")]
pub struct InvalidPlaceholder;

/// The key with which a deployment mints placeholders. Never leaves the server; has no Debug and no Serialize.
pub struct MintKey(Zeroizing<[u8; 32]>);

impl MintKey {
    /// Takes 32 random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl Placeholder {
    /// Mints the placeholder of a credential for one sandbox. The same for the sandbox's whole life, another one in
    /// every other sandbox, and not to be guessed without the key.
    #[must_use]
    pub fn mint(key: &MintKey, sandbox: &str, credential_id: &str) -> Self {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&*key.0).expect("an HMAC takes a key of any length");
        // The length keeps the two names apart.
        mac.update(&(sandbox.len() as u64).to_be_bytes());
        mac.update(sandbox.as_bytes());
        mac.update(credential_id.as_bytes());
        let digest = mac.finalize().into_bytes();
        let mut text = String::with_capacity(MARKER.len() + DIGITS);
        text.push_str(MARKER);
        for group in digest[..DIGITS * 5 / 8].chunks_exact(5) {
            let bits = group
                .iter()
                .fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
            for at in (0..8).rev() {
                text.push(char::from(ALPHABET[(bits >> (at * 5)) as usize & 31]));
            }
        }
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Placeholder {
    type Err = InvalidPlaceholder;

    fn from_str(text: &str) -> Result<Self, InvalidPlaceholder> {
        let digits = text.strip_prefix(MARKER).ok_or(InvalidPlaceholder)?;
        let right = digits.len() == DIGITS && digits.bytes().all(|byte| ALPHABET.contains(&byte));
        right
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidPlaceholder)
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Placeholder {
    type Error = InvalidPlaceholder;
    fn try_from(text: String) -> Result<Self, InvalidPlaceholder> {
        text.parse()
    }
}

impl From<Placeholder> for String {
    fn from(placeholder: Placeholder) -> Self {
        placeholder.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_stable_and_of_one_sandbox_and_credential() {
        let key = MintKey::new([7; 32]);
        let one = Placeholder::mint(&key, "sbx_1", "vcrd_1");
        assert_eq!(one, Placeholder::mint(&key, "sbx_1", "vcrd_1"));
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
        for other in [
            Placeholder::mint(&key, "sbx_2", "vcrd_1"),
            Placeholder::mint(&key, "sbx_1", "vcrd_2"),
            Placeholder::mint(&key, "sbx_1v", "crd_1"),
            Placeholder::mint(&MintKey::new([8; 32]), "sbx_1", "vcrd_1"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn other_texts_are_no_placeholders() {
        let good = format!("{MARKER}{}", "a2".repeat(16));
        assert!(good.parse::<Placeholder>().is_ok());
        for text in ["", MARKER, &good[1..], &good[..good.len() - 1]] {
            assert!(text.parse::<Placeholder>().is_err(), "{text}");
        }
        assert!(good.to_uppercase().parse::<Placeholder>().is_err());
        assert!(format!("{good}a").parse::<Placeholder>().is_err());
    }
}
