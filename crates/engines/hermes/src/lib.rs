//! The Hermes engine: hosts Hermes Agent's own ACP server and speaks the Agent Client Protocol with it.
//!
//! Invariant: never decides that a turn ended; only the program's own word or its exit does.
//!
//! Everything said here about the program was read in its packages and seen in `tests/recordings`, with Hermes Agent
//! 0.19.0. `host/host.py` runs in the sandbox: what it adds to the program is told there.

mod adapter;
mod options;
mod plan;
mod protocol;
mod recipe;

pub use adapter::Hermes;
use astrabox_engine::Registration;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: Registration = Registration::new(
    "hermes",
    "Hermes Agent, driven over the Agent Client Protocol",
    env!("CARGO_PKG_NAME"),
    &Hermes,
);

astrabox_engine::registry::inventory::submit! { REGISTRATION }
