//! `cargo xtask codegen`: the committed protobuf code.

use std::process::ExitCode;

use anyhow::Result;

use crate::process::{cargo, passthrough};
use crate::tree;

/// Generate the committed protobuf code and descriptor sets from `proto/`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail and name each file that differs from what would be generated.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut command = cargo(&tree::root());
    command.args(["run", "--quiet", "--package", "xtask-codegen", "--"]);
    if args.check {
        command.arg("--check");
    }
    passthrough(command)
}
