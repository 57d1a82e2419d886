//! End-to-end tests of the assembled product.
//!
//! Invariant: talks to real programs only: a server process, a sandbox, an agent program; only the model is scripted.

pub mod cases;
mod journal;
mod stage;

pub use journal::{Turn, comparable, payload_name};
pub use stage::{CLAUDE_CODE, CODEX, Conversation, Program, Stage, must};
