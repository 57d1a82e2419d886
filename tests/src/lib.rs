//! End-to-end tests of the assembled product.
//!
//! Invariant: talks to real programs only: a server process, a sandbox, an agent program; only the model is scripted.

pub mod cases;
mod fault_stage;
mod fixture;
mod journal;
pub mod litellm;
mod memory_host;
mod stage;

pub use fault_stage::FaultStage;
pub use fixture::FaultFixture;
pub use journal::{Turn, comparable, payload_name};
pub use memory_host::MemoryHost;
pub use stage::{
    ACP_CLAUDE, ACP_CODEX, CLAUDE_CODE, CODEX, Conversation, DEEPSEEK_HARNESS, HERMES, Named, PI,
    PROGRAMS, Program, Stage, must,
};
