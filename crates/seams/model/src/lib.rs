//! The contract of a model endpoint provider.
//!
//! Invariant: tells where a model is and what kind of credential it wants; never holds the credential.
//!
//! The contract, by clause:
//!
//! * **MO1** `resolve` gives a base URL that engines can use as it is, or a loud error; never a guess.
//! * **MO2** A missing configuration is `NotConfigured` and names the setting.
//! * **MO3** A plaintext endpoint is refused when `require_https` is set.
//! * **MO4** `list` gives the names that `resolve` accepts; an empty list means that any name is accepted.
//! * **MO5** The same request gives the same answer.

use std::sync::Arc;

pub use astrabox_registry as registry;
use astrabox_types::{SeamError, SeamErrorKind};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// What went wrong at the model seam.
pub type Error = SeamError<ErrorKind>;

/// Classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A setting is missing.
    NotConfigured,
    /// The provider does not have this model.
    UnknownModel,
    /// The configuration is wrong.
    Invalid,
    /// The endpoint is not allowed, as a plaintext one.
    Refused,
    /// The gateway does not answer now.
    Unavailable,
}

impl SeamErrorKind for ErrorKind {
    const SEAM: &'static str = "model";

    fn phrase(self) -> &'static str {
        match self {
            Self::NotConfigured => "not configured",
            Self::UnknownModel => "unknown model",
            Self::Invalid => "invalid configuration",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }

    fn retryable(self) -> bool {
        matches!(self, Self::Unavailable)
    }
}

/// Which model an agent wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRequest {
    /// The name that the agent gives.
    pub model: String,
    /// The wire that the engine speaks.
    pub wire: ModelWire,
}

/// The wires that engines speak to models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWire {
    /// Anthropic Messages, `POST {base}/v1/messages`.
    AnthropicMessages,
    /// OpenAI Responses, `POST {base}/v1/responses`.
    OpenaiResponses,
    /// OpenAI Chat Completions, `POST {base}/v1/chat/completions`.
    OpenaiChat,
}

/// Where a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedModelAccess {
    /// The endpoint's root, without a trailing slash and without `/v1`, as `https://models.example`.
    pub base_url: String,
    /// The model's name at the endpoint.
    pub model_name: String,
    /// What kind of credential the endpoint wants.
    pub credential_kind: CredentialKind,
    /// The provider that resolved it.
    pub endpoint_provider: String,
}

/// What kind of credential an endpoint wants. The value itself never comes through this seam.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// None: the endpoint ignores what it is shown.
    None,
    /// `authorization: Bearer`.
    Bearer,
    /// `x-api-key`.
    ApiKey,
}

/// Tells where models are. See the crate's clauses.
#[async_trait]
pub trait ModelEndpointProvider: Send + Sync + 'static {
    /// Where this model is (MO1).
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error>;

    /// The root of the configured endpoint, or `None` when nothing is configured (MO2).
    fn gateway(&self) -> Option<String>;

    /// The models that can be asked for (MO4).
    async fn list(&self) -> Result<Vec<String>, Error>;
}

/// Builds a provider from its configuration block.
#[async_trait]
pub trait ModelProviderFactory {
    /// The name in configuration, as `direct`.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;

    /// Builds the provider. `config` is its block as JSON; unknown keys are refused. A provider without an
    /// endpoint is built all the same and answers `NotConfigured`, so that a server without models starts.
    async fn build(config: serde_json::Value) -> Result<Arc<dyn ModelEndpointProvider>, Error>;
}

astrabox_registry::provider_registration! {
    seam: "model endpoint provider",
    factory: ModelProviderFactory,
    build: (config: serde_json::Value) -> Result<Arc<dyn ModelEndpointProvider>, Error>,
}
