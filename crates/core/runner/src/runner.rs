//! The processes of the box: asked for, followed, signalled, ended.

mod spawn;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_runner_protocol::launch::LaunchSpec;
use astrabox_runner_protocol::{
    BoxState, BoxStatus, ExitReason, ExitStatus, ProcessState, RunnerError, RunnerErrorKind,
    RunnerInfo, SignalTarget,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::isolation::{BoxSpec, InitMessage, ProcessEnd, destroy_leftovers};
use crate::log::Log;
use crate::process::{End, Process, SpawnFailure};
use crate::records::Records;
use crate::sandbox::{Sandbox, with_source};

/// How long the outputs of ended processes may take to reach the spool at the end.
const DRAIN: Duration = Duration::from_secs(2);

type Result<T> = std::result::Result<T, RunnerError>;

/// One box and its processes.
pub(crate) struct Runner {
    pub(crate) info: RunnerInfo,
    pub(crate) sandbox: Sandbox,
    pub(crate) log: Log,
    /// Ends the server and every watch.
    pub(crate) stop: CancellationToken,
    spec: LaunchSpec,
    box_spec: BoxSpec,
    records: Records,
    created_at_ms: i64,
    table: Mutex<Table>,
    /// The tasks that move bytes and keep time.
    tasks: TaskTracker,
}

/// Every process on record.
#[derive(Default)]
struct Table {
    by_name: BTreeMap<String, Arc<Process>>,
    last_tag: u64,
}

/// What a runner is made of.
pub(crate) struct Parts {
    pub(crate) info: RunnerInfo,
    pub(crate) spec: LaunchSpec,
    pub(crate) box_spec: BoxSpec,
    pub(crate) records: Records,
    pub(crate) sandbox: Sandbox,
    pub(crate) log: Log,
    pub(crate) created_at_ms: i64,
    /// Processes of earlier runners.
    pub(crate) restored: Vec<Process>,
}

impl Runner {
    pub(crate) fn new(parts: Parts) -> Self {
        let restored = parts.restored.into_iter();
        let by_name = restored
            .map(|process| (process.name.clone(), Arc::new(process)))
            .collect();
        Self {
            info: parts.info,
            sandbox: parts.sandbox,
            log: parts.log,
            stop: CancellationToken::new(),
            spec: parts.spec,
            box_spec: parts.box_spec,
            records: parts.records,
            created_at_ms: parts.created_at_ms,
            table: Mutex::new(Table {
                by_name,
                last_tag: 0,
            }),
            tasks: TaskTracker::new(),
        }
    }

    /// What it was launched with.
    pub(crate) fn spec(&self) -> &LaunchSpec {
        &self.spec
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process of this name.
    pub(crate) fn process(&self, operation: &'static str, name: &str) -> Result<Arc<Process>> {
        let found = self.table().by_name.get(name).cloned();
        found.ok_or_else(|| {
            let text = format!("no process is named {name:?}");
            RunnerError::new(RunnerErrorKind::NotFound, operation, text)
        })
    }

    fn processes(&self) -> Vec<Arc<Process>> {
        self.table().by_name.values().cloned().collect()
    }

    /// The box and all its processes, or the one of this name.
    pub(crate) fn status(&self, name: Option<&str>) -> BoxStatus {
        let state = match self.sandbox.gone() {
            Some(reason) => BoxState::Gone(reason),
            None if *self.sandbox.frozen().borrow() => BoxState::Frozen,
            None => BoxState::Running,
        };
        let wanted = |process: &Arc<Process>| name.is_none_or(|name| process.name == name);
        let processes = self.processes();
        BoxStatus {
            state,
            created_at_ms: self.created_at_ms,
            processes: processes
                .iter()
                .filter(|process| wanted(process))
                .map(|p| p.info())
                .collect(),
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, target: &SignalTarget, signal: i32) -> Result<()> {
        const OPERATION: &str = "signal";
        if !(1..=31).contains(&signal) {
            let kind = RunnerErrorKind::InvalidArgument;
            return Err(RunnerError::new(kind, OPERATION, "a signal is 1 to 31"));
        }
        let (name, group) = match target {
            SignalTarget::Process(name) => (name, false),
            SignalTarget::Group(name) => (name, true),
            SignalTarget::Box if signal == libc::SIGKILL => return self.kill_all(None),
            SignalTarget::Box => {
                let kind = RunnerErrorKind::InvalidArgument;
                return Err(RunnerError::new(
                    kind,
                    OPERATION,
                    "a whole box takes signal 9 only",
                ));
            }
        };
        let process = self.process(OPERATION, name)?;
        match process.state() {
            (ProcessState::Running, pid) => {
                self.sandbox
                    .ask(OPERATION, |isolated| isolated.signal(pid, signal, group))?;
                process.note_signal(signal);
                Ok(())
            }
            (ProcessState::Starting, _) => {
                let text = format!("process {name:?} is still being started");
                Err(RunnerError::new(RunnerErrorKind::BoxBusy, OPERATION, text))
            }
            (ProcessState::Ended, _) => {
                let text = format!("process {name:?} has ended");
                Err(RunnerError::new(
                    RunnerErrorKind::ProcessEnded,
                    OPERATION,
                    text,
                ))
            }
        }
    }

    /// Kills every process of the box but its first, for a reason of the runner's or because it was asked for.
    fn kill_all(&self, reason: Option<ExitReason>) -> Result<()> {
        for process in self.processes() {
            match reason {
                Some(reason) => process.set_cause(reason),
                None => process.note_signal(libc::SIGKILL),
            }
        }
        self.sandbox.kill_all()
    }

    /// Drops the record and the output of an ended process.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        let process = self.process("forget", name)?;
        if process.state().0 != ProcessState::Ended {
            let text = format!("process {name:?} is running");
            return Err(RunnerError::new(
                RunnerErrorKind::ProcessRunning,
                "forget",
                text,
            ));
        }
        self.drop_process(&process);
        Ok(())
    }

    fn drop_process(&self, process: &Process) {
        self.table().by_name.remove(&process.name);
        process.set_forgotten();
        if let Err(error) = self.records.remove_process(&process.name) {
            self.log.line(format_args!(
                "cannot remove the record of {}: {error}",
                process.name
            ));
        }
    }

    /// What the first process of the box has said.
    fn handle(&self, message: InitMessage) {
        match message {
            InitMessage::Started { tag, pid } => {
                if let Some(process) = self.by_tag(tag) {
                    process.set_running(pid);
                    self.write_down(&process);
                }
            }
            InitMessage::SpawnFailed { tag, stage, errno } => {
                if let Some(process) = self.by_tag(tag) {
                    self.drop_unstarted(&process, SpawnFailure::new(stage, errno));
                }
            }
            InitMessage::Exited {
                tag,
                status,
                memory_limit,
            } => {
                if let Some(process) = self.by_tag(tag) {
                    let status = match status {
                        ProcessEnd::Code(code) => ExitStatus::Code(code),
                        ProcessEnd::Signal(signal) => ExitStatus::Signal(signal),
                    };
                    let otherwise = ExitReason::BoxDied;
                    self.end(
                        &process,
                        End {
                            status: Some(status),
                            memory_limit,
                            otherwise,
                        },
                    );
                }
            }
            InitMessage::InitGone { memory_limit } => {
                let reason = if memory_limit {
                    ExitReason::MemoryLimit
                } else {
                    ExitReason::BoxDied
                };
                self.log.line(format_args!("the box is gone: {reason:?}"));
                self.end_all(reason);
            }
        }
    }

    fn by_tag(&self, tag: u64) -> Option<Arc<Process>> {
        self.table()
            .by_name
            .values()
            .find(|process| process.tag == tag && tag != 0)
            .cloned()
    }

    fn end(&self, process: &Process, end: End) {
        let mut counters = self.sandbox.counters();
        let failed = matches!(end.status, Some(ExitStatus::Code(code)) if code != 0);
        if failed && self.sandbox.is_crowded(self.spec.limits.pids) {
            counters.forks_refused += 1;
        }
        process.set_ended(end, counters);
        self.write_down(process);
    }

    /// The box has no processes any more.
    fn end_all(&self, reason: ExitReason) {
        self.sandbox.set_gone(reason);
        for process in self.processes() {
            match process.state().0 {
                ProcessState::Starting => {
                    self.drop_unstarted(&process, SpawnFailure::box_gone());
                }
                ProcessState::Running => {
                    let end = End {
                        status: None,
                        memory_limit: false,
                        otherwise: reason,
                    };
                    self.end(&process, end);
                }
                ProcessState::Ended => {}
            }
        }
    }

    fn drop_unstarted(&self, process: &Process, failure: SpawnFailure) {
        process.set_spawn_failed(failure);
        self.drop_process(process);
    }

    fn write_down(&self, process: &Process) {
        if let Err(error) = self.records.write_process(&process.record()) {
            self.log.line(format_args!(
                "cannot write the record of {}: {error}",
                process.name
            ));
        }
    }

    /// Destroys the box. What its processes wrote stays in the state directory.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        let Some(isolated) = self.sandbox.take() else {
            return Ok(());
        };
        self.log.line("destroying the box");
        let destroyed = isolated.destroy().or_else(|error| {
            self.log
                .line(format_args!("first attempt: {}", with_source(&error)));
            destroy_leftovers(&self.box_spec)
        });
        self.end_all(ExitReason::BoxDied);
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait())
            .await
            .is_err()
        {
            self.log
                .line("some output was not acknowledged and stays behind");
        }
        destroyed.map_err(|error| {
            self.log.line(format_args!(
                "cannot destroy the box: {}",
                with_source(&error)
            ));
            crate::sandbox::refused("shutdown", &error)
        })
    }
}
