//! The steps of a test run, cheapest first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};

use super::Mode;
use super::context::{BIN_DIR, Context, RUNNER};
use super::elf::needs_loader;
use super::python;
use super::report::Outcome;
use crate::finding::Finding;
use crate::{conformance, layers, tidy};

/// The release that continuous integration installs.
const CARGO_DENY: &str = "0.20.2";

/// The server that tests use can be stopped at a known step of a turn. Building the tests builds it
/// again, so both say it.
pub(crate) const FAULT_POINTS: [&str; 2] = ["--features", "astraboxd/fault-points"];

/// One step of the test run.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Steps that must have passed before.
    pub(super) needs: &'static [&'static str],
    /// How long each program that the step starts may take.
    limit: Duration,
    pub(super) run: fn(&mut Context, &Step) -> Result<Outcome>,
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "tools",
        about: "the programs that a build needs are there",
        needs: &[],
        limit: minutes(1),
        run: tools,
    },
    Step {
        name: "fmt",
        about: "code is formatted",
        needs: &["tools"],
        limit: minutes(2),
        run: fmt,
    },
    Step {
        name: "layers",
        about: "every dependency edge is allowed",
        needs: &["tools"],
        limit: minutes(1),
        run: layers,
    },
    Step {
        name: "tidy",
        about: "the tree keeps its rules",
        needs: &["tools"],
        limit: minutes(1),
        run: tidy,
    },
    Step {
        name: "codegen",
        about: "generated code is what its sources give",
        needs: &["tools"],
        limit: minutes(10),
        run: |context, step| {
            let args = ["run", "--package", "xtask-codegen", "--", "--check"];
            context.outcome(context.cargo(args), step.limit)
        },
    },
    Step {
        name: "clippy",
        about: "no warning from rustc or clippy",
        needs: &["tools"],
        limit: minutes(30),
        run: |context, step| {
            let mut command = context.cargo(["clippy", "--workspace", "--all-targets"]);
            command.args(FAULT_POINTS).args(["--", "-D", "warnings"]);
            context.outcome(command, step.limit)
        },
    },
    Step {
        name: "runner",
        about: "build the static runner",
        needs: &["tools"],
        limit: minutes(15),
        run: runner,
    },
    Step {
        name: "bins",
        about: "build the server and the command line",
        needs: &["tools"],
        limit: minutes(20),
        run: bins,
    },
    Step {
        name: "image",
        about: "the images of the agent programs are there",
        needs: &["runner", "bins"],
        limit: minutes(30),
        run: image,
    },
    Step {
        name: "litellm",
        about: "a LiteLLM proxy for the tests is in the cache",
        needs: &["tools"],
        limit: minutes(15),
        run: |context, step| python::install(context, &python::LITELLM, step.limit),
    },
    Step {
        name: "tests",
        about: "all tests of the workspace, compile-fail ones included",
        needs: &["runner", "bins"],
        limit: minutes(60),
        run: |context, step| {
            let mut command = context.cargo(["test", "--workspace", "--no-fail-fast"]);
            command.args(FAULT_POINTS);
            context.outcome(command, step.limit)
        },
    },
    Step {
        name: "conformance",
        about: "the suites over every linked engine and provider, and over a third-party crate",
        needs: &["runner", "bins"],
        limit: minutes(15),
        run: conformance,
    },
    Step {
        name: "embedder",
        about: "a server of somebody else, outside the workspace, runs a turn",
        needs: &["runner", "bins"],
        limit: minutes(15),
        run: embedder,
    },
    Step {
        name: "deny",
        about: "licenses, sources and bans of third-party crates",
        needs: &["tools"],
        limit: minutes(20),
        run: deny,
    },
];

fn tools(context: &mut Context, step: &Step) -> Result<Outcome> {
    let tools: &[(&[&str], &str)] = &[
        (&["cargo", "--version"], "install Rust with rustup"),
        (&["rustc", "--version"], "install Rust with rustup"),
        (
            &["cargo", "fmt", "--version"],
            "rustup component add rustfmt",
        ),
        (
            &["cargo", "clippy", "--version"],
            "rustup component add clippy",
        ),
        (&["cc", "--version"], "install a C compiler, for SQLite"),
        (
            &["git", "--version"],
            "install git, which lists the files to check",
        ),
    ];
    let mut outcome = Outcome::passed();
    for (line, remedy) in tools {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(&context.root);
        let one = match context.outcome(command, step.limit) {
            Ok(one) if one.is_passed() => one,
            _ => Outcome::failed(format!("{} does not run: {remedy}", line[0])),
        };
        outcome = outcome.and(one);
    }
    Ok(outcome)
}

/// The packages outside the workspace, for the steps that look at all code.
fn fixtures(context: &Context) -> Vec<PathBuf> {
    ["tests/embedder", "tests/third-party", "fuzz"]
        .iter()
        .map(|dir| context.root.join(dir))
        .filter(|dir| dir.is_dir())
        .collect()
}

