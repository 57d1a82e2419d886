//! What an operator says about egress.

use std::path::PathBuf;
use std::time::Duration;

use astrabox_egress::AddressRange;
use serde::{Deserialize, Serialize};

use crate::static_hosts::StaticHosts;

/// The operator's settings. Durations are texts such as `10m`, `30s` or `1h 30m`.
///
/// A running role takes changed settings when a server connects, `user` excepted, which it takes when it
/// starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressConfig {
    /// How long a sandbox keeps its last policy after the server that set it is gone; then everything is
    /// denied until a server opens the sandbox again. Default `10m`.
    #[serde(with = "duration")]
    pub orphan_grace: Duration,
    /// Special addresses (loopback, private, link-local and their like) that sandboxes may reach when their
    /// policy names the destination. Metadata services stay denied. Default none.
    pub allow_private: Vec<AddressRange>,
    /// Addresses that no sandbox reaches, whatever its policy, `allow_private` and `static_hosts` say; judged by what
    /// a destination resolves to. Default none.
    pub deny: Vec<AddressRange>,
    /// Names that are not resolved but reached at the address given here, special or not, when a policy names
    /// them: `"model.internal" = "10.0.0.7"`, `"model.internal:443" = "10.0.0.7:8443"`. Default none.
    pub static_hosts: StaticHosts,
    /// Files with certificates in PEM that upstreams may be signed by, besides the system's. They concern the
    /// hosts that credentials go to, where the proxy verifies; the server reads them when it connects to the role.
    /// Default none.
    pub extra_roots: Vec<PathBuf>,
    /// How long resolving a name, and then connecting to it, may each take. Default `10s`.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long a connection may carry no byte in either direction. Default `10m`.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// How many connections one sandbox may have open. Default 256.
    pub max_connections: usize,
    /// Who the role runs as when it is started by root: a uid, `uid:gid`, or a user's name. By default 65534,
    /// the unprivileged user that every system has.
    pub user: Option<String>,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self {
            orphan_grace: Duration::from_secs(600),
            allow_private: Vec::new(),
            deny: Vec::new(),
            static_hosts: StaticHosts::default(),
            extra_roots: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(600),
            max_connections: 256,
            user: None,
        }
    }
}

/// A setting that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("egress.{key}: {why}")]
pub struct InvalidConfig {
    key: &'static str,
    why: &'static str,
}

impl EgressConfig {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        let invalid = |key, why| Err(InvalidConfig { key, why });
        if self.extra_roots.iter().any(|path| path.is_relative()) {
            return invalid("extra_roots", "must be absolute paths");
        }
        if self.connect_timeout.is_zero() {
            return invalid("connect_timeout", "must be longer than zero");
        }
        if self.idle_timeout.is_zero() {
            return invalid("idle_timeout", "must be longer than zero");
        }
        if !(1..=65_536).contains(&self.max_connections) {
            return invalid("max_connections", "must be from 1 to 65536");
        }
        Ok(())
    }
}

/// Durations as people write them.
mod duration {
    use std::time::Duration;

    use jiff::SignedDuration;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let value = SignedDuration::try_from(*value).unwrap_or(SignedDuration::MAX);
        to.collect_str(&format_args!("{value:#}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        let value: SignedDuration = text.parse().map_err(|_| {
            de::Error::custom(format_args!(
                "`{text}` is not a duration; write it as `10m` or `30s`"
            ))
        })?;
        Duration::try_from(value)
            .map_err(|_| de::Error::custom(format_args!("`{text}` is a negative duration")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_json_and_what_is_left_out_is_the_default() {
        let config: EgressConfig = serde_json::from_value(serde_json::json!({
            "orphan_grace": "1h 30m",
            "idle_timeout": "250ms",
            "allow_private": ["10.0.0.0/8", "::1"],
            "deny": ["10.9.0.0/16", "203.0.113.7"],
            "static_hosts": { "Model.Internal:443": "10.0.0.7:8443" },
            "user": "1234:1234",
        }))
        .unwrap();
        assert_eq!(config.orphan_grace, Duration::from_secs(5400));
        assert_eq!(config.idle_timeout, Duration::from_millis(250));
        assert_eq!(config.max_connections, 256);
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<EgressConfig>(&text).unwrap(), config);
        assert_eq!(
            serde_json::from_str::<EgressConfig>("{}").unwrap(),
            EgressConfig::default()
        );
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        for (json, part) in [
            (r#"{"orphan_graze": "1m"}"#, "orphan_graze"),
            (r#"{"orphan_grace": "soon"}"#, "`soon` is not a duration"),
            (r#"{"orphan_grace": "-1m"}"#, "negative"),
            (r#"{"orphan_grace": 10}"#, "a string"),
            (r#"{"allow_private": ["10.0.0/8"]}"#, "10.0.0/8"),
            (r#"{"deny": ["example.com"]}"#, "example.com"),
            (
                r#"{"static_hosts": {"10.0.0.1": "10.0.0.2"}}"#,
                "allow_private",
            ),
        ] {
            let error = serde_json::from_str::<EgressConfig>(json).unwrap_err();
            assert!(error.to_string().contains(part), "{json}: {error}");
        }
        for (json, key) in [
            (r#"{"extra_roots": ["roots.pem"]}"#, "extra_roots"),
            (r#"{"connect_timeout": "0s"}"#, "connect_timeout"),
            (r#"{"idle_timeout": "0s"}"#, "idle_timeout"),
            (r#"{"max_connections": 0}"#, "max_connections"),
            (r#"{"max_connections": 65537}"#, "max_connections"),
        ] {
            let config: EgressConfig = serde_json::from_str(json).unwrap();
            assert_eq!(config.check().unwrap_err().key, key, "{json}");
        }
    }
}
