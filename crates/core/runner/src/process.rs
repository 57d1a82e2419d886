//! One process on record: what it was asked to be, its streams, and its end.

pub(crate) mod pump;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use astrabox_runner_protocol::state::{ProcessRecord, RECORD_FORMAT};
use astrabox_runner_protocol::{
    AttachEvent, ExitInfo, ExitReason, ExitStatus, OutputStream, ProcessInfo, ProcessState,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::output::{self, Output};
use crate::spool::SpoolError;
use crate::stdin::{self, AcceptError, Acceptance, Stdin};

/// The exit codes by which a shell says that its child was killed by a signal.
const SHELL_SIGKILL: i32 = 128 + libc::SIGKILL;
const SHELL_SIGXFSZ: i32 = 128 + libc::SIGXFSZ;

/// What the box's limits have done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Processes killed for memory.
    pub(crate) oom_kills: u64,
    /// Forks refused.
    pub(crate) forks_refused: u64,
}

/// How a process ended, as far as anybody saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// What its parent was told.
    pub(crate) status: Option<ExitStatus>,
    /// Whether the kernel killed it because the box's memory was used up.
    pub(crate) memory_limit: bool,
    /// Why, if nobody saw a status.
    pub(crate) otherwise: ExitReason,
}

/// One process on record.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    /// What the box calls it.
    pub(crate) tag: u64,
    pub(crate) request_sha256: String,
    pub(crate) generation: u64,
    pub(crate) started_at_ms: i64,
    /// Ends its tasks.
    pub(crate) stop: CancellationToken,
    /// Told of every change; readers, writers and pumps wait on it.
    changed: watch::Sender<()>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: ProcessState,
    pid: u32,
    stdin: Option<Stdin>,
    stdout: Output,
    stderr: Output,
    exit: Option<ExitInfo>,
    spawn_failure: Option<SpawnFailure>,
    forgotten: bool,
    /// Why the runner is ending it, if it is.
    cause: Option<ExitReason>,
    /// The signals that were asked for, one bit each.
    signals: u32,
    /// The counters at its start.
    baseline: Counters,
}

/// Why a program could not be started.
#[derive(Debug, Clone)]
pub(crate) struct SpawnFailure {
    pub(crate) errno: i32,
    pub(crate) message: String,
}

/// The streams of a process.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) stdin: Option<Stdin>,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

/// Where a reader stands.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
    /// The stream whose turn it is, so that a busy one cannot starve the other.
    stderr_first: bool,
}

impl Cursor {
    pub(crate) fn new(stdout: u64, stderr: u64) -> Self {
        Self {
            stdout,
            stderr,
            stderr_first: false,
        }
    }
}

impl Process {
    /// A process that is about to be asked for.
    pub(crate) fn new(
        name: String,
        tag: u64,
        request_sha256: String,
        generation: u64,
        streams: Streams,
        baseline: Counters,
        stop: CancellationToken,
    ) -> Self {
        Self {
            name,
            tag,
            request_sha256,
            generation,
            started_at_ms: now_ms(),
            stop,
            changed: watch::Sender::new(()),
            inner: Mutex::new(Inner {
                state: ProcessState::Starting,
                pid: 0,
                stdin: streams.stdin,
                stdout: streams.stdout,
                stderr: streams.stderr,
                exit: None,
                spawn_failure: None,
                forgotten: false,
                cause: None,
                signals: 0,
                baseline,
            }),
        }
    }

