//! The one box of this runner, alive or gone, and what may be asked of it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use astrabox_runner_protocol::{ExitReason, RunnerError, RunnerErrorKind};
use tokio::sync::watch;

use crate::files::{FilePolicy, Files};
use crate::isolation::{IsolatedBox, IsolationError, LimitBreach, Posture, Strength};
use crate::process::Counters;

/// The box of this runner.
pub(crate) struct Sandbox {
    state: Mutex<State>,
    frozen: watch::Sender<bool>,
    files: FilePolicy,
    posture: Posture,
}

struct State {
    /// `None` once it is being destroyed.
    isolated: Option<IsolatedBox>,
    /// Why it has no processes any more, once it has none.
    gone: Option<ExitReason>,
    /// Files that are open for a call. They keep the volume in use.
    open: Vec<Weak<dyn Close>>,
}

impl Sandbox {
    pub(crate) fn new(isolated: IsolatedBox, file_bytes: u64) -> Result<Self, RunnerError> {
        let files = FilePolicy::new(isolated.files().root(), file_bytes)?;
        let posture = isolated.posture().clone();
        let state = State {
            isolated: Some(isolated),
            gone: None,
            open: Vec::new(),
        };
        Ok(Self {
            state: Mutex::new(state),
            frozen: watch::Sender::new(false),
            files,
            posture,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What confines it.
    pub(crate) fn posture(&self) -> &Posture {
        &self.posture
    }

    /// Whether some limit is kept only by looking.
    pub(crate) fn has_soft_limits(&self) -> bool {
        [&self.posture.memory, &self.posture.disk]
            .into_iter()
            .any(|limit| limit.strength == Strength::Soft)
    }

    /// Whether it is frozen; tells of changes.
    pub(crate) fn frozen(&self) -> watch::Receiver<bool> {
        self.frozen.subscribe()
    }

    /// Why it is gone, if it is.
    pub(crate) fn gone(&self) -> Option<ExitReason> {
        self.lock().gone
    }

    /// It has no processes any more. The first reason stands.
    pub(crate) fn set_gone(&self, reason: ExitReason) {
        let mut state = self.lock();
        state.gone.get_or_insert(reason);
        state.close_files();
    }

    /// A descriptor that is readable when the first process has said something.
    pub(crate) fn init_fd(&self) -> std::io::Result<Option<OwnedFd>> {
        let state = self.lock();
        let fd = state
            .isolated
            .as_ref()
            .map(|isolated| isolated.init_fd().try_clone_to_owned());
        fd.transpose()
    }

    /// Asks the box for something that a frozen one cannot do.
    pub(crate) fn ask<T>(
        &self,
        operation: &'static str,
        question: impl FnOnce(&mut IsolatedBox) -> Result<T, IsolationError>,
    ) -> Result<T, RunnerError> {
        if *self.frozen.borrow() {
            let kind = RunnerErrorKind::BoxFrozen;
            return Err(RunnerError::new(kind, operation, "thaw the sandbox first"));
        }
        self.ask_any(operation, question)
    }

    /// Asks the box for something that a frozen one can do as well.
    pub(crate) fn ask_any<T>(
        &self,
        operation: &'static str,
        question: impl FnOnce(&mut IsolatedBox) -> Result<T, IsolationError>,
    ) -> Result<T, RunnerError> {
        let mut state = self.lock();
        let isolated = state.living(operation)?;
        question(isolated).map_err(|error| refused(operation, &error))
    }

    pub(crate) fn freeze(&self) -> Result<(), RunnerError> {
        self.ask_any("freeze", IsolatedBox::freeze)?;
        self.frozen.send_replace(true);
        Ok(())
    }

    pub(crate) fn thaw(&self) -> Result<(), RunnerError> {
        self.ask_any("thaw", IsolatedBox::thaw)?;
        self.frozen.send_replace(false);
        Ok(())
    }

    /// Kills every process but the first. Thaws.
    pub(crate) fn kill_all(&self) -> Result<(), RunnerError> {
        self.ask_any("signal", IsolatedBox::kill_all)?;
        self.frozen.send_replace(false);
        Ok(())
    }

    /// What its limits have done so far.
    pub(crate) fn counters(&self) -> Counters {
        // Without cgroups nobody counts, and looking would only cost time.
        let mut state = self.lock();
        match &mut state.isolated {
            Some(isolated) if self.posture.cgroup_version > 0 => {
                let stats = isolated.stats();
                Counters {
                    oom_kills: stats.oom_kills,
                    forks_refused: stats.pids_denied,
                }
            }
            _ => Counters::default(),
        }
    }

    /// Whether, where nobody counts refused forks, a process that has just ended left the box full: then it was
    /// refused one more, or would have been.
    pub(crate) fn is_crowded(&self, limit: u32) -> bool {
        let mut state = self.lock();
        match &mut state.isolated {
            Some(isolated) if self.posture.cgroup_version == 0 => {
                let left = isolated.stats().pids.unwrap_or(0);
                left + 1 >= u64::from(limit)
            }
            _ => false,
        }
    }

    /// Looks at the soft limits.
    pub(crate) fn breach(&self) -> Option<LimitBreach> {
        if *self.frozen.borrow() {
            return None;
        }
        let mut state = self.lock();
        state.living("poll").ok().and_then(IsolatedBox::poll_limits)
    }

    /// Does `work` on the files, with the rights of the box's user.
    pub(crate) fn with_files<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(Files<'_>) -> Result<T, RunnerError>,
    ) -> Result<T, RunnerError> {
        let mut state = self.lock();
        let access = state.living(operation)?.files();
        work(Files::new(access.root(), &self.files))
    }

    /// As [`with_files`](Self::with_files), for something that stays open after it. The box closes it when it
    /// goes away.
    pub(crate) fn open<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(Files<'_>) -> Result<T, RunnerError>,
    ) -> Result<Open<T>, RunnerError> {
        let opened = self.with_files(operation, work)?;
        let open = Open {
            operation,
            file: Arc::new(Mutex::new(Some(opened))),
        };
        let mut state = self.lock();
        state.open.retain(|other| other.strong_count() > 0);
        let weak: Weak<Mutex<Option<T>>> = Arc::downgrade(&open.file);
        state.open.push(weak);
        Ok(open)
    }

    /// Takes the box out, to destroy it. Nothing can be asked of it from here on.
    pub(crate) fn take(&self) -> Option<IsolatedBox> {
        let mut state = self.lock();
        state.close_files();
        state.isolated.take()
    }
}

impl State {
    fn living(&mut self, operation: &'static str) -> Result<&mut IsolatedBox, RunnerError> {
        match (&self.gone, &mut self.isolated) {
            (None, Some(isolated)) => Ok(isolated),
            _ => Err(box_gone(operation)),
        }
    }

    fn close_files(&mut self) {
        for file in self.open.drain(..) {
            if let Some(file) = file.upgrade() {
                file.close();
            }
        }
    }
}

/// A file that is open for a call, until the call or the box ends.
#[derive(Debug)]
pub(crate) struct Open<T> {
    operation: &'static str,
    file: Arc<Mutex<Option<T>>>,
}

impl<T> Open<T> {
    /// Does `work` on it.
    pub(crate) fn with<R>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R, RunnerError>,
    ) -> Result<R, RunnerError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_mut()
            .map_or_else(|| Err(box_gone(self.operation)), work)
    }

    /// Takes it out.
    pub(crate) fn take(&self) -> Result<T, RunnerError> {
        let file = self
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        file.ok_or_else(|| box_gone(self.operation))
    }
}

trait Close: Send + Sync {
    fn close(&self);
}

impl<T: Send> Close for Mutex<Option<T>> {
    fn close(&self) {
        *self.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn box_gone(operation: &'static str) -> RunnerError {
    let text = "the sandbox has ended; make a new one";
    RunnerError::new(RunnerErrorKind::BoxGone, operation, text)
}

/// What the box answered, as the protocol says it.
pub(crate) fn refused(operation: &'static str, error: &IsolationError) -> RunnerError {
    let kind = match error {
        IsolationError::InvalidSpec { .. } | IsolationError::InvalidRequest { .. } => {
            RunnerErrorKind::InvalidArgument
        }
        IsolationError::Unavailable { .. } => RunnerErrorKind::Unsupported,
        IsolationError::InitGone => RunnerErrorKind::BoxGone,
        IsolationError::Busy => RunnerErrorKind::BoxBusy,
        _ => RunnerErrorKind::Internal,
    };
    RunnerError::new(kind, operation, with_source(error))
}

/// An error and what caused it, in one line.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
