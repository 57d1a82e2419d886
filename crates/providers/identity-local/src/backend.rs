//! Judges evidence.

use std::sync::Arc;

use astrabox_identity::{
    Actor, Error, ErrorKind, Evidence, IdentityProvider, IdentityProviderFactory,
};
use async_trait::async_trait;
use serde_json::Value;

use crate::config::Config;
use crate::error::IDENTIFY;
use crate::tokens::Tokens;

/// Knows the users of this host and the holders of tokens.
pub struct Local {
    allowed_uids: Vec<u32>,
    tokens: Option<Tokens>,
}

#[async_trait]
impl IdentityProviderFactory for Local {
    const NAME: &'static str = "local";
    const SUMMARY: &'static str =
        "Users of this host over a unix socket, and bearer tokens from a file.";

    async fn build(config: Value) -> Result<Arc<dyn IdentityProvider>, Error> {
        let config = Config::parse(config)?;
        let tokens = config.token_file.as_deref().map(Tokens::read).transpose()?;
        Ok(Arc::new(Self {
            allowed_uids: config.allowed_uids,
            tokens,
        }))
    }
}

#[async_trait]
impl IdentityProvider for Local {
    async fn identify(&self, evidence: &Evidence) -> Result<Actor, Error> {
        match (&evidence.bearer, evidence.peer_uid) {
            (Some(token), _) => self.holder_of(token),
            (None, Some(uid)) => self.user(uid),
            (None, None) => Err(Error::new(
                ErrorKind::Missing,
                IDENTIFY,
                "call over the server's unix socket, or show a bearer token",
            )),
        }
    }

    fn accepts_tokens(&self) -> bool {
        self.tokens.is_some()
    }
}

impl Local {
    fn holder_of(&self, token: &str) -> Result<Actor, Error> {
        let rejected = |what| Error::new(ErrorKind::Rejected, IDENTIFY, what);
        let Some(tokens) = &self.tokens else {
            return Err(rejected(
                "no tokens are accepted here: `identity.local.token_file` is not set",
            ));
        };
        match tokens.name_of(token) {
            Some(name) => Actor::new(format!("token:{name}")),
            None => Err(rejected("the bearer token is not one of the token file")),
        }
    }

    fn user(&self, uid: u32) -> Result<Actor, Error> {
        if self.allowed_uids.contains(&uid) {
            return Actor::new(format!("uid:{uid}"));
        }
        Err(Error::new(
            ErrorKind::Rejected,
            IDENTIFY,
            format!("uid {uid} is not in `identity.local.allowed_uids`"),
        ))
    }
}
