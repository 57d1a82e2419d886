//! A model endpoint provider: `shelf`, one endpoint with any model on it.

use std::sync::Arc;

use astrabox_model::{
    CredentialKind, CredentialRef, Error, ErrorKind, IssueRequest, IssuedCredential,
    ModelEndpointProvider, ModelList, ModelProviderFactory, ModelRequest, ResolvedModelAccess,
};
use astrabox_types::Secret;
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;

/// The provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shelf {
    base_url: Option<String>,
    require_https: bool,
}

#[async_trait]
impl ModelProviderFactory for Shelf {
    const NAME: &'static str = "shelf";
    const SUMMARY: &'static str = "one endpoint with any model on it";

    async fn build(config: Value) -> Result<Arc<dyn ModelEndpointProvider>, Error> {
        if config.is_null() {
            return Ok(Arc::new(Self::default()));
        }
        let shelf: Self = serde_json::from_value(config)
            .map_err(|error| Error::new(ErrorKind::Invalid, "configure", error.to_string()))?;
        Ok(Arc::new(shelf))
    }
}

#[async_trait]
impl ModelEndpointProvider for Shelf {
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error> {
        let error = |kind, text: &str| Err(Error::new(kind, "resolve", text));
        let Some(base_url) = self.base_url.clone() else {
            return error(ErrorKind::NotConfigured, "set `model.shelf.base_url`");
        };
        if self.require_https && !base_url.starts_with("https://") {
            return error(ErrorKind::Refused, "`model.shelf.base_url` has no TLS");
        }
        Ok(ResolvedModelAccess {
            base_url,
            model_name: request.model.clone(),
            credential: None,
            credential_kind: CredentialKind::None,
            endpoint_provider: "shelf".to_owned(),
        })
    }

    fn gateway(&self) -> Option<String> {
        self.base_url.clone()
    }

    fn credential(&self) -> Option<CredentialRef> {
        None
    }

    async fn list(&self, _: Option<&Secret>) -> Result<ModelList, Error> {
        Ok(ModelList::default())
    }

    fn issues_credentials(&self) -> bool {
        false
    }

    async fn issue(
        &self,
        _: &IssueRequest,
        _: Option<&Secret>,
    ) -> Result<Option<IssuedCredential>, Error> {
        Ok(None)
    }

    async fn revoke(&self, _: &str, _: Option<&Secret>) -> Result<(), Error> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "revoke",
            "a shelf issues no credentials",
        ))
    }
}
