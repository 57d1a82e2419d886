//! `cargo xtask conformance`: the suites over every linked engine and provider, or over a crate
//! of somebody else.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::process::{cargo, passthrough};
use crate::test::{self, Mode};
use crate::tree;

/// Run the conformance suites and print passed and failed counts for each engine and provider.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run over this crate instead of the linked ones. The crate offers a binary named
    /// `conformance` that calls the `astrabox-conformance` library.
    #[arg(long = "crate", value_name = "PATH")]
    krate: Option<PathBuf>,
    /// Run the live cases over every linked engine instead: its real program in real sandboxes, with a scripted
    /// model. Prints a matrix of program by case: passed, or not declared. Images that are missing are built.
    #[arg(long, conflicts_with = "krate")]
    live: bool,
    /// Of the live cases only those whose names hold one of these, as `pi::` or `approvals`.
    #[arg(requires = "live")]
    filter: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if args.live {
        return live(&args.filter);
    }
    let mut command = match &args.krate {
        Some(path) => outside(path)?,
        None => linked(),
    };
    // The local sandbox provider needs a runner, on a fresh clone as well.
    test::prepare(&["runner"], Mode::Local)?.prepare(&mut command);
    passthrough(command)
}

/// The live cases, which are a test of the workspace.
fn live(filter: &[String]) -> Result<ExitCode> {
    let context = test::prepare(&["runner", "bins", "image"], Mode::Local)?;
    let mut command = cargo(&tree::root());
    command.args(["test", "--workspace", "--test", "live"]);
    command.args(test::FAULT_POINTS).arg("--").args(filter);
    context.prepare(&mut command);
    passthrough(command)
}

/// The run over everything that `astrabox-builtin` links.
pub(crate) fn linked() -> Command {
    let mut command = cargo(&tree::root());
    command.args(["run", "--package", "astrabox-tests", "--bin", "conformance"]);
    command
}

/// The run over a crate outside the workspace.
pub(crate) fn outside(path: &Path) -> Result<Command> {
    let manifest = path.join("Cargo.toml");
    ensure!(
        manifest.is_file(),
        "{} holds no Cargo.toml: --crate takes the folder of a package",
        path.display()
    );
    let mut command = cargo(path);
    command.args(["run", "--bin", "conformance"]);
    Ok(command)
}
