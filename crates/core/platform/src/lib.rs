//! The manager: sessions, turns, journal and recovery behind one type, Platform.
//!
//! Invariant: the runtime manager is private; adapters and edges reach it through [`Platform`] and
//! `EnginePlatform` only.

mod api;
mod error;
mod hub;
mod manager;
mod parts;
mod platform;
mod platform_vaults;
mod session;
mod validate;
mod vault;
mod vault_api;

pub use api::{
    AgentDraft, AgentUpdate, EngineView, EnvironmentUpdate, IdempotencyKey, InteractionRecord,
    Page, PageRequest, SandboxView, SessionDraft, SessionFilter, SessionView, WatchItem,
};
pub use error::{Error, Result};
pub use hub::Subscription;
pub use parts::{Images, PlatformParts, PlatformSettings};
pub use platform::Platform;
pub use vault::{InjectionChange, SpecChanges};
pub use vault_api::{
    CredentialDraft, CredentialUpdate, SecretUpdate, VaultDraft, VaultUpdate, VaultView,
};

/// Which token endpoints access tokens may be refreshed at.
pub use astrabox_oauth::TokenClient;

/// Who calls, as every edge must tell with each operation.
pub use astrabox_identity::{Actor, Evidence, IdentityProvider, OpContext};
/// What a sandbox enforces and what helps to understand it.
pub use astrabox_sandbox::{
    BoundaryState, Diagnostics, FileInfo, FileKind, LimitState, Posture, SandboxInfo, SandboxState,
};
