//! `cargo xtask bench`: builds the product as it is shipped and runs the program that measures it.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::process::{cargo, passthrough, shown};
use crate::test::{self, BIN_DIR, Mode};
use crate::tree;

/// What a run needs, built in one go so that all agree about features: no test dependency is among them. Named one
/// by one, because linking each of them takes its time.
const BUILD: &[&str] = &[
    "build",
    "--release",
    "--package=astraboxd",
    "--package=astrabox",
    "--package=astrabox-testkit",
    "--package=astrabox-tests",
    "--bin=astraboxd",
    "--bin=astrabox",
    "--bin=fake-engine",
    "--bin=bench",
];

/// Measure the product against its goals: release builds, real sandboxes, a scripted model. A missed goal is marked
/// and fails nothing.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `--list`, `--only FIGURE`, `--quick`, `--engine ENGINE`, `--json FILE`; `--help` tells more.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS"
    )]
    options: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let context = test::prepare(&["runner"], Mode::Local)?;
    let mut build = cargo(&tree::root());
    build.args(BUILD);
    succeed(build)?;
    let programs = context.target.join("release");
    let asks_only = ["--list", "--help", "-h"];
    if !args
        .options
        .iter()
        .any(|option| asks_only.iter().any(|ask| option == ask))
    {
        let mut images = Command::new(programs.join("astrabox"));
        images.args(["image", "build"]);
        context.prepare(&mut images);
        succeed(images)?;
    }
    let mut bench = Command::new(programs.join("bench"));
    bench
        .arg("--out")
        .arg(context.target.join("bench"))
        .args(args.options);
    context.prepare(&mut bench);
    bench.env(BIN_DIR, &programs);
    passthrough(bench)
}

fn succeed(mut command: Command) -> Result<()> {
    let line = shown(&command);
    println!("+ {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}
