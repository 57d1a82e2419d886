//! Names whose addresses the operator states.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use astrabox_egress::Host;
use serde::{Deserialize, Serialize};

/// Names with an address of the operator's choice, which is used instead of a look-up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StaticHosts(BTreeMap<StaticName, StaticTarget>);

impl StaticHosts {
    /// Adds an entry, `name` as `host[:port]` and `target` as `ip[:port]`.
    ///
    /// # Errors
    /// A text that says which of the two is wrong.
    pub fn insert(&mut self, name: &str, target: &str) -> Result<(), String> {
        let name = StaticName::try_from(name.to_owned())?;
        self.0
            .insert(name, StaticTarget::try_from(target.to_owned())?);
        Ok(())
    }

    /// Where the destination is reached; an entry with the port wins over one without.
    #[must_use]
    pub fn find(&self, host: &Host, port: u16) -> Option<SocketAddr> {
        let Host::Name(name) = host else { return None };
        let entry = |port| {
            self.0.get(&StaticName {
                name: name.clone(),
                port,
            })
        };
        let target = entry(Some(port)).or_else(|| entry(None))?;
        Some(SocketAddr::new(target.address, target.port.unwrap_or(port)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct StaticName {
    name: String,
    port: Option<u16>,
}

impl TryFrom<String> for StaticName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && !host.starts_with('[') => {
                (host, Some(parse_port(port, &text)?))
            }
            _ => (text.as_str(), None),
        };
        match host.parse::<Host>() {
            Ok(Host::Name(name)) => Ok(Self { name, port }),
            Ok(Host::Address(_)) => Err(format!(
                "`{text}` is an address; a static host is a name, addresses belong in allow_private"
            )),
            Err(error) => Err(format!("`{text}` is {error}")),
        }
    }
}

impl From<StaticName> for String {
    fn from(name: StaticName) -> Self {
        match name.port {
            Some(port) => format!("{}:{port}", name.name),
            None => name.name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct StaticTarget {
    address: IpAddr,
    port: Option<u16>,
}

impl TryFrom<String> for StaticTarget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self {
                address,
                port: None,
            });
        }
        match text.parse::<SocketAddr>() {
            Ok(target) if target.port() != 0 => Ok(Self {
                address: target.ip(),
                port: Some(target.port()),
            }),
            _ => Err(format!(
                "`{text}` is not the address of a static host; write `10.0.0.7` or `10.0.0.7:8443`"
            )),
        }
    }
}

impl From<StaticTarget> for String {
    fn from(target: StaticTarget) -> Self {
        match target.port {
            Some(port) => SocketAddr::new(target.address, port).to_string(),
            None => target.address.to_string(),
        }
    }
}

fn parse_port(port: &str, text: &str) -> Result<u16, String> {
    match port.parse::<u16>() {
        Ok(number) if number.to_string() == port && number != 0 => Ok(number),
        _ => Err(format!(
            "`{text}`: the port is a decimal number from 1 to 65535"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(entries: &[(&str, &str)]) -> StaticHosts {
        let mut hosts = StaticHosts::default();
        for (name, target) in entries {
            hosts.insert(name, target).unwrap();
        }
        hosts
    }

    #[test]
    fn an_entry_with_the_port_wins() {
        let hosts = hosts(&[
            ("a.test", "10.0.0.1"),
            ("A.test.:443", "10.0.0.2:8443"),
            ("b.test:80", "[fd00::1]:8080"),
        ]);
        for (host, port, wanted) in [
            ("a.test", 80, Some("10.0.0.1:80")),
            ("a.test", 443, Some("10.0.0.2:8443")),
            ("b.test", 80, Some("[fd00::1]:8080")),
            ("b.test", 443, None),
            ("x.a.test", 80, None),
            ("10.0.0.1", 80, None),
        ] {
            let found = hosts.find(&host.parse().unwrap(), port);
            assert_eq!(found, wanted.map(|text| text.parse().unwrap()), "{host}");
        }
        let text = serde_json::to_string(&hosts).unwrap();
        assert_eq!(serde_json::from_str::<StaticHosts>(&text).unwrap(), hosts);
    }

    #[test]
    fn what_is_no_name_or_no_address_is_refused() {
        for (name, target) in [
            ("10.0.0.1", "10.0.0.2"),
            ("[::1]:80", "10.0.0.2"),
            ("::1", "10.0.0.2"),
            ("*.a.test", "10.0.0.2"),
            ("a.test:", "10.0.0.2"),
            ("a.test:0", "10.0.0.2"),
            ("a.test:080", "10.0.0.2"),
            ("", "10.0.0.2"),
            ("a.test", "b.test"),
            ("a.test", "10.0.0.2:0"),
            ("a.test", ""),
        ] {
            let refused = StaticHosts::default().insert(name, target);
            assert!(refused.is_err(), "{name} {target}");
        }
    }
}
