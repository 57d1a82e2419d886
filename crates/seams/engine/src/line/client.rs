//! The impure half: runs a [`LineProtocol`] over a workload.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_sandbox::{
    ExitStatus, OutputEvent, OutputStream, ProcessName, Signal, SignalScope, SpawnSpec, Workload,
};
use astrabox_types::{ChildRunId, InteractionAnswer};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::job::{self, Job, JobResult};
use super::protocol::{Effects, Handshake, LineProtocol};
use super::state::{Consumed, Core, Outgoing, Position, Saved};
use crate::{
    BindRequest, BoundConversation, Checkpoint, ChildRunControl, EngineClient, EngineInput, Error,
    ErrorKind, EventStream, Interactions, PermissionModes, Result, ServerInfo, Step, from_sandbox,
};

/// How often an ending process is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a killed process may take until it is gone.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// How a client comes to its program.
pub enum Start<P> {
    /// Start the program and begin with this state.
    Spawn(SpawnSpec, P),
    /// Reach the running program and go on from here.
    Attach(Checkpoint),
}

/// A bound conversation over lines.
pub struct LineClient<P> {
    workload: Arc<dyn Workload>,
    process: ProcessName,
    fresh: bool,
    core: Mutex<Core<P>>,
    /// Woken when there may be a step that needs no more output.
    woken: Notify,
    sources: tokio::sync::Mutex<Sources>,
    /// Jobs that may begin: their checkpoint is durable.
    due: Mutex<Vec<Job>>,
    acknowledged: Mutex<Consumed>,
}

/// What steps come of, besides commands.
struct Sources {
    /// `None` once the stream has ended or broken.
    output: Option<OutputStream>,
    /// The jobs that are being done. Dropped with the client, and done again by the next.
    jobs: FuturesUnordered<BoxFuture<'static, (String, Option<JobResult>)>>,
}

impl<P: LineProtocol> LineClient<P> {
    /// Starts or reaches the program. On an error no process is left behind (EN3).
    ///
    /// # Errors
    /// `StartFailed`, `Exited` or `Detached`; `ConversationLost` for a checkpoint that is not this client's.
    pub async fn open(workload: Arc<dyn Workload>, epoch: u64, start: Start<P>) -> Result<Self> {
        match start {
            Start::Spawn(spec, protocol) => Self::spawn(workload, epoch, spec, protocol).await,
            Start::Attach(checkpoint) => Self::attach(workload, epoch, &checkpoint).await,
        }
    }

    async fn spawn(
        workload: Arc<dyn Workload>,
        epoch: u64,
        spec: SpawnSpec,
        protocol: P,
    ) -> Result<Self> {
        let name = spec.name.clone();
        let opened = match workload.spawn(spec).await {
            Ok(_) => workload.attach(&name, 0, 0).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(output) => Ok(Self::build(
                workload,
                name,
                true,
                Core::new(protocol, epoch),
                output,
            )),
            Err(error) => {
                // Best effort, also for a spawn whose answer was lost: the first error is the one to tell.
                let _ = workload
                    .signal(&name, Signal::Kill, SignalScope::Group)
                    .await;
                Err(from_sandbox(error))
            }
        }
    }

    async fn attach(
        workload: Arc<dyn Workload>,
        epoch: u64,
        checkpoint: &Checkpoint,
    ) -> Result<Self> {
        let saved: Saved<P> = serde_json::from_str(checkpoint.text()).map_err(|error| {
            let text = "the stored checkpoint is not one of this engine version";
            Error::new(ErrorKind::ConversationLost, "attach", text).with_source(error)
        })?;
        let process = saved.process.clone();
        let output = workload
            .attach(&process, saved.stdout, saved.stderr)
            .await
            .map_err(from_write)?;
        let core = Core::restore(saved, epoch);
        Ok(Self::build(workload, process, false, core, output))
    }

