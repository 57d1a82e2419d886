//! The configuration block, checked when the provider is built.

use astrabox_model::{Block, CredentialKind, CredentialRef, Error};
use serde_json::Value;

use crate::error::BLOCK;

/// The settings that there are, for people.
const SETTINGS: &str = "base_url, management_url, credential, credential_kind, models, default_model, per_session, \
                        max_budget, require_https and allow_plaintext";

/// The checked configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    /// The proxy's root for sandboxes, without a trailing slash.
    pub(crate) base_url: Option<String>,
    /// The proxy's root for this server.
    pub(crate) management_url: Option<String>,
    /// The vault's credential with the proxy's key.
    pub(crate) credential: Option<CredentialRef>,
    /// How sandboxes show their key; `None` exactly where there is no credential.
    pub(crate) credential_kind: CredentialKind,
    /// The models that can be asked for; empty when the proxy decides.
    pub(crate) models: Vec<String>,
    /// What a request without a model gets.
    pub(crate) default_model: Option<String>,
    /// Whether each session gets a key of its own.
    pub(crate) per_session: bool,
    /// What one session's key may cost, US dollars.
    pub(crate) max_budget: Option<f64>,
}

impl Config {
    /// Reads the block. No value of it gets into an error: one may be a key in the wrong place.
    pub(crate) fn parse(block: Value) -> Result<Self, Error> {
        let mut block = Block::new(BLOCK, block)?;
        let plaintext = block.take_plaintext()?;
        let base_url = block.take_endpoint("base_url", plaintext)?;
        let management_url = block.take_endpoint("management_url", plaintext)?;
        if base_url.is_none() && management_url.is_some() {
            return Err(block.invalid("management_url", "is of no use without `base_url`"));
        }
        let credential = block.take_credential()?;
        let kind = block.take_credential_kind()?;
        let credential_kind = match (&credential, kind) {
            (Some(_), kind) => kind.unwrap_or(CredentialKind::Bearer),
            (None, None) => CredentialKind::None,
            (None, Some(_)) => {
                return Err(block.invalid("credential_kind", "is of no use without `credential`"));
            }
        };
        let models = block.take("models", "must be a list of texts")?;
        let config = Self {
            management_url: management_url.or_else(|| base_url.clone()),
            base_url,
            credential,
            credential_kind,
            models: models.unwrap_or_default(),
            default_model: block.take("default_model", "must be a text")?,
            per_session: block.take_flag("per_session")?,
            max_budget: block.take("max_budget", "must be a number of US dollars")?,
        };
        config.check_models(&block)?;
        config.check_keys(&block)?;
        block.end(SETTINGS)?;
        Ok(config)
    }

    /// Whether this model can be asked for, as far as the configuration knows.
    pub(crate) fn has(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|known| known == model)
    }

    fn check_models(&self, block: &Block) -> Result<(), Error> {
        if self.models.iter().any(String::is_empty) {
            return Err(block.invalid("models", "has an empty name"));
        }
        match self.default_model.as_deref() {
            Some("") => Err(block.invalid("default_model", "is empty: leave it out")),
            Some(model) if !self.has(model) => {
                Err(block.invalid("default_model", "is not in `models`"))
            }
            _ => Ok(()),
        }
    }

    fn check_keys(&self, block: &Block) -> Result<(), Error> {
        if self.per_session && self.credential.is_none() {
            let what = "needs `credential`: only a key of the proxy may make others";
            return Err(block.invalid("per_session", what));
        }
        match self.max_budget {
            Some(_) if !self.per_session => {
                Err(block.invalid("max_budget", "is of no use without `per_session`"))
            }
            Some(budget) if !(budget.is_finite() && budget > 0.0) => {
                Err(block.invalid("max_budget", "must be more than 0"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use astrabox_model::{CredentialKind, ErrorKind};
    use serde_json::{Value, json};

    use super::Config;

    const ID: &str = "vcrd_0190f2a47e0b7c1d8f3a123456789abc";

    #[test]
    fn a_block_is_read_with_its_defaults() {
        let config = Config::parse(json!({
            "base_url": "https://Gate.example/litellm/",
            "credential": ID,
            "models": ["a", "b"],
            "default_model": "a",
            "per_session": true,
            "max_budget": 1.5,
        }))
        .expect("it is right");
        assert_eq!(
            config.base_url.as_deref(),
            Some("https://gate.example/litellm")
        );
        assert_eq!(config.management_url, config.base_url);
        assert_eq!(config.credential_kind, CredentialKind::Bearer);
        assert!(config.per_session && config.has("b") && !config.has("c"));
        let empty = Config::parse(Value::Null).expect("nothing is configured");
        assert_eq!(empty.credential_kind, CredentialKind::None);
        assert!(empty.base_url.is_none() && empty.has("anything"));
    }

    #[test]
    fn a_wrong_setting_is_named_without_its_value() {
        use ErrorKind::{Invalid, Refused};
        for (block, kind, key) in [
            (json!({"base_url": "canary"}), Invalid, "base_url"),
            (
                json!({"base_url": "https://u:canary@m.example"}),
                Invalid,
                "base_url",
            ),
            (json!({"base_url": "http://m.example"}), Refused, "base_url"),
            (
                json!({"base_url": "http://m.test", "require_https": true}),
                Refused,
                "require_https",
            ),
            (
                json!({"base_url": "https://m.test", "management_url": "http://m.example"}),
                Refused,
                "management_url",
            ),
            (
                json!({"management_url": "https://m.test"}),
                Invalid,
                "management_url",
            ),
            (json!({"credential": "sk-canary"}), Invalid, "credential"),
            (json!({"master_key": "sk-canary"}), Invalid, "master_key"),
            (
                json!({"credential_kind": "bearer"}),
                Invalid,
                "credential_kind",
            ),
            (
                json!({"credential": ID, "credential_kind": "canary"}),
                Invalid,
                "credential_kind",
            ),
            (json!({"models": ["a", ""]}), Invalid, "models"),
            (
                json!({"models": ["a"], "default_model": "canary"}),
                Invalid,
                "default_model",
            ),
            (json!({"per_session": true}), Invalid, "per_session"),
            (json!({"max_budget": 1}), Invalid, "max_budget"),
            (
                json!({"credential": ID, "per_session": true, "max_budget": 0}),
                Invalid,
                "max_budget",
            ),
            (json!({"base_uri": "canary"}), Invalid, "base_uri"),
        ] {
            let error = Config::parse(block.clone()).expect_err("it is wrong");
            assert_eq!(error.kind(), kind, "{block}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(&format!("model.litellm.{key}")), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }
}
