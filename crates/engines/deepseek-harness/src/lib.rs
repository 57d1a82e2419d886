//! The DeepSeek Harness engine: drives dsh over its ACP profile, with a plugin of ours inside it.
//!
//! Invariant: never decides that a turn ended; only the program's own word or its exit does.
//!
//! The profile tells of committed messages of the root session alone. The plugin (`host/host.mjs`) tells the rest over
//! the same wire: pieces of messages, child sessions, background work, questions, permission modes, token counts. What
//! is said here about the program was seen in `tests/recordings`, with DeepSeek Harness 0.2.1rc2.

mod adapter;
mod options;
mod patch;
mod plan;
mod protocol;
mod recipe;

#[cfg(test)]
mod tests;

pub use adapter::DeepseekHarness;
use astrabox_engine::Registration;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: Registration = Registration::new(
    "deepseek_harness",
    "DeepSeek Harness (dsh), driven through its ACP profile and a plugin",
    env!("CARGO_PKG_NAME"),
    &DeepseekHarness,
);

astrabox_engine::registry::inventory::submit! { REGISTRATION }
