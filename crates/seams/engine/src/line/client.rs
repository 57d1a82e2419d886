//! The impure half: runs a [`LineProtocol`] over a workload.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_sandbox::{
    ExitStatus, OutputEvent, OutputStream, ProcessName, Signal, SignalScope, SpawnSpec, Workload,
};
use astrabox_types::{ChildRunId, InputId, InteractionAnswer};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::protocol::{Effects, Handshake, Line, LineProtocol};
use super::splitter::{Draining, Piece, Splitter};
use crate::{
    BindRequest, BoundConversation, Checkpoint, ChildRunControl, EngineClient, EngineInput, Error,
    ErrorKind, EventStream, Interactions, PermissionModes, Result, ServerInfo, Step, from_sandbox,
};

/// Output that may wait uncommitted before a step asks for a commit, so that the spool is freed (1 MiB).
const COMMIT_AFTER: u64 = 1 << 20;
/// How much of standard error is kept for the reason of an exit.
const STDERR_TAIL: usize = 4 << 10;
/// How many input ids are remembered for EN5; the platform repeats only the newest.
const REMEMBERED_INPUTS: usize = 64;

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
    commands: Notify,
    output: tokio::sync::Mutex<OutputStream>,
}

struct Core<P> {
    protocol: P,
    splitter: Splitter,
    stderr_offset: u64,
    stderr_tail: String,
    stdin_offset: u64,
    outbox: VecDeque<Outgoing>,
    delivered: VecDeque<InputId>,
    commands: VecDeque<Command>,
    held: Step,
    committed: u64,
    exited: bool,
}

/// Bytes on their way to the program, with the offset at which the runner takes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outgoing {
    offset: u64,
    text: String,
}

enum Command {
    Deliver(EngineInput),
    Interrupt,
    Answer(String, InteractionAnswer),
    SetMode(String),
    StopChild(ChildRunId),
    Close,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<P> {
    process: ProcessName,
    stdout: u64,
    stderr: u64,
    draining: Option<Draining>,
    stdin: u64,
    outbox: VecDeque<Outgoing>,
    delivered: VecDeque<InputId>,
    protocol: P,
}

impl<P: LineProtocol> LineClient<P> {
    /// Starts or reaches the program. On an error no process is left behind (EN3).
    ///
    /// # Errors
    /// `StartFailed`, `Exited` or `Detached`; `ConversationLost` for a checkpoint that is not this client's.
    pub async fn open(workload: Arc<dyn Workload>, epoch: u64, start: Start<P>) -> Result<Self> {
        match start {
            Start::Spawn(spec, protocol) => {
                workload.spawn(spec.clone()).await.map_err(from_sandbox)?;
                match workload.attach(&spec.name, 0, 0).await {
                    Ok(output) => Ok(Self::build(
                        workload,
                        spec.name,
                        true,
                        Core::new(protocol, epoch),
                        output,
                    )),
                    Err(error) => {
                        // Best effort: the attach error is the one to tell.
                        let _ = workload
                            .signal(&spec.name, Signal::Kill, SignalScope::Group)
                            .await;
                        Err(from_sandbox(error))
                    }
                }
            }
            Start::Attach(checkpoint) => {
                let saved: Saved<P> = serde_json::from_str(checkpoint.text()).map_err(|error| {
                    let text = "the stored checkpoint is not one of this engine version";
                    Error::new(ErrorKind::ConversationLost, "attach", text).with_source(error)
                })?;
                let process = saved.process.clone();
                let output = workload
                    .attach(&process, saved.stdout, saved.stderr)
                    .await
                    .map_err(from_sandbox)?;
                Ok(Self::build(
                    workload,
                    process,
                    false,
                    Core::restore(saved, epoch),
                    output,
                ))
            }
        }
    }

    fn build(
        workload: Arc<dyn Workload>,
        process: ProcessName,
        fresh: bool,
        core: Core<P>,
        output: OutputStream,
    ) -> Self {
        let (core, output) = (Mutex::new(core), tokio::sync::Mutex::new(output));
        Self {
            workload,
            process,
            fresh,
            core,
            commands: Notify::new(),
            output,
        }
    }

