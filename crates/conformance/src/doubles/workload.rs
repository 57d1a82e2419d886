//! A box in memory: programs as closures, files as a tree.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_sandbox::{
    BoxPath, Error, ErrorKind, ExitReason, ExitStatus, FileInfo, OutputStream, ProcessName,
    ProcessStatus, Result, Signal, SignalScope, SpawnSpec, Workload, WriteOptions,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::process::{BOX_ENDED, Process};
use super::{MemoryFiles, Program, ProgramIo};

/// The exit code of a program that panicked, as Rust's own.
const PANICKED: i32 = 101;

/// Finds the program that a command line starts; `None` where there is no such program.
pub type Programs = Arc<dyn Fn(&SpawnSpec) -> Option<Program> + Send + Sync>;

/// One box in memory. A clone is the same box; when the last one is dropped its processes end.
#[derive(Clone)]
pub struct MemoryWorkload(Arc<Inner>);

struct Inner {
    programs: Programs,
    files: MemoryFiles,
    processes: Mutex<BTreeMap<ProcessName, Arc<Process>>>,
    tasks: Mutex<JoinSet<()>>,
    paused: watch::Sender<bool>,
    lost: watch::Sender<bool>,
    knobs: Mutex<Knobs>,
}

#[derive(Clone)]
struct Knobs {
    egress: Option<SocketAddr>,
    chunk: usize,
    refuse_attach: bool,
    gone: bool,
}

impl MemoryWorkload {
    /// A box with these programs.
    #[must_use]
    pub fn new(programs: Programs) -> Self {
        Self::with_files(programs, MemoryFiles::default())
    }

    /// A box in which every command line starts this program.
    #[must_use]
    pub fn running(program: Program) -> Self {
        Self::new(Arc::new(move |_| Some(Arc::clone(&program))))
    }

    /// A box in which no program can be started.
    #[must_use]
    pub fn without_programs() -> Self {
        Self::new(Arc::new(|_| None))
    }

    pub(super) fn with_files(programs: Programs, files: MemoryFiles) -> Self {
        let knobs = Knobs {
            egress: None,
            chunk: 64 << 10,
            refuse_attach: false,
            gone: false,
        };
        Self(Arc::new(Inner {
            programs,
            files,
            processes: Mutex::new(BTreeMap::new()),
            tasks: Mutex::new(JoinSet::new()),
            paused: watch::Sender::new(false),
            lost: watch::Sender::new(false),
            knobs: Mutex::new(knobs),
        }))
    }

    /// Its files.
    #[must_use]
    pub fn files(&self) -> &MemoryFiles {
        &self.0.files
    }

    /// Gives output in pieces of at most this many bytes.
    pub fn set_chunk(&self, bytes: usize) {
        self.knobs().chunk = bytes.max(1);
    }

    /// Refuses to attach from now on, as a box does that is lost right after a spawn.
    pub fn refuse_attach(&self) {
        self.knobs().refuse_attach = true;
    }

    /// Cuts the connection: every call and every stream is `Detached` until [`Self::reconnect`]. Processes go on.
    pub fn cut(&self) {
        self.0.lost.send_replace(true);
    }

    /// Ends a cut. Streams that were cut stay ended.
    pub fn reconnect(&self) {
        self.0.lost.send_replace(false);
    }

    /// The processes that run, by name.
    #[must_use]
    pub fn running_processes(&self) -> Vec<ProcessName> {
        let processes = self.processes();
        let runs = processes.iter().filter(|(_, process)| process.runs());
        runs.map(|(name, _)| name.clone()).collect()
    }

    /// What was asked for by every spawn, by name.
    #[must_use]
    pub fn spawned(&self) -> Vec<SpawnSpec> {
        let processes = self.processes();
        processes
            .values()
            .map(|process| process.spec.clone())
            .collect()
    }

    /// Every byte that a process's standard input accepted.
    #[must_use]
    pub fn accepted_stdin(&self, name: &ProcessName) -> Vec<u8> {
        let process = self.processes().get(name).cloned();
        process.map_or_else(Vec::new, |process| process.accepted())
    }

    /// Kills everything with SIGKILL, as a person would from outside.
    pub fn kill_all(&self) {
        self.end_all(&killed(9));
    }

    pub(super) fn set_egress(&self, address: SocketAddr) {
        self.knobs().egress = Some(address);
    }

    pub(super) fn pause(&self, paused: bool) {
        self.0.paused.send_replace(paused);
    }

    /// Ends the box: its processes die and every call is `NotFound`.
    pub(super) fn end(&self) {
        self.knobs().gone = true;
        self.end_all(&BOX_ENDED);
        self.0.paused.send_replace(false);
    }

    fn end_all(&self, exit: &ExitStatus) {
        for process in self.processes().values() {
            process.end_with(exit.clone());
        }
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<ProcessName, Arc<Process>>> {
        lock(&self.0.processes)
    }

    fn knobs(&self) -> MutexGuard<'_, Knobs> {
        lock(&self.0.knobs)
    }

    fn reachable(&self, operation: &'static str) -> Result<()> {
        if *self.0.lost.borrow() {
            let text = "the connection was cut";
            return Err(Error::new(ErrorKind::Detached, operation, text));
        }
        if self.knobs().gone {
            let text = "the sandbox has ended";
            return Err(Error::new(ErrorKind::NotFound, operation, text));
        }
        Ok(())
    }

