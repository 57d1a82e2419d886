//! Servers for sandboxes to talk to, with TLS of an authority of their own: they keep every request as it came.
//!
//! For tests of what crosses the network boundary; unlike the scripted model these keep header values and bodies.

mod authority;
pub mod git;
pub mod mcp;
mod server;

pub use authority::Authority;
pub use server::{Answer, Handler, Received, Upstream};
