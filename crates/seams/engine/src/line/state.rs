//! The synchronous middle: bytes and commands go in, steps and outgoing bytes come out.

use std::collections::VecDeque;

use astrabox_sandbox::{ExitStatus, Output, ProcessName};
use astrabox_types::InputId;
use serde::{Deserialize, Serialize};

use super::job::{Job, JobResult};
use super::protocol::{Effects, Line, LineProtocol};
use super::splitter::{Draining, Piece, Splitter};
use super::tail::Tail;
use crate::{Checkpoint, EngineInput, Error, ErrorKind, Result, Step};

/// Output that may wait uncommitted before a step asks for a commit, so that the spool is freed (1 MiB).
const COMMIT_AFTER: u64 = 1 << 20;
/// Output of one line that is not finished yet, after which a step tells that the program is not silent (1 MiB).
const SIGN_OF_LIFE: u64 = 1 << 20;
/// How many input ids are remembered for EN5; the platform repeats only the newest.
const REMEMBERED_INPUTS: usize = 64;

/// Everything about a client that changes, without the process that it speaks to.
pub(super) struct Core<P> {
    pub(super) protocol: P,
    splitter: Splitter,
    stderr: Tail,
    /// Where the next outgoing byte goes.
    pub(super) stdin_offset: u64,
    pub(super) outbox: VecDeque<Outgoing>,
    delivered: VecDeque<InputId>,
    deliveries: VecDeque<EngineInput>,
    /// What is to be done and is not, each with its number.
    jobs: VecDeque<(u64, Job)>,
    /// How many jobs were asked for.
    jobs_asked: u64,
    /// Below which number they were begun, by this client.
    jobs_begun: u64,
    refused: u64,
    held: Step,
    /// How far output was when a commit was last asked for or made.
    asked: Consumed,
    /// How far output was read when a step was last given.
    alive_at: u64,
    pub(super) exit: Option<ExitStatus>,
}

/// Bytes on their way to the program, with the offset at which the runner takes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outgoing {
    pub(super) offset: u64,
    pub(super) text: String,
}

/// How much output of the program is not needed any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Consumed {
    pub(super) stdout: u64,
    pub(super) stderr: u64,
}

/// A checkpoint, to read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved<P> {
    pub(super) process: ProcessName,
    pub(super) stdout: u64,
    pub(super) stderr: u64,
    draining: Option<Draining>,
    stdin: u64,
    outbox: VecDeque<Outgoing>,
    delivered: VecDeque<InputId>,
    refused: u64,
    #[serde(default)]
    jobs: VecDeque<(u64, Job)>,
    #[serde(default)]
    jobs_asked: u64,
    protocol: P,
}

/// A checkpoint, to write.
#[derive(Serialize)]
struct SavedRef<'a, P> {
    process: &'a ProcessName,
    stdout: u64,
    stderr: u64,
    draining: Option<&'a Draining>,
    stdin: u64,
    outbox: &'a VecDeque<Outgoing>,
    delivered: &'a VecDeque<InputId>,
    refused: u64,
    jobs: &'a VecDeque<(u64, Job)>,
    jobs_asked: u64,
    protocol: &'a P,
}

/// The parts of a checkpoint that say how far it goes.
#[derive(Deserialize)]
pub(super) struct Position {
    stdout: u64,
    stderr: u64,
    pub(super) stdin: u64,
    /// How many jobs were asked for.
    #[serde(default, rename = "jobs_asked")]
    pub(super) jobs: u64,
}

impl Position {
    pub(super) fn consumed(&self) -> Consumed {
        Consumed {
            stdout: self.stdout,
            stderr: self.stderr,
        }
    }
}

impl<P: LineProtocol> Core<P> {
    pub(super) fn new(mut protocol: P, epoch: u64) -> Self {
        protocol.attached(epoch);
        Self {
            protocol,
            splitter: Splitter::new(0, None),
            stderr: Tail::new(0),
            stdin_offset: 0,
            outbox: VecDeque::new(),
            delivered: VecDeque::new(),
            deliveries: VecDeque::new(),
            jobs: VecDeque::new(),
            jobs_asked: 0,
            jobs_begun: 0,
            refused: 0,
            held: Step::default(),
            asked: Consumed::default(),
            alive_at: 0,
            exit: None,
        }
    }

