//! Composes configuration and registries into a running App.
//!
//! Invariant: names no adapter and keeps nothing global, so that two Apps in one process know nothing of each other.
//!
//! ```no_run
//! # async fn example(config: astrabox_config::Config) -> Result<(), astrabox_server::Error> {
//! use astrabox_server::{App, Registries};
//!
//! let app = App::builder(config).registries(Registries::linked()?).build()?;
//! let running = app.spawn().await?;
//! // .. until it shall end:
//! running.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The program installs the log's subscriber, reads the configuration and handles signals; none of that is here.

mod app;
mod egress;
mod error;
#[cfg(feature = "fault-points")]
mod fault;
mod folders;
mod images;
mod listeners;
mod providers;
mod registries;
mod running;

pub use app::{App, AppBuilder};
pub use egress::EgressMode;
pub use error::Error;
pub use registries::Registries;
pub use running::{RunningApp, Shutdown};

/// Where connections come from, for [`AppBuilder::listener`].
pub use astrabox_grpc::Listener;
/// What an embedder may call without a wire.
pub use astrabox_platform as platform;

/// The egress role, for the program that runs it.
pub mod egress_role {
    pub use astrabox_egress_proxy::{RoleError, RoleExit, role_main};
}
