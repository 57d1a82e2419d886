//! The processes of one session, and how each is found and killed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use astrabox_tests::{Program, Stage};

/// How long a process may take to be there.
const WITHIN: Duration = Duration::from_secs(20);

/// A process that can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    /// `astraboxd`.
    Server,
    /// `astraboxd egress`.
    Egress,
    /// `astrabox-runner` of the session's sandbox.
    Runner,
    /// The agent program.
    Engine,
    /// The sandbox's first process, and with it everything inside.
    Sandbox,
}

impl Process {
    pub(crate) const ALL: [Self; 5] = [
        Self::Server,
        Self::Egress,
        Self::Runner,
        Self::Engine,
        Self::Sandbox,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Egress => "egress",
            Self::Runner => "runner",
            Self::Engine => "engine",
            Self::Sandbox => "sandbox",
        }
    }
}

/// The ids of a session's processes, looked up before anything is killed.
pub(crate) struct Pids {
    egress: u32,
    runner: u32,
    sandbox: u32,
    engine: u32,
}

impl Pids {
    /// Waits until all are there: at the first steps the program has just been started.
    pub(crate) async fn find(stage: &Stage, program: &Program) -> Result<Self> {
        let until = Instant::now() + WITHIN;
        loop {
            match Self::look(stage, program) {
                Ok(pids) => return Ok(pids),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn look(stage: &Stage, program: &Program) -> Result<Self> {
        let folder = stage.server.folder();
        let runner = runner_of(folder)?;
        let sandbox = child_of(runner, "astrabox-init")?;
        Ok(Self {
            egress: egress_of(folder)?,
            runner,
            sandbox,
            engine: child_of(sandbox, program.process)?,
        })
    }

    /// Kills all of these; the server by its handle, so that it can be started again.
    pub(crate) async fn kill(&self, killed: &[Process], stage: &mut Stage) -> Result<()> {
        for process in killed {
            match process {
                Process::Server => stage.server.kill().await?,
                Process::Egress => kill(self.egress)?,
                Process::Runner => kill(self.runner)?,
                Process::Engine => kill(self.engine)?,
                Process::Sandbox => kill(self.sandbox)?,
            }
        }
        Ok(())
    }
}

fn kill(pid: u32) -> Result<()> {
    // What the kill before has taken along is as dead as it should be.
    std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status()
        .context("kill")?;
    Ok(())
}

/// The runner of the only sandbox.
fn runner_of(folder: &Path) -> Result<u32> {
    let sandboxes = folder.join("state/sandbox/local/sandboxes");
    let entry = std::fs::read_dir(sandboxes)?
        .next()
        .context("a sandbox")??;
    let record = std::fs::read(entry.path().join("runner/runner.json"))?;
    let record: serde_json::Value = serde_json::from_slice(&record)?;
    let pid = record
        .pointer("/process/pid")
        .and_then(serde_json::Value::as_u64);
    Ok(u32::try_from(pid.context("the runner's process id")?)?)
}

fn egress_of(folder: &Path) -> Result<u32> {
    let folder = folder.display().to_string();
    for pid in pids() {
        let line = command_line(pid);
        if line.get(1).is_some_and(|word| word == "egress")
            && line.iter().any(|word| word.starts_with(&folder))
        {
            return Ok(pid);
        }
    }
    bail!("no egress role")
}

fn child_of(parent: u32, name: &str) -> Result<u32> {
    for pid in pids() {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((head, tail)) = stat.rsplit_once(") ") else {
            continue;
        };
        let of_parent = tail.split(' ').nth(1) == Some(&*parent.to_string());
        let is_it = head.split_once('(').is_some_and(|(_, found)| found == name)
            || command_line(pid).first().is_some_and(|word| word == name);
        if of_parent && is_it {
            return Ok(pid);
        }
    }
    bail!("no process {name} below {parent}")
}

pub(crate) fn pids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

pub(crate) fn command_line(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
