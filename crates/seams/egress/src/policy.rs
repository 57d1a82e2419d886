//! The verdict on one destination.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::split_port;
use crate::{DestinationPattern, Host, InvalidHost};

/// What one workload may reach. Everything else is denied (EG1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressPolicy {
    /// Whether every public host on the ports 80 and 443 is allowed besides `allowed`.
    pub unrestricted: bool,
    /// What is allowed: hosts, and ranges of addresses for destinations that are written as an address.
    pub allowed: Vec<DestinationPattern>,
}

impl EgressPolicy {
    /// The verdict on a destination, before its name is resolved.
    #[must_use]
    pub fn decide(&self, destination: &Destination) -> Decision {
        if is_metadata_name(&destination.host) {
            return Decision::Deny(DenyReason::Metadata);
        }
        if let Host::Address(address) = destination.host
            && crate::is_metadata(address)
        {
            return Decision::Deny(DenyReason::Metadata);
        }
        let named = self
            .allowed
            .iter()
            .any(|pattern| pattern.matches(&destination.host, destination.port));
        let open = self.unrestricted && matches!(destination.port, 80 | 443);
        if named || open {
            Decision::Allow
        } else {
            Decision::Deny(DenyReason::HostNotAllowed)
        }
    }
}

/// Names under which clouds serve metadata (EG5).
fn is_metadata_name(host: &Host) -> bool {
    let Host::Name(name) = host else { return false };
    matches!(
        name.as_str(),
        "metadata.google.internal" | "metadata.goog" | "metadata" | "instance-data"
    ) || name.ends_with(".metadata.google.internal")
}

/// What a verdict says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Go.
    Allow,
    /// Stop.
    Deny(DenyReason),
}

/// Why a destination is denied; the code is stable and goes into the answer and the audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenyReason {
    /// The policy does not name it.
    HostNotAllowed,
    /// It is a metadata service.
    Metadata,
    /// It resolves to a special address that the operator does not allow.
    AddressNotAllowed,
    /// It resolves to an address that the operator denies.
    AddressDenied,
    /// Its name does not resolve.
    Unresolved,
    /// It is not a well-formed destination.
    Malformed,
    /// The plan of this workload is older than its grace, or there is none.
    NoPlan,
}

impl DenyReason {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host_not_allowed",
            Self::Metadata => "metadata",
            Self::AddressNotAllowed => "address_not_allowed",
            Self::AddressDenied => "address_denied",
            Self::Unresolved => "unresolved",
            Self::Malformed => "malformed",
            Self::NoPlan => "no_plan",
        }
    }
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// How a destination is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Cleartext HTTP, absolute form.
    Http,
    /// A CONNECT tunnel.
    Tunnel,
    /// A request inside of a tunnel, where the proxy ends TLS.
    Https,
}

/// Where a workload wants to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// How.
    pub scheme: Scheme,
    /// The host, canonical.
    pub host: Host,
    /// The port, from 1.
    pub port: u16,
}

impl Destination {
    /// Reads the authority of a CONNECT request, which always has a port.
    ///
    /// # Errors
    /// When it is not exactly `host:port`.
    pub fn tunnel(authority: &str) -> Result<Self, InvalidHost> {
        Self::parse(Scheme::Tunnel, authority, None)
    }

    /// Reads the authority of an absolute-form `http:` request; the port is 80 where none is given.
    ///
    /// # Errors
    /// When it is not `host` or `host:port`.
    pub fn http(authority: &str) -> Result<Self, InvalidHost> {
        Self::parse(Scheme::Http, authority, Some(80))
    }

    /// Reads the authority of a request inside of a tunnel; the port is 443 where none is given.
    ///
    /// # Errors
    /// When it is not `host` or `host:port`.
    pub fn https(authority: &str) -> Result<Self, InvalidHost> {
        Self::parse(Scheme::Https, authority, Some(443))
    }

    fn parse(scheme: Scheme, authority: &str, default: Option<u16>) -> Result<Self, InvalidHost> {
        let (host, port) = split_port(authority).map_err(InvalidHost::because)?;
        let port = port
            .or(default)
            .ok_or(InvalidHost::because("a port is needed"))?;
        Ok(Self {
            scheme,
            host: host.parse()?,
            port,
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(unrestricted: bool, allowed: &[&str]) -> EgressPolicy {
        EgressPolicy {
            unrestricted,
            allowed: allowed.iter().map(|p| p.parse().expect(p)).collect(),
        }
    }

    #[test]
    fn eg1_what_is_not_allowed_is_denied() {
        let limited = policy(
            false,
            &[
                "api.good.com",
                "*.files.test",
                "127.0.0.1:9",
                "203.0.0.0/16",
            ],
        );
        for (authority, allowed) in [
            ("api.good.com:443", true),
            ("API.good.com.:443", true),
            ("api.good.com:22", false),
            ("api.good.com:25", false),
            ("api.good.com:6379", false),
            ("7f000001.nip.io:443", false),
            ("evil.com:443", false),
            ("x.files.test:443", true),
            ("files.test:443", false),
            ("127.0.0.1:9", true),
            ("127.0.0.1:80", false),
            ("203.0.9.9:443", true),
            ("203.1.9.9:443", false),
        ] {
            let destination = Destination::tunnel(authority).expect(authority);
            assert_eq!(
                limited.decide(&destination) == Decision::Allow,
                allowed,
                "{authority}"
            );
        }
        let empty = policy(false, &[]);
        assert_ne!(
            empty.decide(&Destination::tunnel("a.com:443").expect("valid")),
            Decision::Allow
        );
    }

    #[test]
    fn eg5_metadata_is_denied_even_when_named() {
        let open = policy(true, &["169.254.169.254", "metadata.google.internal"]);
        for authority in [
            "169.254.169.254",
            "metadata.google.internal",
            "[::ffff:169.254.169.254]",
        ] {
            let destination = Destination::http(authority).expect(authority);
            assert_eq!(
                open.decide(&destination),
                Decision::Deny(DenyReason::Metadata),
                "{authority}"
            );
        }
    }

    #[test]
    fn unrestricted_opens_the_web_ports_only() {
        let open = policy(true, &[]);
        for (authority, allowed) in [("a.com:443", true), ("a.com:80", true), ("a.com:25", false)] {
            let destination = Destination::tunnel(authority).expect(authority);
            assert_eq!(
                open.decide(&destination) == Decision::Allow,
                allowed,
                "{authority}"
            );
        }
    }

    #[test]
    fn a_malformed_authority_is_no_destination() {
        for authority in [
            "",
            ":443",
            "a.com",
            "a.com:",
            "a.com:443:443",
            "u@a.com:443",
            "api.good.com:443@evil.com",
            "evil.com:443#@good.com:443",
            "a.com:+443",
            "a.com:0443",
            "a.com:0",
            "a.com:65536",
            "a.com:443/x",
            "[::1:443",
        ] {
            assert!(Destination::tunnel(authority).is_err(), "{authority}");
        }
    }
}
