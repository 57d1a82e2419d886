//! The LiteLLM model endpoint provider: a proxy that lists its models and issues keys.
//!
//! Invariant: keeps no credential, tells none to an error or a log, and asks nobody but the configured proxy.
//!
//! Settings, below `model.litellm`:
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `base_url` | none | the proxy's root, without `/v1`; none: every model is `NotConfigured` |
//! | `management_url` | `base_url` | where this server reaches the proxy, when not by the name that sandboxes use |
//! | `credential` | none | the vault's credential with the proxy's key, as `vcrd_...` |
//! | `credential_kind` | `bearer` | how sandboxes show their key: `bearer` or `api_key` |
//! | `models` | `[]` | the models that can be asked for; none: those of the proxy |
//! | `default_model` | none | what an agent that names no model gets |
//! | `per_session` | `false` | each session gets a key of its own, which ends with it; needs `credential` |
//! | `max_budget` | none | what one session's key may cost, in US dollars; needs `per_session` |
//! | `require_https` | `false` | refuse `http` whatever the host is |
//! | `allow_plaintext` | `false` | accept `http` to a public host |
//!
//! Plaintext is accepted as [`Plaintext::InPrivate`](astrabox_model::Plaintext::InPrivate) says. The proxy's
//! certificate is verified against the roots of this host (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).
//!
//! The facts of the proxy's API are those of LiteLLM 1.108.7. Keys of sessions need a LiteLLM that is connected to its
//! database.

mod api;
mod backend;
mod client;
mod config;
mod error;

pub use backend::Litellm;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: astrabox_model::Registration =
    astrabox_model::Registration::new::<Litellm>(env!("CARGO_PKG_NAME"));

astrabox_model::registry::inventory::submit! { REGISTRATION }
