//! What a credential is for, both ways.

use astrabox_platform::{Error, Result};
use astrabox_proto::v1;
use astrabox_proto::v1::credential_spec::Type;
use astrabox_types::{
    AllowedRequests, ClientAuthMethod, CredentialNetworking, CredentialSpec, InjectionLocation,
    ModelKeyKind, OauthRefresh, Timestamp,
};

use super::to_proto::timestamp;

/// A new credential's spec.
pub(crate) fn from_proto(spec: Option<v1::CredentialSpec>) -> Result<CredentialSpec> {
    Ok(match kind(spec)? {
        Type::StaticBearer(v1::StaticBearerCredential { mcp_server_url }) => {
            CredentialSpec::StaticBearer { mcp_server_url }
        }
        Type::McpOauth(v1::McpOauthCredential {
            mcp_server_url,
            expires_at,
            refresh,
        }) => CredentialSpec::McpOauth {
            mcp_server_url,
            expires_at: time("spec.expires_at", expires_at)?,
            refresh: refresh.map(oauth_refresh).transpose()?,
        },
        Type::McpStaticHeader(v1::McpStaticHeaderCredential {
            mcp_server_url,
            header_name,
        }) => CredentialSpec::McpStaticHeader {
            mcp_server_url,
            header_name,
        },
        Type::HttpBasic(v1::HttpBasicCredential { url, username }) => {
            CredentialSpec::HttpBasic { url, username }
        }
        Type::EnvironmentVariable(v1::EnvironmentVariableCredential {
            secret_name,
            networking,
            injection_location,
            allowed_requests: requests,
            allow_insecure_http,
        }) => {
            let v1::InjectionLocation {
                header,
                body,
                websocket,
            } = injection_location.unwrap_or_default();
            CredentialSpec::EnvironmentVariable {
                secret_name,
                networking: self::networking(networking)?,
                injection_location: InjectionLocation {
                    header: header.unwrap_or(true),
                    body: body.unwrap_or(true),
                    websocket: websocket.unwrap_or(false),
                },
                allowed_requests: requests.map(allowed_requests),
                allow_insecure_http,
            }
        }
        Type::ModelKey(v1::ModelKeyCredential {
            endpoint,
            kind,
            models,
        }) => CredentialSpec::ModelKey {
            endpoint,
            kind: key_kind(kind)?,
            models,
        },
    })
}

pub(crate) fn kind(spec: Option<v1::CredentialSpec>) -> Result<Type> {
    let spec = spec.ok_or_else(|| Error::field("spec", "must be given"))?;
    let given = spec.r#type;
    given.ok_or_else(|| Error::field("spec", "must be of one of the types of credentials"))
}

pub(crate) fn time(field: &str, time: Option<prost_types::Timestamp>) -> Result<Option<Timestamp>> {
    let Some(prost_types::Timestamp { seconds, nanos }) = time else {
        return Ok(None);
    };
    match Timestamp::new(seconds, nanos) {
        Ok(time) if nanos >= 0 => Ok(Some(time)),
        _ => Err(Error::field(field, "is no time")),
    }
}

fn oauth_refresh(refresh: v1::OauthRefresh) -> Result<OauthRefresh> {
    let v1::OauthRefresh {
        token_endpoint,
        client_id,
        auth_method: method,
        scope,
    } = refresh;
    Ok(OauthRefresh {
        token_endpoint,
        client_id,
        auth_method: auth_method(method)?,
        scope,
    })
}

pub(crate) fn auth_method(method: i32) -> Result<ClientAuthMethod> {
    match v1::ClientAuthMethod::try_from(method) {
        Ok(v1::ClientAuthMethod::None) => Ok(ClientAuthMethod::None),
        Ok(v1::ClientAuthMethod::ClientSecretBasic) => Ok(ClientAuthMethod::ClientSecretBasic),
        Ok(v1::ClientAuthMethod::ClientSecretPost) => Ok(ClientAuthMethod::ClientSecretPost),
        Ok(v1::ClientAuthMethod::Unspecified) | Err(_) => {
            Err(Error::field("spec.refresh.auth_method", "must be given"))
        }
    }
}