    pub(super) fn restore(saved: Saved<P>, epoch: u64) -> Self {
        let mut core = Self::new(saved.protocol, epoch);
        core.splitter = Splitter::new(saved.stdout, saved.draining);
        core.stderr = Tail::new(saved.stderr);
        core.stdin_offset = saved.stdin;
        // Whether these left before the crash is not known; the runner takes each offset once (EN7).
        core.held.commit = !saved.outbox.is_empty() || !saved.jobs.is_empty();
        core.jobs = saved.jobs;
        core.jobs_asked = saved.jobs_asked;
        core.outbox = saved.outbox;
        core.delivered = saved.delivered;
        core.refused = saved.refused;
        core.asked = core.consumed();
        core.alive_at = core.splitter.end();
        core
    }

    pub(super) fn checkpoint(&self, process: &ProcessName) -> Checkpoint {
        let Consumed { stdout, stderr } = self.consumed();
        let saved = SavedRef {
            process,
            stdout,
            stderr,
            draining: self.splitter.draining(),
            stdin: self.stdin_offset,
            outbox: &self.outbox,
            delivered: &self.delivered,
            refused: self.refused,
            jobs: &self.jobs,
            jobs_asked: self.jobs_asked,
            protocol: &self.protocol,
        };
        Checkpoint::new(serde_json::to_string(&saved).expect("a protocol's state is JSON"))
    }

    fn consumed(&self) -> Consumed {
        Consumed {
            stdout: self.splitter.offset(),
            stderr: self.stderr.begin(),
        }
    }

    /// The last of standard error, as text.
    pub(super) fn stderr_text(&self) -> String {
        self.stderr.text()
    }

    /// Notes that a checkpoint is durable.
    pub(super) fn committed(&mut self, at: Consumed) {
        self.asked.stdout = self.asked.stdout.max(at.stdout);
        self.asked.stderr = self.asked.stderr.max(at.stderr);
    }

    pub(super) fn hold(&mut self, step: Step) {
        self.held.emissions.extend(step.emissions);
        self.held.commit |= step.commit;
    }

    /// The next step that needs no more input. In a handshake a step that has nothing to tell counts too: it
    /// may be the one that ends it.
    pub(super) fn ready_step(&mut self, process: &ProcessName, handshake: bool) -> Option<Step> {
        let mut moved = false;
        loop {
            if self.held.commit || !self.held.emissions.is_empty() || (handshake && moved) {
                self.alive_at = self.splitter.end();
                return Some(std::mem::take(&mut self.held));
            }
            if self.exit.is_some() {
                return None;
            }
            moved = true;
            let step = if let Some(input) = self.deliveries.pop_front() {
                self.deliver(&input, process)
            } else if let Some(piece) = self.splitter.next_piece() {
                self.translate(&piece)
            } else {
                return self.commit_if_due().or_else(|| self.sign_of_life());
            };
            self.hold(step);
        }
    }

    /// A step that frees output, when much of it has gathered without anything to tell.
    fn commit_if_due(&mut self) -> Option<Step> {
        let now = self.consumed();
        let due = now.stdout >= self.asked.stdout + COMMIT_AFTER
            || now.stderr >= self.asked.stderr + COMMIT_AFTER;
        due.then(|| {
            self.asked = now;
            Step {
                emissions: Vec::new(),
                commit: true,
            }
        })
    }

