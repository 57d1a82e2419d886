//! Which credentials a session may use.

use std::collections::BTreeSet;

use astrabox_store::CredentialRow;
use astrabox_types::{CredentialId, CredentialSpec, ErrorReason, VaultId};

use crate::{Error, Result};

/// A credential that a session may use. Its value is asked for when it is needed (`Manager::credential_value`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionCredential {
    /// The vault.
    pub(crate) vault_id: VaultId,
    /// The credential.
    pub(crate) id: CredentialId,
    /// Counts the secrets that it had: another number, another value.
    pub(crate) secret_version: u32,
    /// What it is for and where it may go.
    pub(crate) spec: CredentialSpec,
}

/// The credentials of these vaults, in order: of two for one MCP server, address or model endpoint the first vault's
/// counts. Two variables of one name are refused: which of them a program means, nobody can know.
///
/// # Errors
/// `VAULT_CREDENTIAL_CONFLICT`.
pub(crate) fn chosen(vaults: Vec<Vec<CredentialRow>>) -> Result<Vec<SessionCredential>> {
    let mut keys = BTreeSet::new();
    let mut all = Vec::new();
    for row in vaults.into_iter().flatten() {
        let credential = row.credential;
        if !keys.insert(credential.spec.key()) {
            if let CredentialSpec::EnvironmentVariable { secret_name, .. } = &credential.spec {
                let text = format!(
                    "two vaults of the agent have a credential for the variable `{secret_name}`; archive one of them, \
                     or take its vault from the agent"
                );
                return Err(Error::new(ErrorReason::VaultCredentialConflict, text)
                    .with("secret_name", secret_name.clone())
                    .with("credential_id", credential.id.to_string()));
            }
            continue;
        }
        all.push(SessionCredential {
            vault_id: credential.vault_id,
            id: credential.id,
            secret_version: credential.secret_version,
            spec: credential.spec,
        });
    }
    Ok(all)
}
