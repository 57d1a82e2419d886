//! The egress proxy from a sandbox's side, against upstreams that record every byte they receive.

mod audit;
mod control;
mod forward;
mod lifecycle;
mod malformed;
#[path = "../support/mod.rs"]
mod support;
mod tunnel;
mod verdicts;
