//! The checks of what clients say about credentials; each names the field, and none repeats a value.

use astrabox_egress::{HostPattern, PathPattern, check_value};
use astrabox_types::{
    AllowedRequests, CredentialNetworking, CredentialSecret, CredentialSpec, InjectionLocation,
    OauthRefresh, Secret,
};

use super::url::WebUrl;
use crate::{Error, Result};

/// Headers that are the connection's own, or that another type of credential is for.
const REFUSED_HEADERS: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Variables that a program or the sandbox cannot do without as they are.
const REFUSED_VARIABLES: [&str; 10] = [
    "ALL_PROXY",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "NO_PROXY",
    "PATH",
    "SHELL",
    "TMPDIR",
    "USER",
];
const MAX_HOSTS: usize = 64;
const MAX_REQUEST_RULES: usize = 50;
const MAX_MODELS: usize = 256;
const MAX_TEXT: usize = 1024;

/// A name for people.
pub(crate) fn display_name(name: &str, least: usize) -> Result<()> {
    plain("display_name", name, least, 256)
}

/// Checks a spec and puts it into its canonical form.
pub(crate) fn spec(spec: CredentialSpec) -> Result<CredentialSpec> {
    Ok(match spec {
        CredentialSpec::StaticBearer { mcp_server_url } => CredentialSpec::StaticBearer {
            mcp_server_url: mcp_url(&mcp_server_url)?,
        },
        CredentialSpec::McpOauth {
            mcp_server_url,
            expires_at,
            refresh,
        } => CredentialSpec::McpOauth {
            mcp_server_url: mcp_url(&mcp_server_url)?,
            expires_at,
            refresh: refresh.map(oauth_refresh).transpose()?,
        },
        CredentialSpec::McpStaticHeader {
            mcp_server_url,
            header_name,
        } => CredentialSpec::McpStaticHeader {
            mcp_server_url: mcp_url(&mcp_server_url)?,
            header_name: self::header_name(&header_name)?,
        },
        CredentialSpec::HttpBasic { url, username } => {
            user_name(&username)?;
            CredentialSpec::HttpBasic {
                url: basic_url(&url)?,
                username,
            }
        }
        CredentialSpec::EnvironmentVariable {
            secret_name,
            networking,
            injection_location,
            allowed_requests,
            allow_insecure_http,
        } => {
            variable(&secret_name)?;
            let InjectionLocation {
                header,
                body,
                websocket,
            } = injection_location;
            if !header && !body && !websocket {
                let text = "is header, body or websocket, one at least: a value that may stand nowhere is of no use";
                return Err(Error::field("spec.injection_location", text));
            }
            CredentialSpec::EnvironmentVariable {
                secret_name,
                networking: self::networking(networking)?,
                injection_location,
                allowed_requests: allowed_requests.map(requests).transpose()?,
                allow_insecure_http,
            }
        }
        CredentialSpec::ModelKey {
            endpoint,
            kind,
            models,
        } => CredentialSpec::ModelKey {
            endpoint: model_endpoint(&endpoint)?,
            kind,
            models: self::models(models)?,
        },
    })
}

/// Checks that a secret has the parts that its type needs, and no others.
pub(crate) fn secret(spec: &CredentialSpec, secret: &CredentialSecret) -> Result<()> {
    value("secret.value", &secret.value)?;
    let refresh = match spec {
        CredentialSpec::McpOauth { refresh, .. } => refresh.as_ref(),
        _ => None,
    };
    let needs = [
        (
            "secret.refresh_token",
            &secret.refresh_token,
            refresh.is_some(),
        ),
        (
            "secret.client_secret",
            &secret.client_secret,
            refresh.is_some_and(|refresh| refresh.auth_method.needs_secret()),
        ),
    ];
    for (field, part, needed) in needs {
        match (part, needed) {
            (Some(part), true) => value(field, part)?,
            (None, false) => {}
            (None, true) => {
                return Err(Error::field(field, "must be given: the refresh needs it"));
            }
            (Some(_), false) => {
                return Err(Error::field(
                    field,
                    "is given, and nothing of this credential uses it",
                ));
            }
        }
    }
    Ok(())
}

