//! What goes between servers and sandboxes: written down, and cut where a test wants it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_sandbox::{Error, ErrorKind, OutputEvent, OutputStream, ProcessName, Result};
use astrabox_types::SandboxId;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::watch;

/// What went through the workloads of a world, whoever the server was.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Stdin>>>);

/// What one process got on standard input.
struct Stdin {
    sandbox: SandboxId,
    process: ProcessName,
    bytes: Vec<u8>,
}

impl Log {
    /// Every line that each process got on standard input, in the order of their starts.
    pub(crate) fn stdin_lines(&self) -> Vec<Vec<String>> {
        let lines = |stdin: &Stdin| {
            let text = String::from_utf8_lossy(&stdin.bytes).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        self.written().iter().map(lines).collect()
    }

    /// The processes that were started.
    pub(crate) fn processes(&self) -> Vec<(SandboxId, ProcessName)> {
        let name = |stdin: &Stdin| (stdin.sandbox, stdin.process.clone());
        self.written().iter().map(name).collect()
    }

    pub(crate) fn started(&self, sandbox: SandboxId, process: ProcessName) {
        let mut written = self.written();
        let known = |stdin: &Stdin| stdin.sandbox == sandbox && stdin.process == process;
        if !written.iter().any(known) {
            written.push(Stdin {
                sandbox,
                process,
                bytes: Vec::new(),
            });
        }
    }

    /// Writes down what is new, as the runner takes each offset once.
    pub(crate) fn note(
        &self,
        sandbox: SandboxId,
        process: &ProcessName,
        offset: u64,
        bytes: &Bytes,
    ) {
        let mut written = self.written();
        let known = |stdin: &&mut Stdin| stdin.sandbox == sandbox && stdin.process == *process;
        let stdin = written.iter_mut().find(known).expect("it was started");
        let at = usize::try_from(offset).expect("it is small");
        assert!(at <= stdin.bytes.len(), "a gap was accepted");
        let again = (stdin.bytes.len() - at).min(bytes.len());
        let known = &stdin.bytes[at..at + again];
        assert_eq!(known, &bytes[..again], "other bytes at an offset");
        stdin.bytes.extend_from_slice(&bytes[again..]);
    }

    fn written(&self) -> MutexGuard<'_, Vec<Stdin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections between servers and sandboxes. A clone is the same.
#[derive(Clone)]
pub(crate) struct Wire(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Cut,
    /// Whole until the next output; the stream that carries it breaks right behind it.
    BreaksBehindOutput,
}

/// A stream on its way.
struct Carried {
    stream: OutputStream,
    wire: Wire,
    state: watch::Receiver<State>,
    breaks: bool,
    over: bool,
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::Whole)))
    }

    /// Cuts all of them: streams break and calls are `Detached`, until they are mended.
    pub(crate) fn cut(&self) {
        self.0.send_replace(State::Cut);
    }

    pub(crate) fn mend(&self) {
        self.0.send_replace(State::Whole);
    }

    /// Breaks one stream, together with what it brings next.
    pub(crate) fn break_behind_output(&self) {
        self.0.send_replace(State::BreaksBehindOutput);
    }

    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if *self.0.borrow() == State::Cut {
            return Err(detached(operation));
        }
        Ok(())
    }

    /// The same stream, until it is cut.
    pub(crate) fn carry(&self, stream: OutputStream) -> OutputStream {
        let carried = Carried {
            stream,
            wire: self.clone(),
            state: self.0.subscribe(),
            breaks: false,
            over: false,
        };
        let events = futures::stream::unfold(carried, |mut carried| async move {
            let event = carried.next().await?;
            Some((event, carried))
        });
        events.boxed()
    }
}

impl Carried {
    async fn next(&mut self) -> Option<Result<OutputEvent>> {
        if self.over {
            return None;
        }
        if self.breaks {
            self.over = true;
            return Some(Err(detached("attach")));
        }
        let state = &mut self.state;
        let event = tokio::select! {
            biased;
            _ = async { state.wait_for(|state| *state == State::Cut).await.map(drop) } => None,
            event = self.stream.next() => Some(event?),
        };
        let armed = |state: &mut State| {
            let armed = *state == State::BreaksBehindOutput;
            if armed {
                *state = State::Whole;
            }
            armed
        };
        self.breaks = event.is_some() && self.wire.0.send_if_modified(armed);
        self.over = event.is_none();
        Some(event.unwrap_or_else(|| Err(detached("attach"))))
    }
}

pub(crate) fn detached(operation: &'static str) -> Error {
    Error::new(ErrorKind::Detached, operation, "the connection was cut")
}