pub(crate) fn networking(
    networking: Option<v1::CredentialNetworking>,
) -> Result<CredentialNetworking> {
    use v1::credential_networking::Type;
    match networking.and_then(|networking| networking.r#type) {
        Some(Type::Limited(v1::LimitedCredentialNetworking { allowed_hosts })) => {
            Ok(CredentialNetworking::Limited(allowed_hosts))
        }
        Some(Type::Unrestricted(v1::UnrestrictedCredentialNetworking {})) => {
            Ok(CredentialNetworking::Unrestricted)
        }
        None => Err(Error::field(
            "spec.networking",
            "must be limited to hosts, or unrestricted",
        )),
    }
}

fn networking_to_proto(networking: CredentialNetworking) -> v1::CredentialNetworking {
    use v1::credential_networking::Type;
    v1::CredentialNetworking {
        r#type: Some(match networking {
            CredentialNetworking::Limited(allowed_hosts) => {
                Type::Limited(v1::LimitedCredentialNetworking { allowed_hosts })
            }
            CredentialNetworking::Unrestricted => {
                Type::Unrestricted(v1::UnrestrictedCredentialNetworking {})
            }
        }),
    }
}

pub(crate) fn allowed_requests(requests: v1::AllowedRequests) -> AllowedRequests {
    let v1::AllowedRequests { methods, paths } = requests;
    AllowedRequests { methods, paths }
}

pub(crate) fn key_kind(kind: i32) -> Result<ModelKeyKind> {
    match v1::ModelKeyKind::try_from(kind) {
        Ok(v1::ModelKeyKind::Bearer) => Ok(ModelKeyKind::Bearer),
        Ok(v1::ModelKeyKind::ApiKey) => Ok(ModelKeyKind::ApiKey),
        Ok(v1::ModelKeyKind::Unspecified) | Err(_) => {
            Err(Error::field("spec.kind", "must be given"))
        }
    }
}

/// A spec to the wire.
pub(crate) fn to_proto(spec: CredentialSpec) -> v1::CredentialSpec {
    let kind = match spec {
        CredentialSpec::StaticBearer { mcp_server_url } => {
            Type::StaticBearer(v1::StaticBearerCredential { mcp_server_url })
        }
        CredentialSpec::McpOauth {
            mcp_server_url,
            expires_at,
            refresh,
        } => Type::McpOauth(v1::McpOauthCredential {
            mcp_server_url,
            expires_at: expires_at.and_then(timestamp),
            refresh: refresh.map(refresh_to_proto),
        }),
        CredentialSpec::McpStaticHeader {
            mcp_server_url,
            header_name,
        } => Type::McpStaticHeader(v1::McpStaticHeaderCredential {
            mcp_server_url,
            header_name,
        }),
        CredentialSpec::HttpBasic { url, username } => {
            Type::HttpBasic(v1::HttpBasicCredential { url, username })
        }
        CredentialSpec::EnvironmentVariable {
            secret_name,
            networking,
            injection_location:
                InjectionLocation {
                    header,
                    body,
                    websocket,
                },
            allowed_requests,
            allow_insecure_http,
        } => Type::EnvironmentVariable(v1::EnvironmentVariableCredential {
            secret_name,
            networking: Some(networking_to_proto(networking)),
            injection_location: Some(v1::InjectionLocation {
                header: Some(header),
                body: Some(body),
                websocket: Some(websocket),
            }),
            allowed_requests: allowed_requests
                .map(|AllowedRequests { methods, paths }| v1::AllowedRequests { methods, paths }),
            allow_insecure_http,
        }),
        CredentialSpec::ModelKey {
            endpoint,
            kind,
            models,
        } => Type::ModelKey(v1::ModelKeyCredential {
            endpoint,
            kind: match kind {
                ModelKeyKind::Bearer => v1::ModelKeyKind::Bearer,
                ModelKeyKind::ApiKey => v1::ModelKeyKind::ApiKey,
            }
            .into(),
            models,
        }),
    };
    v1::CredentialSpec { r#type: Some(kind) }
}

fn refresh_to_proto(refresh: OauthRefresh) -> v1::OauthRefresh {
    let OauthRefresh {
        token_endpoint,
        client_id,
        auth_method,
        scope,
    } = refresh;
    let auth_method = match auth_method {
        ClientAuthMethod::None => v1::ClientAuthMethod::None,
        ClientAuthMethod::ClientSecretBasic => v1::ClientAuthMethod::ClientSecretBasic,
        ClientAuthMethod::ClientSecretPost => v1::ClientAuthMethod::ClientSecretPost,
    };
    v1::OauthRefresh {
        token_endpoint,
        client_id,
        auth_method: auth_method.into(),
        scope,
    }
}
