//! The command line as a person uses it: at a terminal, and in a pipe, against a real server whose sandboxes run the
//! fake engine.

mod piped;
mod pty;
mod stage;
mod talking;
mod vaults;
mod watching;
