//! Kills by membership: a process is killed because it is in the box's group, never by a remembered pid.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{read, write};

const DEADLINE: Duration = Duration::from_secs(5);

/// Sends SIGKILL to each process in a group, except one.
pub(super) fn members(dir: &Path, spared: Option<i32>) -> io::Result<()> {
    for pid in pids(dir) {
        if Some(pid) != spared {
            kill_member(dir, pid)?;
        }
    }
    Ok(())
}

/// Kills every process of a box's groups, frozen or not, and waits until none is left.
pub(super) fn everybody(dirs: &[&Path]) -> io::Result<()> {
    let end = Instant::now() + DEADLINE;
    loop {
        for dir in dirs {
            kill_group(dir)?;
        }
        // A process frozen by version 1 dies only when thawed, whichever group it was killed in.
        for dir in dirs {
            thaw(dir)?;
        }
        let Some(pid) = dirs.iter().flat_map(|dir| pids(dir)).next() else {
            return Ok(());
        };
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        wait_for_end(pid)?;
    }
}

fn kill_group(dir: &Path) -> io::Result<()> {
    if dir.join("cgroup.kill").exists() {
        write(dir, "cgroup.kill", 1)
    } else {
        members(dir, None)
    }
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
fn kill_member(dir: &Path, pid: i32) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(());
    };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(());
    };
    if !pids(dir).contains(&pid.as_raw_nonzero().get()) {
        return Ok(());
    }
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits a moment for a dying process; a zombie of somebody else's counts as ended.
fn wait_for_end(pid: i32) -> io::Result<()> {
    const SLICE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(());
    };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(());
    };
    poll(
        &mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)],
        Some(&SLICE),
    )?;
    Ok(())
}
