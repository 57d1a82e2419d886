//! The private protocol between a server and its egress role.
//!
//! A unix stream socket carries frames: four bytes of length, big-endian, then JSON. A client sends a request and
//! reads its answer before it sends the next. `open` carries one descriptor, the listener, with its first byte.
//! The first request is `hello`; `hello` and `shutdown` keep their form in every version, so that a server can
//! always end a role that is too old for it.

mod credentials;
pub(crate) mod frame;
pub(crate) mod server;

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::BoundaryState;
use astrabox_types::{SandboxId, SessionId};
use serde::{Deserialize, Serialize};

use crate::config::EgressConfig;
pub use crate::meter::Counts;
pub(crate) use credentials::WireCredentials;

/// The oldest version that is spoken.
pub(crate) const MIN_VERSION: u32 = 2;
/// The newest version that is spoken.
pub(crate) const MAX_VERSION: u32 = 2;

/// What a client asks. No Debug: it may hold secrets.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Says who speaks and which versions it knows.
    Hello {
        min_version: u32,
        max_version: u32,
        /// The program and its version, for the log.
        client: String,
        /// The same on each connection of one run of a server, and of no other.
        instance: String,
    },
    /// Takes the operator's settings, and as PEM the certificates of `extra_roots`, which only the client reads.
    Configure {
        config: EgressConfig,
        extra_roots: String,
    },
    /// Answers for a sandbox on the listener that comes with it.
    Open {
        sandbox_id: SandboxId,
        session_id: SessionId,
        policy: EgressPolicy,
        /// Nothing leaves what the sandbox has.
        credentials: Option<WireCredentials>,
    },
    /// Changes a policy.
    Update {
        sandbox_id: SandboxId,
        policy: EgressPolicy,
    },
    /// Replaces what may be put into a sandbox's requests.
    SetCredentials {
        sandbox_id: SandboxId,
        credentials: WireCredentials,
    },
    /// Says which certificate signs for the hosts at which TLS is ended.
    Authority {},
    /// Ends a sandbox's connections and forgets it.
    Close { sandbox_id: SandboxId },
    /// Says what is open.
    List {},
    /// Ends the role as soon as nothing is open.
    Drain {},
    /// Ends the role and everything that is open.
    Shutdown {},
}

/// What the role answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Reply {
    /// To `hello`.
    Hello { version: u32, role: RoleInfo },
    /// It is done.
    Done {},
    /// To `authority`: its certificate as PEM.
    Authority { certificate: String },
    /// To `list`.
    Workloads { workloads: Vec<WorkloadStatus> },
    /// It is not done.
    Refused { kind: RefusalKind, message: String },
}

/// Why a request is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusalKind {
    /// The sandbox is not open.
    NotOpen,
    /// The request is wrong in itself.
    Invalid,
    /// No version is known to both.
    Version,
}

/// What a running role says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleInfo {
    /// Names this run of the role.
    pub instance: String,
    /// Its process.
    pub pid: u32,
    /// The user that it runs as.
    pub uid: u32,
    /// The version of its program.
    pub program: String,
}

/// One sandbox, as the role sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadStatus {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The session that it serves.
    pub session_id: SessionId,
    /// Whether its policy holds.
    pub state: WorkloadState,
    /// What it has done since it was opened first.
    pub counts: Counts,
    /// What it may do.
    pub boundary: BoundaryState,
}

/// Whether a sandbox's policy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadState {
    /// Its server is connected.
    Active,
    /// Its server is gone; the policy holds until the grace ends.
    Orphaned,
    /// The grace has ended; everything is denied.
    Expired,
}
