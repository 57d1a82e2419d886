//! Runs the conformance suites over every adapter that `astrabox-builtin` links, and prints a table.
//!
//! One argument, if there is one, is a filter: a clause as `SB12`, or a part of a suite's or case's name.

mod settings;
mod tree;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use astrabox_builtin as _;
use astrabox_conformance::linked::{Linked, run_and_print};
use astrabox_conformance::{Filter, Report};
use astrabox_testkit::fault_engine::Protocol;
use astrabox_tests::FaultFixture;

fn main() -> Result<ExitCode> {
    let mut settings = settings::read(|name| std::env::var(name).ok())?;
    for protocol in Protocol::ALL {
        let fixture = FaultFixture(protocol);
        settings.engines = settings.engines.with(protocol.kind(), fixture);
    }
    let filter = std::env::args().nth(1);
    let (filter, more) = match filter {
        Some(text) => (Filter::matching(text), Vec::new()),
        None => (Filter::all(), tree_reports()?),
    };
    let done = run_and_print(&settings, &filter, more, &mut std::io::stdout())
        .context("print the table")?;
    Ok(if done {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What the source tree itself must hold, as reports.
fn tree_reports() -> Result<Vec<Report>> {
    let linked = Linked::new().context("look at what is linked")?;
    Ok(vec![
        tree::report("linked adapters", tree::linked_cases(&linked.origins())),
        tree::report("seed contract, sources", tree::source_cases()),
    ])
}
