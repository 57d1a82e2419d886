//! One process of a box in memory: its streams with offsets, and its end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use astrabox_sandbox::{
    Error, ErrorKind, ExitReason, ExitStatus, Output, OutputEvent, OutputStream, ProcessStatus,
    Result, SpawnSpec, Stdio,
};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::watch;

use std::sync::Arc;

/// A process, running or ended.
pub(super) struct Process {
    pub(super) spec: SpawnSpec,
    pid: u32,
    state: Mutex<State>,
    /// Counts the changes of the state, so that nobody who waits misses one.
    changes: watch::Sender<u64>,
    /// The end that somebody wants for it.
    wanted_end: watch::Sender<Option<ExitStatus>>,
}

#[derive(Default)]
struct State {
    stdin: Vec<u8>,
    stdin_closed: bool,
    stdout: Spool,
    stderr: Spool,
    exit: Option<ExitStatus>,
}

/// Output that is kept from an offset on.
#[derive(Default)]
struct Spool {
    kept: u64,
    bytes: Vec<u8>,
}

impl Spool {
    fn end(&self) -> u64 {
        self.kept + self.bytes.len() as u64
    }

    fn from(&self, offset: u64, most: usize) -> Bytes {
        let at = usize::try_from(offset.saturating_sub(self.kept)).unwrap_or(usize::MAX);
        let rest = self.bytes.get(at..).unwrap_or_default();
        Bytes::copy_from_slice(&rest[..rest.len().min(most)])
    }

    fn holds(&self, offset: u64) -> bool {
        (self.kept..=self.end()).contains(&offset)
    }

    fn free_to(&mut self, offset: u64) -> bool {
        if offset > self.end() {
            return false;
        }
        let gone = usize::try_from(offset.saturating_sub(self.kept)).unwrap_or(usize::MAX);
        self.bytes.drain(..gone.min(self.bytes.len()));
        self.kept = self.kept.max(offset);
        true
    }
}

impl Process {
    pub(super) fn new(spec: SpawnSpec, pid: u32) -> Self {
        let state = State {
            stdin_closed: spec.stdin == Stdio::Null,
            ..State::default()
        };
        Self {
            spec,
            pid,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            wanted_end: watch::Sender::new(None),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut self.state());
        self.changes.send_modify(|count| *count += 1);
        done
    }

