//! Kills by membership: a process is killed because it is in the box's group, never by a remembered pid.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::super::life::wait_readable;
use super::{read, write};

const DEADLINE: Duration = Duration::from_secs(5);

/// Sends SIGKILL to each process in a group, except one.
pub(super) fn members(dir: &Path, spared: i32) -> io::Result<()> {
    for pid in pids(dir) {
        if pid != spared
            && let Some(process) = hold_member(dir, pid)
        {
            send_kill(&process)?;
        }
    }
    Ok(())
}

/// Kills every process of a box's groups, frozen or not, and waits until none is left.
pub(super) fn everybody(dirs: &[&Path]) -> io::Result<()> {
    let end = Instant::now() + DEADLINE;
    loop {
        let held = hold(dirs);
        for dir in dirs.iter().filter(|dir| dir.join("cgroup.kill").exists()) {
            write(dir, "cgroup.kill", 1)?;
        }
        for process in held.values() {
            send_kill(process)?;
        }
        // A process frozen by version 1 dies only when thawed, whichever group it was killed in.
        for dir in dirs {
            thaw(dir)?;
        }
        // A dying process leaves its groups before it is dead, so the processes have to say it.
        for process in held.values() {
            if !wait_readable(
                process.as_fd(),
                end.saturating_duration_since(Instant::now()),
            )? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        if dirs.iter().all(|dir| pids(dir).is_empty()) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Takes hold of every member, by pid.
fn hold(dirs: &[&Path]) -> BTreeMap<i32, OwnedFd> {
    let mut held = BTreeMap::new();
    for dir in dirs {
        for pid in pids(dir) {
            if !held.contains_key(&pid)
                && let Some(process) = hold_member(dir, pid)
            {
                held.insert(pid, process);
            }
        }
    }
    held
}

fn thaw(dir: &Path) -> io::Result<()> {
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        if dir.join(file).exists() {
            write(dir, file, value)?;
        }
    }
    Ok(())
}

fn pids(dir: &Path) -> Vec<i32> {
    let text = read(dir, "cgroup.procs").unwrap_or_default();
    // 0 stands for a process that cannot be seen from here.
    text.lines()
        .filter_map(|line| line.parse().ok())
        .filter(|pid| *pid > 0)
        .collect()
}

/// Takes hold of the process first and then looks whether it is still the member.
fn hold_member(dir: &Path, pid: i32) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    pids(dir).contains(&pid).then_some(process)
}

fn send_kill(process: &OwnedFd) -> io::Result<()> {
    match pidfd_send_signal(process, Signal::KILL) {
        Err(Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
