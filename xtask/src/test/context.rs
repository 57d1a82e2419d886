//! What the steps of a test run share: folders, and the environment that tests read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::MetadataCommand;

use super::Mode;
use super::report::Outcome;
use crate::process::{self, Skip, cargo, shown};
use crate::tree;

/// Path of the runner that tests use.
pub(super) const RUNNER: &str = "ASTRABOX_RUNNER";
/// Folder of the built `astraboxd` and `astrabox`.
pub(crate) const BIN_DIR: &str = "ASTRABOX_BIN_DIR";
/// File to which a test that cannot run here appends a line: its name, a tab, the reason.
pub(super) const SKIPS: &str = "ASTRABOX_SKIPS";

pub(crate) struct Context {
    pub(super) root: PathBuf,
    pub(super) mode: Mode,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    /// The host's target triple.
    pub(super) host: String,
    /// Set for every program that a step starts.
    environment: Vec<(&'static str, PathBuf)>,
    skips: PathBuf,
}

impl Context {
    pub(super) fn new(mode: Mode) -> Result<Self> {
        let root = tree::root();
        let metadata = MetadataCommand::new().current_dir(&root).no_deps().exec()?;
        let target = metadata.target_directory.into_std_path_buf();
        let scratch = target.join("xtask");
        fs::create_dir_all(&scratch)?;
        let skips = scratch.join(format!("skips-{}.txt", std::process::id()));
        fs::write(&skips, "")?;
        Ok(Self {
            host: host_triple(&root)?,
            environment: vec![(SKIPS, skips.clone())],
            root,
            mode,
            target,
            skips,
        })
    }

    /// Makes `name` known to every program started from now on.
    pub(super) fn export(&mut self, name: &'static str, value: PathBuf) {
        println!("{name}={}", value.display());
        self.environment.push((name, value));
    }

    /// The runner that the step of its name has built.
    pub(crate) fn runner(&self) -> Result<PathBuf> {
        let found = self.environment.iter().find(|(name, _)| *name == RUNNER);
        found
            .map(|(_, path)| path.clone())
            .context("the runner is not built")
    }

    /// `cargo` in the workspace, with the environment of this run.
    pub(super) fn cargo<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = cargo(&self.root);
        command.args(args);
        self.prepare(&mut command);
        command
    }

    /// Gives `command` the environment of this run.
    pub(crate) fn prepare(&self, command: &mut Command) {
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        if self.mode == Mode::Ci {
            command.env("CI", "true");
            command.env("CARGO_TERM_COLOR", "never");
            command.env("CARGO_INCREMENTAL", "0");
        }
    }

    /// Runs `command` with its output shown; its exit status and test counts are the outcome.
    pub(super) fn outcome(&self, command: Command, limit: Duration) -> Result<Outcome> {
        let line = shown(&command);
        println!("+ {line}");
        let ended = process::watch(command, limit)?;
        let counts = ended.tally.counts();
        let skips = ended.tally.skips().to_vec();
        let outcome = match ended.status {
            Some(status) if status.success() && counts.failed == 0 => Outcome::passed(),
            Some(status) => Outcome::failed(format!("{line}: {status}")),
            None => Outcome::failed(format!("{line}: stopped after {} s", limit.as_secs())),
        };
        Ok(outcome.with_tests(counts, skips))
    }

    /// The skips that tests wrote down while they ran; removes the file.
    pub(super) fn take_runtime_skips(&self) -> Result<Vec<Skip>> {
        let text = fs::read_to_string(&self.skips)?;
        fs::remove_file(&self.skips)?;
        Ok(text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (what, reason) = line.split_once('\t').unwrap_or((line, "no reason given"));
                Skip {
                    what: what.to_owned(),
                    reason: reason.to_owned(),
                }
            })
            .collect())
    }
}

fn host_triple(root: &Path) -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .current_dir(root)
        .output()
        .context("cannot start rustc: install Rust with rustup")?;
    ensure!(output.status.success(), "rustc -vV: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}
