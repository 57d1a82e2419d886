//! The Agent Client Protocol as a state machine that the engines of its programs share.
//!
//! Invariant: never decides that a turn ended; only the program's own word or its exit does.
//!
//! Version 1 of ACP: JSON-RPC 2.0, one message a line. What a program has beyond it is a [`Dialect`].

mod calls;
mod children;
mod dialect;
mod diff;
mod elicitation;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod head;
mod messages;
mod protocol;
mod requests;
mod serving;
mod settings;
mod state;
mod tools;
mod turns;
mod updates;
pub mod wire;

#[cfg(test)]
mod tests;

pub use dialect::{Dialect, Update};
pub use protocol::AcpProtocol;
pub use settings::{ConfigOption, Header, Modes, Offers, Settings, Wish};
pub use state::{Conversation, Ending, Saying, Speaker, Tokens, UsageScope};
