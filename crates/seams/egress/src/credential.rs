//! Which credentials a workload may use, by placeholder and destination; never their values.

use serde::{Deserialize, Serialize};

use crate::HostPattern;

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
}

/// One credential: what stands for it inside the sandbox and where it may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialGrant {
    /// The credential's id, for audit.
    pub credential_id: String,
    /// What the workload holds in its place.
    pub placeholder: String,
    /// The destinations that it may go to; attaching it allows exactly these.
    pub hosts: Vec<HostPattern>,
}
