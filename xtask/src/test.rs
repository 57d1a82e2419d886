//! `cargo xtask test`: everything that has to hold, step by step, with nothing left out silently.

mod context;
mod elf;
mod python;
mod report;
mod steps;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

pub(crate) use context::{BIN_DIR, Context};
use report::{Outcome, Record, Report};
pub(crate) use steps::FAULT_POINTS;
use steps::{STEPS, Step};

/// Run every check and every test; prepares what they need (the runner, the binaries, the image).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this step and what it needs; may be given several times.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps and run none.
    #[arg(long)]
    list: bool,
}

/// Where the run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A developer's machine: nothing is installed, a missing optional tool is a skip.
    Local,
    /// Continuous integration (`CI` is set): missing tools are installed.
    Ci,
}

impl Mode {
    fn from_environment() -> Self {
        let set = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        if set { Mode::Ci } else { Mode::Local }
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if args.list {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    run_steps(&args.only, Mode::from_environment())
}

/// Runs the steps named in `only` and what they need, or all of them.
pub(crate) fn run_steps(only: &[String], mode: Mode) -> Result<ExitCode> {
    let chosen = choose(STEPS, only)?;
    let mut context = Context::new(mode)?;
    let mut report = Report::default();
    for step in chosen {
        println!("\n==> {}: {}", step.name, step.about);
        let start = Instant::now();
        let outcome = match missing_need(step, &report) {
            Some(need) => Outcome::skipped(format!("step {need} did not pass")),
            None => (step.run)(&mut context, step)
                .unwrap_or_else(|error| Outcome::failed(format!("{error:#}"))),
        };
        let record = Record {
            step: step.name,
            outcome,
            took: start.elapsed(),
        };
        println!("<== {}", record.line());
        report.add(record);
    }
    report.skips_of_tests(context.take_runtime_skips()?);
    print!("\n{report}");
    Ok(report.exit_code())
}

/// Runs the steps named in `only` and what they need, and gives what they have made.
pub(crate) fn prepare(only: &[&str], mode: Mode) -> Result<Context> {
    let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
    let mut context = Context::new(mode)?;
    for step in choose(STEPS, &only)? {
        println!("\n==> {}: {}", step.name, step.about);
        let outcome = (step.run)(&mut context, step)?;
        ensure!(outcome.is_passed(), "step {} did not pass", step.name);
    }
    context.take_runtime_skips()?;
    Ok(context)
}

/// Puts mitmproxy into the cache, for the bench, or says why there is none.
pub(crate) fn prepare_mitmproxy(context: &mut Context) -> Result<()> {
    println!("\n==> mitmproxy, to compare with");
    let limit = Duration::from_secs(15 * 60);
    let outcome = python::install(context, &python::MITMPROXY, limit)?;
    if !outcome.is_passed() {
        println!("mitmproxy is not there and is not measured");
    }
    Ok(())
}

/// The steps to run, in the order of the table.
fn choose<'a>(steps: &'a [Step], only: &[String]) -> Result<Vec<&'a Step>> {
    let mut wanted: Vec<&str> = only.iter().map(String::as_str).collect();
    let mut next = 0;
    while let Some(name) = wanted.get(next).copied() {
        let Some(step) = steps.iter().find(|step| step.name == name) else {
            let names: Vec<_> = steps.iter().map(|step| step.name).collect();
            bail!(
                "there is no step {name}; the steps are {}",
                names.join(", ")
            );
        };
        wanted.extend(step.needs);
        next += 1;
    }
    let chosen = |step: &&Step| only.is_empty() || wanted.contains(&step.name);
    Ok(steps.iter().filter(chosen).collect())
}

/// A step that `step` needs and that did not pass.
fn missing_need(step: &Step, report: &Report) -> Option<&'static str> {
    step.needs
        .iter()
        .copied()
        .find(|need| !report.has_passed(need))
}

#[cfg(test)]
mod tests;
