//! A secret store, a model endpoint provider and an identity provider in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_identity::{Actor, Evidence, IdentityProvider};
use astrabox_model::{
    CredentialKind, CredentialRef, IssueRequest, IssuedCredential, ModelEndpointProvider,
    ModelList, ModelRequest, ResolvedModelAccess,
};
use astrabox_secrets::{KeyVersion, Secret, SecretName, SecretStore};
use async_trait::async_trait;

/// A secret store in memory. A clone is the same store. It encrypts nothing, and only counts its keys.
#[derive(Clone, Default)]
pub struct MemorySecrets(Arc<Mutex<BTreeMap<SecretName, Vec<u8>>>>, Arc<AtomicU32>);

impl MemorySecrets {
    /// A store with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<SecretName, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SecretStore for MemorySecrets {
    async fn put(&self, name: &SecretName, value: Secret) -> Result<(), astrabox_secrets::Error> {
        self.values().insert(name.clone(), value.expose().to_vec());
        Ok(())
    }

    async fn get(&self, name: &SecretName) -> Result<Secret, astrabox_secrets::Error> {
        let value = self.values().get(name).cloned();
        value.map(Secret::new).ok_or_else(|| {
            let text = format!("no secret is called {}", name.as_str());
            astrabox_secrets::Error::new(astrabox_secrets::ErrorKind::NotFound, "get", text)
        })
    }

    async fn remove(&self, name: &SecretName) -> Result<(), astrabox_secrets::Error> {
        self.values().remove(name);
        Ok(())
    }

    async fn rotate_key(&self) -> Result<KeyVersion, astrabox_secrets::Error> {
        // The first key is 1.
        Ok(KeyVersion(self.1.fetch_add(1, Ordering::SeqCst) + 2))
    }
}

/// A model endpoint provider with one endpoint and a list of models.
#[derive(Debug, Clone, Default)]
pub struct FixedModels {
    /// The root of the endpoint; none when it is not configured.
    pub base_url: Option<String>,
    /// The models; any name where the list is empty.
    pub models: Vec<String>,
    /// Whether an endpoint without TLS is refused.
    pub require_https: bool,
}

#[async_trait]
impl ModelEndpointProvider for FixedModels {
    async fn resolve(
        &self,
        request: &ModelRequest,
    ) -> Result<ResolvedModelAccess, astrabox_model::Error> {
        use astrabox_model::ErrorKind;
        let error = |kind, text: &str| Err(astrabox_model::Error::new(kind, "resolve", text));
        let Some(base_url) = self.base_url.clone() else {
            return error(ErrorKind::NotConfigured, "set `model.fixed.base_url`");
        };
        if self.require_https && !base_url.starts_with("https://") {
            return error(ErrorKind::Refused, "the endpoint has no TLS");
        }
        if !self.models.is_empty() && !self.models.contains(&request.model) {
            return error(ErrorKind::UnknownModel, "the list does not have it");
        }
        Ok(ResolvedModelAccess {
            base_url,
            model_name: request.model.clone(),
            credential: None,
            credential_kind: CredentialKind::None,
            endpoint_provider: "fixed".to_owned(),
        })
    }

    fn gateway(&self) -> Option<String> {
        self.base_url.clone()
    }

    fn credential(&self) -> Option<CredentialRef> {
        None
    }

    async fn list(&self, _: Option<&Secret>) -> Result<ModelList, astrabox_model::Error> {
        Ok(ModelList {
            names: self.models.clone(),
            closed: !self.models.is_empty(),
        })
    }

    fn issues_credentials(&self) -> bool {
        false
    }

    async fn issue(
        &self,
        _: &IssueRequest,
        _: Option<&Secret>,
    ) -> Result<Option<IssuedCredential>, astrabox_model::Error> {
        Ok(None)
    }

    async fn revoke(&self, _: &str, _: Option<&Secret>) -> Result<(), astrabox_model::Error> {
        let text = "a double with one endpoint issues no credentials";
        let kind = astrabox_model::ErrorKind::Unsupported;
        Err(astrabox_model::Error::new(kind, "revoke", text))
    }
}

/// An identity provider that knows one token. It compares in the plain way, which only a double may.
#[derive(Clone)]
pub struct TokenIdentity {
    /// The token.
    pub token: String,
}

#[async_trait]
impl IdentityProvider for TokenIdentity {
    async fn identify(&self, evidence: &Evidence) -> Result<Actor, astrabox_identity::Error> {
        use astrabox_identity::{Error, ErrorKind};
        match &evidence.bearer {
            Some(token) if *token == self.token => Actor::new("token:known"),
            Some(_) => Err(Error::new(
                ErrorKind::Rejected,
                "identify",
                "the token is not known",
            )),
            None => Err(Error::new(ErrorKind::Missing, "identify", "show a token")),
        }
    }

    fn accepts_tokens(&self) -> bool {
        true
    }
}
