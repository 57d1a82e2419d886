//! Answers from the configuration.

use std::sync::Arc;

use astrabox_model::{
    CredentialKind, CredentialRef, Error, IssueRequest, IssuedCredential, ModelEndpointProvider,
    ModelList, ModelProviderFactory, ModelRequest, ResolvedModelAccess,
};
use astrabox_types::Secret;
use async_trait::async_trait;
use serde_json::Value;

use crate::config::Config;
use crate::error::{issues_none, not_configured, unknown_model};

/// One endpoint that speaks to every engine, whatever the wire.
pub struct Direct {
    config: Config,
}

#[async_trait]
impl ModelProviderFactory for Direct {
    const NAME: &'static str = "direct";
    const SUMMARY: &'static str = "One model endpoint at a configured base URL.";

    async fn build(config: Value) -> Result<Arc<dyn ModelEndpointProvider>, Error> {
        let config = Config::parse(config)?;
        Ok(Arc::new(Self { config }))
    }
}

#[async_trait]
impl ModelEndpointProvider for Direct {
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error> {
        let base_url = self.config.base_url.clone();
        let base_url = base_url.ok_or_else(|| not_configured("base_url"))?;
        let model_name = match (request.model.as_str(), &self.config.default_model) {
            ("", None) => return Err(not_configured("default_model")),
            ("", Some(default)) => default.clone(),
            (named, _) => named.to_owned(),
        };
        if !self.config.has(&model_name) {
            return Err(unknown_model(&model_name, &self.config.models));
        }
        let credential = self.config.credential.as_ref();
        Ok(ResolvedModelAccess {
            base_url,
            model_name,
            credential: self.credential(),
            credential_kind: credential.map_or(CredentialKind::None, |(_, kind)| *kind),
            endpoint_provider: Self::NAME.to_owned(),
        })
    }

    fn gateway(&self) -> Option<String> {
        self.config.base_url.clone()
    }

    fn credential(&self) -> Option<CredentialRef> {
        let credential = self.config.credential.as_ref();
        credential.map(|(named, _)| named.clone())
    }

    async fn list(&self, _: Option<&Secret>) -> Result<ModelList, Error> {
        Ok(ModelList {
            names: self.config.models.clone(),
            closed: !self.config.models.is_empty(),
        })
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
        Err(issues_none())
    }
}
