//! Vaults and credentials.

use astrabox_identity::OpContext;
use astrabox_store::{CredentialRow, CredentialWrite, VaultPatch};
use astrabox_types::{
    CredentialId, CredentialSecret, CredentialSpec, ErrorReason, Secret, Timestamp, Vault,
    VaultCredential, VaultId,
};

use super::resources::from_store;
use super::{Manager, store_key};
use crate::vault::{Kept, SessionCredential, archived, check, chosen, credential_error};
use crate::{
    CredentialDraft, CredentialUpdate, Error, IdempotencyKey, Page, PageRequest, Result,
    SecretUpdate, VaultDraft, VaultUpdate, VaultView, validate,
};

type Key = Option<IdempotencyKey>;

impl Manager {
    pub(crate) async fn create_vault(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: VaultDraft,
    ) -> Result<Vault> {
        check::display_name(&draft.display_name, 1)?;
        validate::metadata(&draft.metadata)?;
        let now = Timestamp::now();
        let vault = Vault {
            id: VaultId::new(),
            display_name: draft.display_name,
            metadata: draft.metadata,
            archived_at: None,
            created_at: now,
            updated_at: now,
        };
        let key = store_key(ctx, "CreateVault", key);
        Ok(self.store().insert_vault(key, vault).await?)
    }

    pub(crate) async fn get_vault(&self, _ctx: &OpContext, id: VaultId) -> Result<VaultView> {
        Ok(VaultView {
            vault: self.store().vault(id).await.map_err(vault_error)?,
            agent_ids: self.store().agents_of_vault(id).await?,
        })
    }

    pub(crate) async fn list_vaults(
        &self,
        _ctx: &OpContext,
        page: PageRequest,
        archived: bool,
    ) -> Result<Page<Vault>> {
        let size = validate::page_size(&page)?;
        let page = self
            .store()
            .vaults(size, page.token.as_deref(), archived)
            .await?;
        Ok(from_store(page))
    }

    pub(crate) async fn update_vault(
        &self,
        ctx: &OpContext,
        key: Key,
        id: VaultId,
        update: VaultUpdate,
    ) -> Result<Vault> {
        let VaultUpdate {
            display_name,
            metadata,
        } = update;
        if let Some(name) = &display_name {
            check::display_name(name, 1)?;
        }
        if let Some(metadata) = &metadata {
            validate::metadata(metadata)?;
        }
        let patch = VaultPatch {
            display_name,
            metadata,
        };
        let key = store_key(ctx, "UpdateVault", key);
        let updated = self.store().update_vault(key, id, patch).await;
        updated.map_err(vault_error)
    }

    pub(crate) async fn archive_vault(
        &self,
        ctx: &OpContext,
        key: Key,
        id: VaultId,
    ) -> Result<Vault> {
        let key = store_key(ctx, "ArchiveVault", key);
        let held = self.secret_names(id).await?;
        let archived = self.store().archive_vault(key, id).await;
        self.sweep_each(held).await;
        archived.map_err(vault_error)
    }

    pub(crate) async fn delete_vault(&self, ctx: &OpContext, key: Key, id: VaultId) -> Result<()> {
        let key = store_key(ctx, "DeleteVault", key);
        let held = self.secret_names(id).await?;
        let deleted = self.store().delete_vault(key, id).await;
        self.sweep_each(held).await;
        deleted.map_err(|error| match error {
            astrabox_store::Error::InUse => Error::new(
                ErrorReason::VaultInUse,
                "the vault is used by an agent; take it from its agents (GetVault lists them), or archive it",
            ),
            error => vault_error(error),
        })
    }

    async fn secret_names(&self, id: VaultId) -> Result<Vec<String>> {
        let rows = self.store().active_credentials(id).await?;
        Ok(rows.into_iter().filter_map(|row| row.secret_name).collect())
    }

    /// Removes those of these secrets that no credential has any more.
    async fn sweep_each(&self, names: Vec<String>) {
        for name in names {
            self.keeper.sweep_one(&name).await;
        }
    }

