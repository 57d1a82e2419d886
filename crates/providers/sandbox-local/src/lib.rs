//! The local sandbox provider: one astrabox-runner per sandbox on this host.
//!
//! Invariant: makes no namespace and no mount itself; it starts runners, remembers them on disk, and speaks their
//! protocol.
//!
//! Everything of one sandbox is in its folder below the provider's state directory: who it is for (`sandbox.json`),
//! what its runner was told (`spec.json`), what its runner keeps (`runner/`). The first of these is written before
//! anything is made and removed after everything is gone, so a crash at any point leaves something to find.

mod backend;
mod config;
mod error;
mod folder;
mod launch;
mod leftovers;
mod making;
mod pool;
mod reaching;
mod snapshot;
mod telling;
mod uids;
mod volumes;
mod workload;

pub use backend::Local;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: astrabox_sandbox::Registration =
    astrabox_sandbox::Registration::new::<Local>(env!("CARGO_PKG_NAME"));

astrabox_sandbox::registry::inventory::submit! { REGISTRATION }
