//! Vaults and the public side of their credentials. The secret side is [`CredentialSecret`], which nobody can print.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{CredentialId, Secret, Timestamp, VaultId};

/// The most active credentials of a vault.
pub const MAX_VAULT_CREDENTIALS: usize = 20;
/// The most vaults of an agent.
pub const MAX_AGENT_VAULTS: usize = 16;

/// A set of credentials that agents use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vault {
    /// Its id.
    pub id: VaultId,
    /// A name for people, 1 to 256 bytes, not unique.
    pub display_name: String,
    /// The caller's own labels: at most 16, keys to 64 bytes, values to 512.
    pub metadata: BTreeMap<String, String>,
    /// When it was put away, with every credential in it.
    pub archived_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// A credential without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultCredential {
    /// Its id.
    pub id: CredentialId,
    /// The vault that it is in.
    pub vault_id: VaultId,
    /// A name for people, at most 256 bytes.
    pub display_name: String,
    /// What may be known of it.
    pub spec: CredentialSpec,
    /// Counts the secrets that it had, from 1. A token that is refreshed is the same secret.
    pub secret_version: u32,
    /// When it was put away; it has no secret from then on.
    pub archived_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// What a credential is for and where it may go: everything but its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum CredentialSpec {
    /// A bearer token of one MCP server.
    StaticBearer {
        /// The server's address.
        mcp_server_url: String,
    },
    /// An OAuth access token of one MCP server, which the platform refreshes.
    McpOauth {
        /// The server's address.
        mcp_server_url: String,
        /// When the access token ends; never, as far as is known, when absent.
        expires_at: Option<Timestamp>,
        /// How it is refreshed; not at all when absent.
        refresh: Option<OauthRefresh>,
    },
    /// A header with a fixed value for one MCP server.
    McpStaticHeader {
        /// The server's address.
        mcp_server_url: String,
        /// The header's name, in lower case.
        header_name: String,
    },
    /// A user name and a password for everything below one address, as a git repository.
    HttpBasic {
        /// The address.
        url: String,
        /// The user name, which is no secret.
        username: String,
    },
    /// A value for programs that take it from an environment variable.
    EnvironmentVariable {
        /// The variable.
        secret_name: String,
        /// Where the value may go.
        #[serde(alias = "allowed_hosts", deserialize_with = "networking")]
        networking: CredentialNetworking,
        /// Where in a request it may stand.
        injection_location: InjectionLocation,
        /// The requests that it may go with; all to these hosts when absent.
        allowed_requests: Option<AllowedRequests>,
        /// Whether it may go over plain HTTP.
        allow_insecure_http: bool,
    },
    /// A model endpoint of the agent's own, and its key.
    ModelKey {
        /// The root of the API, without `/v1`.
        endpoint: String,
        /// How the key is shown.
        kind: ModelKeyKind,
        /// The models that it is for; every one when empty.
        models: Vec<String>,
    },
}

/// How an access token is refreshed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthRefresh {
    /// The authorisation server's token endpoint (RFC 6749, section 3.2).
    pub token_endpoint: String,
    /// The client.
    pub client_id: String,
    /// How the client shows who it is.
    pub auth_method: ClientAuthMethod,
    /// The scope to ask for; the scope of the first token when empty.
    pub scope: String,
}

/// How a client shows at the token endpoint who it is, by the names of RFC 7591.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthMethod {
    /// It has no secret.
    None,
    /// Its secret is the password of HTTP Basic.
    ClientSecretBasic,
    /// Its secret is in the body.
    ClientSecretPost,
}

impl ClientAuthMethod {
    /// Whether it needs a secret.
    #[must_use]
    pub const fn needs_secret(self) -> bool {
        match self {
            Self::None => false,
            Self::ClientSecretBasic | Self::ClientSecretPost => true,
        }
    }
}

/// Where a value may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialNetworking {
    /// To these hosts and no others; at least one. The sandbox may reach them.
    Limited(Vec<String>),
    /// To every host that the sandbox may reach by itself.
    Unrestricted,
}

/// Before there was a choice, a row had its hosts alone.
fn networking<'de, D: Deserializer<'de>>(from: D) -> Result<CredentialNetworking, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Hosts(Vec<String>),
        Chosen(CredentialNetworking),
    }
    Ok(match Form::deserialize(from)? {
        Form::Hosts(hosts) => CredentialNetworking::Limited(hosts),
        Form::Chosen(networking) => networking,
    })
}

/// Where in a request a value may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectionLocation {
    /// In header values.
    pub header: bool,
    /// In the body.
    pub body: bool,
    /// In text messages of a WebSocket that the request opens.
    #[serde(default)]
    pub websocket: bool,
}

