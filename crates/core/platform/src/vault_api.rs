//! What goes in and out of the platform about vaults. What holds a secret has no Debug.

use std::collections::BTreeMap;

use astrabox_types::{
    AgentId, CredentialId, CredentialSecret, CredentialSpec, Secret, Vault, VaultId,
};

use crate::SpecChanges;

/// A new vault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultDraft {
    /// See `Vault`.
    pub display_name: String,
    /// See `Vault`.
    pub metadata: BTreeMap<String, String>,
}

/// Changes to a vault; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultUpdate {
    /// See `Vault`.
    pub display_name: Option<String>,
    /// See `Vault`.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// A vault and who uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultView {
    /// The vault.
    pub vault: Vault,
    /// The agents whose latest version uses it and that are not archived.
    pub agent_ids: Vec<AgentId>,
}

/// A new credential.
pub struct CredentialDraft {
    /// The vault that it goes into.
    pub vault_id: VaultId,
    /// See `VaultCredential`.
    pub display_name: String,
    /// What it is for.
    pub spec: CredentialSpec,
    /// Its secret.
    pub secret: CredentialSecret,
}

/// Changes to a credential; `None` leaves a field as it is.
pub struct CredentialUpdate {
    /// The vault.
    pub vault_id: VaultId,
    /// The credential.
    pub id: CredentialId,
    /// See `VaultCredential`.
    pub display_name: Option<String>,
    /// New parts of its secret.
    pub secret: Option<SecretUpdate>,
    /// Changes to what it is for.
    pub changes: SpecChanges,
}

/// New parts of a secret; those that are `None` stay.
#[derive(Default)]
pub struct SecretUpdate {
    /// See `CredentialSecret`.
    pub value: Option<Secret>,
    /// See `CredentialSecret`.
    pub refresh_token: Option<Secret>,
    /// See `CredentialSecret`.
    pub client_secret: Option<Secret>,
}
