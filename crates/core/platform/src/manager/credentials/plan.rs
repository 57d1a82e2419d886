//! From a session's credentials to what its sandbox may put into requests. Pure: no value comes near it.

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, HostPattern, PathPattern, Placeholder,
    Places,
};
use astrabox_engine::{McpHeader, ModelPath};
use astrabox_model::{CredentialKind, ResolvedModelAccess};
use astrabox_startup::{Refusal, url_destination};
use astrabox_types::{CredentialNetworking, CredentialSpec, ErrorReason, McpServer, McpTransport};

use crate::vault::SessionCredential;

/// What git over HTTPS needs.
const GIT_METHODS: &[&str] = &["GET", "HEAD", "POST"];
/// What Streamable HTTP needs (MCP revision 2025-06-18).
const MCP_METHODS: &[&str] = &["GET", "POST", "DELETE"];

/// What a session's credentials are used for.
pub(super) struct Uses<'a> {
    /// The model.
    pub(super) model: &'a ResolvedModelAccess,
    /// What the engine calls at it.
    pub(super) model_paths: &'a [ModelPath],
    /// The agent's MCP servers.
    pub(super) servers: &'a [McpServer],
}

/// What a sandbox gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Planned {
    /// For the boundary, and for the environment inside.
    pub(super) plan: CredentialPlan,
    /// For the program's MCP clients.
    pub(super) mcp_headers: Vec<McpHeader>,
}

impl Planned {
    /// Plans these credentials, in their vaults' order.
    ///
    /// # Errors
    /// When one of them names what cannot be a destination, which was checked when it was written.
    pub(super) fn of(
        credentials: &[SessionCredential],
        uses: &Uses<'_>,
        mint: &dyn Fn(&str) -> Placeholder,
    ) -> Result<Self, Refusal> {
        let mut planned = Self::default();
        for credential in credentials {
            let placeholder = mint(&credential.id.to_string());
            planned.add(credential, uses, placeholder)?;
        }
        Ok(planned)
    }

    fn add(
        &mut self,
        credential: &SessionCredential,
        uses: &Uses<'_>,
        placeholder: Placeholder,
    ) -> Result<(), Refusal> {
        let id = credential.id.to_string();
        match &credential.spec {
            CredentialSpec::StaticBearer { mcp_server_url }
            | CredentialSpec::McpOauth { mcp_server_url, .. } => {
                let value = format!("Bearer {placeholder}");
                self.add_mcp(
                    &id,
                    mcp_server_url,
                    "authorization",
                    &value,
                    &placeholder,
                    uses,
                )
            }
            CredentialSpec::McpStaticHeader {
                mcp_server_url,
                header_name,
            } => {
                let value = placeholder.to_string();
                self.add_mcp(&id, mcp_server_url, header_name, &value, &placeholder, uses)
            }
            CredentialSpec::HttpBasic { url, username } => {
                let below = format!("{}/**", path_of(url));
                self.plan.http_basic.push(CredentialGrant {
                    handle: url.clone(),
                    hosts: vec![host_of(url)?],
                    methods: owned(GIT_METHODS),
                    paths: vec![pattern(&below)?],
                    places: Places {
                        header: HeaderPlace::Basic {
                            username: username.clone(),
                        },
                        body: BodyPlace::Refuse,
                        websocket: false,
                    },
                    cleartext: false,
                    ..grant(&id, placeholder)
                });
                Ok(())
            }
            CredentialSpec::EnvironmentVariable {
                secret_name,
                networking,
                injection_location,
                allowed_requests,
                allow_insecure_http,
            } => {
                let requests = allowed_requests.clone().unwrap_or_default();
                let paths = requests.paths.iter().map(|path| pattern(path));
                let hosts = match networking {
                    CredentialNetworking::Limited(hosts) => hosts.as_slice(),
                    CredentialNetworking::Unrestricted => &[],
                };
                let hosts = hosts.iter().map(|host| host_pattern(host));
                self.plan.environment.push(CredentialGrant {
                    handle: secret_name.clone(),
                    hosts: hosts.collect::<Result<_, _>>()?,
                    anywhere: *networking == CredentialNetworking::Unrestricted,
                    methods: requests.methods,
                    paths: paths.collect::<Result<_, _>>()?,
                    places: Places {
                        header: match injection_location.header {
                            true => HeaderPlace::Any,
                            false => HeaderPlace::Refuse,
                        },
                        body: match injection_location.body {
                            true => BodyPlace::Replace,
                            false => BodyPlace::Refuse,
                        },
                        websocket: injection_location.websocket,
                    },
                    cleartext: *allow_insecure_http,
                    ..grant(&id, placeholder)
                });
                Ok(())
            }
            // Only the one that the session's model was resolved with.
            CredentialSpec::ModelKey { .. } => self.add_model(&id, placeholder, uses),
        }
    }