    pub(crate) async fn create_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: CredentialDraft,
    ) -> Result<VaultCredential> {
        let CredentialDraft {
            vault_id,
            display_name,
            spec,
            secret,
        } = draft;
        check::display_name(&display_name, 0)?;
        let spec = check::spec(spec)?;
        check::secret(&spec, &secret)?;
        let key = self.keeper.veiled(key).await?;
        let key = store_key(ctx, "CreateVaultCredential", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        if self
            .store()
            .vault(vault_id)
            .await
            .map_err(vault_error)?
            .archived_at
            .is_some()
        {
            return Err(vault_archived());
        }
        let now = Timestamp::now();
        let credential = VaultCredential {
            id: CredentialId::new(),
            vault_id,
            display_name,
            spec,
            secret_version: 1,
            archived_at: None,
            created_at: now,
            updated_at: now,
        };
        let kept = kept(&credential.spec, secret);
        let name = self.keeper.keep(credential.id, &kept).await?;
        let made = self
            .store()
            .insert_credential(key, credential, name.clone())
            .await;
        // Nobody has it when the credential was refused, or when the answer is that of an earlier call.
        self.keeper.sweep_one(&name).await;
        made.map_err(insert_error)
    }

    pub(crate) async fn get_credential(
        &self,
        _ctx: &OpContext,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<VaultCredential> {
        Ok(self.credential_row(vault_id, id).await?.credential)
    }

    async fn credential_row(&self, vault_id: VaultId, id: CredentialId) -> Result<CredentialRow> {
        let row = self.store().credential(vault_id, id).await;
        row.map_err(credential_error)
    }

    pub(crate) async fn list_credentials(
        &self,
        _ctx: &OpContext,
        vault_id: VaultId,
        page: PageRequest,
        archived: bool,
    ) -> Result<Page<VaultCredential>> {
        let size = validate::page_size(&page)?;
        self.store().vault(vault_id).await.map_err(vault_error)?;
        let page = self
            .store()
            .credentials(vault_id, size, page.token.as_deref(), archived)
            .await?;
        Ok(from_store(page))
    }

    pub(crate) async fn update_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        update: CredentialUpdate,
    ) -> Result<VaultCredential> {
        let CredentialUpdate {
            vault_id,
            id,
            display_name,
            secret,
            changes,
        } = update;
        let key = self.keeper.veiled(key).await?;
        let key = store_key(ctx, "UpdateVaultCredential", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        let _lock = self.keeper.lock(id).await;
        let stored = self.credential_row(vault_id, id).await?;
        let Some(held) = stored.secret_name else {
            return Err(archived());
        };
        let stored = stored.credential;
        let new_value = secret.as_ref().is_some_and(|secret| secret.value.is_some());
        let new_end = changes.expires_at.is_some();
        let mut spec = changes.applied(stored.spec.clone())?;
        if let CredentialSpec::McpOauth { expires_at, .. } = &mut spec
            && new_value
            && !new_end
        {
            // That was the end of the token before.
            *expires_at = None;
        }
        let spec = check::spec(spec)?;
        let display_name = display_name.unwrap_or_else(|| stored.display_name.clone());
        check::display_name(&display_name, 0)?;
        // The end of an access token is kept with it, and what a client must show can change what must be kept.
        let anew = secret.is_some() || spec != stored.spec;
        let secret_name = if anew {
            let before = self.keeper.read(&held).await?;
            let ends = if new_value || new_end {
                None
            } else {
                before.expires_at
            };
            let merged = merged(&spec, before.secret, secret.unwrap_or_default());
            check::secret(&spec, &merged)?;
            let mut kept = kept(&spec, merged);
            kept.expires_at = ends.or(kept.expires_at);
            Some(self.keeper.keep(id, &kept).await?)
        } else {
            None
        };
        let write = CredentialWrite {
            vault_id,
            id,
            from: stored.updated_at,
            display_name,
            spec,
            secret_name: secret_name.clone(),
        };
        let updated = self.store().update_credential(key, write).await;
        self.sweep_each(secret_name.into_iter().chain([held]).collect())
            .await;
        updated.map_err(credential_error)
    }

    pub(crate) async fn archive_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<VaultCredential> {
        let key = store_key(ctx, "ArchiveVaultCredential", key);
        let _lock = self.keeper.lock(id).await;
        let held = self.held_by(vault_id, id).await;
        let archived = self.store().archive_credential(key, vault_id, id).await;
        self.sweep_each(held).await;
        archived.map_err(credential_error)
    }

    pub(crate) async fn delete_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<()> {
        let key = store_key(ctx, "DeleteVaultCredential", key);
        let _lock = self.keeper.lock(id).await;
        let held = self.held_by(vault_id, id).await;
        let deleted = self.store().delete_credential(key, vault_id, id).await;
        self.sweep_each(held).await;
        deleted.map_err(credential_error)
    }

    /// The secret of a credential, if there is one: a repeated call finds none and is answered all the same.
    async fn held_by(&self, vault_id: VaultId, id: CredentialId) -> Vec<String> {
        let row = self.store().credential(vault_id, id).await.ok();
        row.and_then(|row| row.secret_name).into_iter().collect()
    }

    pub(crate) async fn rotate_secret_key(&self, ctx: &OpContext, key: Key) -> Result<u32> {
        let key = store_key(ctx, "RotateSecretKey", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        let version = self.keeper.rotate_key().await?;
        tracing::info!(actor = %ctx.actor, version = version.0, "the key of the secret store is changed");
        Ok(self.store().keep_answer(key, version.0).await?)
    }

    /// The credentials that a session of these vaults may use.
    pub(crate) async fn credentials_of(
        &self,
        vaults: &[VaultId],
    ) -> Result<Vec<SessionCredential>> {
        let mut rows = Vec::with_capacity(vaults.len());
        for vault in vaults {
            rows.push(self.store().active_credentials(*vault).await?);
        }
        chosen(rows)
    }

    /// The value of a credential as it goes on the wire now. An access token that ends is refreshed before.
    ///
    /// # Errors
    /// `VAULT_CREDENTIAL_NOT_FOUND`, `VAULT_CREDENTIAL_ARCHIVED`, `VAULT_CREDENTIAL_EXPIRED`,
    /// `VAULT_CREDENTIAL_REFRESH_FAILED`, `VAULT_CREDENTIAL_UNAVAILABLE`.
    pub(crate) async fn credential_value(&self, credential: &SessionCredential) -> Result<Secret> {
        self.keeper.value(credential.vault_id, credential.id).await
    }
}

/// A secret with what is kept beside it.
fn kept(spec: &CredentialSpec, secret: CredentialSecret) -> Kept {
    let expires_at = match spec {
        CredentialSpec::McpOauth { expires_at, .. } => *expires_at,
        _ => None,
    };
    Kept { secret, expires_at }
}

/// The parts that are given, and those that were and still are of use.
fn merged(spec: &CredentialSpec, before: CredentialSecret, new: SecretUpdate) -> CredentialSecret {
    let has_client_secret = match spec {
        CredentialSpec::McpOauth {
            refresh: Some(refresh),
            ..
        } => refresh.auth_method.needs_secret(),
        _ => false,
    };
    let client_secret = before.client_secret.filter(|_| has_client_secret);
    CredentialSecret {
        value: new.value.unwrap_or(before.value),
        refresh_token: new.refresh_token.or(before.refresh_token),
        client_secret: new.client_secret.or(client_secret),
    }
}

pub(crate) fn vault_error(error: astrabox_store::Error) -> Error {
    match error {
        astrabox_store::Error::NotFound | astrabox_store::Error::NoVault => Error::new(
            ErrorReason::VaultNotFound,
            "no vault has this id; list them with ListVaults",
        ),
        astrabox_store::Error::Archived => vault_archived(),
        error => error.into(),
    }
}

pub(crate) fn vault_archived() -> Error {
    Error::new(
        ErrorReason::VaultArchived,
        "the vault is archived and takes no credentials and no agents; make a new one",
    )
}

fn insert_error(error: astrabox_store::Error) -> Error {
    match error {
        astrabox_store::Error::Exists => Error::new(
            ErrorReason::VaultCredentialConflict,
            "another active credential of the vault is for the same address or variable; update it, or archive it \
             first",
        ),
        astrabox_store::Error::Full => Error::new(
            ErrorReason::VaultCredentialLimit,
            format!(
                "the vault has {} active credentials, as many as it may have; archive one, or take another vault",
                astrabox_types::MAX_VAULT_CREDENTIALS
            ),
        ),
        error => vault_error(error),
    }
}