    /// A step with nothing in it, when much of a long line has come: a program that speaks is not silent.
    fn sign_of_life(&mut self) -> Option<Step> {
        let now = self.splitter.end();
        (now >= self.alive_at + SIGN_OF_LIFE).then(|| {
            self.alive_at = now;
            Step::default()
        })
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

    /// Queues an input: it is handled together with the step that tells of it.
    pub(super) fn queue(&mut self, input: EngineInput) {
        // After the end nobody reads any more: the input stays the platform's, for the next process.
        if self.exit.is_none() {
            self.deliveries.push_back(input);
        }
    }

    fn deliver(&mut self, input: &EngineInput, process: &ProcessName) -> Step {
        if self.delivered.contains(&input.input_id) {
            return Step::default();
        }
        self.delivered.push_back(input.input_id);
        if self.delivered.len() > REMEMBERED_INPUTS {
            self.delivered.pop_front();
        }
        let mut effects = Effects::at(self.splitter.offset());
        if let Err(error) = self.protocol.deliver(input, &mut effects) {
            self.refused += 1;
            // Unique in the conversation: other processes of it have other names.
            let key = format!("refused/{process}/{}", self.refused);
            let emit = &mut effects.emit;
            emit.diagnostic(&key, "input_refused", error.to_string(), None);
            emit.failed("input_not_delivered", error.to_string(), None);
        }
        self.absorb(effects)
    }

    /// Runs a command that only makes outgoing bytes; they leave with a later step.
    pub(super) fn command(
        &mut self,
        run: impl FnOnce(&mut P, &mut Effects) -> Result<()>,
    ) -> Result<()> {
        if self.exit.is_some() {
            let text = "the program has ended; nobody is there to take it";
            return Err(Error::new(ErrorKind::Exited, "command", text));
        }
        let mut effects = Effects::at(self.splitter.offset());
        run(&mut self.protocol, &mut effects)?;
        let step = self.absorb(effects);
        self.hold(step);
        Ok(())
    }

    pub(super) fn absorb(&mut self, mut effects: Effects) -> Step {
        let outgoing = effects.take_outgoing();
        let jobs = effects.take_jobs();
        let commit = !outgoing.is_empty() || !jobs.is_empty();
        for job in jobs {
            self.jobs.push_back((self.jobs_asked, job));
            self.jobs_asked += 1;
        }
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

    /// The jobs below this number that are still to be begun.
    pub(super) fn begin_jobs(&mut self, below: u64) -> Vec<Job> {
        let begun = self.jobs_begun;
        self.jobs_begun = begun.max(below.min(self.jobs_asked));
        let due = self
            .jobs
            .iter()
            .filter(|(number, _)| *number >= begun && *number < below);
        due.map(|(_, job)| job.clone()).collect()
    }

    /// Takes what came of a job.
    pub(super) fn take_job(&mut self, id: &str, result: &JobResult) {
        let Some(at) = self.jobs.iter().position(|(_, job)| job.id == id) else {
            return;
        };
        self.jobs.remove(at);
        let mut effects = Effects::at(self.splitter.offset());
        self.protocol.on_job(id, result, &mut effects);
        let mut step = self.absorb(effects);
        // Else it would be done again after a restart.
        step.commit = true;
        self.hold(step);
        if self.exit.is_some() {
            // Nobody is there to read it.
            self.outbox.clear();
        }
    }

    /// Takes output.
    ///
    /// # Errors
    /// `Protocol` when bytes are missing: reading on would make up lines that were never written.
    pub(super) fn take_output(&mut self, output: &Output) -> Result<()> {
        let expected = if output.stderr {
            self.stderr.end()
        } else {
            self.splitter.end()
        };
        if output.offset > expected {
            let text = format!(
                "output is missing: expected byte {expected}, got byte {}",
                output.offset
            );
            return Err(Error::new(ErrorKind::Protocol, "read", text));
        }
        if output.stderr {
            self.stderr.feed(output.offset, &output.bytes);
        } else {
            self.splitter.feed(output.offset, &output.bytes);
        }
        Ok(())
    }

    pub(super) fn take_exit(&mut self, exit: &ExitStatus) {
        while let Some(piece) = self.splitter.next_piece() {
            let step = self.translate(&piece);
            self.hold(step);
        }
        if let Some(piece) = self.splitter.finish() {
            let step = self.translate(&piece);
            self.hold(step);
        }
        // Of what the program wanted nothing is needed any more, but what is wanted because of its end.
        self.jobs.clear();
        let mut effects = Effects::at(self.splitter.offset());
        let stderr = self.stderr.text();
        self.protocol.on_exit(exit, stderr.trim_end(), &mut effects);
        let step = self.absorb(effects);
        self.hold(step);
        // Nobody is there to read these; a waiting input is the platform's again.
        self.outbox.clear();
        self.deliveries.clear();
        self.held.commit = true;
        self.exit = Some(exit.clone());
    }
}
