//! Where secrets are: kept before a credential shows them, removed after none does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use astrabox_egress::MintKey;
use astrabox_model::IssuedCredential;
use astrabox_oauth::TokenClient;
use astrabox_secrets::{ErrorKind, KeyVersion, SecretName, SecretStore};
use astrabox_store::Store;
use astrabox_types::{CredentialId, CredentialSecret, ErrorReason, Secret, SessionId, Timestamp};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, OwnedMutexGuard};
use tokio_util::task::TaskTracker;

use super::failures::Failures;
use super::parts::Kept;
use crate::{Error, IdempotencyKey, Result};

/// The name of the key that digests of requests with secrets are made with.
const DIGEST_KEY: &str = "platform/digest-key";
/// The name of the key that placeholders are minted with.
const MINT_KEY: &str = "platform/mint-key";

/// How long an issued credential has to be good for at least.
const ISSUED_RESERVE: Duration = Duration::from_secs(3600);

/// Keeps the secrets of credentials.
pub(crate) struct Keeper {
    pub(super) store: Store,
    secrets: Option<Arc<dyn SecretStore>>,
    pub(super) oauth: TokenClient,
    /// Refreshes that failed of late.
    pub(super) failures: Failures,
    /// A refresh goes to its end although nobody waits for it any more.
    pub(super) tasks: TaskTracker,
    digest_key: OnceCell<Secret>,
    mint_key: OnceCell<MintKey>,
    /// Who writes a credential's secret holds its lock.
    busy: Mutex<HashMap<CredentialId, Weak<AsyncMutex<()>>>>,
}

