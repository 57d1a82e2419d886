//! The scripted model endpoint as a client on the wire sees it.

mod client;
mod directives;
mod errors;
mod events;
mod program;
mod server;
