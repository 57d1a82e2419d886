//! One canonical form of a host, and the patterns that match it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host in canonical form: a lower-case ASCII name without a trailing dot, or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    /// A DNS name.
    Name(String),
    /// An IP literal.
    Address(IpAddr),
}

/// A text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host: {why}")]
pub struct InvalidHost {
    why: &'static str,
}

impl InvalidHost {
    pub(crate) const fn because(why: &'static str) -> Self {
        Self { why }
    }
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let invalid = |why| Err(InvalidHost { why });
        if let Some(inner) = text.strip_prefix('[') {
            let Some(inner) = inner.strip_suffix(']') else {
                return invalid("an opening bracket without a closing one");
            };
            return match inner.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Self::Address(address.into())),
                Err(_) => invalid("brackets hold an IPv6 address and no zone"),
            };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        check_name(name).map_err(|why| InvalidHost { why })?;
        Ok(Self::Name(name.to_ascii_lowercase()))
    }
}

/// Refuses everything that two parsers could read as two different hosts.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.len() > 253 {
        return Err("it is longer than 253 bytes");
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err("it has an empty label");
        }
        if label.len() > 63 {
            return Err("it has a label of more than 63 bytes");
        }
        if !label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        {
            return Err(
                "only letters, digits, `-` and `_` are allowed (write other scripts as xn--)",
            );
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("a label begins or ends with `-`");
        }
    }
    // The old number forms of an address (2130706433, 0x7f.1, 0177.0.0.1) end in a number or 0x; a name does not.
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last.len() > 2 && last[..2].eq_ignore_ascii_case("0x");
    if hexadecimal || last.bytes().all(|b| b.is_ascii_digit()) || last.eq_ignore_ascii_case("0x") {
        return Err("it looks like an address in a number form; write it as four decimal parts");
    }
    Ok(())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl TryFrom<String> for Host {
    type Error = InvalidHost;
    fn try_from(text: String) -> Result<Self, InvalidHost> {
        text.parse()
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

/// Which hosts and ports a rule means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    host: Host,
    subdomains: bool,
    port: Option<u16>,
}

/// A text that is not a host pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a host pattern: {why}")]
pub struct InvalidPattern {
    pattern: String,
    why: String,
}

impl InvalidPattern {
    pub(crate) fn new(pattern: &str, why: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            why: why.to_owned(),
        }
    }
}

impl HostPattern {
    /// A pattern for exactly one host and port.
    #[must_use]
    pub fn exact(host: Host, port: u16) -> Self {
        Self {
            host,
            subdomains: false,
            port: Some(port),
        }
    }

    /// Whether the pattern means this host and port (EG2, EG3, EG4).
    #[must_use]
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        let port_fits = match self.port {
            Some(wanted) => wanted == port,
            None => is_web(port),
        };
        port_fits && self.matches_host(host)
    }

    fn matches_host(&self, host: &Host) -> bool {
        match (&self.host, host) {
            (Host::Name(suffix), Host::Name(name)) if self.subdomains => name
                .strip_suffix(suffix.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            (wanted, host) => !self.subdomains && wanted == host,
        }
    }
}

/// The ports of what does not name one (EG4).
pub(crate) const fn is_web(port: u16) -> bool {
    port == 80 || port == 443
}

impl FromStr for HostPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |why: &str| InvalidPattern::new(text, why);
        let (host, port) = split_port(text).map_err(invalid)?;
        let (host, subdomains) = match host.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (host, false),
        };
        let host: Host = host
            .parse()
            .map_err(|error: InvalidHost| invalid(error.why))?;
        if subdomains {
            match &host {
                Host::Address(_) => return Err(invalid("an address has no subdomains")),
                Host::Name(name) if !name.contains('.') => {
                    return Err(invalid("`*.` needs at least two labels behind it"));
                }
                Host::Name(_) => {}
            }
        }
        Ok(Self {
            host,
            subdomains,
            port,
        })
    }
}

