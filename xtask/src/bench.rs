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

/// What the names of the figures begin with that need neither a sandbox nor an engine.
const EGRESS: &str = "egress";

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
    let wants = Wants::of(&args.options);
    let mut context = test::prepare(wants.steps(), Mode::Local)?;
    let mut build = cargo(&tree::root());
    build.args(BUILD);
    succeed(build)?;
    let programs = context.target.join("release");
    if wants.egress {
        test::prepare_mitmproxy(&mut context)?;
    }
    if wants.sandboxes {
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

/// What has to be there for the figures that are asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wants {
    /// Sandboxes, with the engines in them.
    sandboxes: bool,
    /// What the egress role is compared with.
    egress: bool,
}

impl Wants {
    fn of(options: &[OsString]) -> Self {
        let words: Vec<_> = options.iter().map(|word| word.to_string_lossy()).collect();
        let asks_only = ["--list", "--help", "-h"];
        if words.iter().any(|word| asks_only.contains(&&**word)) {
            return Self {
                sandboxes: false,
                egress: false,
            };
        }
        let only: Vec<_> = words
            .iter()
            .enumerate()
            .filter_map(|(at, word)| match word.strip_prefix("--only") {
                Some("") => words.get(at + 1).map(|next| &**next),
                Some(rest) => rest.strip_prefix('='),
                None => None,
            })
            .collect();
        let is_egress = |name: &&str| name.starts_with(EGRESS);
        Self {
            sandboxes: only.is_empty() || !only.iter().all(is_egress),
            egress: only.is_empty() || only.iter().any(is_egress),
        }
    }

    /// The steps of a test run that make it.
    fn steps(&self) -> &'static [&'static str] {
        match self.sandboxes {
            true => &["runner"],
            false => &["tools"],
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_figures_need_is_made() {
        for (options, sandboxes, egress) in [
            (&[][..], true, true),
            (&["--quick"], true, true),
            (&["--list"], false, false),
            (&["--only", "egress"], false, true),
            (&["--only=egress-rate", "--quick"], false, true),
            (&["--only", "journal"], true, false),
            (&["--only", "journal", "--only", "egress"], true, true),
        ] {
            let options: Vec<OsString> = options.iter().map(Into::into).collect();
            let wanted = Wants { sandboxes, egress };
            assert_eq!(Wants::of(&options), wanted, "{options:?}");
        }
    }
}
