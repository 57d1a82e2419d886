//! Correct stand-ins that live in memory: a sandbox provider, a workload, an egress gate, an engine and its program,
//! and stores. The suites hold them to the same clauses as the real ones.

mod files;
mod gate;
mod issuer;
mod process;
mod program;
mod provider;
mod stores;
mod talk;
mod talk_program;
mod workload;
mod world;

pub use files::MemoryFiles;
pub use gate::{GateCall, RecordingGate};
pub use issuer::KeyIssuer;
pub use program::{Program, ProgramIo, program};
pub use provider::MemoryProvider;
pub use stores::{FixedModels, MemorySecrets, TokenIdentity};
pub use talk::{TALK, Talk, TalkProtocol, talk_open};
pub use talk_program::{TalkFixture, talk_program};
pub use workload::{MemoryWorkload, Programs};
pub use world::MemoryWorld;