    /// A process that an earlier runner held. Its end is what that runner wrote down, or the end of that
    /// runner, as far as its output reached the disk.
    pub(crate) fn restored(record: ProcessRecord, stdout: Output, stderr: Output) -> Self {
        let ends = (stdout.info().next_offset, stderr.info().next_offset);
        let mut exit = record.exit.unwrap_or(ExitInfo {
            reason: ExitReason::RunnerRestarted,
            status: None,
            at_ms: now_ms(),
            stdout_end: ends.0,
            stderr_end: ends.1,
            oom_kills: 0,
            forks_refused: 0,
        });
        (exit.stdout_end, exit.stderr_end) = ends;
        let process = Self::new(
            record.name,
            0,
            record.request_sha256,
            record.generation,
            Streams {
                stdin: None,
                stdout,
                stderr,
            },
            Counters::default(),
            CancellationToken::new(),
        );
        let mut inner = process.lock();
        (inner.state, inner.pid, inner.exit) = (ProcessState::Ended, record.pid, Some(exit));
        drop(inner);
        Self {
            started_at_ms: record.started_at_ms,
            ..process
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic ends the runner (`panic = "abort"`); in tests the state is still whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes when anything about it changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn notify(&self) {
        self.changed.send_replace(());
    }

    /// It runs.
    pub(crate) fn set_running(&self, pid: u32) {
        let mut inner = self.lock();
        if inner.state == ProcessState::Starting {
            (inner.state, inner.pid) = (ProcessState::Running, pid);
        }
        drop(inner);
        self.notify();
    }

    /// It could not be started.
    pub(crate) fn set_spawn_failed(&self, failure: SpawnFailure) {
        self.lock().spawn_failure = Some(failure);
        self.stop.cancel();
        self.notify();
    }

    /// Whether its start is decided: `None` while it is not.
    pub(crate) fn start_outcome(&self) -> Option<Result<(), SpawnFailure>> {
        let inner = self.lock();
        match (&inner.spawn_failure, inner.state) {
            (Some(failure), _) => Some(Err(failure.clone())),
            (None, ProcessState::Starting) => None,
            (None, ProcessState::Running | ProcessState::Ended) => Some(Ok(())),
        }
    }

    /// Its state, and the pid while that is worth something.
    pub(crate) fn state(&self) -> (ProcessState, u32) {
        let inner = self.lock();
        (inner.state, inner.pid)
    }

    /// The runner is going to end it for this reason. The first reason stands.
    pub(crate) fn set_cause(&self, reason: ExitReason) {
        self.lock().cause.get_or_insert(reason);
    }

    /// This signal was asked for.
    pub(crate) fn note_signal(&self, signal: i32) {
        self.lock().signals |= 1_u32.checked_shl(signal.unsigned_abs()).unwrap_or(0);
    }

    /// It has ended.
    pub(crate) fn set_ended(&self, end: End, counters: Counters) {
        let mut inner = self.lock();
        if inner.exit.is_some() {
            return;
        }
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let oom_kills = since(counters.oom_kills, inner.baseline.oom_kills);
        let forks_refused = since(counters.forks_refused, inner.baseline.forks_refused);
        if let Some(stdin) = &mut inner.stdin {
            stdin.abandon();
        }
        inner.exit = Some(ExitInfo {
            reason: inner.exit_reason(end, oom_kills, forks_refused),
            status: end.status,
            at_ms: now_ms(),
            stdout_end: inner.stdout.seal(),
            stderr_end: inner.stderr.seal(),
            oom_kills,
            forks_refused,
        });
        inner.state = ProcessState::Ended;
        drop(inner);
        self.notify();
    }

    /// Its record was dropped: readers get an error.
    pub(crate) fn set_forgotten(&self) {
        self.lock().forgotten = true;
        self.stop.cancel();
        self.notify();
    }

    /// Moves one chunk of output.
    pub(crate) fn step_output(&self, stream: OutputStream) -> output::Step {
        let mut inner = self.lock();
        let output = inner.output_mut(stream);
        let before = output.info().next_offset;
        let step = output.step();
        let moved = output.info().next_offset != before;
        drop(inner);
        if moved || matches!(step, output::Step::Finished) {
            self.notify();
        }
        step
    }

    /// Moves one chunk of input.
    pub(crate) fn step_stdin(&self) -> stdin::Step {
        let mut inner = self.lock();
        let step = inner
            .stdin
            .as_mut()
            .map_or(stdin::Step::Finished, Stdin::step);
        drop(inner);
        if matches!(step, stdin::Step::Progress | stdin::Step::Finished) {
            self.notify();
        }
        step
    }

    /// Takes bytes for stdin.
    pub(crate) fn accept_stdin(
        &self,
        offset: u64,
        data: &bytes::Bytes,
    ) -> Result<Acceptance, AcceptError> {
        let mut inner = self.lock();
        let ended = inner.state == ProcessState::Ended;
        let stdin = inner.stdin.as_mut();
        let result = stdin.map_or(Err(AcceptError::Closed), |stdin| stdin.accept(offset, data));
        drop(inner);
        if matches!(result, Ok(Acceptance::Done(_))) {
            self.notify();
        }
        result.map_err(|error| match error {
            AcceptError::Closed if ended => AcceptError::Ended,
            error => error,
        })
    }

    /// Closes stdin after what was accepted; with an offset only if it ends there.
    pub(crate) fn close_stdin(&self, offset: Option<u64>) -> Result<(), AcceptError> {
        let mut inner = self.lock();
        let result = inner.stdin.as_mut().map_or(Ok(()), |stdin| {
            let offset = offset.unwrap_or(stdin.info().accepted);
            stdin.close(offset)
        });
        drop(inner);
        self.notify();
        result
    }

    /// Gives up output.
    pub(crate) fn acknowledge(&self, stdout: u64, stderr: u64) -> Result<(), SpoolError> {
        let mut inner = self.lock();
        // Both or none: a refused offset must not have half an effect.
        let above = |output: &Output, offset: u64| offset > output.info().lowest_offset;
        if above(&inner.stdout, stdout) {
            inner.stdout.check(stdout)?;
        }
        if above(&inner.stderr, stderr) {
            inner.stderr.check(stderr)?;
        }
        inner.stdout.free(stdout)?;
        inner.stderr.free(stderr)?;
        drop(inner);
        self.notify();
        Ok(())
    }

    /// Refuses a cursor that cannot be read from.
    pub(crate) fn check(&self, cursor: &Cursor) -> Result<(), SpoolError> {
        let inner = self.lock();
        inner.stdout.check(cursor.stdout)?;
        inner.stderr.check(cursor.stderr)
    }

    /// What a reader at this cursor gets next, and moves the cursor; `None` when it has to wait.
    pub(crate) fn read(&self, cursor: &mut Cursor) -> Result<Option<AttachEvent>, SpoolError> {
        let inner = self.lock();
        if inner.forgotten || inner.spawn_failure.is_some() {
            return Err(SpoolError::Dropped);
        }
        let order = [OutputStream::Stdout, OutputStream::Stderr];
        for index in [
            usize::from(cursor.stderr_first),
            usize::from(!cursor.stderr_first),
        ] {
            let stream = order[index];
            let offset = match stream {
                OutputStream::Stdout => &mut cursor.stdout,
                OutputStream::Stderr => &mut cursor.stderr,
            };
            let data = inner.output(stream).read(*offset)?;
            if !data.is_empty() {
                let event = AttachEvent::Output {
                    stream,
                    offset: *offset,
                    data,
                };
                if let AttachEvent::Output { data, .. } = &event {
                    *offset += data.len() as u64;
                }
                cursor.stderr_first = stream == OutputStream::Stdout;
                return Ok(Some(event));
            }
        }
        let complete = inner.stdout.is_complete_at(cursor.stdout)
            && inner.stderr.is_complete_at(cursor.stderr);
        Ok(inner
            .exit
            .clone()
            .filter(|_| complete)
            .map(AttachEvent::Exited))
    }

    /// Whether it has ended and everything it wrote was acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        let inner = self.lock();
        inner.exit.is_some() && inner.stdout.is_settled() && inner.stderr.is_settled()
    }

    /// As callers see it.
    pub(crate) fn info(&self) -> ProcessInfo {
        let inner = self.lock();
        ProcessInfo {
            name: self.name.clone(),
            state: inner.state,
            started_at_ms: self.started_at_ms,
            pid: inner.pid,
            stdin: inner.stdin.as_ref().map(Stdin::info).unwrap_or_default(),
            stdout: inner.stdout.info(),
            stderr: inner.stderr.info(),
            exit: inner.exit.clone(),
        }
    }

    /// As it is written down.
    pub(crate) fn record(&self) -> ProcessRecord {
        let inner = self.lock();
        ProcessRecord {
            format: RECORD_FORMAT,
            name: self.name.clone(),
            request_sha256: self.request_sha256.clone(),
            generation: self.generation,
            state: inner.state,
            started_at_ms: self.started_at_ms,
            pid: inner.pid,
            exit: inner.exit.clone(),
        }
    }
}

impl Inner {
    fn output(&self, stream: OutputStream) -> &Output {
        match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        }
    }

