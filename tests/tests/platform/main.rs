//! The platform's rules, driven through its public face: real SQLite, a fake engine, sandboxes in memory.
//!
//! The server runs in a runtime of its own, so that a test can end it as a kill does: every task is dropped where it
//! stands. Sandboxes and their programs live outside of it, as they do in a product.

mod boundary;
mod boxes;
mod fault;
mod server;
mod stage;
mod told;
mod wire;
mod world;

mod background;
mod crash;
mod credentials;
mod interactions;
mod interrupts;
mod lifecycle;
mod lists;
mod model;
mod output;
mod owners;
mod real;
mod resources;
mod restart;
mod resuming;
mod turns;
mod watching;
