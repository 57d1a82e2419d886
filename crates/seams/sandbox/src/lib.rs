//! The contract of a sandbox provider and of the workload that runs inside a sandbox.
//!
//! Invariant: names no technology; nothing here knows how a sandbox is made.
//!
//! The contract, by clause (conformance cases cite them):
//!
//! * **SB1** `find_sandbox_by_assignment` finds a sandbox from the moment that `create_sandbox` may have made it;
//!   two with one assignment are an error, never a choice.
//! * **SB2** `create_sandbox` returns a running sandbox or an error that leaves nothing behind.
//! * **SB3** `connect` reaches a sandbox that another process made; a sandbox that is gone is `NotFound`.
//! * **SB4** `probe` says `NotFound` only when the provider has proof; everything doubtful is `ProbeFailed`.
//! * **SB5** `destroy` asks, `confirm_destroyed` proves by two observations; both may be repeated.
//! * **SB6** Destroying leaves no process, mount, device, cgroup, namespace or file but the session's volume.
//! * **SB7** A volume outlives its sandboxes and is in one sandbox at a time; `delete_volume` removes it.
//! * **SB8** An operation that the capabilities do not declare answers `Unsupported`; a declared one works.
//! * **SB9** Only sandboxes with this provider's own ownership mark and root are listed, touched or destroyed.
//! * **SB10** `security_posture` reports what the running sandbox enforces, measured, not what was asked for.
//! * **SB11** A workload's output has offsets; reading again from an offset gives the same bytes until they are
//!   acknowledged; losing a reader loses nothing.
//! * **SB12** A write to standard input names its offset; bytes that were accepted before are not written twice,
//!   and a gap is refused.
//! * **SB13** `spawn` is idempotent by name: the same request gives the running process, another is an error.
//! * **SB14** An exit has a stated reason; a limit that ended the process is named.
//! * **SB15** File operations stay inside the sandbox, whatever links the workload made.
//! * **SB16** Nothing is reachable from inside but through the egress gate, with the policy given.
//! * **SB17** Nothing inside can see or signal what runs outside.

mod capability;
mod error;
mod gate;
mod provider;
mod registration;
mod spec;
mod workload;

pub use capability::Capabilities;
pub use error::{Error, ErrorKind, Result};
pub use gate::{
    BoundaryState, CredentialValues, EgressCredentials, EgressGate, EgressListener, EgressWorkload,
};
pub use provider::{
    Claim, DestroyProof, Diagnostics, LimitState, Posture, Probe, Sandbox, SandboxInfo,
    SandboxProvider, SandboxState, Snapshot,
};
pub use registration::{ProviderContext, Registration, SandboxProviderFactory, read_config};
pub use spec::{CreateSpec, ImageRef};
pub use workload::{
    BoxPath, EGRESS_PROXY_PORT, ExitReason, ExitStatus, FileInfo, FileKind, HOME, IMAGE_ROOT,
    InvalidPath, Output, OutputEvent, OutputStream, ProcessName, ProcessStatus, Signal,
    SignalScope, SpawnSpec, Stdio, WORKSPACE, Workload, WriteOptions,
};

/// What adapters need of the seams below, so that a provider depends on this crate and `types` only.
pub use astrabox_egress as egress;
pub use astrabox_registry as registry;
