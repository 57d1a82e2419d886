//! The contract of an identity provider: who the caller of an operation is.
//!
//! Invariant: decides who, never what they may do.
//!
//! The contract, by clause:
//!
//! * **ID1** A caller that shows nothing, or something wrong, is an error, never an anonymous actor.
//! * **ID2** The same evidence gives the same subject.
//! * **ID3** Evidence is compared in constant time and never appears in an error or a log.

use std::fmt;
use std::sync::Arc;

pub use astrabox_registry as registry;
use astrabox_types::{SeamError, SeamErrorKind};
use async_trait::async_trait;

/// What went wrong at the identity seam.
pub type Error = SeamError<ErrorKind>;

/// Classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller showed nothing that identifies it.
    Missing,
    /// What the caller showed is wrong.
    Rejected,
    /// The configuration is wrong.
    Invalid,
}

impl SeamErrorKind for ErrorKind {
    const SEAM: &'static str = "identity";

    fn phrase(self) -> &'static str {
        match self {
            Self::Missing => "the caller is not identified",
            Self::Rejected => "the caller's evidence is not accepted",
            Self::Invalid => "invalid configuration",
        }
    }

    fn retryable(self) -> bool {
        false
    }
}

/// Who acts. The subject is stable, as `uid:1000` or `token:ops`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    subject: String,
}

impl Actor {
    /// An actor by its subject, at most 128 bytes of printable ASCII.
    ///
    /// # Errors
    /// `Invalid` when the subject has another form.
    pub fn new(subject: impl Into<String>) -> Result<Self, Error> {
        let subject = subject.into();
        if subject.is_empty()
            || subject.len() > 128
            || !subject.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                "actor",
                "a subject is 1 to 128 printable ASCII characters",
            ));
        }
        Ok(Self { subject })
    }

    /// The platform itself, as when a watchdog acts.
    #[must_use]
    pub fn system() -> Self {
        Self {
            subject: "system".to_owned(),
        }
    }

    /// The subject.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)
    }
}

/// In whose name an operation runs: the first argument of every operation of the platform.
#[derive(Debug, Clone)]
pub struct OpContext {
    /// Who acts.
    pub actor: Actor,
}

impl OpContext {
    /// A context of this actor.
    #[must_use]
    pub fn of(actor: Actor) -> Self {
        Self { actor }
    }

    /// A context of the platform itself.
    #[must_use]
    pub fn system() -> Self {
        Self {
            actor: Actor::system(),
        }
    }
}

/// What an edge knows about a caller.
#[derive(Clone, Default)]
pub struct Evidence {
    /// The user at the other end of a unix socket, as the kernel tells (SO_PEERCRED).
    pub peer_uid: Option<u32>,
    /// The token of an `authorization: Bearer` header. No Debug: it is a secret.
    pub bearer: Option<String>,
}

/// Tells who a caller is. See the crate's clauses.
#[async_trait]
pub trait IdentityProvider: Send + Sync + 'static {
    /// The actor behind this evidence (ID1, ID2, ID3).
    async fn identify(&self, evidence: &Evidence) -> Result<Actor, Error>;

    /// Whether callers can show a token, so that a TCP listener may be opened.
    fn accepts_tokens(&self) -> bool;
}

/// Builds a provider from its configuration block.
#[async_trait]
pub trait IdentityProviderFactory {
    /// The name in configuration, as `local`.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;

    /// Builds the provider. `config` is its block as JSON; unknown keys are refused.
    async fn build(config: serde_json::Value) -> Result<Arc<dyn IdentityProvider>, Error>;
}

astrabox_registry::provider_registration! {
    seam: "identity provider",
    factory: IdentityProviderFactory,
    build: (config: serde_json::Value) -> Result<Arc<dyn IdentityProvider>, Error>,
}
