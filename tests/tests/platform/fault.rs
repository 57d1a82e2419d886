//! Points at which a server can be stopped, and a provider and workload that have them and write down what passes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{
    BoxPath, Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, Error, ErrorKind,
    FileInfo, OutputEvent, OutputStream, Posture, Probe, ProcessName, ProcessStatus, Result,
    Sandbox, SandboxInfo, SandboxProvider, Signal, SignalScope, Snapshot, SpawnSpec, Workload,
    WriteOptions,
};
use astrabox_store::{FaultPoint, Moment};
use astrabox_types::{AssignmentId, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Stops one server at one of its points. A clone is the same.
#[derive(Clone)]
pub(crate) struct Faults(Arc<Inner>);

struct Inner {
    state: Mutex<Points>,
    reached: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Points {
    passed: Vec<String>,
    stop_at: Option<usize>,
}

impl Faults {
    /// Points that count and never stop.
    pub(crate) fn none() -> Self {
        Self::at(None)
    }

    /// Stops at the point with this number, from 0.
    pub(crate) fn at(stop_at: impl Into<Option<usize>>) -> Self {
        let points = Points {
            passed: Vec::new(),
            stop_at: stop_at.into(),
        };
        Self(Arc::new(Inner {
            state: Mutex::new(points),
            reached: watch::Sender::new(None),
        }))
    }

    /// The points that were passed, in order.
    pub(crate) fn passed(&self) -> Vec<String> {
        self.points().passed.clone()
    }

    /// Waits until the server stands still and tells where.
    pub(crate) async fn reached(&self) -> String {
        let mut reached = self.0.reached.subscribe();
        let place = reached.wait_for(Option::is_some).await;
        place
            .expect("the sender is ours")
            .clone()
            .unwrap_or_default()
    }

    fn points(&self) -> MutexGuard<'_, Points> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A point. Once one has stopped, all do: the server stands still as a whole.
    pub(crate) async fn pass(&self, label: &str) {
        let stop = {
            let mut points = self.points();
            points.passed.push(label.to_owned());
            points.stop_at.is_some_and(|at| points.passed.len() > at)
        };
        if stop {
            self.0.reached.send_if_modified(|place| {
                let first = place.is_none();
                if first {
                    *place = Some(label.to_owned());
                }
                first
            });
            std::future::pending().await
        }
    }

    /// The points of a store.
    pub(crate) fn of_store(&self) -> FaultPoint {
        let faults = self.clone();
        Arc::new(move |moment| {
            let faults = faults.clone();
            Box::pin(async move {
                let label = match moment {
                    Moment::BeforeWrite => "before write",
                    Moment::AfterWrite => "after write",
                };
                faults.pass(label).await;
            })
        })
    }
}

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

    fn started(&self, sandbox: SandboxId, process: ProcessName) {
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
    fn note(&self, sandbox: SandboxId, process: &ProcessName, offset: u64, bytes: &Bytes) {
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

    fn check(&self, operation: &'static str) -> Result<()> {
        if *self.0.borrow() == State::Cut {
            return Err(detached(operation));
        }
        Ok(())
    }

    /// The same stream, until it is cut.
    fn carry(&self, stream: OutputStream) -> OutputStream {
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

fn detached(operation: &'static str) -> Error {
    Error::new(ErrorKind::Detached, operation, "the connection was cut")
}

/// A provider with fault points. Its programs run in the runtime of the test, not in the server's.
pub(crate) struct FaultyProvider {
    pub(crate) inner: Arc<dyn SandboxProvider>,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    pub(crate) wire: Wire,
    pub(crate) stuck: Arc<AtomicBool>,
    pub(crate) programs: Handle,
}

impl FaultyProvider {
    fn wrap(&self, sandbox: Sandbox) -> Sandbox {
        let workload = FaultyWorkload {
            id: sandbox.id,
            inner: sandbox.workload,
            faults: self.faults.clone(),
            log: self.log.clone(),
            wire: self.wire.clone(),
            programs: self.programs.clone(),
        };
        Sandbox {
            id: sandbox.id,
            workload: Arc::new(workload),
        }
    }
}

#[async_trait]
impl SandboxProvider for FaultyProvider {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        self.inner.find_sandbox_by_assignment(assignment).await
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        self.faults.pass("before create").await;
        let made = self.inner.create_sandbox(spec).await;
        self.faults.pass("after create").await;
        made.map(|sandbox| self.wrap(sandbox))
    }

    async fn connect(&self, id: SandboxId) -> Result<Sandbox> {
        self.faults.pass("before connect").await;
        self.wire.check("connect")?;
        self.inner
            .connect(id)
            .await
            .map(|sandbox| self.wrap(sandbox))
    }

    async fn probe(&self, id: SandboxId) -> Probe {
        if let Err(error) = self.wire.check("probe") {
            return Probe::ProbeFailed(error);
        }
        self.inner.probe(id).await
    }

    async fn pause(&self, id: SandboxId) -> Result<()> {
        self.inner.pause(id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.inner.resume(id).await
    }

    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot> {
        self.inner.snapshot(id).await
    }

    async fn renew(&self, id: SandboxId, until: Timestamp) -> Result<()> {
        self.inner.renew(id, until).await
    }

    async fn update_egress(&self, id: SandboxId, policy: EgressPolicy) -> Result<()> {
        self.inner.update_egress(id, policy).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        self.faults.pass("before destroy").await;
        if self.stuck.load(Ordering::Relaxed) {
            return Err(detached("destroy"));
        }
        let done = self.inner.destroy(id).await;
        self.faults.pass("after destroy").await;
        done
    }

    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof> {
        self.inner.confirm_destroyed(id).await
    }

    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>> {
        self.inner.claim_of(id).await
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.inner.list().await
    }

    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo> {
        self.inner.describe(id).await
    }

    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics> {
        self.inner.diagnostics(id).await
    }

    async fn security_posture(&self, id: SandboxId) -> Result<Posture> {
        self.inner.security_posture(id).await
    }

    async fn delete_volume(&self, volume: VolumeId) -> Result<()> {
        self.faults.pass("before delete volume").await;
        self.inner.delete_volume(volume).await
    }
}

struct FaultyWorkload {
    id: SandboxId,
    inner: Arc<dyn Workload>,
    faults: Faults,
    log: Log,
    wire: Wire,
    programs: Handle,
}

#[async_trait]
impl Workload for FaultyWorkload {
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus> {
        self.faults.pass("before spawn").await;
        let name = spec.name.clone();
        let inner = Arc::clone(&self.inner);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(async move { inner.spawn(spec).await }, &self.programs);
        let joined = tasks.join_next().await.expect("there is one task");
        let spawned =
            joined.map_err(|error| Error::new(ErrorKind::Internal, "spawn", error.to_string()))?;
        if spawned.is_ok() {
            self.log.started(self.id, name);
        }
        self.faults.pass("after spawn").await;
        spawned
    }

    async fn attach(
        &self,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<OutputStream> {
        self.faults.pass("before attach").await;
        self.wire.check("attach")?;
        let stream = self.inner.attach(process, stdout, stderr).await?;
        Ok(self.wire.carry(stream))
    }

    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        self.faults.pass("before stdin").await;
        self.wire.check("write stdin")?;
        let written = self.inner.write_stdin(process, offset, bytes.clone()).await;
        if written.is_ok() {
            self.log.note(self.id, process, offset, &bytes);
        }
        self.faults.pass("after stdin").await;
        written
    }

    async fn close_stdin(&self, process: &ProcessName) -> Result<()> {
        self.faults.pass("before close stdin").await;
        self.inner.close_stdin(process).await
    }

    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        self.faults.pass("before acknowledge").await;
        self.wire.check("acknowledge")?;
        let done = self.inner.acknowledge(process, stdout, stderr).await;
        self.faults.pass("after acknowledge").await;
        done
    }

    async fn signal(
        &self,
        process: &ProcessName,
        signal: Signal,
        scope: SignalScope,
    ) -> Result<()> {
        self.faults.pass("before signal").await;
        self.inner.signal(process, signal, scope).await
    }

    async fn status(&self, process: &ProcessName) -> Result<Option<ProcessStatus>> {
        self.wire.check("status")?;
        self.inner.status(process).await
    }

    async fn read_file(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes> {
        self.inner.read_file(path, offset, limit).await
    }

    async fn write_file(
        &self,
        path: &BoxPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        self.inner.write_file(path, content, options).await
    }

    async fn list_files(&self, path: &BoxPath) -> Result<Vec<FileInfo>> {
        self.wire.check("list files")?;
        self.inner.list_files(path).await
    }

    async fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        self.inner.stat(path).await
    }

    async fn make_dir(&self, path: &BoxPath) -> Result<()> {
        self.inner.make_dir(path).await
    }

    async fn remove(&self, path: &BoxPath) -> Result<()> {
        self.inner.remove(path).await
    }

    async fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()> {
        self.inner.rename(from, to).await
    }
}