    fn build(
        workload: Arc<dyn Workload>,
        process: ProcessName,
        fresh: bool,
        core: Core<P>,
        output: OutputStream,
    ) -> Self {
        Self {
            workload,
            process,
            fresh,
            core: Mutex::new(core),
            woken: Notify::new(),
            sources: tokio::sync::Mutex::new(Sources {
                output: Some(output),
                jobs: FuturesUnordered::new(),
            }),
            due: Mutex::new(Vec::new()),
            acknowledged: Mutex::new(Consumed::default()),
        }
    }

    fn core(&self) -> MutexGuard<'_, Core<P>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, run: impl FnOnce(&mut P, &mut Effects) -> Result<()>) -> Result<()> {
        let done = self.core().command(run);
        self.woken.notify_one();
        done
    }

    /// The next step; `None` after the program's end. Cancel-safe: nothing is taken before it is kept.
    async fn next_step(&self, handshake: bool) -> Result<Option<Step>> {
        let mut sources = self.sources.lock().await;
        let Sources { output, jobs } = &mut *sources;
        loop {
            for job in std::mem::take(&mut *self.due()) {
                jobs.push(Box::pin(job::run(Arc::clone(&self.workload), job)));
            }
            let exited = {
                let mut core = self.core();
                if let Some(step) = core.ready_step(&self.process, handshake) {
                    return Ok(Some(step));
                }
                core.exit.is_some()
            };
            if exited && jobs.is_empty() {
                return Ok(None);
            }
            let Some(stream) = output.as_mut() else {
                return Err(broken("the output stream has ended; attach again"));
            };
            let event = tokio::select! {
                () = self.woken.notified() => continue,
                Some((id, result)) = jobs.next(), if !jobs.is_empty() => {
                    if let Some(result) = result {
                        self.core().take_job(&id, &result);
                    }
                    continue;
                }
                event = stream.next(), if !exited => event,
            };
            let taken = match event {
                Some(Ok(OutputEvent::Output(output))) => self.core().take_output(&output),
                Some(Ok(OutputEvent::Exited(exit))) => {
                    // What the program waited for is not wanted any more.
                    *jobs = FuturesUnordered::new();
                    self.due().clear();
                    self.core().take_exit(&exit);
                    Ok(())
                }
                Some(Err(error)) => Err(from_sandbox(error)),
                None => Err(broken("the output stream ended before the program")),
            };
            if let Err(error) = taken {
                *output = None;
                return Err(error);
            }
        }
    }

    /// Writes what waits below `end`.
    async fn write_outbox(&self, end: u64) -> Result<()> {
        loop {
            let Some(Outgoing { offset, text }) = self.core().outbox.front().cloned() else {
                return Ok(());
            };
            if offset >= end {
                return Ok(());
            }
            let written = self
                .workload
                .write_stdin(&self.process, offset, Bytes::from(text))
                .await;
            match written {
                Ok(_) => {}
                // Its exit is on the way; nobody is there to read the rest.
                Err(error) if has_ended(&error) => {
                    self.core().outbox.clear();
                    return Ok(());
                }
                Err(error) => return Err(from_write(error)),
            }
            let mut core = self.core();
            if core
                .outbox
                .front()
                .is_some_and(|first| first.offset == offset)
            {
                core.outbox.pop_front();
            }
        }
    }

    /// Speaks with the fresh program until it has the conversation. Nothing is bound yet, so the bytes leave
    /// without a commit; what the program says meanwhile is kept for the stream.
    async fn shake_hands(&self, expected: Option<&str>) -> Result<String> {
        self.command(|protocol, effects| {
            protocol.begin(expected, effects);
            Ok(())
        })?;
        let mut said = Step::default();
        let key = loop {
            let end = self.core().stdin_offset;
            self.write_outbox(end).await?;
            self.begin_jobs(u64::MAX);
            let handshake = self.core().protocol.handshake();
            match handshake {
                Handshake::Bound(key) => break key,
                Handshake::Failed(error) => return Err(error),
                Handshake::Pending => {}
            }
            let Some(step) = self.next_step(true).await? else {
                let tail = self.core().stderr_text();
                let text = format!(
                    "it ended before the conversation was bound; standard error: {}",
                    tail.trim_end()
                );
                return Err(Error::new(ErrorKind::Exited, "bind", text));
            };
            said.emissions.extend(step.emissions);
            said.commit |= step.commit;
        };
        self.core().hold(said);
        Ok(key)
    }

    fn due(&self) -> MutexGuard<'_, Vec<Job>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the jobs below this number begin.
    fn begin_jobs(&self, below: u64) {
        let jobs = self.core().begin_jobs(below);
        if !jobs.is_empty() {
            self.due().extend(jobs);
            self.woken.notify_one();
        }
    }

    /// Frees the spool below what a durable checkpoint no longer needs.
    async fn acknowledge(&self, at: Consumed) -> Result<()> {
        let known = *self.acknowledged();
        if at.stdout <= known.stdout && at.stderr <= known.stderr {
            return Ok(());
        }
        let done = self
            .workload
            .acknowledge(&self.process, at.stdout, at.stderr)
            .await;
        match done {
            Ok(()) => {
                *self.acknowledged() = at;
                Ok(())
            }
            Err(error) if has_ended(&error) => Ok(()),
            Err(error) => Err(from_write(error)),
        }
    }

    fn acknowledged(&self) -> MutexGuard<'_, Consumed> {
        self.acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let sent = self
            .workload
            .signal(&self.process, signal, SignalScope::Group)
            .await;
        ignore_ended(sent)
    }

    /// Waits until the process is gone. It is asked for its status instead of read to its end, because the
    /// event stream belongs to somebody else, who may hold it unpolled.
    async fn ended_by(&self, deadline: Instant) -> Result<bool> {
        loop {
            let status = self
                .workload
                .status(&self.process)
                .await
                .map_err(from_sandbox)?;
            if status.is_none_or(|status| status.exit.is_some()) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let next = (Instant::now() + LOOK_AGAIN).min(deadline);
            tokio::time::sleep_until(next).await;
        }
    }

    /// Lets the protocol say that it shall end, unless bytes wait that no commit covers: these must not leave.
    async fn say_close(&self) -> Result<()> {
        let end = {
            let mut core = self.core();
            if core.exit.is_some() || !core.outbox.is_empty() {
                return Ok(());
            }
            core.command(|protocol, effects| {
                protocol.close(effects);
                Ok(())
            })?;
            core.stdin_offset
        };
        self.write_outbox(end).await
    }

    async fn end_process(&self, within: Duration) -> Result<()> {
        let begin = Instant::now();
        if self.ended_by(begin).await? {
            return Ok(());
        }
        self.say_close().await?;
        ignore_ended(self.workload.close_stdin(&self.process).await)?;
        if self.ended_by(begin + within / 2).await? {
            return Ok(());
        }
        self.signal(Signal::Terminate).await?;
        if self.ended_by(begin + within).await? {
            return Ok(());
        }
        self.signal(Signal::Kill).await?;
        if self.ended_by(Instant::now() + KILL_GRACE).await? {
            return Ok(());
        }
        let text = "the program is still there after it was killed";
        Err(Error::new(ErrorKind::DeadlineExceeded, "close", text))
    }
}