/// A value goes into a header line: what would end or bend that line is no part of it.
fn value(field: &str, value: &Secret) -> Result<()> {
    check_value(value.expose()).map_err(|error| Error::field(field, error))
}

fn plain(field: &str, text: &str, least: usize, most: usize) -> Result<()> {
    if text.len() < least || text.len() > most {
        return Err(Error::field(field, format!("has {least} to {most} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::field(field, "has no control characters"));
    }
    Ok(())
}

fn url(field: &str, text: &str) -> Result<WebUrl> {
    WebUrl::parse(text).map_err(|what| Error::field(field, what))
}

fn https(field: &str, text: &str) -> Result<WebUrl> {
    let url = url(field, text)?;
    if !url.tls {
        return Err(Error::field(field, "must begin with https://"));
    }
    Ok(url)
}

fn mcp_url(text: &str) -> Result<String> {
    const FIELD: &str = "spec.mcp_server_url";
    let url = https(FIELD, text)?;
    if url.query.is_some() {
        return Err(Error::field(FIELD, "has no query"));
    }
    Ok(url.canonical())
}

/// The address of a token endpoint; whether `http` to this host is let through is seen when it is called.
fn oauth_refresh(refresh: OauthRefresh) -> Result<OauthRefresh> {
    let endpoint = url("spec.refresh.token_endpoint", &refresh.token_endpoint)?;
    plain("spec.refresh.client_id", &refresh.client_id, 1, MAX_TEXT)?;
    plain("spec.refresh.scope", &refresh.scope, 0, MAX_TEXT)?;
    Ok(OauthRefresh {
        token_endpoint: endpoint.canonical(),
        ..refresh
    })
}

fn header_name(name: &str) -> Result<String> {
    const FIELD: &str = "spec.header_name";
    let name = name.to_ascii_lowercase();
    // The characters of a token (RFC 9110, section 5.6.2).
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(token) {
        return Err(Error::field(FIELD, "is not the name of a header"));
    }
    if REFUSED_HEADERS.contains(&name.as_str()) {
        let text = format!("`{name}` is a header that no credential of this type may set");
        return Err(Error::field(FIELD, text));
    }
    Ok(name)
}

fn user_name(name: &str) -> Result<()> {
    const FIELD: &str = "spec.username";
    plain(FIELD, name, 1, 256)?;
    if name.contains(':') {
        return Err(Error::field(FIELD, "has no colon"));
    }
    Ok(())
}

fn basic_url(text: &str) -> Result<String> {
    const FIELD: &str = "spec.url";
    if text.contains(['*', '?', '[', ']', '%', '\\', ' ']) {
        return Err(Error::field(FIELD, "has none of * ? [ ] % \\ and space"));
    }
    let url = https(FIELD, text)?;
    if url.port != 443 {
        return Err(Error::field(FIELD, "is at port 443"));
    }
    let path = url.path.trim_end_matches('/');
    if path.is_empty() {
        let text = "has a path, as `https://host/owner/repository`: not everything of a host";
        return Err(Error::field(FIELD, text));
    }
    let dots = |part: &str| part == "." || part == "..";
    let empty = path.split('/').skip(1).any(str::is_empty);
    if empty || path.split('/').any(dots) {
        return Err(Error::field(FIELD, "has an empty segment, or `.` or `..`"));
    }
    Ok(url.canonical())
}

fn variable(name: &str) -> Result<()> {
    const FIELD: &str = "spec.secret_name";
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let digit = name.starts_with(|c: char| c.is_ascii_digit());
    if name.is_empty() || name.len() > 128 || digit || !name.bytes().all(word) {
        let text = "is 1 to 128 of A-Z, a-z, 0-9 and _, and begins with no digit";
        return Err(Error::field(FIELD, text));
    }
    let upper = name.to_ascii_uppercase();
    let own = REFUSED_VARIABLES.contains(&upper.as_str());
    if own || upper.starts_with("ASTRABOX_") || upper.starts_with("LD_") {
        let text = format!("`{name}` is a variable of the sandbox itself");
        return Err(Error::field(FIELD, text));
    }
    Ok(())
}

fn networking(networking: CredentialNetworking) -> Result<CredentialNetworking> {
    Ok(match networking {
        CredentialNetworking::Limited(hosts) => CredentialNetworking::Limited(self::hosts(hosts)?),
        CredentialNetworking::Unrestricted => CredentialNetworking::Unrestricted,
    })
}

fn hosts(hosts: Vec<String>) -> Result<Vec<String>> {
    const FIELD: &str = "spec.networking.limited.allowed_hosts";
    if hosts.is_empty() || hosts.len() > MAX_HOSTS {
        let text = format!(
            "has 1 to {MAX_HOSTS} hosts: a value goes nowhere else, unless spec.networking is unrestricted"
        );
        return Err(Error::field(FIELD, text));
    }
    let canonical = |host: String| match host.parse::<HostPattern>() {
        Ok(pattern) => Ok(pattern.to_string()),
        Err(error) => Err(Error::field(FIELD, error)),
    };
    hosts.into_iter().map(canonical).collect()
}

fn requests(requests: AllowedRequests) -> Result<AllowedRequests> {
    const FIELD: &str = "spec.allowed_requests";
    let AllowedRequests { methods, paths } = requests;
    if methods.is_empty() && paths.is_empty() {
        let text = "names methods or paths; leave it out to allow every request";
        return Err(Error::field(FIELD, text));
    }
    if methods.len() > MAX_REQUEST_RULES || paths.len() > MAX_REQUEST_RULES {
        let text = format!("has at most {MAX_REQUEST_RULES} methods and {MAX_REQUEST_RULES} paths");
        return Err(Error::field(FIELD, text));
    }
    let methods = methods.into_iter().map(|method| {
        let method = method.to_ascii_uppercase();
        let plain = (1..=32).contains(&method.len());
        // A tunnel has no request that could be looked at.
        if plain && method.bytes().all(|b| b.is_ascii_uppercase()) && method != "CONNECT" {
            return Ok(method);
        }
        let text = "is a method of letters, as GET, and not CONNECT";
        Err(Error::field("spec.allowed_requests.methods", text))
    });
    let methods = methods.collect::<Result<_>>()?;
    for path in &paths {
        let field = "spec.allowed_requests.paths";
        plain(field, path, 1, MAX_TEXT)?;
        if path.contains(['?', '#']) || path.contains(char::is_whitespace) {
            return Err(Error::field(field, "has none of ? # and space"));
        }
        path.parse::<PathPattern>()
            .map_err(|error| Error::field(field, error))?;
    }
    Ok(AllowedRequests { methods, paths })
}

fn model_endpoint(text: &str) -> Result<String> {
    const FIELD: &str = "spec.endpoint";
    let url = https(FIELD, text)?;
    if url.query.is_some() {
        return Err(Error::field(FIELD, "has no query"));
    }
    let root = url.canonical();
    if root.ends_with("/v1") {
        let text = "is the root of the API: leave out `/v1`, which engines add themselves";
        return Err(Error::field(FIELD, text));
    }
    Ok(root)
}

fn models(models: Vec<String>) -> Result<Vec<String>> {
    const FIELD: &str = "spec.models";
    if models.len() > MAX_MODELS {
        let text = format!("has at most {MAX_MODELS} models");
        return Err(Error::field(FIELD, text));
    }
    for model in &models {
        plain(FIELD, model, 1, 256)?;
    }
    Ok(models)
}
