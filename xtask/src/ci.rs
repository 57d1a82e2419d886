//! `cargo xtask ci`: the test run as continuous integration sees it.

use std::process::ExitCode;

use anyhow::Result;

use crate::test::{self, Mode};

/// Run `cargo xtask test` with the settings of continuous integration: no colour, no incremental
/// builds, and cargo-deny installed if it is missing.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<ExitCode> {
    test::run_steps(&[], Mode::Ci)
}
