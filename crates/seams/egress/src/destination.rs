//! What a network policy can name: hosts, and ranges of addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::host::split_port;
use crate::{AddressRange, Host, HostPattern, InvalidPattern};

/// A host pattern or a range of addresses; a text with a slash is a range.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DestinationPattern {
    /// A name, a wildcard or one address.
    Host(HostPattern),
    /// A range of addresses.
    Range(RangePattern),
}

/// A range of addresses and a port: `10.0.0.0/8`, `10.0.0.0/8:8443`, `fd00::/8`, `[fd00::/8]:8443`.
///
/// It means destinations that are written as an address, and never a name, whatever the name resolves to (EG22): who
/// owns a name must not decide whether it is allowed. The port follows the rule of host patterns (EG4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangePattern {
    range: AddressRange,
    port: Option<u16>,
}

impl DestinationPattern {
    /// Whether it means this host and port.
    #[must_use]
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        match self {
            Self::Host(pattern) => pattern.matches(host, port),
            Self::Range(pattern) => pattern.matches(host, port),
        }
    }
}

impl RangePattern {
    /// Whether the host is an address of the range and the port fits. An IPv4 address mapped into IPv6 is the IPv4
    /// address; no other embedded address is, because who answers there need not be its owner.
    #[must_use]
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        let port_fits = match self.port {
            Some(wanted) => wanted == port,
            None => matches!(port, 80 | 443),
        };
        match host {
            Host::Address(address) => port_fits && self.range.holds(address.to_canonical()),
            Host::Name(_) => false,
        }
    }
}

impl From<HostPattern> for DestinationPattern {
    fn from(pattern: HostPattern) -> Self {
        Self::Host(pattern)
    }
}

impl From<RangePattern> for DestinationPattern {
    fn from(pattern: RangePattern) -> Self {
        Self::Range(pattern)
    }
}

impl FromStr for DestinationPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let numbers = |byte: u8| byte.is_ascii_hexdigit() || b".:[]/".contains(&byte);
        if text.contains('/') && text.bytes().all(numbers) {
            return text.parse().map(Self::Range);
        }
        text.parse().map(Self::Host)
    }
}

impl FromStr for RangePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |why: &str| InvalidPattern::new(text, why);
        let whole = text.parse::<AddressRange>().ok();
        let (range, port) = match whole {
            Some(_) => (text, None),
            None => split_port(text).map_err(invalid)?,
        };
        let bare = range
            .strip_prefix('[')
            .and_then(|range| range.strip_suffix(']'));
        let range: AddressRange = bare
            .unwrap_or(range)
            .parse()
            .map_err(|why: String| invalid(&why))?;
        if !text.contains('/') {
            return Err(invalid("a range has a `/` and the length of its prefix"));
        }
        if bare.is_some() != (port.is_some() && range.base().is_ipv6()) {
            return Err(invalid(
                "brackets stand around an IPv6 range before a port, and nowhere else",
            ));
        }
        if range.first() != range.base() {
            return Err(invalid(&format!(
                "the range begins at {}; write that",
                range.first()
            )));
        }
        Ok(Self { range, port })
    }
}

impl fmt::Display for DestinationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(pattern) => pattern.fmt(f),
            Self::Range(pattern) => pattern.fmt(f),
        }
    }
}

impl fmt::Display for RangePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = String::from(self.range);
        match (self.port, self.range.base()) {
            (None, _) => f.write_str(&range),
            (Some(port), IpAddr::V4(_)) => write!(f, "{range}:{port}"),
            (Some(port), IpAddr::V6(_)) => write!(f, "[{range}]:{port}"),
        }
    }
}

impl TryFrom<String> for DestinationPattern {
    type Error = InvalidPattern;
    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<DestinationPattern> for String {
    fn from(pattern: DestinationPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eg22_a_range_means_addresses_and_never_names() {
        for (pattern, host, port, wanted) in [
            ("10.0.0.0/8", "10.1.2.3", 443, true),
            ("10.0.0.0/8", "10.1.2.3", 80, true),
            ("10.0.0.0/8", "10.1.2.3", 22, false),
            ("10.0.0.0/8", "11.0.0.1", 443, false),
            ("10.0.0.0/8", "ten.example", 443, false),
            ("0.0.0.0/0", "any.example", 443, false),
            ("10.0.0.0/8:8443", "10.1.2.3", 8443, true),
            ("10.0.0.0/8:8443", "10.1.2.3", 443, false),
            ("fd00::/8", "[fd12::1]", 443, true),
            ("[fd00::/8]:9", "[fd12::1]", 9, true),
            ("10.0.0.0/8", "[::ffff:10.0.0.1]", 443, true),
            ("10.0.0.0/8", "[2002:a00:1::]", 443, false),
            ("10.0.0.0/8", "[64:ff9b::a00:1]", 443, false),
            ("203.0.113.7/32", "203.0.113.7", 443, true),
            // The other kind of pattern is what it was.
            ("10.0.0.1", "10.0.0.1", 443, true),
            ("*.a.com", "x.a.com", 443, true),
        ] {
            let pattern: DestinationPattern = pattern.parse().expect(pattern);
            let host: Host = host.parse().expect(host);
            assert_eq!(
                pattern.matches(&host, port),
                wanted,
                "{pattern} against {host}:{port}"
            );
        }
    }

    #[test]
    fn eg22_bad_ranges_are_refused() {
        for text in [
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.1.0.0/8",
            "10.0.0.0/8:",
            "10.0.0.0/8:0",
            "10.0.0.0/8:443:443",
            "[10.0.0.0/8]:443",
            "[fd00::/8]",
            "[fd00::]/8",
            "fd00::1/8",
            "::/129",
            "10.0.0.0/8/8",
            "10.0.0.0/+8",
            "a.com/8",
            "https://a.com",
        ] {
            assert!(text.parse::<DestinationPattern>().is_err(), "{text}");
        }
        assert!("10.0.0.1".parse::<RangePattern>().is_err());
    }

    #[test]
    fn a_range_survives_text() {
        for text in [
            "10.0.0.0/8",
            "10.0.0.0/8:8443",
            "fd00::/8",
            "[fd00::/8]:8443",
            "*.a.com:8443",
        ] {
            let pattern: DestinationPattern = text.parse().expect(text);
            assert_eq!(pattern.to_string(), text);
        }
    }
}
