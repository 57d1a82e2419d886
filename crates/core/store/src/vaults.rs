//! Writing vaults and what may be known of their credentials. No value of a secret ever comes here.

use std::collections::BTreeMap;

use astrabox_types::{
    AgentId, CredentialId, CredentialSpec, MAX_VAULT_CREDENTIALS, Timestamp, Vault,
    VaultCredential, VaultId,
};
use sqlx::SqliteConnection;

use crate::resources::count;
use crate::row::{self, json, now, text};
use crate::{Error, Key, Result, Store};

/// Changes to a vault; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultPatch {
    /// See `Vault`.
    pub display_name: Option<String>,
    /// See `Vault`.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// A credential and where its secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRow {
    /// The credential.
    pub credential: VaultCredential,
    /// Its name in the secret store; none once it is archived.
    pub secret_name: Option<String>,
}

/// A change of a credential that is not archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialWrite {
    /// The vault.
    pub vault_id: VaultId,
    /// The credential.
    pub id: CredentialId,
    /// When the stored one that the change was made from was last written.
    pub from: Timestamp,
    /// What it shall be called.
    pub display_name: String,
    /// What it shall say; its key stays the same.
    pub spec: CredentialSpec,
    /// The name of its new secret, if it gets one.
    pub secret_name: Option<String>,
}

