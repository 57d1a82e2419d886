//! Which credentials a workload may use, by placeholder, destination and place; never their values.

use serde::{Deserialize, Serialize};

use crate::host::is_web;
use crate::{Host, HostPattern, PathPattern, Placeholder};

/// The credentials of one workload, apart by purpose. Provider-neutral; holds placeholders only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialPlan {
    /// For the model endpoint.
    pub model: Vec<CredentialGrant>,
    /// For environment variables inside the sandbox.
    pub environment: Vec<CredentialGrant>,
    /// For MCP servers.
    pub mcp: Vec<CredentialGrant>,
    /// For HTTP Basic, as git over HTTPS.
    pub http_basic: Vec<CredentialGrant>,
}

impl CredentialPlan {
    /// Every grant, whatever its purpose.
    pub fn grants(&self) -> impl Iterator<Item = &CredentialGrant> {
        self.model
            .iter()
            .chain(&self.environment)
            .chain(&self.mcp)
            .chain(&self.http_basic)
    }

    /// Whether attaching the credentials allows this destination: those that name their hosts allow exactly these.
    #[must_use]
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.grants().any(|grant| grant.names(host, port))
    }

    /// Whether a credential may go to this host and port.
    #[must_use]
    pub fn reaches(&self, host: &Host, port: u16) -> bool {
        self.grants().any(|grant| grant.reaches(host, port))
    }

    /// Whether a credential may go to this host and port over plain HTTP.
    #[must_use]
    pub fn reaches_in_the_clear(&self, host: &Host, port: u16) -> bool {
        self.grants()
            .any(|grant| grant.cleartext && grant.reaches(host, port))
    }
}

/// One credential: what stands for it inside the sandbox, and where it may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialGrant {
    /// The credential's id, for audit.
    pub credential_id: String,
    /// By which name the workload finds it: a variable of the environment, an MCP server of the agent, or the URL of
    /// a repository; empty for a model's.
    pub handle: String,
    /// What the workload holds in its place.
    pub placeholder: Placeholder,
    /// The destinations that it may go to; empty for one that may go `anywhere`, and for no other.
    pub hosts: Vec<HostPattern>,
    /// Whether it may go to every destination that the policy allows by itself (EG25).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anywhere: bool,
    /// The methods that it may go with, in upper case; every method when empty.
    pub methods: Vec<String>,
    /// The paths that it may go with; every path when empty.
    pub paths: Vec<PathPattern>,
    /// Where in a request it may stand.
    pub places: Places,
    /// Whether it may go over plain HTTP; its owner said so.
    pub cleartext: bool,
}

impl CredentialGrant {
    /// Whether it may go to this host and port.
    #[must_use]
    pub fn reaches(&self, host: &Host, port: u16) -> bool {
        (self.anywhere && is_web(port)) || self.names(host, port)
    }

    /// Whether it names this host and port among its destinations.
    fn names(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host, port))
    }
}

/// Where in a request a credential may stand. In every other place its placeholder is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// In header values, decoded Basic credentials among them.
    pub header: HeaderPlace,
    /// In the body.
    pub body: BodyPlace,
    /// In text messages of a WebSocket that the request opens.
    pub websocket: bool,
}

/// In which header values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HeaderPlace {
    /// In none.
    Refuse,
    /// In any.
    Any,
    /// In this one, by its name in lower case.
    Named(String),
    /// As the password of `Authorization: Basic`, with this user name, and nowhere else.
    Basic {
        /// The user name, which is not secret.
        username: String,
    },
}

/// What becomes of the placeholder in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyPlace {
    /// The request is refused.
    Refuse,
    /// Every placeholder goes through as the text that it is: it is worth nothing outside of the sandbox. For
    /// bodies in which a program repeats what it has seen, as a model's requests.
    Pass,
    /// The value takes its place.
    Replace,
}