/// Splits `host`, `host:port`, `[v6]` and `[v6]:port`; a bare IPv6 address has no port.
pub(crate) fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    let colon = match text.rfind(']') {
        Some(end) => text[end..].find(':').map(|at| end + at),
        None => text.find(':'),
    };
    let Some(colon) = colon else {
        return Ok((text, None));
    };
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    let plain =
        !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
    match port.parse::<u16>() {
        Ok(port) if plain => Ok((host, Some(port))),
        _ => Err("the port is a decimal number from 1 to 65535"),
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.subdomains {
            f.write_str("*.")?;
        }
        self.host.fmt(f)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = InvalidPattern;
    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eg3_a_host_has_one_form() {
        for (text, form) in [
            // B1
            ("API.Good.com", "api.good.com"),
            ("api.good.com.", "api.good.com"),
            ("a_b.good.com", "a_b.good.com"),
            ("_acme.good.com", "_acme.good.com"),
            // B3: a name of another script is what it is in ASCII, whether or not it decodes.
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("XN--80AK6AA92E.com", "xn--80ak6aa92e.com"),
            ("xn--a.example", "xn--a.example"),
            ("r3---sn-x.example", "r3---sn-x.example"),
            // B5
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[0:0::0001]", "[::1]"),
            ("::ffff:10.0.0.1", "[::ffff:10.0.0.1]"),
            ("[::FFFF:a9fe:A9FE]", "[::ffff:169.254.169.254]"),
            // B6: judged by what it resolves to.
            ("7f000001.nip.io", "7f000001.nip.io"),
            ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
            // A last label that is more than a number is a name's.
            ("1.2.3.4a", "1.2.3.4a"),
            ("a.0b1", "a.0b1"),
        ] {
            assert_eq!(text.parse::<Host>().expect(text).to_string(), form);
        }
    }

    #[test]
    fn b1_to_b5_ambiguous_hosts_are_refused() {
        for text in [
            // B1
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "-a.com",
            "a-.com",
            // B2
            "good.com\\@evil",
            "api.good.com@evil.com",
            "evil.com#@good.com",
            "good.com/x",
            "good.com#x",
            "good.com?x",
            "https://good.com",
            "good.com:443",
            // B3
            "b\u{fc}cher.example",
            "\u{430}pple.com",
            "fa\u{df}.de",
            "a\u{200d}b.com",
            "a\u{3002}b",
            "a\u{ff0e}b",
            "a\u{ff61}b",
            "\u{ff41}.com",
            "xn--.com",
            // B4
            "a b",
            " a",
            "a ",
            "a\tb",
            "a\0b",
            "a\rb",
            "a\nb",
            "a\r\nb",
            "a%2eb",
            "a%00",
            "a%0a",
            // B5
            "2130706433",
            "0177.0.0.1",
            "0x7f.1",
            "0x7F.0.0.0x1",
            "0x7f000001",
            "0x",
            "127.1",
            "127.0.1",
            "127.0.0.01",
            "127.0.0.256",
            "1.2.3.4.5",
            "a.1",
            "127.0.0.1..",
            "fe80::1%eth0",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "[::1",
            "::1]",
            "[::1]x",
            "[]",
            "::1.",
            // B7: no host is a pattern.
            "*.a.com",
            "*",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
        assert!("a".repeat(64).parse::<Host>().is_err());
        assert!(["a."; 127].concat().parse::<Host>().is_ok());
        assert!(["a."; 128].concat().parse::<Host>().is_err());
    }

    #[test]
    fn b3_a_name_of_another_script_is_refused_with_a_remedy() {
        for text in ["b\u{fc}cher.example", "*.b\u{fc}cher.example"] {
            let error = text.parse::<HostPattern>().expect_err(text);
            assert!(error.to_string().contains("xn--"), "{error}");
        }
    }

    #[test]
    fn eg2_eg4_patterns_match_what_they_say() {
        let cases = [
            ("a.com", "a.com", 443, true),
            ("a.com", "A.com.", 80, true),
            ("a.com", "a.com", 8443, false),
            ("a.com", "x.a.com", 443, false),
            ("a.com:8443", "a.com", 8443, true),
            ("a.com:8443", "a.com", 443, false),
            ("*.a.com", "a.com", 443, false),
            ("*.a.com", "x.a.com", 443, true),
            ("*.a.com", "x.y.a.com", 443, true),
            ("*.a.com", "bada.com", 443, false),
            ("*.a.com", "a.com.evil.com", 443, false),
            ("*.a.com", "x.a.com", 8443, false),
            ("*.a.com:8443", "x.a.com", 8443, true),
            ("A.com.", "a.com", 443, true),
            ("10.0.0.1", "[::ffff:10.0.0.1]", 443, false),
            ("127.0.0.1:9", "127.0.0.1", 9, true),
            ("[::1]:9", "[::1]", 9, true),
        ];
        for (pattern, host, port, wanted) in cases {
            let pattern: HostPattern = pattern.parse().expect(pattern);
            let host: Host = host.parse().expect(host);
            assert_eq!(
                pattern.matches(&host, port),
                wanted,
                "{pattern} against {host}:{port}"
            );
        }
    }

    #[test]
    fn b7_b8_bad_patterns_are_refused() {
        for text in [
            "",
            "*",
            "*.com",
            "api.*.com",
            "*a.com",
            "*.*.com",
            "*.127.0.0.1",
            "*.",
            "*.a.com.*",
            "**.a.com",
            "a.*",
            "a.com:",
            ":443",
            "a.com:-1",
            "a.com:443:443",
            "a.com:0",
            "a.com:65536",
            "a.com:+443",
            "a.com:0443",
            "a.com:44 3",
            "https://a.com",
            "a.com/x",
            "u@a.com",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_survives_text() {
        for text in ["a.com", "*.a.com", "a.com:8443", "[::1]:9", "10.0.0.1"] {
            assert_eq!(text.parse::<HostPattern>().expect(text).to_string(), text);
        }
    }
}
