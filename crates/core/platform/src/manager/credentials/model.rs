//! Model endpoints and their keys.

use astrabox_model::{
    CredentialKind, CredentialRef, IssueRequest, ModelEndpointProvider, ModelRequest,
    ResolvedModelAccess,
};
use astrabox_types::{CredentialId, CredentialSpec, ErrorReason, ModelKeyKind, Secret, VaultId};

use super::{Bearer, Manager};
use crate::vault::SessionCredential;
use crate::{Error, Result};

/// Who resolved an endpoint that an agent's vault has.
const BY_VAULT: &str = "vault";

/// How long a credential that an endpoint issues for a session lasts.
const ISSUED_FOR: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The endpoint of a `model_key`, when it has the model.
pub(super) fn of_vault(
    credential: &SessionCredential,
    wanted: &ModelRequest,
) -> Option<ResolvedModelAccess> {
    let CredentialSpec::ModelKey {
        endpoint,
        kind,
        models,
    } = &credential.spec
    else {
        return None;
    };
    let model_name = match wanted.model.as_str() {
        "" => models.first()?.clone(),
        named if models.is_empty() || models.iter().any(|known| known == named) => named.to_owned(),
        _ => return None,
    };
    Some(ResolvedModelAccess {
        base_url: endpoint.trim_end_matches('/').to_owned(),
        model_name,
        credential: Some(CredentialRef {
            credential_id: credential.id.to_string(),
        }),
        credential_kind: match kind {
            ModelKeyKind::Bearer => CredentialKind::Bearer,
            ModelKeyKind::ApiKey => CredentialKind::ApiKey,
        },
        endpoint_provider: BY_VAULT.to_owned(),
    })
}

