//! A workload in memory: processes are scripts, and connections break when a test says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use astrabox_engine::sandbox::{
    BoxPath, Error, ErrorKind, ExitReason, ExitStatus, FileInfo, FileKind, Output, OutputEvent,
    OutputStream, ProcessName, ProcessStatus, Result, Signal, SignalScope, SpawnSpec, Workload,
    WriteOptions,
};
use astrabox_types::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::Notify;

/// What a program does.
pub(crate) trait Program: Send + 'static {
    /// A whole line of standard input.
    fn line(&mut self, line: &str, out: &mut Out);
    /// The end of standard input.
    fn end(&mut self, out: &mut Out) {
        out.exit(0);
    }
    /// A signal other than SIGKILL.
    fn signal(&mut self, signal: Signal, out: &mut Out) {
        let _ = signal;
        out.exit(143);
    }
}

/// What a program writes.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    exit: Option<ExitStatus>,
}

impl Out {
    pub(crate) fn say(&mut self, line: &str) {
        self.stdout.extend(line.as_bytes());
        self.stdout.push(b'\n');
    }

    pub(crate) fn exit(&mut self, code: i32) {
        self.exit = Some(ExitStatus {
            code: Some(code),
            signal: None,
            reason: ExitReason::Exited,
        });
    }
}

/// What goes wrong with the next writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The request.
    Request,
    /// The answer: the bytes are taken.
    Answer,
}

/// One sandbox with its processes. It outlives every client.
pub(crate) struct Fake {
    processes: Mutex<BTreeMap<ProcessName, Arc<Process>>>,
    make: Box<dyn Fn() -> Box<dyn Program> + Send + Sync>,
    /// How many bytes an output event has at the most.
    chunk: usize,
    /// After how many output events the next attachments break, one entry each.
    pub(crate) breaks: Mutex<VecDeque<usize>>,
    pub(crate) lost_writes: Mutex<VecDeque<Lost>>,
    /// Whether the next attachments leave a byte out, and of which stream: true is standard error.
    pub(crate) gap: Mutex<Option<bool>>,
    /// The files; one without a content is a link.
    pub(crate) files: Mutex<BTreeMap<String, Option<String>>>,
}

struct Process {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    program: Box<dyn Program>,
    stdin: Vec<u8>,
    /// How much of `stdin` the program has read, in whole lines.
    read: usize,
    closed: bool,
    stdout: Stored,
    stderr: Stored,
    exit: Option<ExitStatus>,
    signals: Vec<Signal>,
}

/// Output with what was freed of it.
#[derive(Default)]
struct Stored {
    bytes: Vec<u8>,
    freed: usize,
}

impl Stored {
    fn chunk(&self, offset: usize, limit: usize) -> Option<Bytes> {
        let rest = &self.bytes[offset..];
        let rest = &rest[..rest.len().min(limit)];
        (!rest.is_empty()).then(|| Bytes::copy_from_slice(rest))
    }
}

impl State {
    fn apply(&mut self, out: Out) {
        if self.exit.is_some() {
            return;
        }
        self.stdout.bytes.extend(out.stdout);
        self.stderr.bytes.extend(out.stderr);
        self.exit = out.exit;
    }

    fn read_lines(&mut self) {
        while let Some(at) = self.stdin[self.read..].iter().position(|b| *b == b'\n') {
            let line = String::from_utf8_lossy(&self.stdin[self.read..self.read + at]).into_owned();
            self.read += at + 1;
            let mut out = Out::default();
            self.program.line(&line, &mut out);
            self.apply(out);
        }
    }
}

impl Fake {
    pub(crate) fn new<P: Program>(make: impl Fn() -> P + Send + Sync + 'static) -> Self {
        Self {
            processes: Mutex::default(),
            make: Box::new(move || Box::new(make())),
            chunk: usize::MAX,
            breaks: Mutex::default(),
            lost_writes: Mutex::default(),
            gap: Mutex::default(),
            files: Mutex::new(BTreeMap::from([
                (
                    "/workspace/a".to_owned(),
                    Some("one\ntwo\nthree\n".to_owned()),
                ),
                ("/workspace/link".to_owned(), None),
            ])),
        }
    }

    /// With output events of at most `chunk` bytes.
    pub(crate) fn in_chunks_of(self, chunk: usize) -> Self {
        Self { chunk, ..self }
    }

