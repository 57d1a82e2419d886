//! The value of a credential as it goes on the wire now: access tokens are refreshed before they end.

use std::sync::Arc;

use astrabox_oauth::{ErrorKind, RefreshRequest};
use astrabox_store::CredentialRow;
use astrabox_types::{
    CredentialId, CredentialSpec, ErrorReason, OauthRefresh, Secret, Timestamp, VaultId,
};
use tokio::time::Instant;

use super::keeper::Keeper;
use super::parts::Kept;
use crate::{Error, Result};

/// A token that ends within this time is refreshed, seconds.
const SKEW: i64 = 60;

/// Whether a token that ends then is to be refreshed now.
pub(super) fn is_due(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_some_and(|at| at.as_second() - now.as_second() <= SKEW)
}

impl Keeper {
    /// The value of a credential: what it is bound to may have been rotated since it was listed, so it is read anew.
    ///
    /// # Errors
    /// `VAULT_CREDENTIAL_NOT_FOUND`, `VAULT_CREDENTIAL_ARCHIVED`, `VAULT_CREDENTIAL_EXPIRED`,
    /// `VAULT_CREDENTIAL_REFRESH_FAILED`, `VAULT_CREDENTIAL_UNAVAILABLE`.
    pub(crate) async fn value(
        self: &Arc<Self>,
        vault_id: VaultId,
        id: CredentialId,
    ) -> Result<Secret> {
        let keeper = Arc::clone(self);
        // A rotated refresh token that is answered and not kept is lost for ever: this goes to its end.
        let work = self.tasks.spawn(async move {
            let _lock = keeper.lock(id).await;
            let row = keeper.store.credential(vault_id, id).await;
            keeper.value_now(row.map_err(credential_error)?).await
        });
        work.await
            .unwrap_or_else(|_| Err(Error::new(ErrorReason::Internal, "reading a secret failed")))
    }

    async fn value_now(&self, row: CredentialRow) -> Result<Secret> {
        let Some(name) = &row.secret_name else {
            return Err(archived());
        };
        let kept = self.read(name).await?;
        let CredentialSpec::McpOauth { refresh, .. } = &row.credential.spec else {
            return Ok(kept.secret.value);
        };
        let now = Timestamp::now();
        if !is_due(kept.expires_at, now) {
            return Ok(kept.secret.value);
        }
        let alive = kept.expires_at.is_some_and(|at| at > now);
        let Some(refresh) = refresh else {
            if alive {
                return Ok(kept.secret.value);
            }
            let text = format!(
                "the access token of {} has ended and nothing refreshes it; give a new one",
                row.credential.id
            );
            return Err(Error::new(ErrorReason::VaultCredentialExpired, text));
        };
        match self.refreshed_or_failed(&row, refresh, &kept).await {
            Ok(new) => {
                self.keep_again(name, &new).await?;
                // Its vault may have been archived or deleted meanwhile, and the secret removed.
                let now = self
                    .store
                    .credential(row.credential.vault_id, row.credential.id);
                let still = now
                    .await
                    .is_ok_and(|now| now.secret_name.as_ref() == Some(name));
                if !still {
                    self.remove(name).await?;
                    return Err(archived());
                }
                self.show(&row, name, new.expires_at).await;
                Ok(new.secret.value)
            }
            // It is of use until it ends.
            Err(error) if alive && error.is_retryable() => {
                tracing::warn!(credential = %row.credential.id, %error, "an access token is not refreshed yet");
                Ok(kept.secret.value)
            }
            Err(error) => Err(error.with("credential_id", row.credential.id.to_string())),
        }
    }

    /// A new token; the failure before, while the endpoint is left in peace for its sake.
    async fn refreshed_or_failed(
        &self,
        row: &CredentialRow,
        refresh: &OauthRefresh,
        kept: &Kept,
    ) -> Result<Kept> {
        if let Some(failure) = self.failures.fresh(row, Instant::now()) {
            return Err(failure);
        }
        let refreshed = self.refreshed(refresh, kept).await;
        match &refreshed {
            Ok(_) => self.failures.forget(row.credential.id),
            Err(error) => self.failures.note(row, error, Instant::now()),
        }
        refreshed
    }

    async fn refreshed(&self, refresh: &OauthRefresh, kept: &Kept) -> Result<Kept> {
        let secret = &kept.secret;
        let Some(refresh_token) = &secret.refresh_token else {
            let text = "there is no refresh token; give one";
            return Err(Error::new(ErrorReason::VaultCredentialRefreshFailed, text));
        };
        let request = RefreshRequest {
            endpoint: &refresh.token_endpoint,
            client_id: &refresh.client_id,
            auth_method: refresh.auth_method,
            client_secret: secret.client_secret.as_ref(),
            refresh_token,
            scope: &refresh.scope,
        };
        let asked = Timestamp::now();
        let tokens = self.oauth.refresh(request).await.map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::Refused | ErrorKind::Invalid | ErrorKind::Forbidden => {
                    ErrorReason::VaultCredentialRefreshFailed
                }
                ErrorKind::Unavailable => ErrorReason::VaultCredentialUnavailable,
            };
            Error::new(reason, error.to_string()).with_source(error)
        })?;
        let copy = |secret: &Secret| Secret::new(secret.expose().to_vec());
        let ends = |seconds: u64| {
            let seconds = i64::try_from(seconds).ok()?;
            Timestamp::from_second(asked.as_second().checked_add(seconds)?).ok()
        };
        Ok(Kept {
            expires_at: tokens.expires_in.and_then(|time| ends(time.as_secs())),
            secret: astrabox_types::CredentialSecret {
                value: tokens.access_token,
                refresh_token: Some(tokens.refresh_token.unwrap_or_else(|| copy(refresh_token))),
                client_secret: secret.client_secret.as_ref().map(copy),
            },
        })
    }

    /// Shows when the new token ends. What counts is kept with the token.
    async fn show(&self, row: &CredentialRow, name: &str, ends: Option<Timestamp>) {
        let mut spec = row.credential.spec.clone();
        if let CredentialSpec::McpOauth { expires_at, .. } = &mut spec {
            *expires_at = ends;
        }
        let written = self
            .store
            .refreshed_credential(row.credential.id, name.to_owned(), spec)
            .await;
        if let Err(error) = written {
            tracing::warn!(credential = %row.credential.id, %error, "the end of a refreshed token is not shown");
        }
    }
}

pub(crate) fn archived() -> Error {
    Error::new(
        ErrorReason::VaultCredentialArchived,
        "the credential is archived and has no secret any more; make a new one",
    )
}

pub(crate) fn credential_error(error: astrabox_store::Error) -> Error {
    match error {
        astrabox_store::Error::NotFound => Error::new(
            ErrorReason::VaultCredentialNotFound,
            "no credential of this vault has this id; list them with ListVaultCredentials",
        ),
        astrabox_store::Error::Archived => archived(),
        astrabox_store::Error::Changed => Error::new(
            ErrorReason::VersionConflict,
            "the credential was changed at the same time; read it again and repeat",
        ),
        error => error.into(),
    }
}