    fn add_model(
        &mut self,
        id: &str,
        placeholder: Placeholder,
        uses: &Uses<'_>,
    ) -> Result<(), Refusal> {
        let wanted = uses.model.credential.as_ref();
        if wanted.is_none_or(|wanted| wanted.credential_id != id) {
            return Ok(());
        }
        let header = match uses.model.credential_kind {
            CredentialKind::None => return Ok(()),
            CredentialKind::Bearer => "authorization",
            CredentialKind::ApiKey => "x-api-key",
        };
        let base = &uses.model.base_url;
        let mut methods: Vec<_> = uses
            .model_paths
            .iter()
            .map(|call| call.method.to_owned())
            .collect();
        methods.sort();
        methods.dedup();
        let root = path_of(base);
        let paths = uses
            .model_paths
            .iter()
            .map(|call| pattern(&format!("{root}{}", call.path)));
        self.plan.model.push(CredentialGrant {
            hosts: vec![host_of(base)?],
            methods,
            paths: paths.collect::<Result<_, _>>()?,
            places: Places {
                header: HeaderPlace::Named(header.to_owned()),
                // The model may be told what the program has seen of its own environment.
                body: BodyPlace::Pass,
                websocket: false,
            },
            // Whoever configured the endpoint wrote its scheme.
            cleartext: base.starts_with("http://"),
            ..grant(id, placeholder)
        });
        Ok(())
    }

    fn add_mcp(
        &mut self,
        id: &str,
        url: &str,
        header: &str,
        value: &str,
        placeholder: &Placeholder,
        uses: &Uses<'_>,
    ) -> Result<(), Refusal> {
        let served = uses.servers.iter().find(|server| match &server.transport {
            McpTransport::Http { url: own } => normal(own) == normal(url),
            McpTransport::Stdio { .. } => false,
        });
        let Some(server) = served else {
            return Ok(());
        };
        // The first vault that has one for this server counts.
        if self
            .mcp_headers
            .iter()
            .any(|known| known.server == server.name)
        {
            return Ok(());
        }
        self.mcp_headers.push(McpHeader {
            server: server.name.clone(),
            name: header.to_owned(),
            value: value.to_owned(),
        });
        let path = match path_of(url) {
            "" => "/",
            path => path,
        };
        self.plan.mcp.push(CredentialGrant {
            handle: server.name.clone(),
            hosts: vec![host_of(url)?],
            methods: owned(MCP_METHODS),
            paths: vec![
                pattern(path)?,
                pattern(&format!("{}/", path.trim_end_matches('/')))?,
            ],
            places: Places {
                header: HeaderPlace::Named(header.to_ascii_lowercase()),
                body: BodyPlace::Refuse,
                websocket: false,
            },
            cleartext: url.starts_with("http://"),
            ..grant(id, placeholder.clone())
        });
        Ok(())
    }
}

/// A grant for nothing, to be filled.
fn grant(id: &str, placeholder: Placeholder) -> CredentialGrant {
    CredentialGrant {
        credential_id: id.to_owned(),
        handle: String::new(),
        placeholder,
        hosts: Vec::new(),
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: HeaderPlace::Refuse,
            body: BodyPlace::Refuse,
            websocket: false,
        },
        cleartext: false,
    }
}

fn owned(methods: &[&str]) -> Vec<String> {
    methods.iter().map(|method| (*method).to_owned()).collect()
}

/// Scheme and host in lower case, without a last slash: what two addresses are compared in.
fn normal(url: &str) -> String {
    let path = path_of(url);
    let authority = &url[..url.len() - rest_of(url).len()];
    let path = path.trim_end_matches('/');
    format!("{}{path}", authority.to_ascii_lowercase())
}

/// Everything behind scheme and authority.
fn rest_of(url: &str) -> &str {
    let behind = url.find("://").map_or(0, |at| at + 3);
    url[behind..]
        .find(['/', '?', '#'])
        .map_or("", |at| &url[behind + at..])
}

/// The path, without a query; empty where there is none.
fn path_of(url: &str) -> &str {
    let rest = rest_of(url);
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    path.trim_end_matches('/')
}

fn host_of(url: &str) -> Result<HostPattern, Refusal> {
    url_destination(url)
        .map(|to| HostPattern::exact(to.host, to.port))
        .ok_or_else(|| odd("an address without a usable host"))
}

fn host_pattern(text: &str) -> Result<HostPattern, Refusal> {
    text.parse().map_err(|error| odd(&format!("{error}")))
}

fn pattern(path: &str) -> Result<PathPattern, Refusal> {
    path.parse().map_err(|error| odd(&format!("{error}")))
}

fn odd(why: &str) -> Refusal {
    Refusal::new(ErrorReason::InvalidField, format!("a credential has {why}"))
}

#[cfg(test)]
mod tests;
