//! Test doubles with real edges: a scripted model endpoint, upstreams, a fake engine, a fault engine and a server for tests.
//!
//! Invariant: nothing here is part of a running product; no product crate depends on it.

pub mod fake_engine;
pub mod fault_engine;
pub mod model;
pub mod record;
pub mod server;
pub mod upstream;
