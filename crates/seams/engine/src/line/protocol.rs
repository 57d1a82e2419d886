//! The pure half of a line engine.

use astrabox_sandbox::ExitStatus;
use astrabox_types::{ChildRunId, InteractionAnswer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::job::{Job, JobResult};
use crate::{Emitter, EngineInput, Error, Result};

/// A program's protocol as a state machine. Pure: same state and same line give the same effects (EN8).
///
/// The state is part of every checkpoint, so it holds what is open and nothing that is done.
pub trait LineProtocol: Serialize + DeserializeOwned + Send + 'static {
    /// Begins the handshake of a program that was just started. `expected` is the native key to resume.
    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects);

    /// How the handshake stands.
    fn handshake(&self) -> Handshake;

    /// A new activation reached the running program; request ids made from now on carry this epoch.
    fn attached(&mut self, epoch: u64);

    /// A line of standard output. A line that is not the protocol's is recorded, not an error.
    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects);

    /// The program ended. `stderr` is the last part of standard error. An open turn ends here (EN9).
    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects);

    /// What came of a job that [`Effects::job`] asked for. A protocol that asks for none gets none.
    fn on_job(&mut self, _id: &str, _result: &JobResult, _effects: &mut Effects) {}

    /// An input for the program; the caller has already dropped repeated ones (EN5).
    ///
    /// # Errors
    /// When the input has a part that the program does not take.
    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()>;

    /// Stop the running turn, if one runs.
    fn interrupt(&mut self, effects: &mut Effects);

    /// The program shall end by itself, as far as it has a way.
    fn close(&mut self, effects: &mut Effects);

    /// The tools that the program told of.
    fn tools(&self) -> Vec<String>;

    /// The program's name and version, as it told.
    fn program(&self) -> Option<String>;

    /// Which optional powers there are.
    const POWERS: Powers;

    /// An answer to the open question `native_id`. Called only when `POWERS.interactions`.
    ///
    /// # Errors
    /// `InvalidAnswer` when it is not open or the answer does not fit.
    fn answer(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()>;

    /// Another permission mode from the next turn on. Called only when `POWERS.permission_modes`.
    ///
    /// # Errors
    /// `InvalidConfiguration` when there is no such mode.
    fn set_mode(&mut self, mode: &str, effects: &mut Effects) -> Result<()>;

    /// Stop a child run. Called only when `POWERS.child_run_control`.
    ///
    /// # Errors
    /// When there is no such run.
    fn stop_child(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()>;
}

/// Which optional powers a protocol has; the client's accessors follow it (EN14).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Powers {
    /// It answers questions.
    pub interactions: bool,
    /// It changes permission modes.
    pub permission_modes: bool,
    /// It stops child runs.
    pub child_run_control: bool,
}

/// How a handshake stands.
#[derive(Debug)]
pub enum Handshake {
    /// More lines are needed.
    Pending,
    /// The program has this conversation.
    Bound(String),
    /// It will not come to be.
    Failed(Error),
}

/// One line of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its LF; UTF-8.
    Text(&'a str),
    /// A line that is not UTF-8, with what is wrong replaced.
    Garbled(&'a str),
    /// A line over the cap.
    Overlong {
        /// Its first bytes, as text.
        head: &'a str,
        /// Its whole length, bytes.
        length: u64,
    },
}

/// What a line or command leads to.
#[derive(Debug, Default)]
pub struct Effects {
    /// What the engine says.
    pub emit: Emitter,
    /// The offset of the line being handled: unique, and the same on every replay.
    pub at: u64,
    outgoing: Vec<String>,
    jobs: Vec<Job>,
}

impl Effects {
    /// Effects of the line at this offset.
    #[must_use]
    pub fn at(offset: u64) -> Self {
        Self {
            at: offset,
            ..Self::default()
        }
    }

    /// Sends a line to the program; the LF is added. A JSON text has no LF of its own.
    pub fn send(&mut self, line: String) {
        debug_assert!(!line.contains('\n'), "an outgoing line is one line");
        self.outgoing.push(line);
    }

    /// Wants something done in the sandbox; what came of it comes to [`LineProtocol::on_job`]. In `on_exit` only what
    /// ends by itself, and at once.
    pub fn job(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// What is to be done, in order.
    #[must_use]
    pub fn take_jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    /// The lines to send, in order.
    #[must_use]
    pub fn take_outgoing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.outgoing)
    }
}
