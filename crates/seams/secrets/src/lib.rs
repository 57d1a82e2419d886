//! The contract of a secret store: write-only values with authenticated encryption.
//!
//! Invariant: a secret leaves the store only as a [`Secret`], which cannot be printed, compared or serialised.
//!
//! The contract, by clause:
//!
//! * **SE1** A value that was put is read back bit for bit, until it is removed.
//! * **SE2** A value read under another name than it was put under is an error, not a value.
//! * **SE3** Nothing at rest can be read without the key; a changed byte is an error.
//! * **SE4** Removing is final and may be repeated.
//! * **SE5** No error names a value.
//! * **SE6** A change of the key leaves every value readable, at every step and also when it is cut off; when it is
//!   done, the key before opens nothing that is at rest.

use std::path::PathBuf;
use std::sync::Arc;

pub use astrabox_registry as registry;
pub use astrabox_types::Secret;
use astrabox_types::{SeamError, SeamErrorKind};
use async_trait::async_trait;

/// What went wrong at the secrets seam.
pub type Error = SeamError<ErrorKind>;

/// Classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No secret has this name.
    NotFound,
    /// The stored form is damaged or was made with another key or for another name.
    Damaged,
    /// The configuration is wrong.
    Invalid,
    /// The store does not have this operation.
    Unsupported,
    /// The store does not answer now.
    Unavailable,
}

impl SeamErrorKind for ErrorKind {
    const SEAM: &'static str = "secrets";

    fn phrase(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::Damaged => "the stored secret cannot be read",
            Self::Invalid => "invalid configuration",
            Self::Unsupported => "not supported",
            Self::Unavailable => "unavailable",
        }
    }

    fn retryable(self) -> bool {
        matches!(self, Self::Unavailable)
    }
}

/// Names a secret: the row that it belongs to, which is bound to the ciphertext.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

impl SecretName {
    /// Takes 1 to 128 of `[A-Za-z0-9._/-]`.
    ///
    /// # Errors
    /// `Invalid` when the name has another form.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/');
        if name.is_empty() || name.len() > 128 || !name.bytes().all(plain) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "name",
                "a secret's name is 1 to 128 of A-Z a-z 0-9 . _ / -",
            ));
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Keeps secrets. See the crate's clauses.
#[async_trait]
pub trait SecretStore: Send + Sync + 'static {
    /// Keeps a value under this name, in place of an older one (SE1).
    async fn put(&self, name: &SecretName, value: Secret) -> Result<(), Error>;

    /// The value (SE1, SE2, SE3).
    async fn get(&self, name: &SecretName) -> Result<Secret, Error>;

    /// Forgets the value (SE4).
    async fn remove(&self, name: &SecretName) -> Result<(), Error>;

    /// Encrypts everything with a new key and forgets the one before (SE6). What was cut off is finished by the next
    /// call, and by the next start where the store can.
    ///
    /// # Errors
    /// `Unsupported` when the key is somebody else's affair, as that of a key management service.
    async fn rotate_key(&self) -> Result<KeyVersion, Error>;
}

/// Counts the keys that a store had, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyVersion(pub u32);

/// What a store gets besides its configuration block.
#[derive(Debug, Clone)]
pub struct StoreContext {
    /// A folder of its own, which is there and private; durable.
    pub state_dir: PathBuf,
}

/// Builds a store from its configuration block.
#[async_trait]
pub trait SecretStoreFactory {
    /// The name in configuration.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;

    /// Builds the store. `config` is its block as JSON; unknown keys are refused.
    async fn build(
        config: serde_json::Value,
        context: StoreContext,
    ) -> Result<Arc<dyn SecretStore>, Error>;
}

astrabox_registry::provider_registration! {
    seam: "secret store",
    factory: SecretStoreFactory,
    build: (config: serde_json::Value, context: StoreContext) -> Result<Arc<dyn SecretStore>, Error>,
}
