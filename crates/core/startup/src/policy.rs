//! What a session's sandbox may reach.

use astrabox_egress::{Destination, DestinationPattern, EgressPolicy, HostPattern};
use astrabox_model::ResolvedModelAccess;
use astrabox_types::{ErrorReason, McpServer, McpTransport, Networking};

use crate::Refusal;

/// The policy of a session: what its environment allows, the agent's MCP servers on the network where the environment
/// allows those, and its model endpoint. Where its credentials go is allowed
/// beside it, by the credentials themselves, so that it ends with them.
///
/// # Errors
/// `INVALID_FIELD` for a host that is not a pattern, `MODEL_NOT_CONFIGURED` for a model URL without a host.
pub fn egress_policy(
    networking: &Networking,
    model: &ResolvedModelAccess,
    servers: &[McpServer],
) -> Result<EgressPolicy, Refusal> {
    let (unrestricted, hosts, servers) = match networking {
        Networking::Limited {
            allowed_hosts,
            allow_mcp_servers,
        } => {
            let servers = if *allow_mcp_servers { servers } else { &[] };
            (false, allowed_hosts.as_slice(), servers)
        }
        Networking::Unrestricted => (true, [].as_slice(), servers),
    };
    let mut allowed = hosts
        .iter()
        .map(|host| host.parse::<DestinationPattern>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| {
            Refusal::new(
                ErrorReason::InvalidField,
                format!("networking.allowed_hosts: {error}"),
            )
        })?;
    let endpoint = model_destination(&model.base_url)?;
    allowed.push(HostPattern::exact(endpoint.host, endpoint.port).into());
    allowed.extend(servers.iter().filter_map(|server| {
        let McpTransport::Http { url } = &server.transport else {
            return None;
        };
        let to = url_destination(url)?;
        Some(HostPattern::exact(to.host, to.port).into())
    }));
    Ok(EgressPolicy {
        unrestricted,
        allowed,
    })
}

fn model_destination(base_url: &str) -> Result<Destination, Refusal> {
    url_destination(base_url).ok_or_else(|| {
        Refusal::new(
            ErrorReason::ModelNotConfigured,
            "the model endpoint's base URL has no usable host",
        )
    })
}

/// Where an `http` or `https` address leads; `None` when it is none.
#[must_use]
pub fn url_destination(url: &str) -> Option<Destination> {
    let (rest, default) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, 443),
        (_, Some(rest)) => (rest, 80),
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    Destination::tunnel(authority)
        .or_else(|_| Destination::tunnel(&format!("{authority}:{default}")))
        .ok()
}

#[cfg(test)]
mod tests {
    use astrabox_egress::Decision;
    use astrabox_model::CredentialKind;

    use super::*;

    fn model(base_url: &str) -> ResolvedModelAccess {
        ResolvedModelAccess {
            base_url: base_url.into(),
            model_name: "m".into(),
            credential: None,
            credential_kind: CredentialKind::None,
            endpoint_provider: "direct".into(),
        }
    }

    #[test]
    fn a_limited_environment_reaches_its_hosts_and_the_model_only() {
        let networking = Networking::Limited {
            allowed_hosts: vec!["api.good.com".into(), "203.0.113.0/24".into()],
            allow_mcp_servers: false,
        };
        let policy = egress_policy(&networking, &model("http://model.test:8399/api"), &[])
            .expect("it is valid");
        for (authority, wanted) in [
            ("api.good.com:443", true),
            ("203.0.113.7:443", true),
            ("203.0.114.7:443", false),
            ("model.test:8399", true),
            ("model.test:443", false),
            ("evil.com:443", false),
        ] {
            let destination = Destination::tunnel(authority).expect(authority);
            assert_eq!(
                policy.decide(&destination) == Decision::Allow,
                wanted,
                "{authority}"
            );
        }
    }

    #[test]
    fn mcp_servers_are_reached_where_the_environment_says_so() {
        let servers = [McpServer {
            name: "far".into(),
            transport: McpTransport::Http {
                url: "https://mcp.test:8443/mcp".into(),
            },
        }];
        let destination = Destination::tunnel("mcp.test:8443").expect("a destination");
        for (allow_mcp_servers, wanted) in [(true, true), (false, false)] {
            let networking = Networking::Limited {
                allowed_hosts: Vec::new(),
                allow_mcp_servers,
            };
            let policy =
                egress_policy(&networking, &model("https://m.test"), &servers).expect("valid");
            assert_eq!(policy.decide(&destination) == Decision::Allow, wanted);
        }
    }

    #[test]
    fn the_models_port_follows_its_scheme() {
        for (url, port) in [
            ("https://m.test", 443),
            ("http://m.test/x", 80),
            ("http://[::1]:9/", 9),
        ] {
            assert_eq!(model_destination(url).expect(url).port, port, "{url}");
        }
        for url in ["", "m.test", "ftp://m.test", "https://", "https://u@m.test"] {
            assert!(model_destination(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_bad_host_is_refused_by_name() {
        let networking = Networking::Limited {
            allowed_hosts: vec!["*.com".into()],
            allow_mcp_servers: false,
        };
        let error = egress_policy(&networking, &model("https://m.test"), &[])
            .expect_err("the pattern is too wide");
        assert_eq!(error.reason, ErrorReason::InvalidField);
        assert!(error.message.contains("*.com"));
    }
}