fn broken(text: &str) -> Error {
    Error::new(ErrorKind::Detached, "read", text)
}

/// Whether a process is gone or its standard input closed: facts that the output stream tells in its order.
fn has_ended(error: &astrabox_sandbox::Error) -> bool {
    matches!(
        error.kind(),
        astrabox_sandbox::ErrorKind::NotFound | astrabox_sandbox::ErrorKind::WrongState
    )
}

fn ignore_ended(done: astrabox_sandbox::Result<()>) -> Result<()> {
    match done {
        Err(error) if has_ended(&error) => Ok(()),
        done => done.map_err(from_write),
    }
}

/// Tells an error of a call to a running program.
fn from_write(error: astrabox_sandbox::Error) -> Error {
    let error = from_sandbox(error);
    if error.kind() != ErrorKind::StartFailed {
        return error;
    }
    let (operation, text) = (error.operation(), error.context().to_owned());
    Error::new(ErrorKind::Protocol, operation, text).with_source(error)
}

#[async_trait]
impl<P: LineProtocol> EngineClient for LineClient<P> {
    async fn bind_conversation(&self, request: BindRequest) -> Result<BoundConversation> {
        let expected = request.expected.as_deref();
        let native_key = if self.fresh {
            let shaken = tokio::time::timeout(request.within, self.shake_hands(expected)).await;
            shaken.unwrap_or_else(|_| {
                let text = format!(
                    "no bound conversation within {} s",
                    request.within.as_secs()
                );
                Err(Error::new(ErrorKind::DeadlineExceeded, "bind", text))
            })?
        } else {
            match self.core().protocol.handshake() {
                Handshake::Bound(key) => key,
                Handshake::Failed(error) => return Err(error),
                Handshake::Pending => {
                    return Err(Error::new(
                        ErrorKind::ConversationLost,
                        "bind",
                        "the checkpoint holds no conversation",
                    ));
                }
            }
        };
        match expected {
            Some(wanted) if wanted != native_key => Err(Error::new(
                ErrorKind::ConversationLost,
                "bind",
                "the program came up with another conversation",
            )),
            _ => Ok(BoundConversation { native_key }),
        }
    }