    fn process(&self, name: &ProcessName) -> Result<Arc<Process>> {
        let found = self.processes.lock().expect("no panic").get(name).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, "find", name.to_string()))
    }

    fn only(&self) -> Arc<Process> {
        let processes = self.processes.lock().expect("no panic");
        let (_, process) = processes.last_key_value().expect("a process was started");
        Arc::clone(process)
    }

    /// Everything that the newest process was told.
    pub(crate) fn stdin(&self) -> String {
        String::from_utf8(self.only().lock().stdin.clone()).expect("it is text")
    }

    /// Lets the newest process write something by itself.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Out)) {
        let process = self.only();
        let mut out = Out::default();
        write(&mut out);
        process.lock().apply(out);
        process.changed.notify_waiters();
    }

    pub(crate) fn freed(&self) -> (usize, usize) {
        let process = self.only();
        let state = process.lock();
        (state.stdout.freed, state.stderr.freed)
    }

    pub(crate) fn written(&self) -> (usize, usize) {
        let process = self.only();
        let state = process.lock();
        (state.stdout.bytes.len(), state.stderr.bytes.len())
    }

    pub(crate) fn signals(&self) -> Vec<Signal> {
        self.only().lock().signals.clone()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.only().lock().exit.is_none()
    }

    pub(crate) fn spawned(&self) -> usize {
        self.processes.lock().expect("no panic").len()
    }
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// The next event of an attachment that stands at these offsets.
    fn next_event(
        &self,
        chunk: usize,
        stdout: &mut usize,
        stderr: &mut usize,
    ) -> Option<OutputEvent> {
        let state = self.lock();
        let output = |stored: &Stored, at: &mut usize, stderr| {
            let bytes = stored.chunk(*at, chunk)?;
            let offset = *at as u64;
            *at += bytes.len();
            Some(OutputEvent::Output(Output {
                stderr,
                offset,
                bytes,
            }))
        };
        output(&state.stderr, stderr, true)
            .or_else(|| output(&state.stdout, stdout, false))
            .or_else(|| state.exit.clone().map(OutputEvent::Exited))
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("it is small")
}

#[async_trait]
impl Workload for Fake {
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus> {
        let process = Arc::new(Process {
            state: Mutex::new(State {
                program: (self.make)(),
                stdin: Vec::new(),
                read: 0,
                closed: false,
                stdout: Stored::default(),
                stderr: Stored::default(),
                exit: None,
                signals: Vec::new(),
            }),
            changed: Notify::new(),
        });
        let name = spec.name.clone();
        self.processes
            .lock()
            .expect("no panic")
            .insert(name, process);
        self.status(&spec.name)
            .await
            .map(|status| status.expect("it was started"))
    }

    async fn attach(&self, name: &ProcessName, stdout: u64, stderr: u64) -> Result<OutputStream> {
        let process = self.process(name)?;
        let (stdout, stderr) = (index(stdout), index(stderr));
        {
            let state = process.lock();
            if stdout < state.stdout.freed || stderr < state.stderr.freed {
                return Err(Error::new(ErrorKind::OutOfRange, "attach", "freed"));
            }
        }
        let events_left = self.breaks.lock().expect("no panic").pop_front();
        let chunk = self.chunk;
        let gap = *self.gap.lock().expect("no panic");
        let begin = (process, stdout, stderr, events_left, false);
        let stream = futures::stream::unfold(begin, move |state| async move {
            let (process, mut stdout, mut stderr, mut left, over) = state;
            if over {
                return None;
            }
            if left == Some(0) {
                let error = Error::new(ErrorKind::Detached, "read", "the connection broke");
                return Some((Err(error), (process, stdout, stderr, left, true)));
            }
            let mut event = loop {
                let changed = process.changed.notified();
                if let Some(event) = process.next_event(chunk, &mut stdout, &mut stderr) {
                    break event;
                }
                changed.await;
            };
            if let OutputEvent::Output(output) = &mut event
                && gap == Some(output.stderr)
            {
                output.offset += 1;
            }
            left = left.map(|left| left - 1);
            let over = matches!(event, OutputEvent::Exited(_));
            Some((Ok(event), (process, stdout, stderr, left, over)))
        });
        Ok(stream.boxed())
    }

