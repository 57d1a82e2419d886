//! The root of an endpoint as operators write it, and where plaintext is accepted.

use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;

/// The ends of names that are never public: RFC 6761, 6762 and 8375, and ICANN's `.internal`.
const PRIVATE_DOMAINS: &[&str] = &["localhost", "internal", "test", "home.arpa", "local"];

/// Where an endpoint without TLS is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plaintext {
    /// Nowhere.
    Nowhere,
    /// Where it cannot leave the operator's own network: loopback and private addresses, and names that are never
    /// public (`localhost`, and names under `.localhost`, `.internal`, `.test`, `.home.arpa` and `.local`).
    InPrivate,
    /// Everywhere.
    Anywhere,
}

/// Why a text is not taken for the root of an endpoint. The text itself is not repeated: it may hold a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointFault {
    /// It is not such a root; says what is wrong.
    Malformed(&'static str),
    /// It holds a user and a password.
    HoldsCredential,
    /// It is plaintext, and that is accepted nowhere.
    NeedsTls,
    /// It is plaintext to a public host.
    PublicPlaintext,
}

/// The endpoint's root as engines use it, who add `/v1/..` of their wire: scheme, host in lower case, port and path,
/// without a slash at the end.
///
/// # Errors
/// What is wrong with it.
pub fn endpoint_root(text: &str, plaintext: Plaintext) -> Result<String, EndpointFault> {
    let wrong = EndpointFault::Malformed;
    let url: Uri = text
        .parse()
        .map_err(|_| wrong("is not a URL, as `https://models.example`"))?;
    let (Some(scheme), Some(authority)) = (url.scheme(), url.authority()) else {
        return Err(wrong("is not a whole URL, as `https://models.example`"));
    };
    if authority.as_str().contains('@') {
        return Err(EndpointFault::HoldsCredential);
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

fn accept_plaintext(host: &str, plaintext: Plaintext) -> Result<(), EndpointFault> {
    match plaintext {
        Plaintext::Anywhere => Ok(()),
        Plaintext::InPrivate if is_private(host) => Ok(()),
        Plaintext::InPrivate => Err(EndpointFault::PublicPlaintext),
        Plaintext::Nowhere => Err(EndpointFault::NeedsTls),
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

#[cfg(test)]
mod tests {
    use super::{EndpointFault, Plaintext, endpoint_root};

    #[test]
    fn a_root_is_brought_to_its_plain_form() {
        for (given, expected) in [
            ("https://models.example", "https://models.example"),
            (
                "https://Models.Example:8443/",
                "https://models.example:8443",
            ),
            ("https://m.example/Gate//", "https://m.example/Gate"),
            ("http://[::1]:8399", "http://[::1]:8399"),
        ] {
            let root = endpoint_root(given, Plaintext::InPrivate);
            assert_eq!(root.as_deref(), Ok(expected));
        }
    }

    #[test]
    fn plaintext_is_accepted_where_it_is_said() {
        use Plaintext::{Anywhere, InPrivate, Nowhere};
        for (url, plaintext, fault) in [
            ("http://m.test", Nowhere, Some(EndpointFault::NeedsTls)),
            ("http://m.test", InPrivate, None),
            (
                "http://m.example",
                InPrivate,
                Some(EndpointFault::PublicPlaintext),
            ),
            ("http://m.example", Anywhere, None),
            ("https://m.example", Nowhere, None),
            (
                "https://u:p@m.example",
                Anywhere,
                Some(EndpointFault::HoldsCredential),
            ),
        ] {
            assert_eq!(endpoint_root(url, plaintext).err(), fault, "{url}");
        }
    }
}
