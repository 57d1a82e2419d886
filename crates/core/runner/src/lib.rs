//! The runner: makes one sandbox, holds its processes, their stdio offsets and spools.
//!
//! Invariant: one thread, for its whole life. Nothing here starts a second one (no `tokio::fs`, no
//! `spawn_blocking`), because the box's first process is a fork of this one, and because a runner is
//! resident once for every sandbox.
//!
//! [`isolation`] makes the box. Everything else holds it: `serve` from the launch to the end, `service`
//! the protocol, `runner` the processes, `process`, `output`, `stdin` and `spool` one process and its
//! bytes, `files` the box's files, `records` the state directory.

mod command;
mod daemon;
mod egress;
mod files;
pub mod isolation;
mod log;
mod output;
mod process;
mod records;
mod runner;
mod sandbox;
mod serve;
mod service;
mod spool;
mod stdin;

pub use command::main;

/// The protocol that the runner speaks.
pub use astrabox_runner_protocol as protocol;