    async fn deliver(&self, input: EngineInput) -> Result<()> {
        self.core().queue(input);
        self.woken.notify_one();
        Ok(())
    }

    fn turn_events(&self) -> EventStream<'_> {
        futures::stream::unfold(false, move |ended| async move {
            if ended {
                return None;
            }
            match self.next_step(false).await {
                Ok(Some(step)) => Some((Ok(step), false)),
                Ok(None) => None,
                Err(error) => Some((Err(error), true)),
            }
        })
        .fuse()
        .boxed()
    }

    fn checkpoint(&self) -> Checkpoint {
        self.core().checkpoint(&self.process)
    }

    async fn committed(&self, checkpoint: &Checkpoint) -> Result<()> {
        let position: Position = serde_json::from_str(checkpoint.text()).map_err(|error| {
            let text = "not a checkpoint of this client";
            Error::new(ErrorKind::Protocol, "committed", text).with_source(error)
        })?;
        self.core().committed(position.consumed());
        self.write_outbox(position.stdin).await?;
        self.begin_jobs(position.jobs);
        self.acknowledge(position.consumed()).await
    }

    async fn interrupt(&self) -> Result<()> {
        if self.core().exit.is_some() {
            return Ok(());
        }
        self.command(|protocol, effects| {
            protocol.interrupt(effects);
            Ok(())
        })
    }

    fn capabilities(&self) -> Vec<String> {
        let tools: BTreeSet<_> = self.core().protocol.tools().into_iter().collect();
        tools.into_iter().collect()
    }

    async fn close(&self, within: Duration) -> Result<()> {
        self.end_process(within).await
    }

    fn exit(&self) -> Option<ExitStatus> {
        self.core().exit.clone()
    }

    fn interactions(&self) -> Option<&dyn Interactions> {
        P::POWERS.interactions.then_some(self)
    }

    fn permission_modes(&self) -> Option<&dyn PermissionModes> {
        P::POWERS.permission_modes.then_some(self)
    }

    fn child_run_control(&self) -> Option<&dyn ChildRunControl> {
        P::POWERS.child_run_control.then_some(self)
    }

    fn server_info(&self) -> Option<&dyn ServerInfo> {
        Some(self)
    }
}

#[async_trait]
impl<P: LineProtocol> Interactions for LineClient<P> {
    async fn answer(&self, native_id: &str, answer: &InteractionAnswer) -> Result<()> {
        self.command(|protocol, effects| protocol.answer(native_id, answer, effects))
    }
}

#[async_trait]
impl<P: LineProtocol> PermissionModes for LineClient<P> {
    async fn set_mode(&self, mode: &str) -> Result<()> {
        self.command(|protocol, effects| protocol.set_mode(mode, effects))
    }
}

#[async_trait]
impl<P: LineProtocol> ChildRunControl for LineClient<P> {
    async fn stop(&self, run: &ChildRunId) -> Result<()> {
        self.command(|protocol, effects| protocol.stop_child(run, effects))
    }
}

impl<P: LineProtocol> ServerInfo for LineClient<P> {
    fn program(&self) -> Option<String> {
        self.core().protocol.program()
    }
}
