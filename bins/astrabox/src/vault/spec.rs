//! What a credential is for, as options.

use astrabox_client::v1;
use astrabox_client::v1::credential_networking::Type as Networking;
use astrabox_client::v1::credential_spec::Type;
use prost_types::Timestamp;

use crate::exit::Failure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Kind {
    /// A bearer token of an MCP server
    StaticBearer {
        /// The server's address
        #[arg(long, value_name = "URL")]
        mcp_server_url: String,
    },
    /// An OAuth access token of an MCP server, refreshed by the platform
    McpOauth {
        /// The server's address
        #[arg(long, value_name = "URL")]
        mcp_server_url: String,
        /// When the access token ends, as 2030-01-31T12:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<Timestamp>,
        #[command(flatten)]
        refresh: Refresh,
    },
    /// A header with a fixed value for an MCP server
    McpStaticHeader {
        /// The server's address
        #[arg(long, value_name = "URL")]
        mcp_server_url: String,
        /// The header's name
        #[arg(long, value_name = "NAME")]
        header_name: String,
    },
    /// A user name and password for everything below an address, as a git repository
    HttpBasic {
        /// The address
        #[arg(long)]
        url: String,
        /// The user name
        #[arg(long)]
        username: String,
    },
    /// A value for programs that take it from an environment variable
    EnvironmentVariable(Variable),
    /// A model endpoint of the agent's own, and its key
    ModelKey {
        /// The root of the API, without /v1
        #[arg(long, value_name = "URL")]
        endpoint: String,
        /// How the key is shown
        #[arg(long, value_enum)]
        kind: KeyKind,
        /// A model that it is for; may be given again [default: every one]
        #[arg(long = "model")]
        models: Vec<String>,
    },
}

/// How an access token is refreshed.
#[derive(Debug, clap::Args)]
pub(crate) struct Refresh {
    /// The authorisation server's token endpoint; needs --client-id, --auth-method and --refresh-token-file
    #[arg(long, value_name = "URL", requires_all = ["client_id", "auth_method"])]
    token_endpoint: Option<String>,
    /// The client
    #[arg(long, requires = "token_endpoint")]
    client_id: Option<String>,
    /// How the client shows who it is
    #[arg(long, value_enum, requires = "token_endpoint")]
    auth_method: Option<AuthMethod>,
    /// The scope to ask for [default: that of the token before]
    #[arg(long, requires = "token_endpoint")]
    scope: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum AuthMethod {
    /// It has no secret
    None,
    /// Its secret as the password of HTTP Basic
    ClientSecretBasic,
    /// Its secret in the body
    ClientSecretPost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KeyKind {
    /// As `Authorization: Bearer`
    Bearer,
    /// As `x-api-key`
    ApiKey,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Variable {
    /// The variable
    #[arg(long, value_name = "NAME")]
    secret_name: String,
    /// A host that the value may go to, as api.example.com or *.example.com; may be given again
    #[arg(
        long = "allow-host",
        value_name = "HOST",
        required_unless_present = "unrestricted"
    )]
    allow_hosts: Vec<String>,
    /// The value may go to every host that the sandbox may reach; TLS is ended for all of them
    #[arg(long, conflicts_with = "allow_hosts")]
    unrestricted: bool,
    /// A method that it may go with; may be given again [default: every one]
    #[arg(long = "method")]
    methods: Vec<String>,
    /// A path that it may go with, as /v1/** or /repos/*/issues; may be given again [default: every one]
    #[arg(long = "path")]
    paths: Vec<String>,
    /// The value never stands in a header
    #[arg(long)]
    not_in_header: bool,
    /// The value never stands in a body
    #[arg(long)]
    not_in_body: bool,
    /// The value may stand in text messages of a WebSocket
    #[arg(long)]
    in_websocket: bool,
    /// Lets the value go over plain HTTP, where everybody on the way can read it
    #[arg(long)]
    allow_insecure_http: bool,
}

impl Kind {
    /// As the API takes it.
    pub(crate) fn spec(self) -> anyhow::Result<v1::CredentialSpec> {
        let kind = match self {
            Self::StaticBearer { mcp_server_url } => {
                Type::StaticBearer(v1::StaticBearerCredential { mcp_server_url })
            }
            Self::McpOauth {
                mcp_server_url,
                expires_at,
                refresh,
            } => Type::McpOauth(v1::McpOauthCredential {
                mcp_server_url,
                expires_at,
                refresh: refresh.given()?,
            }),
            Self::McpStaticHeader {
                mcp_server_url,
                header_name,
            } => Type::McpStaticHeader(v1::McpStaticHeaderCredential {
                mcp_server_url,
                header_name,
            }),
            Self::HttpBasic { url, username } => {
                Type::HttpBasic(v1::HttpBasicCredential { url, username })
            }
            Self::EnvironmentVariable(variable) => Type::EnvironmentVariable(variable.given()),
            Self::ModelKey {
                endpoint,
                kind,
                models,
            } => Type::ModelKey(v1::ModelKeyCredential {
                endpoint,
                kind: match kind {
                    KeyKind::Bearer => v1::ModelKeyKind::Bearer,
                    KeyKind::ApiKey => v1::ModelKeyKind::ApiKey,
                }
                .into(),
                models,
            }),
        };
        Ok(v1::CredentialSpec { r#type: Some(kind) })
    }
}

impl Refresh {
    fn given(self) -> anyhow::Result<Option<v1::OauthRefresh>> {
        let Self {
            token_endpoint,
            client_id,
            auth_method,
            scope,
        } = self;
        let Some(token_endpoint) = token_endpoint else {
            return Ok(None);
        };
        let (Some(client_id), Some(auth_method)) = (client_id, auth_method) else {
            return Err(Failure::usage(
                "--token-endpoint needs --client-id and --auth-method",
            ));
        };
        let auth_method = match auth_method {
            AuthMethod::None => v1::ClientAuthMethod::None,
            AuthMethod::ClientSecretBasic => v1::ClientAuthMethod::ClientSecretBasic,
            AuthMethod::ClientSecretPost => v1::ClientAuthMethod::ClientSecretPost,
        };
        Ok(Some(v1::OauthRefresh {
            token_endpoint,
            client_id,
            auth_method: auth_method.into(),
            scope: scope.unwrap_or_default(),
        }))
    }
}

impl Variable {
    fn given(self) -> v1::EnvironmentVariableCredential {
        let Self {
            secret_name,
            allow_hosts: allowed_hosts,
            methods,
            paths,
            not_in_header,
            not_in_body,
            in_websocket,
            unrestricted,
            allow_insecure_http,
        } = self;
        let networking = match unrestricted {
            true => Networking::Unrestricted(v1::UnrestrictedCredentialNetworking {}),
            false => Networking::Limited(v1::LimitedCredentialNetworking { allowed_hosts }),
        };
        let restricted = !methods.is_empty() || !paths.is_empty();
        v1::EnvironmentVariableCredential {
            secret_name,
            networking: Some(v1::CredentialNetworking {
                r#type: Some(networking),
            }),
            injection_location: Some(v1::InjectionLocation {
                header: Some(!not_in_header),
                body: Some(!not_in_body),
                websocket: Some(in_websocket),
            }),
            allowed_requests: restricted.then_some(v1::AllowedRequests { methods, paths }),
            allow_insecure_http,
        }
    }
}
