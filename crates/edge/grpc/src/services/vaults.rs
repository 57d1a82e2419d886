//! `astrabox.v1.VaultService`.

use astrabox_platform::{Platform, VaultDraft, VaultView};
use astrabox_proto::v1::vault_service_server::VaultService;
use astrabox_proto::v1::{
    ArchiveVaultCredentialRequest, ArchiveVaultCredentialResponse, ArchiveVaultRequest,
    ArchiveVaultResponse, CreateVaultCredentialRequest, CreateVaultCredentialResponse,
    CreateVaultRequest, CreateVaultResponse, DeleteVaultCredentialRequest, DeleteVaultRequest,
    GetVaultCredentialRequest, GetVaultCredentialResponse, GetVaultRequest, GetVaultResponse,
    ListVaultCredentialsRequest, ListVaultCredentialsResponse, ListVaultsRequest,
    ListVaultsResponse, RotateSecretKeyRequest, RotateSecretKeyResponse,
    UpdateVaultCredentialRequest, UpdateVaultCredentialResponse, UpdateVaultRequest,
    UpdateVaultResponse,
};
use tonic::{Request, Response, Status};

use crate::call::answer;
use crate::convert::{from_proto, vault as convert};

pub(crate) struct Vaults(pub(crate) Platform);

#[async_trait::async_trait]
impl VaultService for Vaults {
    async fn create_vault(
        &self,
        request: Request<CreateVaultRequest>,
    ) -> Result<Response<CreateVaultResponse>, Status> {
        answer("CreateVault", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let draft = VaultDraft {
                display_name: request.display_name,
                metadata: request.metadata.into_iter().collect(),
            };
            let vault = self.0.create_vault(&caller.ctx, key, draft).await?;
            Ok(CreateVaultResponse {
                vault: Some(convert::vault_to_proto(vault)),
            })
        })
        .await
    }

    async fn get_vault(
        &self,
        request: Request<GetVaultRequest>,
    ) -> Result<Response<GetVaultResponse>, Status> {
        answer("GetVault", request, async |caller, request| {
            let id = from_proto::id("vault_id", &request.vault_id)?;
            let VaultView { vault, agent_ids } = self.0.get_vault(&caller.ctx, id).await?;
            Ok(GetVaultResponse {
                vault: Some(convert::vault_to_proto(vault)),
                agent_ids: agent_ids.iter().map(ToString::to_string).collect(),
            })
        })
        .await
    }

    async fn list_vaults(
        &self,
        request: Request<ListVaultsRequest>,
    ) -> Result<Response<ListVaultsResponse>, Status> {
        answer("ListVaults", request, async |caller, request| {
            let page = from_proto::page(request.page_size, request.page_token)?;
            let page = self
                .0
                .list_vaults(&caller.ctx, page, request.include_archived)
                .await?;
            Ok(ListVaultsResponse {
                vaults: page
                    .items
                    .into_iter()
                    .map(convert::vault_to_proto)
                    .collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn update_vault(
        &self,
        request: Request<UpdateVaultRequest>,
    ) -> Result<Response<UpdateVaultResponse>, Status> {
        answer("UpdateVault", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("vault_id", &request.vault_id)?;
            let update = convert::vault_update(request)?;
            let vault = self.0.update_vault(&caller.ctx, key, id, update).await?;
            Ok(UpdateVaultResponse {
                vault: Some(convert::vault_to_proto(vault)),
            })
        })
        .await
    }

    async fn archive_vault(
        &self,
        request: Request<ArchiveVaultRequest>,
    ) -> Result<Response<ArchiveVaultResponse>, Status> {
        answer("ArchiveVault", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("vault_id", &request.vault_id)?;
            let vault = self.0.archive_vault(&caller.ctx, key, id).await?;
            Ok(ArchiveVaultResponse {
                vault: Some(convert::vault_to_proto(vault)),
            })
        })
        .await
    }

    async fn delete_vault(
        &self,
        request: Request<DeleteVaultRequest>,
    ) -> Result<Response<()>, Status> {
        answer("DeleteVault", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("vault_id", &request.vault_id)?;
            self.0.delete_vault(&caller.ctx, key, id).await
        })
        .await
    }

    async fn create_vault_credential(
        &self,
        request: Request<CreateVaultCredentialRequest>,
    ) -> Result<Response<CreateVaultCredentialResponse>, Status> {
        answer("CreateVaultCredential", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let draft = convert::credential_draft(request)?;
            let made = self
                .0
                .create_vault_credential(&caller.ctx, key, draft)
                .await?;
            Ok(CreateVaultCredentialResponse {
                credential: Some(convert::credential_to_proto(made)),
            })
        })
        .await
    }

    async fn get_vault_credential(
        &self,
        request: Request<GetVaultCredentialRequest>,
    ) -> Result<Response<GetVaultCredentialResponse>, Status> {
        answer("GetVaultCredential", request, async |caller, request| {
            let vault = from_proto::id("vault_id", &request.vault_id)?;
            let id = from_proto::id("credential_id", &request.credential_id)?;
            let found = self.0.get_vault_credential(&caller.ctx, vault, id).await?;
            Ok(GetVaultCredentialResponse {
                credential: Some(convert::credential_to_proto(found)),
            })
        })
        .await
    }

    async fn list_vault_credentials(
        &self,
        request: Request<ListVaultCredentialsRequest>,
    ) -> Result<Response<ListVaultCredentialsResponse>, Status> {
        answer("ListVaultCredentials", request, async |caller, request| {
            let vault = from_proto::id("vault_id", &request.vault_id)?;
            let page = from_proto::page(request.page_size, request.page_token)?;
            let archived = request.include_archived;
            let page = self
                .0
                .list_vault_credentials(&caller.ctx, vault, page, archived)
                .await?;
            let credentials = page.items.into_iter();
            Ok(ListVaultCredentialsResponse {
                credentials: credentials.map(convert::credential_to_proto).collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn update_vault_credential(
        &self,
        request: Request<UpdateVaultCredentialRequest>,
    ) -> Result<Response<UpdateVaultCredentialResponse>, Status> {
        answer("UpdateVaultCredential", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let update = convert::credential_update(request)?;
            let updated = self
                .0
                .update_vault_credential(&caller.ctx, key, update)
                .await?;
            Ok(UpdateVaultCredentialResponse {
                credential: Some(convert::credential_to_proto(updated)),
            })
        })
        .await
    }

    async fn archive_vault_credential(
        &self,
        request: Request<ArchiveVaultCredentialRequest>,
    ) -> Result<Response<ArchiveVaultCredentialResponse>, Status> {
        answer(
            "ArchiveVaultCredential",
            request,
            async |caller, request| {
                let key = caller.key(&request.idempotency_key)?;
                let vault = from_proto::id("vault_id", &request.vault_id)?;
                let id = from_proto::id("credential_id", &request.credential_id)?;
                let archived = self
                    .0
                    .archive_vault_credential(&caller.ctx, key, vault, id)
                    .await?;
                Ok(ArchiveVaultCredentialResponse {
                    credential: Some(convert::credential_to_proto(archived)),
                })
            },
        )
        .await
    }

    async fn delete_vault_credential(
        &self,
        request: Request<DeleteVaultCredentialRequest>,
    ) -> Result<Response<()>, Status> {
        answer("DeleteVaultCredential", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let vault = from_proto::id("vault_id", &request.vault_id)?;
            let id = from_proto::id("credential_id", &request.credential_id)?;
            self.0
                .delete_vault_credential(&caller.ctx, key, vault, id)
                .await
        })
        .await
    }

    async fn rotate_secret_key(
        &self,
        request: Request<RotateSecretKeyRequest>,
    ) -> Result<Response<RotateSecretKeyResponse>, Status> {
        answer("RotateSecretKey", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let key_version = self.0.rotate_secret_key(&caller.ctx, key).await?;
            Ok(RotateSecretKeyResponse { key_version })
        })
        .await
    }
}