    fn output_mut(&mut self, stream: OutputStream) -> &mut Output {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Why it ended: what the runner did comes first, then what was asked for, then what the kernel did.
    fn exit_reason(&self, end: End, oom_kills: u64, forks_refused: u64) -> ExitReason {
        if let Some(cause) = self.cause {
            return cause;
        }
        let asked = |signal: i32| {
            let bit = 1_u32.checked_shl(signal.unsigned_abs()).unwrap_or(0);
            self.signals & bit != 0
        };
        match end.status {
            Some(ExitStatus::Signal(signal)) if asked(signal) => ExitReason::Killed,
            _ if end.memory_limit => ExitReason::MemoryLimit,
            Some(ExitStatus::Code(SHELL_SIGKILL)) if oom_kills > 0 => ExitReason::MemoryLimit,
            // It wrote more into one file than a file may have.
            Some(ExitStatus::Signal(libc::SIGXFSZ) | ExitStatus::Code(SHELL_SIGXFSZ)) => {
                ExitReason::DiskLimit
            }
            // What cannot make the processes that it needs gives up.
            Some(ExitStatus::Code(code)) if code != 0 && forks_refused > 0 => ExitReason::PidsLimit,
            Some(_) => ExitReason::Exited,
            None => end.otherwise,
        }
    }
}

/// Now, milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
