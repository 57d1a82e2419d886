//! The configuration block, checked when the provider is built.

use std::path::PathBuf;

use astrabox_identity::Error;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::invalid;

/// The checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// Who may call over a unix socket.
    pub(crate) allowed_uids: Vec<u32>,
    /// Where the tokens are; absolute.
    pub(crate) token_file: Option<PathBuf>,
}

impl Config {
    /// Reads the block. No value of it gets into an error: one may be a token in the wrong place.
    pub(crate) fn parse(block: Value) -> Result<Self, Error> {
        let mut block = match block {
            Value::Null => Map::new(),
            Value::Object(block) => block,
            _ => return Err(invalid("", "must be a table")),
        };
        let allowed_uids = take(&mut block, "allowed_uids", "must be a list of user ids")?;
        let token_file: Option<PathBuf> = take(&mut block, "token_file", "must be a path")?;
        if let Some(unknown) = block.keys().next() {
            let what = "is not a setting; there are allowed_uids and token_file";
            return Err(invalid(unknown, what));
        }
        if token_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(invalid("token_file", "must be an absolute path"));
        }
        let allowed_uids = allowed_uids.unwrap_or_else(|| {
            let own = rustix::process::geteuid().as_raw();
            vec![own, 0]
        });
        if allowed_uids.is_empty() && token_file.is_none() {
            let what = "is empty and `identity.local.token_file` is not set: nobody could call";
            return Err(invalid("allowed_uids", what));
        }
        Ok(Self {
            allowed_uids,
            token_file,
        })
    }
}

fn take<T: DeserializeOwned>(
    block: &mut Map<String, Value>,
    key: &str,
    expected: &str,
) -> Result<Option<T>, Error> {
    match block.remove(key) {
        None | Some(Value::Null) => Ok(None),
        // serde's own message would repeat the value.
        Some(value) => serde_json::from_value(value).map_err(|_| invalid(key, expected)),
    }
}
