//! The direct model endpoint provider: one configured base URL and model list.
//!
//! Invariant: holds no credential and makes no request; its answers come from its configuration alone.
//!
//! Settings, below `model.direct`:
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `base_url` | none | the endpoint's root, without `/v1`; none: every model is `NotConfigured` |
//! | `models` | `[]` | the models that can be asked for; none: any |
//! | `default_model` | none | what an agent that names no model gets |
//! | `require_https` | `false` | refuse `http` whatever the host is |
//! | `allow_plaintext` | `false` | accept `http` to a public host |
//! | `credential` | none | the vault's credential that the endpoint wants, as `vcrd_...` |
//! | `credential_kind` | none | how the endpoint wants it: `bearer` or `api_key`; given together with `credential` |
//!
//! Plaintext is accepted without a word where it cannot leave the operator's own network: to loopback and
//! private addresses, and to names that never are public (`localhost`, and names under `.localhost`, `.internal`,
//! `.test`, `.home.arpa` and `.local`), as operators give to their static hosts.

mod backend;
mod config;
mod error;

pub use backend::Direct;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: astrabox_model::Registration =
    astrabox_model::Registration::new::<Direct>(env!("CARGO_PKG_NAME"));

astrabox_model::registry::inventory::submit! { REGISTRATION }

#[cfg(test)]
mod tests;
