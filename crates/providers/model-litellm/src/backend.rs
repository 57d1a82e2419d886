//! Resolves from the configuration, and asks the proxy for its models and for keys.

use std::sync::Arc;

use astrabox_model::{
    CredentialRef, Error, IssueRequest, IssuedCredential, ModelEndpointProvider, ModelList,
    ModelProviderFactory, ModelRequest, ResolvedModelAccess,
};
use astrabox_types::{Secret, Timestamp};
use async_trait::async_trait;
use http::Method;
use serde_json::Value;

use crate::api::{self, Answer};
use crate::client::{Ask, Client};
use crate::config::Config;
use crate::error::{issues_none, no_credential, not_configured, unknown_model, unreached};

/// A LiteLLM proxy.
pub struct Litellm {
    config: Config,
    client: Client,
}

#[async_trait]
impl ModelProviderFactory for Litellm {
    const NAME: &'static str = "litellm";
    const SUMMARY: &'static str =
        "A LiteLLM proxy, with a key for each session where it is told to.";

    async fn build(config: Value) -> Result<Arc<dyn ModelEndpointProvider>, Error> {
        let config = Config::parse(config)?;
        let client = Client::default();
        Ok(Arc::new(Self { config, client }))
    }
}

#[async_trait]
impl ModelEndpointProvider for Litellm {
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error> {
        const RESOLVE: &str = "resolve";
        let base_url = self.config.base_url.clone();
        let base_url = base_url.ok_or_else(|| not_configured(RESOLVE, "base_url"))?;
        let model_name = self.model_name(RESOLVE, &request.model)?;
        Ok(ResolvedModelAccess {
            base_url,
            model_name,
            credential: self.credential(),
            credential_kind: self.config.credential_kind,
            endpoint_provider: Self::NAME.to_owned(),
        })
    }

    fn gateway(&self) -> Option<String> {
        self.config.base_url.clone()
    }

    fn credential(&self) -> Option<CredentialRef> {
        self.config.credential.clone()
    }

    async fn list(&self, with: Option<&Secret>) -> Result<ModelList, Error> {
        if !self.config.models.is_empty() {
            return Ok(ModelList {
                names: self.config.models.clone(),
                closed: true,
            });
        }
        let answer = self
            .ask("list", Method::GET, api::MODELS, with, None)
            .await?;
        Ok(ModelList {
            names: api::names(&answer)?,
            // Models can be configured by pattern, and are then not listed.
            closed: false,
        })
    }

    fn issues_credentials(&self) -> bool {
        self.config.per_session
    }

    async fn issue(
        &self,
        request: &IssueRequest,
        with: Option<&Secret>,
    ) -> Result<Option<IssuedCredential>, Error> {
        const ISSUE: &str = "issue";
        if !self.config.per_session {
            return Ok(None);
        }
        let model = self.model_name(ISSUE, &request.model)?;
        let request = IssueRequest {
            model,
            ..request.clone()
        };
        // Before the call: the end is never later than what was asked for.
        let now = Timestamp::now();
        let body = api::generate(&request, self.config.max_budget);
        let answer = self
            .ask(ISSUE, Method::POST, api::GENERATE, with, Some(body))
            .await?;
        api::issued(&answer, &request, now).map(Some)
    }

    async fn revoke(&self, id: &str, with: Option<&Secret>) -> Result<(), Error> {
        if !self.config.per_session {
            return Err(issues_none());
        }
        let body = api::delete(id);
        let answer = self
            .ask("revoke", Method::POST, api::DELETE, with, Some(body))
            .await?;
        api::ended(&answer)
    }
}

impl Litellm {
    /// The model's name at the proxy, for what an agent names.
    fn model_name(&self, operation: &'static str, named: &str) -> Result<String, Error> {
        let name = match (named, &self.config.default_model) {
            ("", None) => return Err(not_configured(operation, "default_model")),
            ("", Some(default)) => default.clone(),
            (named, _) => named.to_owned(),
        };
        if self.config.has(&name) {
            return Ok(name);
        }
        Err(unknown_model(operation, &name, &self.config.models))
    }

    async fn ask(
        &self,
        operation: &'static str,
        method: Method,
        path: &str,
        with: Option<&Secret>,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Error> {
        let root = self.config.management_url.as_deref();
        let root = root.ok_or_else(|| not_configured(operation, "base_url"))?;
        if self.config.credential.is_some() && with.is_none() {
            return Err(no_credential(operation));
        }
        let ask = Ask {
            method,
            url: format!("{root}{path}"),
            credential: with,
            body,
        };
        let sent = self.client.send(ask).await;
        sent.map_err(|fault| unreached(operation, fault))
    }
}
