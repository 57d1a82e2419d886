//! The platform's public face of vaults.

use astrabox_identity::OpContext;
use astrabox_types::{CredentialId, Vault, VaultCredential, VaultId};

use crate::{
    CredentialDraft, CredentialUpdate, IdempotencyKey, Page, PageRequest, Platform, Result,
    VaultDraft, VaultUpdate, VaultView,
};

type Key = Option<IdempotencyKey>;

impl Platform {
    /// Makes a vault.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn create_vault(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: VaultDraft,
    ) -> Result<Vault> {
        self.manager.create_vault(ctx, key, draft).await
    }

    /// One vault, and the agents that use it.
    ///
    /// # Errors
    /// `VAULT_NOT_FOUND`.
    pub async fn get_vault(&self, ctx: &OpContext, id: VaultId) -> Result<VaultView> {
        self.manager.get_vault(ctx, id).await
    }

    /// Vaults, newest first.
    ///
    /// # Errors
    /// `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_vaults(
        &self,
        ctx: &OpContext,
        page: PageRequest,
        include_archived: bool,
    ) -> Result<Page<Vault>> {
        self.manager.list_vaults(ctx, page, include_archived).await
    }

    /// Changes a vault.
    ///
    /// # Errors
    /// As `create_vault`, and `VAULT_NOT_FOUND`.
    pub async fn update_vault(
        &self,
        ctx: &OpContext,
        key: Key,
        id: VaultId,
        update: VaultUpdate,
    ) -> Result<Vault> {
        self.manager.update_vault(ctx, key, id, update).await
    }

    /// Archives a vault with every credential in it; their secrets are removed. Also when agents use it: they go on
    /// without.
    ///
    /// # Errors
    /// `VAULT_NOT_FOUND`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn archive_vault(&self, ctx: &OpContext, key: Key, id: VaultId) -> Result<Vault> {
        let done = self.manager.archive_vault(ctx, key, id).await?;
        self.manager.credentials_changed(id).await;
        Ok(done)
    }

    /// Removes a vault that no agent uses, with every credential in it.
    ///
    /// # Errors
    /// `VAULT_NOT_FOUND`, `VAULT_IN_USE`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn delete_vault(&self, ctx: &OpContext, key: Key, id: VaultId) -> Result<()> {
        self.manager.delete_vault(ctx, key, id).await?;
        self.manager.credentials_changed(id).await;
        Ok(())
    }

    /// Makes a credential. Its secret is kept before anybody can see it.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `VAULT_NOT_FOUND`, `VAULT_ARCHIVED`, `VAULT_CREDENTIAL_CONFLICT`, `VAULT_CREDENTIAL_LIMIT`,
    /// `VAULT_CREDENTIAL_UNAVAILABLE`, `SECRET_STORE_UNAVAILABLE`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn create_vault_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: CredentialDraft,
    ) -> Result<VaultCredential> {
        let vault = draft.vault_id;
        let done = self.manager.create_credential(ctx, key, draft).await?;
        self.manager.credentials_changed(vault).await;
        Ok(done)
    }

    /// One credential, without its secret.
    ///
    /// # Errors
    /// `VAULT_CREDENTIAL_NOT_FOUND`.
    pub async fn get_vault_credential(
        &self,
        ctx: &OpContext,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<VaultCredential> {
        self.manager.get_credential(ctx, vault_id, id).await
    }

    /// The credentials of a vault, oldest first, without their secrets.
    ///
    /// # Errors
    /// `VAULT_NOT_FOUND`, `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_vault_credentials(
        &self,
        ctx: &OpContext,
        vault_id: VaultId,
        page: PageRequest,
        include_archived: bool,
    ) -> Result<Page<VaultCredential>> {
        self.manager
            .list_credentials(ctx, vault_id, page, include_archived)
            .await
    }

    /// Rotates a credential's secret, or changes what may be changed of it.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `VAULT_CREDENTIAL_NOT_FOUND`, `VAULT_CREDENTIAL_ARCHIVED`, `VERSION_CONFLICT`,
    /// `VAULT_CREDENTIAL_UNAVAILABLE`, `SECRET_STORE_UNAVAILABLE`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn update_vault_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        update: CredentialUpdate,
    ) -> Result<VaultCredential> {
        let vault = update.vault_id;
        let done = self.manager.update_credential(ctx, key, update).await?;
        self.manager.credentials_changed(vault).await;
        Ok(done)
    }

    /// Archives a credential; its secret is removed.
    ///
    /// # Errors
    /// `VAULT_CREDENTIAL_NOT_FOUND`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn archive_vault_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<VaultCredential> {
        let done = self
            .manager
            .archive_credential(ctx, key, vault_id, id)
            .await?;
        self.manager.credentials_changed(vault_id).await;
        Ok(done)
    }

    /// Removes a credential and its secret.
    ///
    /// # Errors
    /// `VAULT_CREDENTIAL_NOT_FOUND`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn delete_vault_credential(
        &self,
        ctx: &OpContext,
        key: Key,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<()> {
        self.manager
            .delete_credential(ctx, key, vault_id, id)
            .await?;
        self.manager.credentials_changed(vault_id).await;
        Ok(())
    }

    /// Encrypts every secret with a new key and gives the key's version.
    ///
    /// # Errors
    /// `VAULT_CREDENTIAL_UNAVAILABLE`, `SECRET_STORE_UNAVAILABLE`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn rotate_secret_key(&self, ctx: &OpContext, key: Key) -> Result<u32> {
        self.manager.rotate_secret_key(ctx, key).await
    }
}