impl Manager {
    /// The credentials that the deployment's model endpoints want, as far as they can be used: an agent with an endpoint
    /// of its own does not need them.
    pub(super) async fn model_credentials(&self) -> Result<Vec<SessionCredential>> {
        let mut all = Vec::new();
        for provider in self.parts.models.values() {
            let Some(wanted) = provider.credential() else {
                continue;
            };
            match self.model_credential(&wanted).await {
                Ok(credential) => all.push(credential),
                Err(error) if error.reason() == ErrorReason::VaultCredentialNotFound => {
                    tracing::warn!(%error, "a model endpoint has no credential");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Whether a model endpoint of the deployment wants a credential.
    pub(super) fn wants_model_credentials(&self) -> bool {
        let mut providers = self.parts.models.values();
        providers.any(|provider| provider.credential().is_some())
    }

    /// Whether a model endpoint of the deployment issues credentials, which end.
    pub(super) fn issues_credentials(&self) -> bool {
        let mut providers = self.parts.models.values();
        providers.any(|provider| provider.issues_credentials())
    }

    /// Whether a vault has, or had, the credential of a model endpoint.
    pub(super) async fn is_of_models(&self, vault: VaultId) -> Result<bool> {
        for provider in self.parts.models.values() {
            let Some(wanted) = provider.credential() else {
                continue;
            };
            let Ok(id) = wanted.credential_id.parse::<CredentialId>() else {
                continue;
            };
            match self.store().credential_of_any_vault(id).await {
                Ok(row) if row.credential.vault_id != vault => {}
                // It is there, or it is gone and may have been.
                Ok(_) | Err(astrabox_store::Error::NotFound) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// The model keys of these vaults, in order.
    pub(super) async fn model_keys_of(&self, vaults: &[VaultId]) -> Result<Vec<SessionCredential>> {
        let mut all = Vec::new();
        for vault in vaults {
            for row in self.store().active_credentials(*vault).await? {
                if matches!(row.credential.spec, CredentialSpec::ModelKey { .. }) {
                    all.push(SessionCredential {
                        vault_id: row.credential.vault_id,
                        id: row.credential.id,
                        secret_version: row.credential.secret_version,
                        spec: row.credential.spec,
                    });
                }
            }
        }
        Ok(all)
    }

    pub(super) async fn model_credential(
        &self,
        wanted: &CredentialRef,
    ) -> Result<SessionCredential> {
        let id = &wanted.credential_id;
        let missing = || {
            let text = format!(
                "the model endpoint's credential `{id}` is not an active model_key of a vault; mend the \
                 provider's `credential` setting"
            );
            Error::new(ErrorReason::VaultCredentialNotFound, text)
        };
        let parsed: CredentialId = id.parse().map_err(|_| missing())?;
        let row = self.store().credential_of_any_vault(parsed).await;
        let credential = match row {
            Ok(row) => row.credential,
            Err(astrabox_store::Error::NotFound) => return Err(missing()),
            Err(error) => return Err(error.into()),
        };
        let usable = credential.archived_at.is_none()
            && matches!(credential.spec, CredentialSpec::ModelKey { .. });
        if !usable {
            return Err(missing());
        }
        Ok(SessionCredential {
            vault_id: credential.vault_id,
            id: credential.id,
            secret_version: credential.secret_version,
            spec: credential.spec,
        })
    }

    /// What is put into a session's requests for this credential: its own value, or what the model endpoint issued
    /// for the session.
    pub(super) async fn value_for(
        &self,
        bearer: Bearer<'_>,
        credential: &SessionCredential,
    ) -> Result<Secret> {
        let id = credential.id.to_string();
        let issuer = self.parts.models.values().find(|provider| {
            let own = provider.credential();
            provider.issues_credentials() && own.is_some_and(|own| own.credential_id == id)
        });
        let value = self.credential_value(credential).await?;
        match issuer {
            None => Ok(value),
            Some(issuer) => self.issued(issuer.as_ref(), &id, bearer, &value).await,
        }
    }

    /// The credential that the endpoint has issued for this session, or a new one.
    async fn issued(
        &self,
        issuer: &dyn ModelEndpointProvider,
        credential: &str,
        bearer: Bearer<'_>,
        with: &Secret,
    ) -> Result<Secret> {
        // Good only where, and for what, it was issued.
        let gateway = issuer.gateway().unwrap_or_default();
        let issuer_of = format!("{credential} {gateway} {}", bearer.agent.model);
        let known = self.keeper.issued(bearer.session_id).await?;
        if let Some(known) = known.filter(|known| known.issuer == issuer_of) {
            return Ok(known.secret);
        }
        let request = IssueRequest {
            session_id: bearer.session_id,
            model: bearer.agent.model.clone(),
            lifetime: ISSUED_FOR,
        };
        let issued = issuer.issue(&request, Some(with)).await.map_err(|error| {
            Error::new(ErrorReason::VaultCredentialUnavailable, error.to_string())
        })?;
        match issued {
            Some(issued) => {
                self.keeper
                    .keep_issued(bearer.session_id, issuer_of, issued)
                    .await
            }
            None => Ok(Secret::new(with.expose().to_vec())),
        }
    }

    /// Ends what a model endpoint issued for a session. What fails ends by itself, with its lifetime.
    pub(crate) async fn revoke_issued(&self, session: astrabox_types::SessionId) {
        let issued = match self.keeper.take_issued(session).await {
            Ok(Some(issued)) => issued,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%session, %error, "what was issued for a session is not known");
                return;
            }
        };
        for provider in self.parts.models.values() {
            let Some(wanted) = provider
                .credential()
                .filter(|_| provider.issues_credentials())
            else {
                continue;
            };
            let revoked = async {
                let credential = self.model_credential(&wanted).await?;
                let with = self.credential_value(&credential).await?;
                let revoked = provider.revoke(&issued.id, Some(&with)).await;
                revoked.map_err(|error| {
                    Error::new(ErrorReason::VaultCredentialUnavailable, error.to_string())
                })
            };
            if let Err(error) = revoked.await {
                tracing::warn!(%session, %error, "an issued model credential was not revoked; it ends by itself");
            }
        }
    }
}
