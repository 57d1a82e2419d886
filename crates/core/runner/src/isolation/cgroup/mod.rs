//! The control groups of one box: what they limit, freeze, count and kill.
//!
//! Everything lives below the runner's own group, so what limits the server limits its boxes too. The
//! runner itself never enters: a frozen or full box must not stop it.

mod discover;
mod kill;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use super::error::Step;
use super::retry::until;
use super::{IsolationError, Limits};
pub(super) use discover::Hierarchies;
use v1::V1;
use v2::V2;

const FREEZE_DEADLINE: Duration = Duration::from_secs(2);
const REMOVE_DEADLINE: Duration = Duration::from_secs(5);

/// The groups of one box. Which of the limits they enforce depends on the host.
#[derive(Debug, Default)]
pub(super) struct BoxCgroup {
    v1: Option<V1>,
    v2: Option<V2>,
}

/// What a process needs to enter: descriptors, because the paths are out of the box's sight.
pub(super) struct Entry {
    /// For the new process to write `0` to.
    pub(super) tasks: Vec<OwnedFd>,
    /// For the kernel to start it in.
    pub(super) unified: Option<OwnedFd>,
}

/// Which limits the kernel enforces for the box, and through which version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Enforced {
    pub(super) memory: Option<u32>,
    pub(super) pids: Option<u32>,
    pub(super) cpu: Option<u32>,
    pub(super) freeze: Option<u32>,
}

/// What the groups have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) memory: Option<u64>,
    pub(super) memory_peak: Option<u64>,
    pub(super) pids: Option<u64>,
    pub(super) cpu_usec: Option<u64>,
    pub(super) oom_kills: Option<u64>,
    pub(super) pids_denied: Option<u64>,
}

impl BoxCgroup {
    /// Makes the groups that this host has, limits set, nobody in them.
    pub(super) fn create(
        hierarchies: &Hierarchies,
        suffix: &Path,
        limits: &Limits,
    ) -> Result<Self, IsolationError> {
        // Checked for all before anything is made, because a failure removes what is there.
        if Self::directories(hierarchies, suffix)
            .iter()
            .any(|dir| dir.exists())
        {
            return Err(IsolationError::BoxExists);
        }
        let mut made = Self::default();
        let result = made.make(hierarchies, suffix, limits);
        if let Err(error) = result {
            // The first error is the one to tell.
            let _ = made.remove();
            return Err(error).step("make the box's cgroups");
        }
        Ok(made)
    }

    fn make(&mut self, hosts: &Hierarchies, suffix: &Path, limits: &Limits) -> io::Result<()> {
        let v1 = V1::new(&hosts.v1, suffix);
        if !v1.is_empty() {
            self.v1.insert(v1).create(limits)?;
        }
        if let Some(own) = &hosts.v2 {
            let v2 = V2::new(own, suffix);
            self.v2.insert(v2).create(limits)?;
        }
        Ok(())
    }

    /// The directories in which the groups of a spec are, on this host and as recorded.
    pub(super) fn directories(hierarchies: &Hierarchies, suffix: &Path) -> Vec<PathBuf> {
        let v1 = hierarchies.v1.iter().map(|own| own.dir.join(suffix));
        let v2 = hierarchies
            .v2
            .iter()
            .flat_map(|own| own.homes())
            .map(|home| home.join(suffix));
        v1.chain(v2).collect()
    }