impl Store {
    /// Makes a vault.
    ///
    /// # Errors
    /// `KeyReused`.
    pub async fn insert_vault(&self, key: Option<Key>, vault: Vault) -> Result<Vault> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO vaults (id, display_name, metadata, created_at, updated_at) VALUES (?, ?, ?, ?, ?)",
                )
                .bind(vault.id.to_string())
                .bind(&vault.display_name)
                .bind(json("metadata", &vault.metadata)?)
                .bind(text(vault.created_at))
                .bind(text(vault.updated_at))
                .execute(connection)
                .await?;
                Ok(vault)
            })
        })
        .await
    }

    /// Changes a vault.
    ///
    /// # Errors
    /// `NotFound`, `KeyReused`.
    pub async fn update_vault(
        &self,
        key: Option<Key>,
        id: VaultId,
        patch: VaultPatch,
    ) -> Result<Vault> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let stored = vault(connection, id).await?;
                sqlx::query(
                    "UPDATE vaults SET display_name = ?, metadata = ?, updated_at = ? WHERE id = ?",
                )
                .bind(patch.display_name.unwrap_or(stored.display_name))
                .bind(json(
                    "metadata",
                    &patch.metadata.unwrap_or(stored.metadata),
                )?)
                .bind(now())
                .bind(id.to_string())
                .execute(&mut *connection)
                .await?;
                vault(connection, id).await
            })
        })
        .await
    }

    /// Archives a vault with every credential in it. Their secrets become leftovers.
    ///
    /// # Errors
    /// `NotFound`, `KeyReused`.
    pub async fn archive_vault(&self, key: Option<Key>, id: VaultId) -> Result<Vault> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                leave_secrets(connection, "vault_id", &id.to_string()).await?;
                sqlx::query(
                    "UPDATE vault_credentials SET archived_at = ?, updated_at = ?, secret_name = NULL \
                     WHERE vault_id = ? AND archived_at IS NULL",
                )
                .bind(now())
                .bind(now())
                .bind(id.to_string())
                .execute(&mut *connection)
                .await?;
                sqlx::query(
                    "UPDATE vaults SET archived_at = ?, updated_at = ? WHERE id = ? AND archived_at IS NULL",
                )
                .bind(now())
                .bind(now())
                .bind(id.to_string())
                .execute(&mut *connection)
                .await?;
                vault(connection, id).await
            })
        })
        .await
    }

    /// Removes a vault with every credential in it. Their secrets become leftovers.
    ///
    /// # Errors
    /// `NotFound`, `InUse` by an agent that is not archived, `KeyReused`.
    pub async fn delete_vault(&self, key: Option<Key>, id: VaultId) -> Result<()> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                vault(connection, id).await?;
                let users = "SELECT count(*) FROM agent_vaults v JOIN agents a ON a.id = v.agent_id \
                             WHERE v.vault_id = ? AND a.archived = 0";
                if count(connection, users, &id.to_string()).await? > 0 {
                    return Err(Error::InUse);
                }
                leave_secrets(connection, "vault_id", &id.to_string()).await?;
                for sql in [
                    "DELETE FROM agent_vaults WHERE vault_id = ?",
                    "DELETE FROM vault_credentials WHERE vault_id = ?",
                    "DELETE FROM vaults WHERE id = ?",
                ] {
                    sqlx::query(sql)
                        .bind(id.to_string())
                        .execute(&mut *connection)
                        .await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Makes a credential, whose secret is kept already under a name that stands among the leftovers.
    ///
    /// # Errors
    /// `NotFound` without its vault, `Archived`, `Exists` when another active one has its key, `Full`, `KeyReused`.
    pub async fn insert_credential(
        &self,
        key: Option<Key>,
        credential: VaultCredential,
        secret_name: String,
    ) -> Result<VaultCredential> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let vault_id = credential.vault_id.to_string();
                if vault(connection, credential.vault_id).await?.archived_at.is_some() {
                    return Err(Error::Archived);
                }
                // A second one for the same thing is refused as such also in a full vault.
                sqlx::query(
                    "INSERT INTO vault_credentials (id, vault_id, display_name, key, spec, secret_version, \
                     secret_name, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                )
                .bind(credential.id.to_string())
                .bind(&vault_id)
                .bind(&credential.display_name)
                .bind(credential.spec.key())
                .bind(json("credential", &credential.spec)?)
                .bind(credential.secret_version)
                .bind(&secret_name)
                .bind(text(credential.created_at))
                .bind(text(credential.updated_at))
                .execute(&mut *connection)
                .await
                .map_err(Error::or_exists)?;
                let active = "SELECT count(*) FROM vault_credentials WHERE vault_id = ? AND archived_at IS NULL";
                let active = count(connection, active, &vault_id).await?;
                if active > i64::try_from(MAX_VAULT_CREDENTIALS).unwrap_or(i64::MAX) {
                    return Err(Error::Full);
                }
                forget(connection, &secret_name).await?;
                Ok(credential)
            })
        })
        .await
    }

    /// Changes a credential. A secret that is replaced becomes a leftover.
    ///
    /// # Errors
    /// `NotFound`, `Archived`, `Changed` when somebody wrote it since, `KeyReused`.
    pub async fn update_credential(
        &self,
        key: Option<Key>,
        write: CredentialWrite,
    ) -> Result<VaultCredential> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let stored = credential(connection, write.vault_id, write.id).await?;
                if stored.credential.archived_at.is_some() {
                    return Err(Error::Archived);
                }
                if stored.credential.updated_at != write.from {
                    return Err(Error::Changed);
                }
                let id = write.id.to_string();
                if let Some(secret_name) = &write.secret_name {
                    leave_secrets(connection, "id", &id).await?;
                    sqlx::query(
                        "UPDATE vault_credentials SET secret_name = ?, secret_version = secret_version + 1 \
                         WHERE id = ?",
                    )
                    .bind(secret_name)
                    .bind(&id)
                    .execute(&mut *connection)
                    .await?;
                    forget(connection, secret_name).await?;
                }
                sqlx::query(
                    "UPDATE vault_credentials SET display_name = ?, spec = ?, updated_at = ? WHERE id = ?",
                )
                .bind(&write.display_name)
                .bind(json("credential", &write.spec)?)
                .bind(now())
                .bind(&id)
                .execute(&mut *connection)
                .await?;
                let stored = credential(connection, write.vault_id, write.id).await?;
                Ok(stored.credential)
            })
        })
        .await
    }

    /// Archives a credential. Its secret becomes a leftover.
    ///
    /// # Errors
    /// `NotFound`, `KeyReused`.
    pub async fn archive_credential(
        &self,
        key: Option<Key>,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<VaultCredential> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                credential(connection, vault_id, id).await?;
                leave_secrets(connection, "id", &id.to_string()).await?;
                sqlx::query(
                    "UPDATE vault_credentials SET archived_at = ?, updated_at = ?, secret_name = NULL \
                     WHERE id = ? AND archived_at IS NULL",
                )
                .bind(now())
                .bind(now())
                .bind(id.to_string())
                .execute(&mut *connection)
                .await?;
                Ok(credential(connection, vault_id, id).await?.credential)
            })
        })
        .await
    }

    /// Removes a credential. Its secret becomes a leftover.
    ///
    /// # Errors
    /// `NotFound`, `KeyReused`.
    pub async fn delete_credential(
        &self,
        key: Option<Key>,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<()> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                credential(connection, vault_id, id).await?;
                leave_secrets(connection, "id", &id.to_string()).await?;
                sqlx::query("DELETE FROM vault_credentials WHERE id = ?")
                    .bind(id.to_string())
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Writes what became of a credential when its token was refreshed: only what is shown, and only as long as the
    /// secret is the one of this name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn refreshed_credential(
        &self,
        id: CredentialId,
        secret_name: String,
        spec: CredentialSpec,
    ) -> Result<()> {
        self.writer
            .write(move |connection| {
                Box::pin(async move {
                    sqlx::query(
                        "UPDATE vault_credentials SET spec = ? WHERE id = ? AND secret_name = ?",
                    )
                    .bind(json("credential", &spec)?)
                    .bind(id.to_string())
                    .bind(secret_name)
                    .execute(connection)
                    .await?;
                    Ok(())
                })
            })
            .await
    }

    /// Notes a name in the secret store before anything is kept under it, so that it is found again if nothing comes
    /// of it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_leftover(&self, name: String) -> Result<()> {
        self.writer
            .write(move |connection| {
                Box::pin(async move {
                    sqlx::query("INSERT OR IGNORE INTO secret_leftovers (name) VALUES (?)")
                        .bind(name)
                        .execute(connection)
                        .await?;
                    Ok(())
                })
            })
            .await
    }

    /// Forgets a leftover whose secret is removed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_leftover(&self, name: String) -> Result<()> {
        self.writer
            .write(move |connection| Box::pin(async move { forget(connection, &name).await }))
            .await
    }
}