    fn core(&self) -> MutexGuard<'_, Core<P>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, command: Command) {
        self.core().commands.push_back(command);
        self.commands.notify_one();
    }

    /// The next step; `None` after the program's end. Cancel-safe: nothing is taken before it is kept.
    async fn next_step(&self) -> Result<Option<Step>> {
        let mut output = self.output.lock().await;
        loop {
            {
                let mut core = self.core();
                if let Some(step) = core.ready_step() {
                    return Ok(Some(step));
                }
                if core.exited {
                    return Ok(None);
                }
            }
            let event = tokio::select! {
                () = self.commands.notified() => continue,
                event = output.next() => event,
            };
            match event {
                Some(Ok(OutputEvent::Output(output))) => self.core().take_output(&output),
                Some(Ok(OutputEvent::Exited(exit))) => self.core().take_exit(&exit),
                Some(Err(error)) => return Err(from_sandbox(error)),
                None => {
                    return Err(Error::new(
                        ErrorKind::Detached,
                        "read",
                        "the output stream ended early",
                    ));
                }
            }
        }
    }

    /// Writes what the protocol wants written, without waiting for a commit: only before anything is bound.
    async fn flush(&self) -> Result<()> {
        let end = self.core().stdin_offset;
        self.write_outbox(end).await
    }

