//! The driver for programs that speak lines over standard input and output.
//!
//! An engine writes a [`LineProtocol`]: a pure state machine from native lines and commands to emissions and
//! outgoing lines. [`LineClient`] runs it over a [`Workload`](astrabox_sandbox::Workload) and keeps the promises
//! EN5 and EN7 to EN10 for every such engine alike.

mod client;
mod job;
mod protocol;
mod splitter;
mod state;
mod tail;

pub use client::{LineClient, Start};
pub use job::{Done, Job, JobResult, LONGEST_TEXT, Undone, Work};
pub use protocol::{Effects, Handshake, Line, LineProtocol, Powers};
pub use splitter::{LINE_CAP, Piece, Splitter};
