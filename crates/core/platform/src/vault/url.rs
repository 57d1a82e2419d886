//! Addresses of credentials, in one canonical form.

use astrabox_egress::{Destination, Host};

/// An address with everything that could be read in two ways refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebUrl {
    /// Whether it is `https`; else `http`.
    pub(crate) tls: bool,
    /// The host, canonical.
    pub(crate) host: Host,
    /// The port, as it stands or by the scheme.
    pub(crate) port: u16,
    /// The path as it stands, empty or with a leading `/`.
    pub(crate) path: String,
    /// What stands behind a `?`.
    pub(crate) query: Option<String>,
}

impl WebUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > 2048 {
            return Err("is longer than 2048 bytes");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("has spaces, control characters or characters outside of ASCII");
        }
        if text.contains(['\\', '#']) {
            return Err("has a backslash or a fragment");
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or("is not an address, as `https://host/path`")?;
        let tls = if scheme.eq_ignore_ascii_case("https") {
            true
        } else if scheme.eq_ignore_ascii_case("http") {
            false
        } else {
            return Err("does not begin with https:// or http://");
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains('@') {
            return Err("has a user name or password");
        }
        // An IPv6 address without brackets would be read as host and port, or not.
        if !authority.starts_with('[') && authority.matches(':').count() > 1 {
            return Err("has an IPv6 address without brackets");
        }
        let (host, port) = match Destination::tunnel(authority) {
            Ok(to) => (to.host, to.port),
            Err(_) => {
                let host = authority
                    .parse::<Host>()
                    .map_err(|_| "has no well-formed host")?;
                (host, if tls { 443 } else { 80 })
            }
        };
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        Ok(Self {
            tls,
            host,
            port,
            path: path.to_owned(),
            query,
        })
    }

    /// Scheme and host in lower case, the scheme's own port left out, no slash at the end; otherwise as it stands.
    pub(crate) fn canonical(&self) -> String {
        let Self {
            tls,
            host,
            port,
            path,
            query,
        } = self;
        let scheme = if *tls { "https" } else { "http" };
        let port = match (tls, port) {
            (true, 443) | (false, 80) => String::new(),
            (_, port) => format!(":{port}"),
        };
        let path = path.trim_end_matches('/');
        let query = query.as_ref().map(|query| format!("?{query}"));
        format!("{scheme}://{host}{port}{path}{}", query.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_form() {
        for (text, form) in [
            ("HTTPS://MCP.Example/Path/", "https://mcp.example/Path"),
            ("https://mcp.example:443", "https://mcp.example"),
            ("https://mcp.example.", "https://mcp.example"),
            ("https://mcp.example:8443/a//", "https://mcp.example:8443/a"),
            ("http://127.0.0.1:80/x", "http://127.0.0.1/x"),
            ("https://[::1]:9/x?a=B", "https://[::1]:9/x?a=B"),
        ] {
            assert_eq!(WebUrl::parse(text).expect(text).canonical(), form);
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in [
            "",
            "mcp.example",
            "ftp://mcp.example",
            "https://",
            "https:///path",
            "https://a b/",
            "https://user@mcp.example",
            "https://user:word@mcp.example",
            "https://mcp.example#x",
            "https://mcp.example\\@evil.example",
            "https://mcp.example:0",
            "https://mcp.example:99999",
            "https://mcp.example:",
            "https://::1/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://bücher.example/",
            "https://mcp.example/\r\nx",
        ] {
            assert!(WebUrl::parse(text).is_err(), "{text}");
        }
        assert!(WebUrl::parse(&format!("https://a.example/{}", "x".repeat(2048))).is_err());
    }
}