    async fn write_outbox(&self, end: u64) -> Result<()> {
        loop {
            let Some(Outgoing { offset, text }) = self.core().outbox.front().cloned() else {
                return Ok(());
            };
            if offset >= end {
                return Ok(());
            }
            self.workload
                .write_stdin(&self.process, offset, Bytes::from(text))
                .await
                .map_err(from_sandbox)?;
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

    async fn shake_hands(&self, expected: Option<&str>) -> Result<String> {
        {
            let mut core = self.core();
            let mut effects = Effects::at(0);
            core.protocol.begin(expected, &mut effects);
            let step = core.absorb(effects);
            core.hold(step);
        }
        // What the program says meanwhile is told after the binding, as the first step.
        let mut kept = Step::default();
        loop {
            self.flush().await?;
            match self.core().protocol.handshake() {
                Handshake::Bound(key) => {
                    self.core().hold(kept);
                    return Ok(key);
                }
                Handshake::Failed(error) => return Err(error),
                Handshake::Pending => {}
            }
            match self.next_step().await? {
                Some(step) => kept.absorb(step),
                None => {
                    let tail = self.core().stderr_tail.clone();
                    let text = format!(
                        "it ended before the conversation was bound; standard error: {tail}"
                    );
                    return Err(Error::new(ErrorKind::Exited, "bind", text));
                }
            }
        }
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        self.workload
            .signal(&self.process, signal, SignalScope::Group)
            .await
            .map_err(from_sandbox)
    }

    async fn end_process(&self, within: Duration) -> Result<()> {
        let status = self
            .workload
            .status(&self.process)
            .await
            .map_err(from_sandbox)?;
        if status.is_none_or(|status| status.exit.is_some()) {
            return Ok(());
        }
        self.workload
            .close_stdin(&self.process)
            .await
            .map_err(from_sandbox)?;
        self.signal(Signal::Terminate).await?;
        // The last words are not lost: the next reader of the stream gets them.
        let mut kept = Step::default();
        let ended = async {
            while let Some(step) = self.next_step().await? {
                kept.absorb(step);
            }
            Ok(())
        };
        let ended = tokio::time::timeout(within, ended).await;
        self.core().hold(kept);
        match ended {
            Ok(ended) => ended,
            Err(_) => self.signal(Signal::Kill).await,
        }
    }
}

impl<P: LineProtocol> Core<P> {
    fn new(mut protocol: P, epoch: u64) -> Self {
        protocol.attached(epoch);
        Self {
            protocol,
            splitter: Splitter::new(0, None),
            stderr_offset: 0,
            stderr_tail: String::new(),
            stdin_offset: 0,
            outbox: VecDeque::new(),
            delivered: VecDeque::new(),
            commands: VecDeque::new(),
            held: Step::default(),
            committed: 0,
            exited: false,
        }
    }

    fn restore(saved: Saved<P>, epoch: u64) -> Self {
        let mut core = Self::new(saved.protocol, epoch);
        core.splitter = Splitter::new(saved.stdout, saved.draining);
        core.stderr_offset = saved.stderr;
        core.stdin_offset = saved.stdin;
        // Whether these left before the crash is not known; the runner takes each offset once (EN7).
        core.held.commit = !saved.outbox.is_empty();
        core.outbox = saved.outbox;
        core.delivered = saved.delivered;
        core.committed = saved.stdout;
        core
    }

    fn hold(&mut self, step: Step) {
        self.held.absorb(step);
    }

    /// The next step that needs no more input.
    fn ready_step(&mut self) -> Option<Step> {
        loop {
            if self.held.commit || !self.held.emissions.is_empty() {
                return Some(std::mem::take(&mut self.held));
            }
            let step = if let Some(command) = self.commands.pop_front() {
                self.run(command)
            } else if let Some(piece) = self.splitter.next_piece() {
                self.translate(&piece)
            } else {
                let due = self.splitter.offset() >= self.committed + COMMIT_AFTER;
                if due {
                    self.committed = self.splitter.offset();
                }
                return due.then(|| Step {
                    emissions: Vec::new(),
                    commit: true,
                });
            };
            self.hold(step);
        }
    }

    fn translate(&mut self, piece: &Piece) -> Step {
        let mut effects = Effects::at(self.splitter.offset());
        let lossy;
        let line = match piece {
            Piece::Line(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Line::Text(text),
                Err(_) => {
                    lossy = String::from_utf8_lossy(bytes);
                    Line::Garbled(&lossy)
                }
            },
            Piece::Overlong { head, length } => Line::Overlong {
                head,
                length: *length,
            },
        };
        self.protocol.on_line(line, &mut effects);
        self.absorb(effects)
    }

    fn run(&mut self, command: Command) -> Step {
        let mut effects = Effects::at(self.splitter.offset());
        let done = match &command {
            Command::Deliver(input) => self.deliver(input, &mut effects),
            Command::Interrupt => {
                self.protocol.interrupt(&mut effects);
                Ok(())
            }
            Command::Answer(id, answer) => self.protocol.answer(id, answer, &mut effects),
            Command::SetMode(mode) => self.protocol.set_mode(mode, &mut effects),
            Command::StopChild(run) => self.protocol.stop_child(run, &mut effects),
            Command::Close => {
                self.protocol.close(&mut effects);
                Ok(())
            }
        };
        if let Err(error) = done {
            let key = format!("command/{}", self.stdin_offset);
            effects
                .emit
                .diagnostic(&key, "command_refused", error.to_string(), None);
            if matches!(command, Command::Deliver(_)) {
                effects
                    .emit
                    .failed("input_not_delivered", error.to_string(), None);
            }
        }
        self.absorb(effects)
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        if self.delivered.contains(&input.input_id) {
            return Ok(());
        }
        self.protocol.deliver(input, effects)?;
        self.delivered.push_back(input.input_id);
        if self.delivered.len() > REMEMBERED_INPUTS {
            self.delivered.pop_front();
        }
        Ok(())
    }

    fn absorb(&mut self, mut effects: Effects) -> Step {
        let outgoing = effects.take_outgoing();
        let commit = !outgoing.is_empty();
        for mut text in outgoing {
            text.push('\n');
            let offset = self.stdin_offset;
            self.stdin_offset += text.len() as u64;
            self.outbox.push_back(Outgoing { offset, text });
        }
        Step {
            emissions: effects.emit.take(),
            commit,
        }
    }

    fn take_output(&mut self, output: &astrabox_sandbox::Output) {
        if !output.stderr {
            self.splitter.feed(output.offset, &output.bytes);
            return;
        }
        self.stderr_offset = self
            .stderr_offset
            .max(output.offset + output.bytes.len() as u64);
        self.stderr_tail
            .push_str(&String::from_utf8_lossy(&output.bytes));
        if self.stderr_tail.len() > 2 * STDERR_TAIL {
            let cut = self.stderr_tail.len() - STDERR_TAIL;
            let cut = (cut..)
                .find(|at| self.stderr_tail.is_char_boundary(*at))
                .unwrap_or(cut);
            self.stderr_tail.drain(..cut);
        }
    }

    fn take_exit(&mut self, exit: &ExitStatus) {
        while let Some(piece) = self.splitter.next_piece() {
            let step = self.translate(&piece);
            self.hold(step);
        }
        if let Some(piece) = self.splitter.finish() {
            let step = self.translate(&piece);
            self.hold(step);
        }
        let mut effects = Effects::at(self.splitter.offset());
        self.protocol
            .on_exit(exit, self.stderr_tail.trim_end(), &mut effects);
        let step = self.absorb(effects);
        self.hold(step);
        // Nobody is there to read it any more.
        self.outbox.clear();
        self.held.commit = true;
        self.exited = true;
    }
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
        self.command(Command::Deliver(input));
        Ok(())
    }

    fn turn_events(&self) -> EventStream<'_> {
        futures::stream::unfold(false, move |ended| async move {
            if ended {
                return None;
            }
            match self.next_step().await {
                Ok(Some(step)) => Some((Ok(step), false)),
                Ok(None) => None,
                Err(error) => Some((Err(error), true)),
            }
        })
        .boxed()
    }

