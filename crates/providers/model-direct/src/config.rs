//! The configuration block, checked when the provider is built.

use astrabox_model::{Block, CredentialKind, CredentialRef, Error};
use serde_json::Value;

use crate::error::BLOCK;

/// The settings that there are, for people.
const SETTINGS: &str = "base_url, models, default_model, credential, credential_kind, require_https and allow_plaintext";

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The endpoint's root, without a trailing slash.
    pub(crate) base_url: Option<String>,
    /// The models that can be asked for; empty when any can.
    pub(crate) models: Vec<String>,
    /// What a request without a model gets.
    pub(crate) default_model: Option<String>,
    /// The vault's credential that the endpoint wants, and how it is shown.
    pub(crate) credential: Option<(CredentialRef, CredentialKind)>,
}

impl Config {
    /// Reads the block. No value of it gets into an error: one may be a key in the wrong place.
    pub(crate) fn parse(block: Value) -> Result<Self, Error> {
        let mut block = Block::new(BLOCK, block)?;
        let plaintext = block.take_plaintext()?;
        let models = block.take("models", "must be a list of texts")?;
        let config = Self {
            base_url: block.take_endpoint("base_url", plaintext)?,
            models: models.unwrap_or_default(),
            default_model: block.take("default_model", "must be a text")?,
            credential: credential(&mut block)?,
        };
        config.check_models(&block)?;
        block.end(SETTINGS)?;
        Ok(config)
    }

    /// Whether this model can be asked for.
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
}

/// Both or neither: how a key is shown differs between endpoints, and a wrong guess shows itself as a refused turn.
fn credential(block: &mut Block) -> Result<Option<(CredentialRef, CredentialKind)>, Error> {
    match (block.take_credential()?, block.take_credential_kind()?) {
        (Some(credential), Some(kind)) => Ok(Some((credential, kind))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(block.invalid(
            "credential_kind",
            "is missing: say `bearer` or `api_key`, as the endpoint wants its key",
        )),
        (None, Some(_)) => Err(block.invalid(
            "credential",
            "is missing: name the vault's credential that the endpoint wants, as `vcrd_...`",
        )),
    }
}
