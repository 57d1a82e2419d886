//! One program run to its end: line by line, within a limit, killed with all its children when it is given up.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, mem};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// What is kept of a line, bytes, and how many lines.
const MAX_LINE: usize = 4096;
const KEPT_LINES: usize = 40;

/// How long a program may stay busy before it is given up.
const BUSY: Duration = Duration::from_secs(2);

/// How long a killed program may take to die, seconds.
const DEATH: i64 = 2;

/// A program to run. It gets this environment and nothing else.
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) dir: PathBuf,
    pub(crate) stdin: File,
    pub(crate) limit: Duration,
}

/// A program that ran to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// The last lines of both outputs, in the order in which they came.
    pub(crate) lines: Vec<String>,
}

/// Why a program did not run to its end.
#[derive(Debug)]
pub(crate) enum RunError {
    /// It could not be started.
    Start(io::Error),
    /// It took too long.
    Limit,
    /// Its output or status could not be read.
    Io(io::Error),
}

/// Runs a program. Dropping the future kills it and its children.
pub(crate) async fn run(
    invocation: Invocation,
    on_line: &(dyn Fn(&str) + Send + Sync),
) -> Result<Finished, RunError> {
    let mut command = Command::new(&invocation.program);
    command
        .args(&invocation.arguments)
        .env_clear()
        .envs(invocation.env)
        .current_dir(&invocation.dir)
        .stdin(invocation.stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut group = Group::of(spawn(&mut command).await.map_err(RunError::Start)?);
    let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
    let kept = Mutex::new(VecDeque::new());
    let line = |text: &str| {
        on_line(text);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(text.to_owned());
    };
    let all = async {
        let (status, out, err) =
            tokio::join!(group.wait(), lines(stdout, &line), lines(stderr, &line));
        out.and(err).and(status)
    };
    let status = match timeout(invocation.limit, all).await {
        Ok(ended) => ended.map_err(RunError::Io)?,
        Err(_) => return Err(RunError::Limit),
    };
    let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Finished {
        status,
        lines: kept.into(),
    })
}

/// Starts a program that may have been written a moment ago: a child that another thread is just starting
/// can still have it open for writing.
async fn spawn(command: &mut Command) -> io::Result<Child> {
    let deadline = Instant::now() + BUSY;
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < deadline =>
            {
                sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}

/// A child that leads a process group of its own.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Group {
    fn of(child: Child) -> Self {
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        Self { child, leader }
    }

    /// Waits for the leader. What it leaves behind is killed, or its open pipes would be waited for.
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        if let Some(leader) = self.leader.take() {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(leader) = self.leader else {
            return;
        };
        // Not reaped yet, so the id is still that of our child.
        let pidfd = pidfd_open(leader, PidfdFlags::empty());
        let _ = kill_process_group(leader, Signal::KILL);
        if let Ok(pidfd) = pidfd {
            // Its folder is removed next, and it must not write into it any more.
            let limit = Timespec {
                tv_sec: DEATH,
                tv_nsec: 0,
            };
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit));
        }
    }
}

/// Tells each line of an output, without line feed and with the rest of an overlong one left out.
async fn lines(
    output: Option<impl AsyncRead + Unpin>,
    on_line: &(dyn Fn(&str) + Send + Sync),
) -> io::Result<()> {
    let Some(mut output) = output else {
        return Ok(());
    };
    let mut chunk = [0; 8192];
    let mut line = Vec::new();
    let tell = |line: Vec<u8>| on_line(String::from_utf8_lossy(&line).trim_end());
    loop {
        let count = output.read(&mut chunk).await?;
        if count == 0 {
            break;
        }
        for byte in &chunk[..count] {
            match byte {
                b'\n' => tell(mem::take(&mut line)),
                byte if line.len() < MAX_LINE => line.push(*byte),
                _ => {}
            }
        }
    }
    if !line.is_empty() {
        tell(line);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
