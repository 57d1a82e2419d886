//! The Pi engine: drives pi over its RPC mode.
//!
//! Invariant: never decides that a turn ended; only the program's own word or its exit does.
//!
//! Everything said here about the program was seen in `tests/recordings`, with Pi 1.6.0.

mod adapter;
mod options;
mod plan;
mod protocol;
mod recipe;

pub use adapter::Pi;
use astrabox_engine::Registration;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: Registration = Registration::new(
    "pi",
    "Pi, driven through its RPC mode",
    env!("CARGO_PKG_NAME"),
    &Pi,
);

astrabox_engine::registry::inventory::submit! { REGISTRATION }
