//! The Claude Code engine: drives claude over stream-json and its control protocol.
//!
//! Invariant: never decides that a turn ended; only the program's own word or its exit does.
//!
//! Everything said here about the program was seen in `tests/recordings`, with Claude Code 2.1.328.

mod adapter;
mod options;
mod plan;
mod protocol;
mod recipe;

pub use adapter::ClaudeCode;
use astrabox_engine::Registration;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: Registration = Registration::new(
    "claude_code",
    "Anthropic Claude Code, driven through stream-json and its control protocol",
    env!("CARGO_PKG_NAME"),
    &ClaudeCode,
);

astrabox_engine::registry::inventory::submit! { REGISTRATION }
