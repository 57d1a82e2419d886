//! What is left of a box, found again and removed: by what the kernel says, not by remembered pids.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::cgroup::{self, BoxCgroup, Hierarchies};
use super::error::Step;
use super::life::wait_readable;
use super::spec::{BoxSpec, Volume};
use super::{IsolationError, volume};

const FILE: &str = "isolation.json";
const END_DEADLINE: Duration = Duration::from_secs(10);

/// Where a box's groups are, and its first process. The groups are below the group of whoever started its runner, which need not
/// be that of whoever cleans up.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    cgroups: Vec<PathBuf>,
    first: Option<Identity>,
}

/// A process, named so that no later one is taken for it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    pid: i32,
    start_time: u64,
    boot_id: String,
}

impl Identity {
    fn of(pid: i32) -> Option<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self {
            pid,
            start_time: start_time(pid)?,
            boot_id: boot_id.trim().to_owned(),
        })
    }

    /// Waits until the process has ended.
    fn wait(&self) -> Result<(), IsolationError> {
        let pid = Pid::from_raw(self.pid);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Looked at after taking hold of it, so it is this process or none.
        let Some(process) = process.filter(|_| Self::of(self.pid).as_ref() == Some(self)) else {
            return Ok(());
        };
        if wait_readable(process.as_fd(), END_DEADLINE).step("wait for the box's end")? {
            return Ok(());
        }
        let seconds = END_DEADLINE.as_secs();
        Err(IsolationError::Deadline {
            what: "the box's end",
            seconds,
        })
    }
}

impl Record {
    pub(super) fn of(spec: &BoxSpec, hierarchies: &Hierarchies) -> Self {
        Self {
            cgroups: BoxCgroup::directories(hierarchies, &spec.cgroup_suffix()),
            first: None,
        }
    }

    /// Adds the first process, once there is one.
    pub(super) fn with_first(self, pid: i32) -> Self {
        Self {
            first: Identity::of(pid),
            ..self
        }
    }

    /// Claims the run directory for this box.
    pub(super) fn claim(&self, run_dir: &Path) -> Result<(), IsolationError> {
        let partial = self.write_partial(run_dir).step("record the box")?;
        // A link, unlike a rename, replaces nothing.
        let claimed = fs::hard_link(&partial, run_dir.join(FILE));
        let _ = fs::remove_file(&partial);
        match claimed {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(IsolationError::BoxExists)
            }
            other => other.step("record the box"),
        }
    }

    /// Replaces the record of this box.
    pub(super) fn update(&self, run_dir: &Path) -> Result<(), IsolationError> {
        let partial = self.write_partial(run_dir).step("record the box")?;
        fs::rename(&partial, run_dir.join(FILE)).step("record the box")
    }

    fn write_partial(&self, run_dir: &Path) -> io::Result<PathBuf> {
        let partial = run_dir.join(format!("{FILE}.{}", std::process::id()));
        fs::write(&partial, serde_json::to_vec(self)?)?;
        Ok(partial)
    }

    /// The record of a box, or what it would be if its runner had been started from here.
    fn find(spec: &BoxSpec) -> Result<Self, IsolationError> {
        match fs::read(spec.run_dir.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(io::Error::from)
                .step("read the box's record"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::of(
                spec,
                &Hierarchies::discover().step("find the cgroups")?,
            )),
            Err(error) => Err(error).step("read the box's record"),
        }
    }
}

/// Removes the record when everything that it points to is gone.
pub(super) fn forget(run_dir: &Path) {
    // A record of nothing does no harm.
    let _ = fs::remove_file(run_dir.join(FILE));
}

/// Removes whatever a box has left after its runner was killed: processes (there are some only if the
/// box was frozen), cgroups, the volume's loop device. Needs the spec alone, and does nothing the
/// second time.
///
/// The runner has to be dead. Mounts and namespaces need no removal: they end with the processes.
///
/// # Errors
/// What could not be removed in time; calling again goes on.
pub fn destroy_leftovers(spec: &BoxSpec) -> Result<(), IsolationError> {
    spec.validate()?;
    let suffix = spec.cgroup_suffix();
    let record = Record::find(spec)?;
    // Whatever a record says, only groups of this box are touched.
    let own: Vec<_> = record
        .cgroups
        .into_iter()
        .filter(|dir| dir.ends_with(&suffix))
        .collect();
    cgroup::destroy_dirs(&own)?;
    // It leaves its groups a moment before it is dead, and was dying already if it was not frozen.
    if let Some(first) = &record.first {
        first.wait()?;
    }
    if let Volume::LoopImage { path } = &spec.volume {
        volume::release_image(path)?;
    }
    forget(&spec.run_dir);
    Ok(())
}

/// When a process started, in clock ticks since boot: with the pid it names a process for good.
pub(super) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit(')').next()?;
    // The 22nd field; the third is the first after the name.
    after_name.split_whitespace().nth(22 - 3)?.parse().ok()
}