    async fn write_stdin(&self, name: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        let process = self.process(name)?;
        let lost = self.lost_writes.lock().expect("no panic").pop_front();
        if lost == Some(Lost::Request) {
            return Err(Error::new(ErrorKind::Detached, "write", "request lost"));
        }
        let next = {
            let mut state = process.lock();
            let offset = index(offset);
            if offset > state.stdin.len() {
                return Err(Error::new(ErrorKind::OutOfRange, "write", "a gap"));
            }
            let known = (state.stdin.len() - offset).min(bytes.len());
            if state.stdin[offset..offset + known] != bytes[..known] {
                return Err(Error::new(ErrorKind::Invalid, "write", "other bytes"));
            }
            if known < bytes.len() && (state.closed || state.exit.is_some()) {
                return Err(Error::new(ErrorKind::WrongState, "write", "closed"));
            }
            state.stdin.extend(&bytes[known..]);
            state.read_lines();
            state.stdin.len() as u64
        };
        process.changed.notify_waiters();
        if lost == Some(Lost::Answer) {
            return Err(Error::new(ErrorKind::Detached, "write", "answer lost"));
        }
        Ok(next)
    }

    async fn close_stdin(&self, name: &ProcessName) -> Result<()> {
        let process = self.process(name)?;
        {
            let mut state = process.lock();
            state.closed = true;
            let mut out = Out::default();
            state.program.end(&mut out);
            state.apply(out);
        }
        process.changed.notify_waiters();
        Ok(())
    }

    async fn acknowledge(&self, name: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        let process = self.process(name)?;
        let mut state = process.lock();
        state.stdout.freed = state.stdout.freed.max(index(stdout));
        state.stderr.freed = state.stderr.freed.max(index(stderr));
        Ok(())
    }

    async fn signal(&self, name: &ProcessName, signal: Signal, _: SignalScope) -> Result<()> {
        let process = self.process(name)?;
        {
            let mut state = process.lock();
            if state.exit.is_some() {
                return Err(Error::new(ErrorKind::WrongState, "signal", "ended"));
            }
            state.signals.push(signal);
            let mut out = Out::default();
            if signal == Signal::Kill {
                out.exit = Some(ExitStatus {
                    code: None,
                    signal: Some(9),
                    reason: ExitReason::Killed,
                });
            } else {
                state.program.signal(signal, &mut out);
            }
            state.apply(out);
        }
        process.changed.notify_waiters();
        Ok(())
    }

    async fn status(&self, name: &ProcessName) -> Result<Option<ProcessStatus>> {
        let Ok(process) = self.process(name) else {
            return Ok(None);
        };
        let state = process.lock();
        Ok(Some(ProcessStatus {
            pid: 2,
            stdin_offset: state.stdin.len() as u64,
            stdout_kept: state.stdout.freed as u64,
            stderr_kept: state.stderr.freed as u64,
            exit: state.exit.clone(),
        }))
    }

    async fn read_file(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes> {
        let files = self.files.lock().expect("no panic");
        let Some(Some(text)) = files.get(path.as_str()) else {
            return Err(Error::new(ErrorKind::NotFound, "read", path.to_string()));
        };
        let rest = text.as_bytes().get(index(offset)..).unwrap_or_default();
        Ok(Bytes::copy_from_slice(
            &rest[..rest.len().min(index(limit))],
        ))
    }

    async fn write_file(&self, path: &BoxPath, content: Bytes, _: WriteOptions) -> Result<()> {
        let text = String::from_utf8(content.to_vec()).expect("it is text");
        let mut files = self.files.lock().expect("no panic");
        files.insert(path.to_string(), Some(text));
        Ok(())
    }

    async fn list_files(&self, _: &BoxPath) -> Result<Vec<FileInfo>> {
        Err(no_files())
    }

    async fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        let files = self.files.lock().expect("no panic");
        let Some(file) = files.get(path.as_str()) else {
            return Err(Error::new(ErrorKind::NotFound, "stat", path.to_string()));
        };
        Ok(FileInfo {
            name: path.to_string(),
            kind: if file.is_some() {
                FileKind::File
            } else {
                FileKind::Symlink
            },
            size: file.as_ref().map_or(0, |text| text.len() as u64),
            modified_at: Timestamp::now(),
        })
    }

    async fn make_dir(&self, _: &BoxPath) -> Result<()> {
        Err(no_files())
    }

    async fn remove(&self, _: &BoxPath) -> Result<()> {
        Err(no_files())
    }

    async fn rename(&self, _: &BoxPath, _: &BoxPath) -> Result<()> {
        Err(no_files())
    }
}

fn no_files() -> Error {
    Error::new(ErrorKind::Unsupported, "files", "this sandbox has none")
}