    pub(super) fn entry(&self) -> Result<Entry, IsolationError> {
        let tasks = self.v1.iter().flat_map(V1::dirs).map(|dir| {
            open(
                dir.join("tasks"),
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        });
        let open_dir = |dir: &Path| {
            open(
                dir,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        Ok(Entry {
            tasks: tasks
                .collect::<Result<_, _>>()
                .step("open the box's cgroups")?,
            unified: self
                .v2
                .as_ref()
                .map(|v2| open_dir(&v2.dir))
                .transpose()
                .step("open the box's cgroups")?,
        })
    }

    pub(super) fn enforced(&self) -> Enforced {
        let v1 = self.v1.as_ref().map(V1::enforced).unwrap_or_default();
        let v2 = self.v2.as_ref().map(V2::enforced).unwrap_or_default();
        Enforced {
            memory: v2.memory.or(v1.memory),
            pids: v2.pids.or(v1.pids),
            cpu: v2.cpu.or(v1.cpu),
            freeze: v2.freeze.or(v1.freeze),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let v1 = self.v1.as_ref().map(V1::counters).unwrap_or_default();
        let v2 = self.v2.as_ref().map(V2::counters).unwrap_or_default();
        Counters {
            memory: v2.memory.or(v1.memory),
            memory_peak: v2.memory_peak.or(v1.memory_peak),
            pids: v2.pids.or(v1.pids),
            cpu_usec: v2.cpu_usec.or(v1.cpu_usec),
            oom_kills: v2.oom_kills.or(v1.oom_kills),
            pids_denied: v2.pids_denied.or(v1.pids_denied),
        }
    }

    /// Stops every process of the box, the first one included. False if no group here can.
    pub(super) fn freeze(&self) -> Result<bool, IsolationError> {
        let frozen = match (&self.v2, &self.v1) {
            (Some(v2), _) if v2.can_freeze() => v2.freeze(FREEZE_DEADLINE),
            (_, Some(v1)) if v1.can_freeze() => v1.freeze(FREEZE_DEADLINE),
            _ => return Ok(false),
        };
        match frozen {
            Ok(true) => Ok(true),
            Ok(false) => Err(IsolationError::Deadline {
                what: "freezing the box",
                seconds: FREEZE_DEADLINE.as_secs(),
            }),
            Err(error) => Err(error).step("freeze the box"),
        }
    }

    /// Lets the processes go on, whoever froze them.
    pub(super) fn thaw(&self) -> Result<(), IsolationError> {
        if let Some(v2) = &self.v2 {
            v2.thaw().step("thaw the box")?;
        }
        if let Some(v1) = &self.v1 {
            v1.thaw().step("thaw the box")?;
        }
        Ok(())
    }

    /// Sends SIGKILL to every process of the box except one. They die when the box is thawed.
    pub(super) fn kill_all_but(&self, spared: i32) -> Result<(), IsolationError> {
        let any = self.v2.as_ref().map(|v2| v2.dir.as_path());
        let any = any.or_else(|| self.v1.as_ref().and_then(|v1| v1.dirs().next()));
        match any {
            Some(dir) => kill::members(dir, spared).step("kill the box's processes"),
            None => Ok(()),
        }
    }

    /// Removes the groups. They have to be empty, or become so soon.
    pub(super) fn remove(&self) -> Result<(), IsolationError> {
        let v1 = self.v1.iter().flat_map(V1::dirs);
        let v2 = self.v2.iter().map(|v2| v2.dir.as_path());
        v1.chain(v2).try_for_each(remove_dir)
    }
}

/// Kills whoever is in these groups of a dead runner's box, and removes them.
pub(super) fn destroy_dirs(dirs: &[PathBuf]) -> Result<(), IsolationError> {
    let existing: Vec<&Path> = dirs
        .iter()
        .map(PathBuf::as_path)
        .filter(|dir| dir.is_dir())
        .collect();
    kill::everybody(&existing).step("kill the box's processes")?;
    existing.into_iter().try_for_each(remove_dir)
}

/// Removes a box's group, and its root's if that was the last.
fn remove_dir(dir: &Path) -> Result<(), IsolationError> {
    // The kernel lets go of a dead process's group a moment after it is reaped.
    let removed = until(REMOVE_DEADLINE, || match fs::remove_dir(dir) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Ok(())),
        other => Some(other),
    });
    match removed {
        Some(removed) => removed.step("remove the box's cgroups")?,
        None => {
            return Err(IsolationError::Deadline {
                what: "the end of the box's cgroups",
                seconds: REMOVE_DEADLINE.as_secs(),
            });
        }
    }
    if let Some(root) = dir.parent() {
        // Other boxes of the root keep it.
        let _ = fs::remove_dir(root);
    }
    Ok(())
}

/// Makes `<own>/<root>/<box>`, even while another box of the root removes what it takes for empty.
fn make_dirs(dir: &Path) -> io::Result<()> {
    const ATTEMPTS: usize = 100;
    let root = dir.parent().ok_or(io::ErrorKind::InvalidInput)?;
    for _ in 0..ATTEMPTS {
        match fs::create_dir(root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn write(dir: &Path, file: &str, value: impl std::fmt::Display) -> io::Result<()> {
    // Without O_CREAT, so that a missing control file is an error.
    let fd = open(
        dir.join(file),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&fd, value.to_string().as_bytes())?;
    Ok(())
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

fn read_number(dir: &Path, file: &str) -> Option<u64> {
    read(dir, file)?.trim().parse().ok()
}

/// The number after a key in a file of `key number` lines.
fn read_keyed(dir: &Path, file: &str, key: &str) -> Option<u64> {
    let text = read(dir, file)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests;
