//! Running the runner program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use astrabox_runner_protocol::launch::{
    Cleaned, HostReport, MAX_REPORT_BYTES, Report, Started, Volume,
};
use astrabox_sandbox::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::error::{failure, host};

/// The program's name, looked for beside the running one.
const PROGRAM: &str = "astrabox-runner";
/// How long any of its commands may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The runner program.
#[derive(Debug, Clone)]
pub(crate) struct RunnerProgram(PathBuf);

impl RunnerProgram {
    /// The configured program, or the one beside the running program.
    ///
    /// # Errors
    /// `Refused`, with the command that builds it.
    pub(crate) fn find(configured: Option<PathBuf>) -> Result<Self> {
        let missing = |text: &str| {
            let remedy = "build it with `cargo build --profile runner -p astrabox-runner` and put it beside the \
                          server, or name it in `sandbox.local.runner`";
            Error::new(ErrorKind::Refused, "configure", format!("{text}; {remedy}"))
        };
        match configured {
            Some(path) if path.is_absolute() && path.is_file() => Ok(Self(path)),
            Some(_) => Err(missing(
                "`sandbox.local.runner` is not the absolute path of a program",
            )),
            None => {
                let current = std::env::current_exe()
                    .map_err(|error| host("configure", "the running program", error))?;
                // A test program is one folder below the programs.
                let folders = current.ancestors().skip(1).take(2);
                let found = folders
                    .map(|folder| folder.join(PROGRAM))
                    .find(|path| path.is_file());
                found
                    .map(Self)
                    .ok_or_else(|| missing("the program `astrabox-runner` is not there"))
            }
        }
    }

    /// What this host can do.
    ///
    /// # Errors
    /// `Refused` when it cannot have sandboxes at all, with what to do about it.
    pub(crate) async fn probe(&self) -> Result<HostReport> {
        let report: HostReport = self.ask("configure", &[OsStr::new("probe")]).await?;
        let lacking = report
            .checks
            .iter()
            .find(|check| check.required && !check.ok);
        match lacking {
            None => Ok(report),
            Some(check) => Err(Error::new(
                ErrorKind::Refused,
                "configure",
                format!("this host: {}: {}", check.detail, check.remedy),
            )),
        }
    }

    /// Starts a runner for this spec and waits until it serves.
    pub(crate) async fn run(&self, spec: &Path) -> Result<Started> {
        self.ask("create", &[OsStr::new("run"), spec.as_os_str()])
            .await
    }

    /// Removes what a dead runner left.
    pub(crate) async fn clean(&self, operation: &'static str, spec: &Path) -> Result<()> {
        let Cleaned {} = self
            .ask(operation, &[OsStr::new("clean"), spec.as_os_str()])
            .await?;
        Ok(())
    }

    /// Makes a volume in `place`.
    pub(crate) async fn prepare_volume(
        &self,
        cache: &Path,
        place: &Path,
        bytes: u64,
    ) -> Result<Volume> {
        let bytes = bytes.to_string();
        let arguments = [
            OsStr::new("prepare-volume"),
            cache.as_os_str(),
            place.as_os_str(),
            OsStr::new(bytes.as_str()),
        ];
        self.ask("create", &arguments).await
    }

    /// Runs a command and reads its one report line. The runner itself goes on after its line.
    async fn ask<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        arguments: &[&OsStr],
    ) -> Result<T> {
        match tokio::time::timeout(WITHIN, self.run_to_answer(operation, arguments)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(
                ErrorKind::DeadlineExceeded,
                operation,
                "the runner program did not answer",
            )),
        }
    }

    async fn run_to_answer<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        arguments: &[&OsStr],
    ) -> Result<T> {
        // Nothing of the server's environment goes with it: there may be secrets in it.
        let mut child = Command::new(&self.0)
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| host(operation, "starting the runner program", error))?;
        let mut line = Vec::new();
        if let Some(output) = child.stdout.take() {
            let read = output.take(MAX_REPORT_BYTES).read_to_end(&mut line).await;
            read.map_err(|error| host(operation, "the runner program's answer", error))?;
        }
        // The program that was started detaches the runner and ends, so this reaps it.
        let status = child
            .wait()
            .await
            .map_err(|error| host(operation, "the runner program", error))?;
        match serde_json::from_slice::<Report<T>>(&line) {
            Ok(Report::Ok(value)) => Ok(value),
            Ok(Report::Failed(reason)) => Err(failure(operation, reason)),
            Err(error) => {
                let text = format!("the runner program gave no answer ({status})");
                Err(Error::new(ErrorKind::Internal, operation, text).with_source(error))
            }
        }
    }
}