    fn checkpoint(&self) -> Checkpoint {
        let core = self.core();
        let saved = SavedRef {
            process: &self.process,
            stdout: core.splitter.offset(),
            stderr: core.stderr_offset,
            draining: core.splitter.draining(),
            stdin: core.stdin_offset,
            outbox: &core.outbox,
            delivered: &core.delivered,
            protocol: &core.protocol,
        };
        Checkpoint::new(serde_json::to_string(&saved).expect("a protocol's state is JSON"))
    }

    async fn committed(&self, checkpoint: &Checkpoint) -> Result<()> {
        let position: Position = serde_json::from_str(checkpoint.text()).map_err(|error| {
            Error::new(
                ErrorKind::Protocol,
                "committed",
                "not a checkpoint of this client",
            )
            .with_source(error)
        })?;
        if self.core().exited {
            return Ok(());
        }
        self.write_outbox(position.stdin).await?;
        let due = {
            let mut core = self.core();
            let due = position.stdout > core.committed || position.stderr > 0;
            core.committed = core.committed.max(position.stdout);
            due
        };
        if due {
            self.workload
                .acknowledge(&self.process, position.stdout, position.stderr)
                .await
                .map_err(from_sandbox)?;
        }
        Ok(())
    }

    async fn interrupt(&self) -> Result<()> {
        self.command(Command::Interrupt);
        Ok(())
    }

    fn capabilities(&self) -> Vec<String> {
        self.core()
            .protocol
            .tools()
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    async fn close(&self, within: Duration) -> Result<()> {
        self.command(Command::Close);
        self.end_process(within).await
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

/// The parts of a checkpoint that say how far it goes.
#[derive(Deserialize)]
struct Position {
    stdout: u64,
    stderr: u64,
    stdin: u64,
}

#[derive(Serialize)]
struct SavedRef<'a, P> {
    process: &'a ProcessName,
    stdout: u64,
    stderr: u64,
    draining: Option<&'a Draining>,
    stdin: u64,
    outbox: &'a VecDeque<Outgoing>,
    delivered: &'a VecDeque<InputId>,
    protocol: &'a P,
}

#[async_trait]
impl<P: LineProtocol> Interactions for LineClient<P> {
    async fn answer(&self, native_id: &str, answer: &InteractionAnswer) -> Result<()> {
        self.command(Command::Answer(native_id.to_owned(), answer.clone()));
        Ok(())
    }
}

#[async_trait]
impl<P: LineProtocol> PermissionModes for LineClient<P> {
    async fn set_mode(&self, mode: &str) -> Result<()> {
        self.command(Command::SetMode(mode.to_owned()));
        Ok(())
    }
}

#[async_trait]
impl<P: LineProtocol> ChildRunControl for LineClient<P> {
    async fn stop(&self, run: &ChildRunId) -> Result<()> {
        self.command(Command::StopChild(run.clone()));
        Ok(())
    }
}

impl<P: LineProtocol> ServerInfo for LineClient<P> {
    fn program(&self) -> Option<String> {
        self.core().protocol.program()
    }
}
