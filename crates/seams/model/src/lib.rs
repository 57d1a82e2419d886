//! The contract of a model endpoint provider.
//!
//! Invariant: tells where a model is and which credential it wants; never keeps a credential.
//!
//! The contract, by clause:
//!
//! * **MO1** `resolve` gives a base URL that engines can use as it is, or a loud error; never a guess.
//! * **MO2** A missing configuration is `NotConfigured` and names the setting.
//! * **MO3** A plaintext endpoint is refused when `require_https` is set.
//! * **MO4** `list` gives names that `resolve` accepts. Where the list is closed, every other name is `UnknownModel`;
//!   where it is open, any name is resolved, and the endpoint itself refuses what it does not have.
//! * **MO5** The same request gives the same answer: `resolve` asks nobody.
//! * **MO6** A credential is named only together with its kind, and by a plain id; the value never comes through
//!   `resolve`.
//! * **MO7** Who declares `issues_credentials` issues one for each call; who does not answers `None`, and refuses
//!   `revoke` as `Unsupported`.
//! * **MO8** An issued credential is nobody else's: no two have an id or a value in common, and the id tells nothing of
//!   the value. It ends no later than the lifetime that was asked for, whether or not it is revoked.
//! * **MO9** A revoked credential is accepted no more. Revoking again, or what there never was, succeeds.
//! * **MO10** A call that needs the endpoint's credential is `NotConfigured` without it, naming the setting, and
//!   `Denied` with a wrong one. No error holds a credential or what the endpoint wrote.

mod block;
mod endpoint;

use std::sync::Arc;
use std::time::Duration;

pub use astrabox_registry as registry;
use astrabox_types::{SeamError, SeamErrorKind, Secret, SessionId, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use block::Block;
pub use endpoint::{EndpointFault, Plaintext, endpoint_root};

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
    /// The endpoint does not accept the credential.
    Denied,
    /// The provider does not do this.
    Unsupported,
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
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
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

impl ModelWire {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::AnthropicMessages,
        Self::OpenaiResponses,
        Self::OpenaiChat,
    ];

    /// Its name, as environments give it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic_messages",
            Self::OpenaiResponses => "openai_responses",
            Self::OpenaiChat => "openai_chat",
        }
    }
}

/// Where a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedModelAccess {
    /// The endpoint's root, without a trailing slash and without `/v1`, as `https://models.example`.
    pub base_url: String,
    /// The model's name at the endpoint.
    pub model_name: String,
    /// The credential in a vault that the endpoint wants; `None` where it wants none, or where the agent's own vaults
    /// have it.
    pub credential: Option<CredentialRef>,
    /// What kind of credential the endpoint wants.
    pub credential_kind: CredentialKind,
    /// The provider that resolved it.
    pub endpoint_provider: String,
}

/// Names a credential of the type `model_key` in a vault.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialRef {
    /// Its id, as `vcrd_0190f2a4...`.
    pub credential_id: String,
}

/// How a request shows its credential to an endpoint.
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

/// The models that an endpoint has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelList {
    /// Their names, each once.
    pub names: Vec<String>,
    /// Whether there are no others. A gateway that takes names by pattern has more than it lists.
    pub closed: bool,
}

/// For what a credential is to be issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueRequest {
    /// The session that uses it.
    pub session_id: SessionId,
    /// The only model that it is for, by its name at the endpoint.
    pub model: String,
    /// How long it may be used, unless it is revoked before; at least one second.
    pub lifetime: Duration,
}

/// A credential of one session. It holds a secret, so it has no Debug and no Serialize.
pub struct IssuedCredential {
    /// Its name at the endpoint, for `revoke`; no secret.
    pub id: String,
    /// Its value, which is shown as the endpoint's `CredentialKind` says.
    pub secret: Secret,
    /// When it ends by itself.
    pub expires_at: Timestamp,
}

/// Tells where models are. See the crate's clauses.
///
/// `with` is the endpoint's own credential, that `credential` names, for the calls that reach the endpoint. The
/// provider uses it for the one call and keeps no copy.
#[async_trait]
pub trait ModelEndpointProvider: Send + Sync + 'static {
    /// Where this model is (MO1).
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error>;

    /// The root of the configured endpoint, or `None` when nothing is configured (MO2).
    fn gateway(&self) -> Option<String>;

    /// The credential in a vault that the endpoint wants: what `list`, `issue` and `revoke` are to be called with
    /// (MO6).
    fn credential(&self) -> Option<CredentialRef>;

    /// The models that can be asked for (MO4).
    async fn list(&self, with: Option<&Secret>) -> Result<ModelList, Error>;

    /// Whether each session gets a credential of its own (MO7).
    fn issues_credentials(&self) -> bool;

    /// A new credential for one session (MO8). `None` from a provider that issues none: the session then uses the
    /// endpoint's own.
    async fn issue(
        &self,
        request: &IssueRequest,
        with: Option<&Secret>,
    ) -> Result<Option<IssuedCredential>, Error>;

    /// Ends an issued credential (MO9).
    async fn revoke(&self, id: &str, with: Option<&Secret>) -> Result<(), Error>;
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
