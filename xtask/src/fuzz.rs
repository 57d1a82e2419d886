//! `cargo xtask fuzz`: throws random inputs at the parsers and rewriters, each target for a while.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::process::{cargo, shown};
use crate::tree;

/// The folder of the targets, a package of its own outside the workspace.
const FOLDER: &str = "fuzz";

/// Fuzz each target, or the ones named, and say what was found. Works on the pinned toolchain; cargo-fuzz is installed
/// when it is missing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each target runs.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// List the targets and run none.
    #[arg(long)]
    list: bool,
    /// The targets to run; all of them when none is named.
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let root = tree::root();
    let folder = root.join(FOLDER);
    let all = targets(&fs::read_to_string(folder.join("Cargo.toml"))?)?;
    if args.list {
        println!("{}", all.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&all, args.targets)?;
    install(&root)?;
    build(&root)?;
    let mut broken = Vec::new();
    for target in chosen {
        println!("\n==> {target}, for {} s", args.seconds);
        if !fuzz(&root, &target, args.seconds)? {
            broken.push(target);
        }
    }
    if broken.is_empty() {
        println!("\nfuzz: nothing was found");
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "\nfuzz: found in {}; the inputs are in {FOLDER}/artifacts. When it is mended, add them to {FOLDER}/corpus: \
         the tests replay it",
        broken.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

/// The names of the targets, in the order of the manifest.
fn targets(manifest: &str) -> Result<Vec<String>> {
    let manifest: Manifest = toml::from_str(manifest).context("fuzz/Cargo.toml is not valid")?;
    Ok(manifest.bin.into_iter().map(|bin| bin.name).collect())
}

fn choose(all: &[String], named: Vec<String>) -> Result<Vec<String>> {
    if named.is_empty() {
        return Ok(all.to_vec());
    }
    for name in &named {
        ensure!(
            all.contains(name),
            "there is no target {name}; the targets are {}",
            all.join(", ")
        );
    }
    Ok(named)
}

/// Installs cargo-fuzz when it is not there.
fn install(root: &Path) -> Result<()> {
    let mut asked = cargo(root);
    asked.args(["fuzz", "--version"]);
    asked.stdout(Stdio::null()).stderr(Stdio::null());
    if asked.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    println!("cargo-fuzz is missing and gets installed");
    let mut install = cargo(root);
    install.args(["install", "--locked", "cargo-fuzz"]);
    if !succeeds(&mut install)? {
        bail!("cargo-fuzz does not install; it needs the network and a C++ compiler");
    }
    Ok(())
}

/// What every call of cargo-fuzz says. No sanitizer: those need a nightly toolchain, and there is no unsafe code to look
/// for.
const OPTIONS: [&str; 4] = ["--sanitizer", "none", "--fuzz-dir", FOLDER];

/// Builds all targets, so that a failure afterwards is something found.
fn build(root: &Path) -> Result<()> {
    let mut build = cargo(root);
    build.args(["fuzz", "build"]).args(OPTIONS);
    ensure!(succeeds(&mut build)?, "the targets do not build");
    Ok(())
}

/// Runs one target; whether it found nothing.
fn fuzz(root: &Path, target: &str, seconds: u64) -> Result<bool> {
    let folder = root.join(FOLDER);
    let committed = folder.join("corpus").join(target);
    // What is found goes into the first folder and stays there for the next run; the committed ones are only read.
    let found = folder.join("target").join("corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut command = cargo(root);
    command.args(["fuzz", "run"]).args(OPTIONS).arg(target);
    command.arg(&found).arg(&committed);
    command.arg("--");
    command.arg(format!("-max_total_time={seconds}"));
    command.args([
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-max_len=2048",
        // What is found is shown all the same.
        "-verbosity=0",
        "-print_final_stats=1",
    ]);
    succeeds(&mut command)
}

fn succeeds(command: &mut Command) -> Result<bool> {
    println!("+ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_manifest_and_have_a_file_and_a_corpus() {
        let folder = tree::root().join(FOLDER);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("it is there");
        let targets = targets(&manifest).expect("it is valid");
        assert!(!targets.is_empty());
        for target in targets {
            assert!(
                folder.join(format!("targets/{target}.rs")).is_file(),
                "{target}"
            );
            assert!(folder.join("corpus").join(&target).is_dir(), "{target}");
        }
    }

    #[test]
    fn an_unknown_target_is_refused_by_name() {
        let all = ["host".to_owned(), "path".to_owned()];
        assert_eq!(choose(&all, Vec::new()).expect("all"), all);
        assert_eq!(choose(&all, vec!["path".into()]).expect("one"), ["path"]);
        let error = choose(&all, vec!["pth".into()]).expect_err("it is unknown");
        assert!(error.to_string().contains("host, path"));
    }
}
