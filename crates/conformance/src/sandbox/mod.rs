//! The suite of a sandbox provider: SB1 to SB17, as far as its capabilities and its fixture reach.
//!
//! The suite drives itself by what the provider declares: a declared capability must pass its cases, an undeclared
//! one must answer `Unsupported`. What needs a shell inside the sandbox, or a look at the host, says so when it is
//! left out. Run it alone in its process: one case counts the process's open descriptors.

mod bench;
mod capabilities;
mod egress;
mod exits;
mod files;
mod fixture;
mod host;
mod isolation;
mod leftovers;
mod lifecycle;
mod limits;
mod links;
mod output;
mod probe;
mod reading;
mod registered;
mod roots;
mod spawning;
mod stdin;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

pub use bench::SandboxBench;
pub use fixture::{HostView, MemoryFixture, ProviderFixture, probe_program};
pub(crate) use host::own_uid;
pub use probe::Probe;
pub use registered::RegisteredProvider;

use crate::{Clock, Filter, Report, Suite};

/// How long one case may take.
const CASE: Duration = Duration::from_secs(120);

/// The whole suite over one provider, on a root of its own.
///
/// # Errors
/// When the fixture cannot build the provider.
pub async fn suite(
    fixture: Arc<dyn ProviderFixture>,
) -> Result<Suite<SandboxBench>, astrabox_sandbox::Error> {
    let name = format!("sandbox provider {}", fixture.name());
    let bench = SandboxBench::over(fixture).await?;
    let cases = [
        lifecycle::cases(),
        volumes::cases(),
        capabilities::cases(),
        roots::cases(),
        output::cases(),
        stdin::cases(),
        spawning::cases(),
        exits::cases(),
        limits::cases(),
        files::cases(),
        links::cases(),
        egress::cases(),
        isolation::cases(),
        leftovers::cases(),
    ];
    let cases = cases.into_iter().flatten().collect();
    Ok(Suite::new(name, bench, cases, Clock::Real, CASE))
}

/// Runs the suite over one provider. A provider that cannot be built is a failed case.
pub async fn run(fixture: Arc<dyn ProviderFixture>, filter: &Filter) -> Report {
    let name = format!("sandbox provider {}", fixture.name());
    match suite(fixture).await {
        Ok(suite) => suite.run(filter).await,
        Err(error) => Report::broken(name, "the_provider_can_be_built", error.to_string()),
    }
}

/// Runs the suite over one provider and panics with the report when it found a fault; for plain tests.
///
/// # Panics
/// When a case failed.
pub fn assert_conforms(fixture: Arc<dyn ProviderFixture>) {
    let report = crate::suite::runtime().block_on(run(fixture, &Filter::all()));
    report.assert_passed();
}
