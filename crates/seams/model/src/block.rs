//! Reads an adapter's configuration block. No value of it gets into an error: one may be a key in the wrong place.

use astrabox_types::CredentialId;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{CredentialKind, CredentialRef, EndpointFault, Error, ErrorKind, Plaintext};

const BUILD: &str = "build";

/// What a key that holds a credential has in its name.
const KEY_WORDS: &[&str] = &[
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "auth",
    "bearer",
    "credential",
    "header",
];

/// A configuration block that is taken apart setting by setting.
pub struct Block {
    /// The block's place, as `model.direct`.
    at: &'static str,
    settings: Map<String, Value>,
}

impl Block {
    /// A block that stands at `at`, as `model.direct`.
    ///
    /// # Errors
    /// `Invalid` when it is no table.
    pub fn new(at: &'static str, block: Value) -> Result<Self, Error> {
        let settings = match block {
            Value::Null => Map::new(),
            Value::Object(settings) => settings,
            _ => return Err(invalid(format!("`{at}` must be a table"))),
        };
        Ok(Self { at, settings })
    }

    /// Takes a setting; `None` where it is not given.
    ///
    /// # Errors
    /// `Invalid` when it is not what is expected; `expected` says what, as `must be a text`.
    pub fn take<T: DeserializeOwned>(
        &mut self,
        key: &str,
        expected: &str,
    ) -> Result<Option<T>, Error> {
        match self.settings.remove(key) {
            None | Some(Value::Null) => Ok(None),
            // serde's own message would repeat the value.
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|_| self.invalid(key, expected)),
        }
    }

    /// Takes `require_https` and `allow_plaintext`.
    ///
    /// # Errors
    /// `Invalid` when they contradict each other.
    pub fn take_plaintext(&mut self) -> Result<Plaintext, Error> {
        let require = self.take_flag("require_https")?;
        let allow = self.take_flag("allow_plaintext")?;
        match (require, allow) {
            (true, true) => Err(self.invalid("allow_plaintext", "contradicts `require_https`")),
            (true, false) => Ok(Plaintext::Nowhere),
            (false, true) => Ok(Plaintext::Anywhere),
            (false, false) => Ok(Plaintext::InPrivate),
        }
    }

    /// Takes a setting that is true or false, and false where it is not given.
    ///
    /// # Errors
    /// `Invalid` when it is neither.
    pub fn take_flag(&mut self, key: &str) -> Result<bool, Error> {
        let flag = self.take(key, "must be true or false")?;
        Ok(flag.unwrap_or(false))
    }

    /// Takes the root of an endpoint.
    ///
    /// # Errors
    /// `Invalid` when it is none, `Refused` when it is plaintext where that is not accepted.
    pub fn take_endpoint(
        &mut self,
        key: &str,
        plaintext: Plaintext,
    ) -> Result<Option<String>, Error> {
        let Some(text) = self.take::<String>(key, "must be a text")? else {
            return Ok(None);
        };
        let root = crate::endpoint_root(&text, plaintext);
        root.map(Some).map_err(|fault| {
            let refused = |text: String| Error::new(ErrorKind::Refused, BUILD, text);
            match fault {
                EndpointFault::Malformed(what) => self.invalid(key, what),
                EndpointFault::HoldsCredential => self.holds_credential(key),
                EndpointFault::NeedsTls => refused(format!(
                    "`{at}.require_https` is set and `{at}.{key}` is plaintext: use https",
                    at = self.at
                )),
                EndpointFault::PublicPlaintext => refused(format!(
                    "what is said to a public host without TLS can be read and changed on the way: use https in \
                     `{at}.{key}`, or set `{at}.allow_plaintext = true`",
                    at = self.at
                )),
            }
        })
    }

    /// Takes `credential`, the id of a vault's credential, or `none`.
    ///
    /// # Errors
    /// `Invalid` for everything else, which may be a key.
    pub fn take_credential(&mut self) -> Result<Option<CredentialRef>, Error> {
        const KEY: &str = "credential";
        match self.settings.remove(KEY) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text == "none" => Ok(None),
            Some(Value::String(text)) if text.parse::<CredentialId>().is_ok() => {
                Ok(Some(CredentialRef {
                    credential_id: text,
                }))
            }
            Some(_) => Err(self.holds_credential(KEY)),
        }
    }

    /// Takes `credential_kind`: `bearer` or `api_key`.
    ///
    /// # Errors
    /// `Invalid` when it is neither.
    pub fn take_credential_kind(&mut self) -> Result<Option<CredentialKind>, Error> {
        const KEY: &str = "credential_kind";
        match self.take::<CredentialKind>(KEY, "must be `bearer` or `api_key`")? {
            Some(CredentialKind::None) => Err(self.invalid(
                KEY,
                "must be `bearer` or `api_key`; leave it out where there is none",
            )),
            kind => Ok(kind),
        }
    }

    /// Demands that every setting was taken; `there_are` lists those that there are.
    ///
    /// # Errors
    /// `Invalid` for one that is left, with a word of its own when it looks like a place for a key.
    pub fn end(self, there_are: &str) -> Result<(), Error> {
        let holds_one = |name: &&String| {
            let name = name.to_ascii_lowercase();
            KEY_WORDS.iter().any(|word| name.contains(word))
        };
        if let Some(name) = self.settings.keys().find(holds_one) {
            return Err(self.holds_credential(name));
        }
        match self.settings.keys().next() {
            Some(name) => {
                let what = format!("is not a setting; there are {there_are}");
                Err(self.invalid(name, &what))
            }
            None => Ok(()),
        }
    }

    /// The error of a setting that is wrong; `what` says why, as `is empty`.
    #[must_use]
    pub fn invalid(&self, key: &str, what: &str) -> Error {
        invalid(format!("{} {what}", self.setting(key)))
    }

    fn holds_credential(&self, key: &str) -> Error {
        invalid(format!(
            "{} holds a credential, and a configuration is no place for one: put it into a vault as a credential of \
             the type model_key, and name that by its id, as `{}.credential = \"vcrd_...\"`",
            self.setting(key),
            self.at,
        ))
    }

    fn setting(&self, key: &str) -> String {
        let shown: String = key.chars().take(64).collect();
        format!("`{}.{}`", self.at, shown.escape_debug())
    }
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, BUILD, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Block;
    use crate::ErrorKind;

    #[test]
    fn a_credential_is_an_id_or_refused_without_being_repeated() {
        let id = "vcrd_0190f2a47e0b7c1d8f3a123456789abc";
        let taken = |value| {
            let mut block = Block::new("model.x", json!({ "credential": value }))?;
            let credential = block.take_credential()?;
            Ok::<_, crate::Error>(credential.map(|named| named.credential_id))
        };
        assert_eq!(taken(json!(id)).ok().flatten().as_deref(), Some(id));
        assert_eq!(taken(json!("none")).ok(), Some(None));
        for wrong in [
            json!("sk-canary"),
            json!("vcrd_canary"),
            json!({"bearer": "canary"}),
        ] {
            let error = taken(wrong.clone()).expect_err("it is no id");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
            assert!(error.to_string().contains("put it into a vault"), "{error}");
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn a_setting_that_is_left_is_named() {
        for (block, text) in [
            (json!({"api_key": "canary"}), "put it into a vault"),
            (
                json!({"base_uri": "canary"}),
                "`model.x.base_uri` is not a setting; there are a, b",
            ),
        ] {
            let block = Block::new("model.x", block).expect("it is a table");
            let error = block.end("a, b").expect_err("something is left");
            assert!(error.to_string().contains(text), "{error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