    fn process(&self, operation: &'static str, name: &ProcessName) -> Result<Arc<Process>> {
        self.reachable(operation)?;
        self.processes().get(name).cloned().ok_or_else(|| {
            let text = format!("no process is called {name}");
            Error::new(ErrorKind::NotFound, operation, text)
        })
    }

    fn start(&self, program: &Program, spec: SpawnSpec, pid: u32) -> Arc<Process> {
        let process = Arc::new(Process::new(spec.clone(), pid));
        let io = ProgramIo {
            argv: spec.argv,
            env: spec.env,
            cwd: spec.cwd,
            files: self.0.files.clone(),
            egress: self.knobs().egress,
            taken: 0,
            process: Arc::clone(&process),
        };
        let life = live(
            Arc::clone(&process),
            program(io),
            self.0.paused.subscribe(),
            spec.wall_limit,
        );
        lock(&self.0.tasks).spawn(life);
        process
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn killed(signal: i32) -> ExitStatus {
    ExitStatus {
        code: None,
        signal: Some(signal),
        reason: ExitReason::Killed,
    }
}

/// Runs a program to its end, or to the end that somebody wants for it.
async fn live(
    process: Arc<Process>,
    program: BoxFuture<'static, i32>,
    paused: watch::Receiver<bool>,
    wall_limit: Option<Duration>,
) {
    let wall = async {
        match wall_limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let whole = AssertUnwindSafe(pausable(program, paused)).catch_unwind();
    let exit = tokio::select! {
        biased;
        exit = process.wanted_end() => exit,
        code = whole => ExitStatus {
            code: Some(code.unwrap_or(PANICKED)),
            signal: None,
            reason: ExitReason::Exited,
        },
        () = wall => ExitStatus {
            code: None,
            signal: Some(9),
            reason: ExitReason::WallTime,
        },
    };
    process.ended(exit);
}

/// Polls a program only while its box is not paused.
async fn pausable(mut program: BoxFuture<'static, i32>, mut paused: watch::Receiver<bool>) -> i32 {
    loop {
        if paused.wait_for(|paused| !paused).await.is_err() {
            return program.await;
        }
        tokio::select! {
            biased;
            _ = paused.wait_for(|paused| *paused) => {}
            code = &mut program => return code,
        }
    }
}

#[async_trait]
impl Workload for MemoryWorkload {
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus> {
        self.reachable("spawn")?;
        let error = |kind, text: &str| Err(Error::new(kind, "spawn", text));
        let mut processes = self.processes();
        if let Some(process) = processes.get(&spec.name) {
            if process.spec == spec {
                return Ok(process.status());
            }
            return error(ErrorKind::AlreadyExists, "another process has this name");
        }
        let Some(program) = (self.0.programs)(&spec) else {
            return error(ErrorKind::NotFound, "the program does not exist");
        };
        let pid = u32::try_from(processes.len())
            .unwrap_or(u32::MAX)
            .saturating_add(2);
        let process = self.start(&program, spec.clone(), pid);
        let status = process.status();
        processes.insert(spec.name, process);
        Ok(status)
    }

    async fn attach(
        &self,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<OutputStream> {
        let process = self.process("attach", process)?;
        let Knobs {
            chunk,
            refuse_attach,
            ..
        } = *self.knobs();
        if refuse_attach {
            let text = "the connection was lost";
            return Err(Error::new(ErrorKind::Detached, "attach", text));
        }
        process.attach(stdout, stderr, chunk, self.0.lost.subscribe())
    }

    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        self.process("write stdin", process)?
            .accept_stdin(offset, &bytes)
    }

    async fn close_stdin(&self, process: &ProcessName) -> Result<()> {
        self.process("close stdin", process)?.close_stdin();
        Ok(())
    }

    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        self.process("acknowledge", process)?
            .acknowledge(stdout, stderr)
    }

    async fn signal(
        &self,
        process: &ProcessName,
        signal: Signal,
        scope: SignalScope,
    ) -> Result<()> {
        let process = self.process("signal", process)?;
        let exit = killed(match signal {
            Signal::Interrupt => 2,
            Signal::Terminate => 15,
            Signal::Kill => 9,
        });
        match scope {
            SignalScope::Process | SignalScope::Group => process.end_with(exit),
            SignalScope::Sandbox => self.end_all(&exit),
        }
        Ok(())
    }

    async fn status(&self, process: &ProcessName) -> Result<Option<ProcessStatus>> {
        self.reachable("status")?;
        Ok(self
            .processes()
            .get(process)
            .map(|process| process.status()))
    }

    async fn read_file(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes> {
        self.reachable("read file")?;
        self.0.files.read(path, offset, limit)
    }

    async fn write_file(
        &self,
        path: &BoxPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        self.reachable("write file")?;
        self.0.files.write(path, content, options)
    }

    async fn list_files(&self, path: &BoxPath) -> Result<Vec<FileInfo>> {
        self.reachable("list files")?;
        self.0.files.list(path)
    }

    async fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        self.reachable("stat")?;
        self.0.files.stat(path)
    }

    async fn make_dir(&self, path: &BoxPath) -> Result<()> {
        self.reachable("make directory")?;
        self.0.files.make_dir(path)
    }

    async fn remove(&self, path: &BoxPath) -> Result<()> {
        self.reachable("remove")?;
        self.0.files.remove(path)
    }

    async fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()> {
        self.reachable("rename")?;
        self.0.files.rename(from, to)
    }
}
