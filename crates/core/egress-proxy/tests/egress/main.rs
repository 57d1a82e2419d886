//! The egress proxy from a sandbox's side, against upstreams that record every byte they receive.

mod answers;
mod audit;
mod bodies;
mod clear;
mod control;
mod credentials;
mod forward;
mod http2;
mod identity;
mod inject;
mod lifecycle;
mod malformed;
#[path = "../support/mod.rs"]
mod support;
mod tunnel;
mod verdicts;
mod websocket;
