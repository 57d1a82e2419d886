//! The suite of an engine: EN1 to EN14, as far as its adapter and its fixture reach.
//!
//! What an adapter declares is checked without a program. How it copes with a program that does not start, ends,
//! talks nonsense or is silent is checked in a workload in memory, on a paused clock. With an [`EngineFixture`], a
//! stand-in for the native program, whole conversations are held as well.

mod bench;
mod calls;
mod conversations;
mod declared;
mod drive;
mod fixture;
mod process;
mod recipe;
mod replay;

use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::EngineAdapter;
use astrabox_registry::Registration as _;

pub use bench::EngineBench;
pub use fixture::{Deed, EngineFixture, EngineFixtures, Quirk};

use crate::{Clock, Filter, Report, Suite};

/// How long one case may compute, on the wall; its own clock is paused.
const CASE: Duration = Duration::from_secs(60);

/// The suite over one adapter; whole conversations only with a fixture.
#[must_use]
pub fn suite(
    adapter: &'static dyn EngineAdapter,
    fixture: Option<Arc<dyn EngineFixture>>,
) -> Suite<EngineBench> {
    let mut cases = declared::cases();
    cases.extend(recipe::cases());
    cases.extend(process::cases());
    if fixture.is_some() {
        cases.extend(conversations::cases());
        cases.extend(calls::cases());
        cases.extend(replay::cases());
    }
    let name = format!("engine {}", adapter.kind());
    let bench = EngineBench::new(adapter, fixture);
    Suite::new(name, bench, cases, Clock::Paused, CASE)
}

/// Runs the suite over one registration: that of its adapter, with a fixture where there is one, and that it is
/// registered under the adapter's kind.
pub async fn run_registered(
    registration: &astrabox_engine::Registration,
    fixture: Option<Arc<dyn EngineFixture>>,
    filter: &Filter,
) -> Report {
    let adapter = registration.adapter();
    if adapter.kind() != registration.name() {
        let text = format!(
            "the adapter of kind `{}` is registered as `{}`",
            adapter.kind(),
            registration.name()
        );
        let name = format!("engine {}", registration.name());
        return Report::broken(name, "an_engine_is_registered_under_its_kind", text);
    }
    suite(adapter, fixture).run(filter).await
}

/// Runs the suite over one adapter and panics with the report when it found a fault; for plain tests.
///
/// # Panics
/// When a case failed.
pub fn assert_conforms(
    adapter: &'static dyn EngineAdapter,
    fixture: Option<Arc<dyn EngineFixture>>,
) {
    suite(adapter, fixture)
        .run_blocking(&Filter::all())
        .assert_passed();
}