fn fmt(context: &mut Context, step: &Step) -> Result<Outcome> {
    let mut outcome = context.outcome(context.cargo(["fmt", "--all", "--check"]), step.limit)?;
    for dir in fixtures(context) {
        let mut command = context.cargo(["fmt", "--check"]);
        command.current_dir(dir);
        outcome = outcome.and(context.outcome(command, step.limit)?);
    }
    Ok(outcome)
}

fn layers(context: &mut Context, _: &Step) -> Result<Outcome> {
    layers::check_tree(&context.root).map(from_findings)
}

fn tidy(context: &mut Context, _: &Step) -> Result<Outcome> {
    tidy::check_tree(&context.root).map(from_findings)
}

fn from_findings(findings: Vec<Finding>) -> Outcome {
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        Outcome::passed()
    } else {
        Outcome::failed(format!("{} found", findings.len()))
    }
}

/// Builds the runner as it is shipped: static, small, in a target folder of its own, so that its
/// flags do not rebuild everything else.
fn runner(context: &mut Context, step: &Step) -> Result<Outcome> {
    let target = context.target.join("runner");
    let host = context.host.clone();
    let mut command = context.cargo(["build", "--profile", "runner", "-p", "astrabox-runner"]);
    command.args(["--target", &host]);
    command.arg("--target-dir").arg(&target);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let outcome = context.outcome(command, step.limit)?;
    if outcome.is_passed() {
        let path = existing(target.join(host).join("runner").join("astrabox-runner"))?;
        if needs_loader(&fs::read(&path)?)? {
            return Ok(Outcome::failed("the runner is not static"));
        }
        context.export(RUNNER, path);
    }
    Ok(outcome)
}

fn bins(context: &mut Context, step: &Step) -> Result<Outcome> {
    // The whole workspace, as the tests are built, so that dependencies keep their features. This
    // program itself is running and need not be built.
    let mut command = context.cargo(["build", "--workspace", "--bins", "--exclude", "xtask"]);
    command.args(FAULT_POINTS);
    let outcome = context.outcome(command, step.limit)?;
    if outcome.is_passed() {
        let dir = context.target.join("debug");
        existing(dir.join("astraboxd"))?;
        context.export(BIN_DIR, dir);
    }
    Ok(outcome)
}

/// Building an image that is there is quick: it is found by the hash of its recipe.
fn image(context: &mut Context, step: &Step) -> Result<Outcome> {
    let program = existing(context.target.join("debug").join("astrabox"))?;
    let mut command = Command::new(&program);
    command.args(["image", "build"]).current_dir(&context.root);
    context.prepare(&mut command);
    context.outcome(command, step.limit)
}

fn conformance(context: &mut Context, step: &Step) -> Result<Outcome> {
    let mut linked = conformance::linked();
    context.prepare(&mut linked);
    let outcome = context.outcome(linked, step.limit)?;
    let dir = context.root.join("tests/third-party");
    let mut outside = conformance::outside(&dir)?;
    context.prepare(&mut outside);
    share_builds(context, &dir, &mut outside)?;
    Ok(outcome.and(context.outcome(outside, step.limit)?))
}

fn embedder(context: &mut Context, step: &Step) -> Result<Outcome> {
    let dir = context.root.join("tests/embedder");
    let mut command = context.cargo(["test", "--no-fail-fast"]);
    command.current_dir(&dir);
    share_builds(context, &dir, &mut command)?;
    context.outcome(command, step.limit)
}

/// Lets a package outside the workspace find what the workspace has compiled already: the same
/// target folder, and the same versions unless it has a lock file of its own.
fn share_builds(context: &Context, dir: &Path, command: &mut Command) -> Result<()> {
    let lock = dir.join("Cargo.lock");
    if !lock.exists() {
        fs::copy(context.root.join("Cargo.lock"), &lock)?;
    }
    command.env("CARGO_TARGET_DIR", &context.target);
    Ok(())
}

fn deny(context: &mut Context, step: &Step) -> Result<Outcome> {
    if !has_cargo_deny(&context.root) {
        let version = format!("cargo-deny@{CARGO_DENY}");
        if context.mode == Mode::Local {
            let remedy = format!("cargo install --locked {version}");
            return Ok(Outcome::skipped(format!(
                "cargo-deny is not installed: {remedy}"
            )));
        }
        let install = context.cargo(["install", "--locked", "--debug", &version]);
        let installed = context.outcome(install, step.limit)?;
        if !installed.is_passed() {
            return Ok(installed);
        }
    }
    let check = context.cargo([
        "deny",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    context.outcome(check, step.limit)
}

fn has_cargo_deny(root: &Path) -> bool {
    Command::new("cargo")
        .args(["deny", "--version"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    if !path.is_file() {
        bail!("the build gave no {}", path.display());
    }
    Ok(path)
}
