//! Reading vaults and what may be known of their credentials.

use astrabox_types::{AgentId, CredentialId, SessionId, Vault, VaultCredential, VaultId};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::page::{Page, PageToken, cut};
use crate::vaults::CredentialRow;
use crate::{Error, Result, Store, row};

impl Store {
    /// A vault.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn vault(&self, id: VaultId) -> Result<Vault> {
        let stored = sqlx::query("SELECT * FROM vaults WHERE id = ?")
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await?
            .ok_or(Error::NotFound)?;
        row::vault(&stored)
    }

    /// Vaults, newest first.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn vaults(
        &self,
        size: u32,
        token: Option<&str>,
        archived: bool,
    ) -> Result<Page<Vault>> {
        let list = format!("vaults/{archived}");
        let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM vaults WHERE 1 = 1");
        if !archived {
            query.push(" AND archived_at IS NULL");
        }
        // Ids are in time order.
        if let Some(keys) = PageToken::decode(&list, 1, token)? {
            query.push(" AND id < ").push_bind(keys[0].clone());
        }
        query.push(" ORDER BY id DESC LIMIT ").push_bind(size + 1);
        let rows = query.build().fetch_all(&self.readers).await?;
        let items = rows.iter().map(row::vault).collect::<Result<Vec<_>>>()?;
        Ok(cut(items, size, &list, |item| vec![item.id.to_string()]))
    }

    /// The agents whose latest version uses a vault and that are not archived, oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn agents_of_vault(&self, id: VaultId) -> Result<Vec<AgentId>> {
        let rows = sqlx::query(
            "SELECT DISTINCT a.id FROM agent_vaults v JOIN agents a ON a.id = v.agent_id \
             WHERE v.vault_id = ? AND a.archived = 0 ORDER BY a.id",
        )
        .bind(id.to_string())
        .fetch_all(&self.readers)
        .await?;
        let id = |row: &sqlx::sqlite::SqliteRow| {
            let text: String = row.try_get("id")?;
            text.parse().map_err(|_| Error::Corrupt { what: "id" })
        };
        rows.iter().map(id).collect()
    }

    /// A credential of a vault.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn credential(&self, vault_id: VaultId, id: CredentialId) -> Result<CredentialRow> {
        let stored = sqlx::query("SELECT * FROM vault_credentials WHERE id = ? AND vault_id = ?")
            .bind(id.to_string())
            .bind(vault_id.to_string())
            .fetch_optional(&self.readers)
            .await?
            .ok_or(Error::NotFound)?;
        row::credential(&stored)
    }

    /// A credential, whatever its vault.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn credential_of_any_vault(&self, id: CredentialId) -> Result<CredentialRow> {
        let stored = sqlx::query("SELECT * FROM vault_credentials WHERE id = ?")
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await?
            .ok_or(Error::NotFound)?;
        row::credential(&stored)
    }

    /// The endpoint of an active model key; of the oldest where there are several.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn any_model_endpoint(&self) -> Result<Option<String>> {
        let stored = sqlx::query_scalar::<_, String>(
            "SELECT json_extract(spec, '$.endpoint') FROM vault_credentials \
             WHERE archived_at IS NULL AND json_extract(spec, '$.type') = 'model_key' ORDER BY id LIMIT 1",
        )
        .fetch_optional(&self.readers)
        .await?;
        Ok(stored)
    }

    /// The sessions that have a sandbox now; those whose agent's version uses this vault, or all when none is given.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions_with_sandbox(&self, vault: Option<VaultId>) -> Result<Vec<SessionId>> {
        let mut query = QueryBuilder::<Sqlite>::new(
            "SELECT s.id FROM sessions s JOIN agent_versions v \
             ON v.agent_id = s.agent_id AND v.version = s.agent_version \
             WHERE (s.sandbox_id IS NOT NULL OR s.assignment_id IS NOT NULL)",
        );
        if let Some(vault) = vault {
            query
                .push(" AND EXISTS (SELECT 1 FROM json_each(v.spec, '$.vault_ids') WHERE value = ");
            query.push_bind(vault.to_string()).push(")");
        }
        let rows = query
            .push(" ORDER BY s.id")
            .build_query_scalar::<String>()
            .fetch_all(&self.readers)
            .await?;
        let id = |text: &String| text.parse().map_err(|_| Error::Corrupt { what: "id" });
        rows.iter().map(id).collect()
    }

    /// The credentials of a vault, oldest first.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn credentials(
        &self,
        vault_id: VaultId,
        size: u32,
        token: Option<&str>,
        archived: bool,
    ) -> Result<Page<VaultCredential>> {
        let list = format!("credentials/{vault_id}/{archived}");
        let mut query =
            QueryBuilder::<Sqlite>::new("SELECT * FROM vault_credentials WHERE vault_id = ");
        query.push_bind(vault_id.to_string());
        if !archived {
            query.push(" AND archived_at IS NULL");
        }
        if let Some(keys) = PageToken::decode(&list, 1, token)? {
            query.push(" AND id > ").push_bind(keys[0].clone());
        }
        query.push(" ORDER BY id LIMIT ").push_bind(size + 1);
        let rows = query.build().fetch_all(&self.readers).await?;
        let items = rows
            .iter()
            .map(|stored| row::credential(stored).map(|row| row.credential))
            .collect::<Result<Vec<_>>>()?;
        Ok(cut(items, size, &list, |item| vec![item.id.to_string()]))
    }

    /// The active credentials of a vault, oldest first; none of a vault that is archived or gone.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn active_credentials(&self, vault_id: VaultId) -> Result<Vec<CredentialRow>> {
        let rows = sqlx::query(
            "SELECT * FROM vault_credentials WHERE vault_id = ? AND archived_at IS NULL ORDER BY id",
        )
        .bind(vault_id.to_string())
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(row::credential).collect()
    }

    /// The names in the secret store that no credential has.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn leftovers(&self) -> Result<Vec<String>> {
        let rows = sqlx::query("SELECT name FROM secret_leftovers ORDER BY name")
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|row| Ok(row.try_get("name")?)).collect()
    }

    /// Whether no credential has this name in the secret store.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn is_leftover(&self, name: &str) -> Result<bool> {
        let found = sqlx::query("SELECT 1 FROM secret_leftovers WHERE name = ?")
            .bind(name)
            .fetch_optional(&self.readers)
            .await?;
        Ok(found.is_some())
    }
}
