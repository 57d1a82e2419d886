//! What a box consists of on the host, and how it is taken down: at the end, and when its making fails.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::cgroup::BoxCgroup;
use super::error::Step;
use super::spec::{BoxSpec, Volume};
use super::{IsolationError, destroy, volume};

const END_DEADLINE: Duration = Duration::from_secs(10);

/// A box, or as much of one as has been made. Dropping it takes that down.
pub(super) struct Life {
    pub(super) spec: BoxSpec,
    pub(super) cgroup: BoxCgroup,
    first: Option<FirstProcess>,
    /// Whether the volume may be bound to a loop device of this box.
    pub(super) volume_taken: bool,
    ended: bool,
}

/// The box's first process, a child of this one.
struct FirstProcess {
    pid: i32,
    pidfd: OwnedFd,
}

impl Life {
    pub(super) fn new(spec: &BoxSpec, cgroup: BoxCgroup) -> Self {
        Self {
            spec: spec.clone(),
            cgroup,
            first: None,
            volume_taken: false,
            ended: false,
        }
    }

    pub(super) fn begin(&mut self, pid: i32, pidfd: OwnedFd) {
        self.first = Some(FirstProcess { pid, pidfd });
    }

    /// The pid of the first process, as this process sees it; 0 if there is none.
    pub(super) fn first_pid(&self) -> i32 {
        self.first.as_ref().map_or(0, |first| first.pid)
    }

    /// Ends every process and removes what they had. What cannot be done is told; the rest is done.
    pub(super) fn end(&mut self) -> Result<(), IsolationError> {
        self.ended = true;
        // A process frozen by version 1 dies only when thawed: kill, then thaw, then wait.
        let killed = self.first.as_ref().map_or(Ok(()), FirstProcess::kill);
        let thawed = self.cgroup.thaw();
        killed.and(thawed)?;
        if let Some(first) = self.first.take() {
            first.reap()?;
        }
        self.cgroup.remove()?;
        if let (Volume::LoopImage { path }, true) = (&self.spec.volume, self.volume_taken) {
            volume::wait_released(path)?;
        }
        destroy::forget(&self.spec.run_dir);
        Ok(())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if !self.ended {
            // Nobody is left to tell; the record stays for `destroy_leftovers`.
            let _ = self.end();
        }
    }
}

impl FirstProcess {
    /// Kills the first process, and by that every other one of the box.
    fn kill(&self) -> Result<(), IsolationError> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).step("kill the box"),
        }
    }

    /// Waits for its end, which is the end of the last of them.
    fn reap(self) -> Result<(), IsolationError> {
        if !wait_readable(self.pidfd.as_fd(), END_DEADLINE).step("wait for the box's end")? {
            let seconds = END_DEADLINE.as_secs();
            return Err(IsolationError::Deadline {
                what: "the box's end",
                seconds,
            });
        }
        // It has ended, so this does not wait; it can fail only if somebody else has reaped it.
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        Ok(())
    }
}

/// Whether a descriptor can be read before the time is over.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, time: Duration) -> Result<bool, Errno> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&timeout),
        ) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
