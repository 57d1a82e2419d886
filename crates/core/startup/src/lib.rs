//! The one startup line from a session to a running engine, over the EnginePlatform contract.
//!
//! Invariant: has no branch per engine or provider, and asks the platform for everything that is not in the request.
//!
//! The line: settings, what the engine needs, model access, backend secret, provider, credentials, workspace,
//! find by assignment, create, record, mount, clone, native state, activate, bind, record.

mod env;
mod error;
mod java;
mod native_state;
mod platform;
mod policy;
mod start;
mod trust;

pub use error::{Refusal, StartupError};
pub use native_state::{NativeFile, collect as collect_native_state};
pub use platform::{
    DeploymentSettings, EnginePlatform, McpCredential, RuntimeIdentity, StartupAllocation,
    WorkspacePlan,
};
pub use policy::{egress_policy, url_destination};
pub use start::{StartedRuntime, StartupRequest, start_platform_runtime};
