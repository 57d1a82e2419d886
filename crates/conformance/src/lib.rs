//! The conformance suites that every engine and provider must pass, as a library.
//!
//! Invariant: knows no adapter and no manager; a suite sees its subject through the seam's contract only.
//!
//! Each case is named as a fact and cites the clauses that it checks, by the numbers of the seam crates. An
//! author runs a suite as an ordinary test of the adapter's own crate:
//!
//! ```text
//! astrabox_conformance::engine_conformance!(my_engine::ADAPTER);
//! astrabox_conformance::provider_conformance!(my_provider::Fixture::new());
//! ```
//!
//! [`linked`] runs everything over whatever is registered in the calling program, and [`seed`] holds the contract
//! that the project grew from. [`doubles`] are correct stand-ins, for the suites and for tests of adapters.

mod case;
pub mod doubles;
pub mod engine;
pub mod identity;
pub mod linked;
mod macros;
pub mod model;
mod registered_secrets;
mod registration;
mod report;
mod sample;
pub mod sandbox;
pub mod secrets;
pub mod seed;
mod suite;
mod url;

pub use case::{Checked, Doing, Stop};
pub use report::{CaseReport, Report, Verdict};
pub use suite::{Bench, Body, Case, Clock, Filter, Suite};
