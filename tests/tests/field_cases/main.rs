//! Faults that users of agent platforms met, each with the outcome that it has here and the time by which it has it.
//!
//! The server, the sandbox, the runner and the engine's adapter are the real ones; the agent program is the fault
//! engine, which speaks each native protocol and then misbehaves as the prompt says.

mod approvals;
mod ends;
mod inputs;
mod interrupts;
mod lines;
mod processes;
mod silence;
mod starts;
mod support;
