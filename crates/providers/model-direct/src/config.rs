//! The configuration block, checked when the provider is built.

use std::net::IpAddr;

use astrabox_model::Error;
use http::Uri;
use http::uri::Scheme;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{credential_refused, invalid, refused};

/// The ends of names that are never public: RFC 6761, 6762 and 8375, and ICANN's `.internal`.
const PRIVATE_DOMAINS: &[&str] = &["localhost", "internal", "test", "home.arpa", "local"];

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

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The endpoint's root, without a trailing slash.
    pub(crate) base_url: Option<String>,
    /// The models that can be asked for; empty when any can.
    pub(crate) models: Vec<String>,
    /// What a request without a model gets.
    pub(crate) default_model: Option<String>,
}

impl Config {
    /// Reads the block. No value of it gets into an error: one may be a key in the wrong place.
    pub(crate) fn parse(block: Value) -> Result<Self, Error> {
        let mut block = match block {
            Value::Null => Map::new(),
            Value::Object(block) => block,
            _ => return Err(invalid("", "must be a table")),
        };
        refuse_credentials(&mut block)?;
        let base_url: Option<String> = take(&mut block, "base_url", "must be a text")?;
        let models = take(&mut block, "models", "must be a list of texts")?;
        let default_model: Option<String> = take(&mut block, "default_model", "must be a text")?;
        let require_https = take(&mut block, "require_https", "must be true or false")?;
        let allow_plaintext = take(&mut block, "allow_plaintext", "must be true or false")?;
        if let Some(unknown) = block.keys().next() {
            return Err(invalid(
                unknown,
                "is not a setting; there are base_url, models, default_model, require_https, \
                 allow_plaintext and credential",
            ));
        }
        let plaintext = Plaintext::of(
            require_https.unwrap_or(false),
            allow_plaintext.unwrap_or(false),
        )?;
        let config = Self {
            base_url: base_url.map(|url| endpoint(&url, plaintext)).transpose()?,
            models: models.unwrap_or_default(),
            default_model,
        };
        config.check_models()?;
        Ok(config)
    }

    /// Whether this model can be asked for.
    pub(crate) fn has(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|known| known == model)
    }

    fn check_models(&self) -> Result<(), Error> {
        if self.models.iter().any(String::is_empty) {
            return Err(invalid("models", "has an empty name"));
        }
        match self.default_model.as_deref() {
            Some("") => Err(invalid("default_model", "is empty: leave it out")),
            Some(model) if !self.has(model) => Err(invalid("default_model", "is not in `models`")),
            _ => Ok(()),
        }
    }
}

/// Where plaintext is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plaintext {
    Nowhere,
    InPrivate,
    Anywhere,
}

impl Plaintext {
    fn of(require_https: bool, allow_plaintext: bool) -> Result<Self, Error> {
        match (require_https, allow_plaintext) {
            (true, true) => Err(invalid("allow_plaintext", "contradicts `require_https`")),
            (true, false) => Ok(Self::Nowhere),
            (false, true) => Ok(Self::Anywhere),
            (false, false) => Ok(Self::InPrivate),
        }
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

fn refuse_credentials(block: &mut Map<String, Value>) -> Result<(), Error> {
    match block.remove("credential") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind == "none" => {}
        Some(_) => return Err(credential_refused("credential")),
    }
    let holds_one = |name: &&String| {
        let name = name.to_ascii_lowercase();
        KEY_WORDS.iter().any(|word| name.contains(word))
    };
    match block.keys().find(holds_one) {
        Some(name) => Err(credential_refused(name)),
        None => Ok(()),
    }
}

/// The endpoint's root as engines use it: they add `/v1/..` of their wire.
fn endpoint(text: &str, plaintext: Plaintext) -> Result<String, Error> {
    let wrong = |what| invalid("base_url", what);
    let url: Uri = text
        .parse()
        .map_err(|_| wrong("is not a URL, as `https://models.example`"))?;
    let (Some(scheme), Some(authority)) = (url.scheme(), url.authority()) else {
        return Err(wrong("is not a whole URL, as `https://models.example`"));
    };
    if authority.as_str().contains('@') {
        return Err(credential_refused("base_url"));
    }
    if authority.host().is_empty() || text.contains('#') || url.query().is_some() {
        return Err(wrong("must be scheme, host, port and path only"));
    }
    // http::Uri takes `:99999` and reports no port.
    let port = authority.as_str().strip_prefix(authority.host());
    if !port.is_some_and(|port| port.is_empty() || is_port(port)) {
        return Err(wrong("has a port that is none"));
    }
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/v1") {
        return Err(wrong(
            "ends with `/v1`, which engines add themselves: leave it out",
        ));
    }
    if *scheme == Scheme::HTTP {
        accept_plaintext(authority.host(), plaintext)?;
    } else if *scheme != Scheme::HTTPS {
        return Err(wrong("must begin with https:// or http://"));
    }
    let authority = authority.as_str().to_ascii_lowercase();
    Ok(format!("{scheme}://{authority}{path}"))
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .is_some_and(|digits| digits.parse::<u16>().is_ok_and(|port| port != 0))
}

fn accept_plaintext(host: &str, plaintext: Plaintext) -> Result<(), Error> {
    match plaintext {
        Plaintext::Anywhere => Ok(()),
        Plaintext::InPrivate if is_private(host) => Ok(()),
        Plaintext::InPrivate => Err(refused(
            "what is said to a public host without TLS can be read and changed on the way: use https, or set \
             `model.direct.allow_plaintext = true`",
        )),
        Plaintext::Nowhere => Err(refused(
            "`model.direct.require_https` is set and `model.direct.base_url` is plaintext: use https",
        )),
    }
}

/// Whether traffic to this host stays in the operator's own network.
fn is_private(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = address.parse::<IpAddr>() {
        return match address.to_canonical() {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_private(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local(),
        };
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    PRIVATE_DOMAINS.iter().any(|domain| {
        host.strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}
