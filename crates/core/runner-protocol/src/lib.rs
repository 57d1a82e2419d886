//! Wire types and client of the runner that holds one sandbox.
//!
//! Invariant: makes no process, no box and no file but a launch spec; it knows what the runner says and
//! what the runner leaves on disk, not how the runner works.
//!
//! [`wire`] is the generated protocol. [`RunnerClient`] is the way to speak it: typed, with a deadline on
//! each call. [`launch`] is what a launcher and the `astrabox-runner` program tell each other, and
//! [`state`] is the directory that a runner leaves behind, so that a dead one can still be asked.

pub mod client;
mod convert;
pub mod egress;
mod error;
mod identity;
pub mod launch;
mod model;
pub mod state;
mod version;

/// The generated protocol, package `astrabox.runner.v1`.
#[path = "gen/astrabox.runner.v1.rs"]
pub mod wire;

pub use client::{Attachment, ConnectOptions, Deadlines, RunnerClient};
pub use convert::Unintelligible;
pub use error::{RunnerError, RunnerErrorKind, from_status, to_status};
pub use identity::{ProcessIdentity, boot_id};
pub use model::{
    AttachEvent, BoxState, BoxStatus, Enforcement, ExitInfo, ExitReason, ExitStatus, FileInfo,
    FileKind, LimitPosture, OutputStream, Posture, ProcessInfo, ProcessState, RunnerInfo,
    SignalTarget, SpawnCommand, Stats, StdinInfo, StreamInfo, WriteFileOptions,
};
pub use version::{MAX_VERSION, MIN_VERSION, negotiate};

/// The most bytes of stdin or of a file in one message. [`RunnerClient`] splits what is longer.
pub const MAX_DATA_BYTES: usize = 256 << 10;

/// The most bytes in one chunk of output or of a file that the runner sends.
pub const CHUNK_BYTES: usize = 64 << 10;