impl Keeper {
    pub(crate) fn new(
        store: Store,
        secrets: Option<Arc<dyn SecretStore>>,
        oauth: TokenClient,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            store,
            secrets,
            oauth,
            failures: Failures::default(),
            tasks,
            digest_key: OnceCell::new(),
            mint_key: OnceCell::new(),
            busy: Mutex::default(),
        }
    }

    fn secrets(&self) -> Result<&dyn SecretStore> {
        self.secrets.as_deref().ok_or_else(|| {
            Error::new(
                ErrorReason::SecretStoreUnavailable,
                "the server has no secret store, so vaults take no credentials; link one and set secrets.provider",
            )
        })
    }

    /// Removes what no credential has: secrets of creations and changes that were cut off, and of credentials that
    /// were archived in the same moment. For a start, before anybody else writes.
    pub(crate) async fn sweep(&self) -> Result<()> {
        for name in self.store.leftovers().await? {
            self.remove_leftover(&name).await;
        }
        Ok(())
    }

    /// Keeps a secret under a name of its own that no credential has yet, and gives the name.
    pub(crate) async fn keep(&self, id: CredentialId, kept: &Kept) -> Result<String> {
        let secrets = self.secrets()?;
        let name = format!("vault/{id}/{}", CredentialId::new().uuid().simple());
        let secret_name = SecretName::new(&name).map_err(secret_error)?;
        self.store.note_leftover(name.clone()).await?;
        secrets
            .put(&secret_name, kept.pack())
            .await
            .map_err(secret_error)?;
        Ok(name)
    }

    /// Keeps a secret in place of the one of this name.
    pub(super) async fn keep_again(&self, name: &str, kept: &Kept) -> Result<()> {
        let name = SecretName::new(name).map_err(secret_error)?;
        self.secrets()?
            .put(&name, kept.pack())
            .await
            .map_err(secret_error)
    }

    /// Removes the secret of this name.
    pub(super) async fn remove(&self, name: &str) -> Result<()> {
        let name = SecretName::new(name).map_err(secret_error)?;
        self.secrets()?.remove(&name).await.map_err(secret_error)
    }

    /// The secret of this name.
    pub(crate) async fn read(&self, name: &str) -> Result<Kept> {
        let name = SecretName::new(name).map_err(secret_error)?;
        let kept = self.secrets()?.get(&name).await.map_err(secret_error)?;
        Kept::unpack(&kept).map_err(|_| {
            Error::new(
                ErrorReason::VaultCredentialUnavailable,
                "the secret is in a form that this version does not know",
            )
        })
    }

    /// Removes the secret of this name if no credential has it. What fails is done by the next start.
    pub(crate) async fn sweep_one(&self, name: &str) {
        match self.store.is_leftover(name).await {
            Ok(true) => self.remove_leftover(name).await,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "whether a secret is in use is not known"),
        }
    }

    async fn remove_leftover(&self, name: &str) {
        let removed = async {
            let name = SecretName::new(name).map_err(secret_error)?;
            self.secrets()?.remove(&name).await.map_err(secret_error)
        };
        let removed = match removed.await {
            Ok(()) => self.store.forget_leftover(name.to_owned()).await,
            Err(error) => {
                tracing::warn!(%error, "a secret that nobody uses could not be removed; the next start tries again");
                return;
            }
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "a removed secret is still noted");
        }
    }

    /// The lock of a credential's secret. One for each credential that is written now.
    pub(crate) async fn lock(&self, id: CredentialId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.retain(|_, lock| lock.strong_count() > 0);
            match busy.get(&id).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(AsyncMutex::new(()));
                    busy.insert(id, Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }

    /// A key whose digest tells nothing about the secret in the request: a plain digest of a short one can be found by
    /// trying, and digests are stored.
    pub(crate) async fn veiled(
        &self,
        key: Option<IdempotencyKey>,
    ) -> Result<Option<IdempotencyKey>> {
        let Some(IdempotencyKey { key, digest }) = key else {
            return Ok(None);
        };
        let secret = self
            .digest_key
            .get_or_try_init(|| self.find_key(DIGEST_KEY));
        let mut sha = Sha256::new();
        sha.update(secret.await?.expose());
        sha.update(digest.as_bytes());
        let digest = sha.finalize();
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(IdempotencyKey { key, digest }))
    }

    /// The key of this deployment's placeholders.
    pub(crate) async fn mint_key(&self) -> Result<&MintKey> {
        let find = || async {
            let key = self.find_key(MINT_KEY).await?;
            let bytes = key.expose().try_into().map_err(|_| {
                Error::new(
                    ErrorReason::VaultCredentialUnavailable,
                    "the key of placeholders in the secret store has another length",
                )
            })?;
            Ok(MintKey::new(bytes))
        };
        self.mint_key.get_or_try_init(find).await
    }

    /// What a model endpoint has issued for a session and is still good for a while.
    pub(crate) async fn issued(&self, session: SessionId) -> Result<Option<Issued>> {
        let Some(kept) = self.read_issued(session).await? else {
            return Ok(None);
        };
        let soon = Timestamp::now() + ISSUED_RESERVE;
        let lasts = kept.expires_at.is_none_or(|end| end > soon);
        Ok(Some(kept).filter(|_| lasts).and_then(Issued::of))
    }

    /// Keeps what was issued, in place of what was issued before, and gives its value.
    pub(crate) async fn keep_issued(
        &self,
        session: SessionId,
        issuer: String,
        issued: IssuedCredential,
    ) -> Result<Secret> {
        let value = Secret::new(issued.secret.expose().to_vec());
        let kept = Kept {
            secret: CredentialSecret {
                value: issued.secret,
                // Its name at the endpoint, and who issued it for what, which go where it goes.
                refresh_token: Some(Secret::new(issued.id.into_bytes())),
                client_secret: Some(Secret::new(issuer.into_bytes())),
            },
            expires_at: Some(issued.expires_at),
        };
        self.keep_again(&issued_name(session), &kept).await?;
        Ok(value)
    }

    /// Forgets what was issued for a session and gives it.
    pub(crate) async fn take_issued(&self, session: SessionId) -> Result<Option<Issued>> {
        if self.secrets.is_none() {
            return Ok(None);
        }
        let Some(kept) = self.read_issued(session).await? else {
            return Ok(None);
        };
        let name = SecretName::new(issued_name(session)).map_err(secret_error)?;
        self.secrets()?.remove(&name).await.map_err(secret_error)?;
        Ok(Issued::of(kept))
    }

    async fn read_issued(&self, session: SessionId) -> Result<Option<Kept>> {
        let name = SecretName::new(issued_name(session)).map_err(secret_error)?;
        match self.secrets()?.get(&name).await {
            Ok(kept) => Ok(Kept::unpack(&kept).ok()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(secret_error(error)),
        }
    }

    async fn find_key(&self, name: &str) -> Result<Secret> {
        let secrets = self.secrets()?;
        let name = SecretName::new(name).map_err(secret_error)?;
        match secrets.get(&name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found.map_err(secret_error),
        }
        let mut bytes = vec![0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|_| Error::new(ErrorReason::Internal, "the system has no randomness"))?;
        let key = Secret::new(bytes);
        let kept = Secret::new(key.expose().to_vec());
        secrets.put(&name, kept).await.map_err(secret_error)?;
        Ok(key)
    }

    /// Changes the key of the secret store.
    pub(crate) async fn rotate_key(&self) -> Result<KeyVersion> {
        self.secrets()?.rotate_key().await.map_err(secret_error)
    }
}

/// What a model endpoint has issued for a session.
pub(crate) struct Issued {
    /// Its name at the endpoint.
    pub(crate) id: String,
    /// Who issued it, and for what.
    pub(crate) issuer: String,
    /// Its value.
    pub(crate) secret: Secret,
}

impl Issued {
    fn of(kept: Kept) -> Option<Self> {
        let text = |part: Secret| String::from_utf8(part.expose().to_vec()).ok();
        Some(Self {
            id: text(kept.secret.refresh_token?)?,
            issuer: text(kept.secret.client_secret?)?,
            secret: kept.secret.value,
        })
    }
}

fn issued_name(session: SessionId) -> String {
    format!("issued/{session}")
}

/// A store that failed, without what it says for logs.
fn secret_error(error: astrabox_secrets::Error) -> Error {
    let reason = match error.kind() {
        ErrorKind::Unsupported => ErrorReason::SecretStoreUnavailable,
        ErrorKind::NotFound | ErrorKind::Damaged | ErrorKind::Invalid | ErrorKind::Unavailable => {
            ErrorReason::VaultCredentialUnavailable
        }
    };
    Error::new(reason, error.to_string()).with_source(error)
}