    pub(super) fn status(&self) -> ProcessStatus {
        let state = self.state();
        ProcessStatus {
            pid: self.pid,
            stdin_offset: state.stdin.len() as u64,
            stdout_kept: state.stdout.kept,
            stderr_kept: state.stderr.kept,
            exit: state.exit.clone(),
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.state().exit.is_none()
    }

    /// Everything that was accepted for standard input so far.
    pub(super) fn accepted(&self) -> Vec<u8> {
        self.state().stdin.clone()
    }

    /// Bytes of standard input from `taken` on; waits for them; `None` at the end of input.
    pub(super) async fn read_stdin(&self, taken: usize) -> Option<Bytes> {
        let mut changes = self.changes.subscribe();
        loop {
            {
                let state = self.state();
                if state.stdin.len() > taken {
                    return Some(Bytes::copy_from_slice(&state.stdin[taken..]));
                }
                if state.stdin_closed {
                    return None;
                }
            }
            changes.changed().await.ok()?;
        }
    }

    pub(super) fn write(&self, stderr: bool, bytes: &[u8]) {
        self.change(|state| {
            let spool = if stderr {
                &mut state.stderr
            } else {
                &mut state.stdout
            };
            spool.bytes.extend_from_slice(bytes);
        });
    }

    pub(super) fn accept_stdin(&self, offset: u64, bytes: &[u8]) -> Result<u64> {
        let error = |kind, text: &str| Err(Error::new(kind, "write stdin", text));
        self.change(|state| {
            let accepted = state.stdin.len() as u64;
            if offset > accepted {
                return error(ErrorKind::OutOfRange, "the offset leaves a gap");
            }
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            let known = &state.stdin[at..];
            let again = known.len().min(bytes.len());
            if known[..again] != bytes[..again] {
                return error(ErrorKind::AlreadyExists, "other bytes are at this offset");
            }
            let fresh = &bytes[again..];
            if !fresh.is_empty() && (state.stdin_closed || state.exit.is_some()) {
                return error(ErrorKind::WrongState, "nobody reads standard input");
            }
            state.stdin.extend_from_slice(fresh);
            Ok(state.stdin.len() as u64)
        })
    }

    pub(super) fn close_stdin(&self) {
        self.change(|state| state.stdin_closed = true);
    }

    pub(super) fn acknowledge(&self, stdout: u64, stderr: u64) -> Result<()> {
        let freed =
            self.change(|state| state.stdout.free_to(stdout) && state.stderr.free_to(stderr));
        if freed {
            return Ok(());
        }
        let text = "the offset is beyond what was written";
        Err(Error::new(ErrorKind::OutOfRange, "acknowledge", text))
    }

    /// Asks for an end; the first one asked for is the one told.
    pub(super) fn end_with(&self, exit: ExitStatus) {
        self.wanted_end.send_if_modified(|wanted| {
            let first = wanted.is_none();
            if first {
                *wanted = Some(exit);
            }
            first
        });
    }

    pub(super) async fn wanted_end(&self) -> ExitStatus {
        let mut wanted = self.wanted_end.subscribe();
        loop {
            if let Some(exit) = &*wanted.borrow_and_update() {
                return exit.clone();
            }
            if wanted.changed().await.is_err() {
                // The sender is a part of `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Records the end. Nothing follows it.
    pub(super) fn ended(&self, exit: ExitStatus) {
        self.change(|state| {
            state.exit.get_or_insert(exit);
        });
    }

    /// The output from these offsets on, in pieces of at most `most` bytes, then the exit. `lost` ends it as a lost
    /// connection does.
    pub(super) fn attach(
        self: &Arc<Self>,
        stdout: u64,
        stderr: u64,
        most: usize,
        lost: watch::Receiver<bool>,
    ) -> Result<OutputStream> {
        {
            let state = self.state();
            if !state.stdout.holds(stdout) || !state.stderr.holds(stderr) {
                let text = "the offset is freed or beyond what was written";
                return Err(Error::new(ErrorKind::OutOfRange, "attach", text));
            }
        }
        let reader = Reader {
            process: Arc::clone(self),
            changes: self.changes.subscribe(),
            lost,
            at: [stdout, stderr],
            most,
            done: false,
        };
        let events = futures::stream::unfold(reader, |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        });
        Ok(events.boxed())
    }
}

/// The exit of a process whose box ended.
pub(super) const BOX_ENDED: ExitStatus = ExitStatus {
    code: None,
    signal: Some(9),
    reason: ExitReason::SandboxDied,
};

struct Reader {
    process: Arc<Process>,
    changes: watch::Receiver<u64>,
    lost: watch::Receiver<bool>,
    at: [u64; 2],
    most: usize,
    done: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<OutputEvent>> {
        loop {
            if self.done {
                return None;
            }
            if *self.lost.borrow_and_update() {
                self.done = true;
                let text = "the connection was cut";
                return Some(Err(Error::new(ErrorKind::Detached, "attach", text)));
            }
            self.changes.mark_unchanged();
            if let Some(event) = self.ready() {
                return Some(Ok(event));
            }
            tokio::select! {
                _ = self.changes.changed() => {}
                _ = self.lost.changed() => {}
            }
        }
    }

    fn ready(&mut self) -> Option<OutputEvent> {
        let state = self.process.state();
        for (stderr, spool) in [(false, &state.stdout), (true, &state.stderr)] {
            let at = &mut self.at[usize::from(stderr)];
            // What another reader acknowledged is gone for this one as well.
            *at = (*at).max(spool.kept);
            let bytes = spool.from(*at, self.most);
            if !bytes.is_empty() {
                let offset = *at;
                *at += bytes.len() as u64;
                return Some(OutputEvent::Output(Output {
                    stderr,
                    offset,
                    bytes,
                }));
            }
        }
        let exit = state.exit.clone()?;
        self.done = true;
        Some(OutputEvent::Exited(exit))
    }
}
