//! Leaving the launcher: a session of its own, no parent that waits for it, no descriptor that is not its own.
#![expect(
    unsafe_code,
    reason = "no safe wrapper forks or closes a range of descriptors"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};

use astrabox_runner_protocol::launch::Report;
use rustix::fs::Mode;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use serde::Serialize;

use crate::log::Log;

/// Where the launcher hears what became of the runner: the standard output that it gave.
#[derive(Debug)]
pub(crate) struct Launcher(File);

impl Launcher {
    /// Tells the launcher, and lets go of it. A launcher that has gone does not matter.
    pub(crate) fn tell<T: Serialize>(mut self, report: &Report<T>) {
        let _ = self.0.write_all(&report.line());
    }
}

/// Closes every descriptor that the launcher let slip, before anything else is opened.
pub(crate) fn close_inherited() {
    // SAFETY: takes plain numbers. Nothing in this process has opened a descriptor yet, so none that is
    // closed here has an owner.
    unsafe {
        libc::close_range(3, u32::MAX, 0);
    }
}

/// Continues in a process that is in a session of its own and is nobody's child but init's. The process
/// that was launched ends at once, with success.
///
/// The caller must be single-threaded.
pub(crate) fn detach() -> io::Result<Launcher> {
    let launcher = File::from(fcntl_dupfd_cloexec(io::stdout(), 3)?);
    leave_parent()?;
    rustix::process::setsid()?;
    leave_parent()?;
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::from(0o022));
    let limit = getrlimit(Resource::Nofile);
    // One descriptor is spent on each stream and segment; whatever the launcher's own limit is.
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(Launcher(launcher))
}

fn leave_parent() -> io::Result<()> {
    // SAFETY: the process has one thread, so the child has everything that the parent had.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: ends the process without running anything of it.
        _ => unsafe { libc::_exit(0) },
    }
}

/// Nothing to read, and whatever is printed goes to the log.
pub(crate) fn redirect_stdio(log: &Log) -> io::Result<()> {
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    let file = log.file()?;
    dup2_stdin(&null)?;
    dup2_stdout(&file)?;
    dup2_stderr(&file)?;
    Ok(())
}