impl Default for InjectionLocation {
    fn default() -> Self {
        Self {
            header: true,
            body: true,
            websocket: false,
        }
    }
}

/// Which requests a value may go with. At least one of the two lists has something; an empty one restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedRequests {
    /// Methods, in upper case; at most 50.
    pub methods: Vec<String>,
    /// Absolute path patterns; at most 50.
    pub paths: Vec<String>,
}

/// How a model endpoint is shown its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKeyKind {
    /// As `Authorization: Bearer`.
    Bearer,
    /// As `x-api-key`.
    ApiKey,
}

impl CredentialSpec {
    /// The type's wire name.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::StaticBearer { .. } => "static_bearer",
            Self::McpOauth { .. } => "mcp_oauth",
            Self::McpStaticHeader { .. } => "mcp_static_header",
            Self::HttpBasic { .. } => "http_basic",
            Self::EnvironmentVariable { .. } => "environment_variable",
            Self::ModelKey { .. } => "model_key",
        }
    }

    /// What only one active credential of a vault may be for: the purpose and the address or name.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::StaticBearer { mcp_server_url }
            | Self::McpOauth { mcp_server_url, .. }
            | Self::McpStaticHeader { mcp_server_url, .. } => format!("mcp {mcp_server_url}"),
            Self::HttpBasic { url, .. } => format!("basic {url}"),
            Self::EnvironmentVariable { secret_name, .. } => format!("env {secret_name}"),
            Self::ModelKey { endpoint, .. } => format!("model {endpoint}"),
        }
    }
}

/// The secret side of a credential: write-only, so it has no Debug and no Serialize.
pub struct CredentialSecret {
    /// What goes on the wire: the token, the header's value, the password, the variable's value, the model key.
    pub value: Secret,
    /// `mcp_oauth` with a refresh: the refresh token.
    pub refresh_token: Option<Secret>,
    /// `mcp_oauth` with a client that has a secret.
    pub client_secret: Option<Secret>,
}

impl CredentialSecret {
    /// A secret that is one value.
    #[must_use]
    pub fn of(value: Secret) -> Self {
        Self {
            value,
            refresh_token: None,
            client_secret: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_one_key_whatever_the_type_of_mcp_credential() {
        let url = || "https://mcp.example/x".to_owned();
        let bearer = CredentialSpec::StaticBearer {
            mcp_server_url: url(),
        };
        let header = CredentialSpec::McpStaticHeader {
            mcp_server_url: url(),
            header_name: "x-key".to_owned(),
        };
        let basic = CredentialSpec::HttpBasic {
            url: url(),
            username: "u".to_owned(),
        };
        assert_eq!(bearer.key(), header.key());
        assert_ne!(bearer.key(), basic.key());
    }

    #[test]
    fn a_spec_is_stored_under_its_wire_name() {
        let spec = CredentialSpec::ModelKey {
            endpoint: "https://models.example".to_owned(),
            kind: ModelKeyKind::ApiKey,
            models: Vec::new(),
        };
        let text = serde_json::to_string(&spec).expect("it is JSON");
        assert!(text.contains(r#""type":"model_key""#), "{text}");
        assert!(text.contains(r#""kind":"api_key""#), "{text}");
        let read: CredentialSpec = serde_json::from_str(&text).expect("it is read");
        assert_eq!(read, spec);
        let stored = r#"{"type":"environment_variable","secret_name":"A","allowed_hosts":["a.example"],
            "injection_location":{"header":true,"body":false},"allowed_requests":null,"allow_insecure_http":false}"#;
        for (hosts, wanted) in [
            (
                r#""allowed_hosts":["a.example"]"#,
                CredentialNetworking::Limited(vec!["a.example".to_owned()]),
            ),
            (
                r#""networking":{"limited":["a.example"]}"#,
                CredentialNetworking::Limited(vec!["a.example".to_owned()]),
            ),
            (
                r#""networking":"unrestricted""#,
                CredentialNetworking::Unrestricted,
            ),
        ] {
            let text = stored.replace(r#""allowed_hosts":["a.example"]"#, hosts);
            let read: CredentialSpec = serde_json::from_str(&text).expect(hosts);
            let CredentialSpec::EnvironmentVariable { networking, .. } = &read else {
                panic!("another type");
            };
            assert_eq!(networking, &wanted);
            let text = serde_json::to_string(&read).expect("it is JSON");
            assert_eq!(
                serde_json::from_str::<CredentialSpec>(&text).ok(),
                Some(read)
            );
        }
        let more = text.replace(r#""models""#, r#""key":"x","models""#);
        assert!(serde_json::from_str::<CredentialSpec>(&more).is_err());
    }
}
