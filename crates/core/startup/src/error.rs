//! Why a start did not come about.

use astrabox_types::ErrorReason;

/// Why a start did not come about. Errors of the seams come back unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// No model gateway is configured.
    #[error("no model endpoint is configured; set `model.direct.base_url`")]
    NoModelGateway,
    /// The engine must be able to call back and no address is configured.
    #[error("the engine `{engine}` needs a callback address; set `server.callback_address`")]
    NeedsCallback {
        /// The engine.
        engine: &'static str,
    },
    /// The engine does not carry this kind of session.
    #[error("the engine `{engine}` has no `{kind}` sessions")]
    SessionKind {
        /// The engine.
        engine: &'static str,
        /// The kind asked for.
        kind: &'static str,
    },
    /// The platform refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The sandbox seam failed.
    #[error(transparent)]
    Sandbox(#[from] astrabox_sandbox::Error),
    /// The model seam failed.
    #[error(transparent)]
    Model(#[from] astrabox_model::Error),
    /// The engine seam failed.
    #[error(transparent)]
    Engine(#[from] astrabox_engine::Error),
}

/// An error of the platform's own side of the contract.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A stable reason.
    pub reason: ErrorReason,
    /// A text for people.
    pub message: String,
}

impl Refusal {
    /// A refusal for this reason.
    #[must_use]
    pub fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}
