//! The Codex engine: drives codex app-server over JSON-RPC.
//!
//! Invariant: never decides that a turn ended; only the program's own word or its exit does.
//!
//! Everything said here about the program was read from the schema that it prints itself
//! (`codex app-server generate-json-schema --experimental`) and seen in `tests/recordings`, with Codex 0.169.0.

mod adapter;
mod options;
mod plan;
mod protocol;
mod recipe;

pub use adapter::Codex;
use astrabox_engine::Registration;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: Registration = Registration::new(
    "codex",
    "OpenAI Codex, driven through its app server",
    env!("CARGO_PKG_NAME"),
    &Codex,
);

astrabox_engine::registry::inventory::submit! { REGISTRATION }
