//! Answers from the configuration.

use std::sync::Arc;

use astrabox_model::{
    CredentialKind, Error, ErrorKind, ModelEndpointProvider, ModelProviderFactory, ModelRequest,
    ResolvedModelAccess,
};
use async_trait::async_trait;
use serde_json::Value;

use crate::config::Config;
use crate::error::{RESOLVE, not_configured};

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
            // The name comes from a caller; it may be anything.
            let shown: String = model_name.chars().take(100).collect();
            return Err(Error::new(
                ErrorKind::UnknownModel,
                RESOLVE,
                format!(
                    "{shown:?} is not in `model.direct.models`, which has: {}",
                    self.config.models.join(", ")
                ),
            ));
        }
        Ok(ResolvedModelAccess {
            base_url,
            model_name,
            credential_kind: CredentialKind::None,
            endpoint_provider: Self::NAME.to_owned(),
        })
    }

    fn gateway(&self) -> Option<String> {
        self.config.base_url.clone()
    }

    async fn list(&self) -> Result<Vec<String>, Error> {
        Ok(self.config.models.clone())
    }
}
