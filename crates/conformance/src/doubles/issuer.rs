//! A model endpoint provider in memory that issues credentials.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_model::{
    CredentialKind, CredentialRef, Error, ErrorKind, IssueRequest, IssuedCredential,
    ModelEndpointProvider, ModelList, ModelRequest, ResolvedModelAccess,
};
use astrabox_types::{CredentialId, Secret, Timestamp};
use async_trait::async_trait;

use super::FixedModels;

/// A gateway with a key of its own, which issues others. A clone is the same gateway. It compares in the plain way,
/// which only a double may.
#[derive(Clone)]
pub struct KeyIssuer {
    models: FixedModels,
    credential: CredentialRef,
    key: String,
    issued: Arc<Mutex<BTreeMap<String, String>>>,
}

impl KeyIssuer {
    /// A gateway whose own key is this.
    #[must_use]
    pub fn new(models: FixedModels, key: &str) -> Self {
        Self {
            models,
            credential: CredentialRef {
                credential_id: CredentialId::new().to_string(),
            },
            key: key.to_owned(),
            issued: Arc::default(),
        }
    }

    /// Whether it accepts this for a model.
    #[must_use]
    pub fn accepts(&self, secret: &Secret) -> bool {
        let known = |value: &String| value.as_bytes() == secret.expose();
        known(&self.key) || self.issued().values().any(known)
    }

    fn issued(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn demand_key(&self, operation: &'static str, with: Option<&Secret>) -> Result<(), Error> {
        match with {
            Some(secret) if secret.expose() == self.key.as_bytes() => Ok(()),
            Some(_) => Err(Error::new(
                ErrorKind::Denied,
                operation,
                "it is another key",
            )),
            None => {
                let text = "set `model.issuer.credential`";
                Err(Error::new(ErrorKind::NotConfigured, operation, text))
            }
        }
    }
}

#[async_trait]
impl ModelEndpointProvider for KeyIssuer {
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error> {
        Ok(ResolvedModelAccess {
            credential: self.credential(),
            credential_kind: CredentialKind::Bearer,
            ..self.models.resolve(request).await?
        })
    }

    fn gateway(&self) -> Option<String> {
        self.models.gateway()
    }

    fn credential(&self) -> Option<CredentialRef> {
        Some(self.credential.clone())
    }

    async fn list(&self, with: Option<&Secret>) -> Result<ModelList, Error> {
        self.demand_key("list", with)?;
        self.models.list(None).await
    }

    fn issues_credentials(&self) -> bool {
        true
    }

    async fn issue(
        &self,
        request: &IssueRequest,
        with: Option<&Secret>,
    ) -> Result<Option<IssuedCredential>, Error> {
        self.demand_key("issue", with)?;
        let expires_at = Timestamp::now()
            .checked_add(request.lifetime)
            .map_err(|error| Error::new(ErrorKind::Invalid, "issue", error.to_string()))?;
        let id = CredentialId::new().to_string();
        let value = CredentialId::new().uuid().to_string();
        self.issued().insert(id.clone(), value.clone());
        Ok(Some(IssuedCredential {
            id,
            secret: Secret::new(value.into_bytes()),
            expires_at,
        }))
    }

    async fn revoke(&self, id: &str, with: Option<&Secret>) -> Result<(), Error> {
        self.demand_key("revoke", with)?;
        self.issued().remove(id);
        Ok(())
    }
}
