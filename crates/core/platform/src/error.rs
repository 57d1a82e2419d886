//! The error that every operation of the platform gives.

use std::collections::BTreeMap;
use std::fmt;

use astrabox_startup::{Refusal, StartupError};
use astrabox_types::{ErrorKind, ErrorReason};

/// A result of the platform.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed: a stable reason and a text that names the thing and the remedy.
#[derive(Debug)]
pub struct Error {
    reason: ErrorReason,
    message: String,
    metadata: BTreeMap<&'static str, String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error for this reason.
    #[must_use]
    pub fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            metadata: BTreeMap::new(),
            source: None,
        }
    }

    /// A field that is wrong, by its name in the request.
    #[must_use]
    pub fn field(field: &str, message: impl fmt::Display) -> Self {
        Self::new(ErrorReason::InvalidField, format!("{field}: {message}")).with("field", field)
    }

    /// Adds a machine-readable detail.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.metadata.insert(key, value.into());
        self
    }

    /// Adds what caused it; for logs only.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The stable reason.
    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        self.reason
    }

    /// Machine-readable details.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<&'static str, String> {
        &self.metadata
    }

    /// Whether the same call may succeed later without a change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.reason.kind(),
            ErrorKind::Unavailable | ErrorKind::DeadlineExceeded | ErrorKind::Aborted
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.reason, refusal.message)
    }
}

impl From<astrabox_store::Error> for Error {
    fn from(error: astrabox_store::Error) -> Self {
        match error {
            astrabox_store::Error::KeyReused => Self::new(
                ErrorReason::IdempotencyKeyReused,
                "the idempotency key was used with another request; use a new key",
            ),
            astrabox_store::Error::OwnerChanged => Self::new(
                ErrorReason::OwnerChanged,
                "another server owns this session now; retry",
            ),
            astrabox_store::Error::ForeignToken => Self::new(
                ErrorReason::ForeignCursor,
                "the page token was not made for this list; begin again without one",
            ),
            astrabox_store::Error::Closed => {
                Self::new(ErrorReason::Draining, "the server is shutting down; retry")
            }
            error => Self::new(
                ErrorReason::StoreFailed,
                "the store failed; the log has more",
            )
            .with_source(error),
        }
    }
}

impl From<astrabox_sandbox::Error> for Error {
    fn from(error: astrabox_sandbox::Error) -> Self {
        use astrabox_sandbox::ErrorKind as Kind;
        let reason = match error.kind() {
            Kind::NotFound => ErrorReason::SandboxNotFound,
            Kind::ImageMissing => ErrorReason::ImageMissing,
            Kind::Unsupported => ErrorReason::CapabilityUnavailable,
            Kind::DeadlineExceeded => ErrorReason::DeadlineExceeded,
            _ => ErrorReason::SandboxUnavailable,
        };
        Self::new(reason, error.to_string()).with_source(error)
    }
}

impl From<StartupError> for Error {
    fn from(error: StartupError) -> Self {
        let text = error.to_string();
        let reason = match error {
            StartupError::Refused(refusal) => return refusal.into(),
            StartupError::Sandbox(error) => return error.into(),
            StartupError::NoModelGateway | StartupError::Model(_) => {
                ErrorReason::ModelNotConfigured
            }
            StartupError::NeedsCallback { .. } | StartupError::SessionKind { .. } => {
                ErrorReason::CapabilityUnavailable
            }
            StartupError::Engine(error)
                if error.kind() == astrabox_engine::ErrorKind::ConversationLost =>
            {
                ErrorReason::RecoveryRequired
            }
            StartupError::Engine(_) => ErrorReason::EngineFailed,
        };
        Self::new(reason, text)
    }
}