/// The vaults of an agent's latest version, in the transaction that writes it.
pub(crate) async fn set_agent_vaults(
    connection: &mut SqliteConnection,
    agent: AgentId,
    vaults: &[VaultId],
) -> Result<()> {
    sqlx::query("DELETE FROM agent_vaults WHERE agent_id = ?")
        .bind(agent.to_string())
        .execute(&mut *connection)
        .await?;
    for (position, id) in vaults.iter().enumerate() {
        match vault(connection, *id).await {
            Ok(_) => {}
            Err(Error::NotFound) => return Err(Error::NoVault),
            Err(error) => return Err(error),
        }
        sqlx::query("INSERT INTO agent_vaults (agent_id, position, vault_id) VALUES (?, ?, ?)")
            .bind(agent.to_string())
            .bind(i64::try_from(position).unwrap_or(i64::MAX))
            .bind(id.to_string())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn vault(connection: &mut SqliteConnection, id: VaultId) -> Result<Vault> {
    let stored = sqlx::query("SELECT * FROM vaults WHERE id = ?")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await?
        .ok_or(Error::NotFound)?;
    row::vault(&stored)
}

async fn credential(
    connection: &mut SqliteConnection,
    vault_id: VaultId,
    id: CredentialId,
) -> Result<CredentialRow> {
    let stored = sqlx::query("SELECT * FROM vault_credentials WHERE id = ? AND vault_id = ?")
        .bind(id.to_string())
        .bind(vault_id.to_string())
        .fetch_optional(connection)
        .await?
        .ok_or(Error::NotFound)?;
    row::credential(&stored)
}

/// Notes the secrets of the credentials whose `column` is this as leftovers.
async fn leave_secrets(
    connection: &mut SqliteConnection,
    column: &'static str,
    value: &str,
) -> Result<()> {
    let sql = match column {
        "vault_id" => {
            "INSERT OR IGNORE INTO secret_leftovers (name) SELECT secret_name FROM vault_credentials \
             WHERE vault_id = ? AND secret_name IS NOT NULL"
        }
        _ => {
            "INSERT OR IGNORE INTO secret_leftovers (name) SELECT secret_name FROM vault_credentials \
             WHERE id = ? AND secret_name IS NOT NULL"
        }
    };
    sqlx::query(sql).bind(value).execute(connection).await?;
    Ok(())
}

async fn forget(connection: &mut SqliteConnection, name: &str) -> Result<()> {
    sqlx::query("DELETE FROM secret_leftovers WHERE name = ?")
        .bind(name)
        .execute(connection)
        .await?;
    Ok(())
}
