//! The ACP engine: runs any program that speaks the Agent Client Protocol.
//!
//! Invariant: knows no program by name; what runs, and where its model is, the environment says.
//!
//! Everything said here about programs was seen in `tests/recordings`, with claude-agent-acp 0.101.0 and codex-acp 2.6.0.

mod adapter;
mod options;
mod plan;
mod protocol;
mod recipe;
#[cfg(test)]
mod recordings;
mod template;

pub use adapter::Acp;
use astrabox_engine::Registration;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: Registration = Registration::new(
    "acp",
    "Any program that speaks the Agent Client Protocol, named by the environment",
    env!("CARGO_PKG_NAME"),
    &Acp,
);

astrabox_engine::registry::inventory::submit! { REGISTRATION }
