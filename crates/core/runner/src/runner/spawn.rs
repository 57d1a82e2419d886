//! Starting a process, once for each name.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use astrabox_runner_protocol::state::{MAX_NAME_BYTES, is_process_name};
use astrabox_runner_protocol::{
    OutputStream, ProcessInfo, RunnerError, RunnerErrorKind, SpawnCommand, wire,
};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::net::unix::pipe;

use super::{Result, Runner, watch};
use crate::isolation::{SpawnRequest, SpawnStage};
use crate::output::Output;
use crate::process::{Process, SpawnFailure, Streams, pump};
use crate::spool::Spool;
use crate::stdin::Stdin;

const OPERATION: &str = "spawn";

/// The least that a stream can hold, bytes: the chunks it is moved in.
const LEAST_SPOOL: u64 = 64 << 10;

impl SpawnFailure {
    pub(super) fn new(stage: SpawnStage, errno: i32) -> Self {
        let answer = std::io::Error::from_raw_os_error(errno);
        let what = match stage {
            SpawnStage::Request => "the request cannot be read",
            SpawnStage::Fork => "no process can be made",
            SpawnStage::Directory => "the working directory cannot be entered",
            SpawnStage::Exec => "the program cannot be executed",
        };
        Self {
            errno,
            message: format!("{what}: {answer}"),
        }
    }

    pub(super) fn box_gone() -> Self {
        Self {
            errno: 0,
            message: "the sandbox ended before the program was started".into(),
        }
    }
}

/// The ends of a process's streams that go into the box.
struct BoxEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Runner {
    /// Starts a process, or finds that the same request has started it already. Waits until it runs.
    pub(crate) async fn spawn(self: &Arc<Self>, command: SpawnCommand) -> Result<ProcessInfo> {
        check(&command)?;
        let name = command.name.clone();
        let digest = digest(&command);
        let existing = self.table().by_name.get(&name).cloned();
        let process = match existing {
            Some(process) if process.request_sha256 == digest => process,
            Some(_) => {
                let text = format!("process {name:?} was spawned by another request");
                return Err(RunnerError::new(
                    RunnerErrorKind::NameTaken,
                    OPERATION,
                    text,
                ));
            }
            // Nothing waits from here to the entry in the table, so no other call comes in between.
            None => self.begin(command, digest)?,
        };
        started(&process).await?;
        Ok(process.info())
    }

    fn begin(self: &Arc<Self>, command: SpawnCommand, digest: String) -> Result<Arc<Process>> {
        // Refused before anything is written down.
        self.sandbox.ask(OPERATION, |_| Ok(()))?;
        self.make_room()?;
        let tag = {
            let mut table = self.table();
            table.last_tag += 1;
            table.last_tag
        };
        let (streams, ends) = self.streams(&command).map_err(|error| internal(&error))?;
        let process = Arc::new(Process::new(
            command.name.clone(),
            tag,
            digest,
            self.info.generation,
            streams,
            self.sandbox.counters(),
            self.stop.child_token(),
        ));
        self.table()
            .by_name
            .insert(process.name.clone(), process.clone());
        if let Err(error) = self.records.write_intent(&process.record()) {
            self.drop_process(&process);
            return Err(internal(&error));
        }
        let wall_limit = Duration::from_millis(command.wall_limit_ms);
        let request = request(command, tag, ends);
        if let Err(error) = self
            .sandbox
            .ask(OPERATION, |isolated| isolated.spawn(request))
        {
            self.drop_process(&process);
            return Err(error);
        }
        self.follow(&process, wall_limit);
        Ok(process)
    }

    /// Starts the tasks that live with the process.
    fn follow(self: &Arc<Self>, process: &Arc<Process>, wall_limit: Duration) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let runner = self.clone();
            let name = process.name.clone();
            let trouble = move |error: &std::io::Error| {
                runner
                    .log
                    .line(format_args!("the spool of {name} takes no bytes: {error}"));
            };
            self.tasks
                .spawn(pump::output(process.clone(), stream, trouble));
        }
        self.tasks.spawn(pump::stdin(process.clone()));
        if !wall_limit.is_zero() {
            self.tasks
                .spawn(watch::wall_time(self.clone(), process.clone(), wall_limit));
        }
    }

    fn streams(&self, command: &SpawnCommand) -> std::io::Result<(Streams, BoxEnds)> {
        let state = &self.records.state;
        let most = self.spec.spool_bytes;
        let wanted = if command.spool_bytes == 0 {
            most
        } else {
            command.spool_bytes
        };
        let capacity = wanted.min(most).max(LEAST_SPOOL);
        let output = |stream| {
            let (reader, writer) = std::io::pipe()?;
            let reader = pipe::Receiver::from_owned_fd(reader.into())?;
            let spool = Spool::new(state.output(&command.name, stream), capacity);
            std::io::Result::Ok((Output::new(reader, spool), OwnedFd::from(writer)))
        };
        let (stdout, stdout_end) = output(OutputStream::Stdout)?;
        let (stderr, stderr_end) = output(OutputStream::Stderr)?;
        let (stdin, stdin_end) = if command.stdin {
            let (reader, writer) = std::io::pipe()?;
            let writer = pipe::Sender::from_owned_fd(writer.into())?;
            let spool = Spool::new(state.stdin(&command.name), self.spec.stdin_bytes);
            (Some(Stdin::new(writer, spool)), OwnedFd::from(reader))
        } else {
            (
                None,
                OpenOptions::new().read(true).open("/dev/null")?.into(),
            )
        };
        let ends = BoxEnds {
            stdin: stdin_end,
            stdout: stdout_end,
            stderr: stderr_end,
        };
        Ok((
            Streams {
                stdin,
                stdout,
                stderr,
            },
            ends,
        ))
    }

    /// Drops the longest-ended process of which everything was acknowledged, if the table is full.
    fn make_room(&self) -> Result<()> {
        let processes = self.processes();
        let most = usize::try_from(self.spec.max_processes).unwrap_or(usize::MAX);
        if processes.len() < most {
            return Ok(());
        }
        let settled = processes.iter().filter(|process| process.is_settled());
        let ended_at = |process: &&Arc<Process>| process.info().exit.map(|exit| exit.at_ms);
        match settled.min_by_key(ended_at) {
            Some(process) => {
                self.drop_process(process);
                Ok(())
            }
            None => Err(RunnerError::new(
                RunnerErrorKind::TooManyProcesses,
                OPERATION,
                format!("{most} processes are on record; acknowledge or forget some"),
            )),
        }
    }
}

/// Waits until the start is decided.
async fn started(process: &Process) -> Result<()> {
    let mut changes = process.changes();
    loop {
        changes.mark_unchanged();
        match process.start_outcome() {
            Some(Ok(())) => return Ok(()),
            Some(Err(failure)) => {
                let errno = failure.errno;
                let kind = RunnerErrorKind::SpawnFailed { errno };
                return Err(RunnerError::new(kind, OPERATION, failure.message));
            }
            // The sender lives in the process, so there is always a next change.
            None => drop(changes.changed().await),
        }
    }
}

fn request(command: SpawnCommand, tag: u64, ends: BoxEnds) -> SpawnRequest {
    let env = command.env.into_iter();
    SpawnRequest {
        tag,
        argv: command.argv.into_iter().map(OsString::from).collect(),
        env: env
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        cwd: command.cwd.into(),
        stdin: ends.stdin,
        stdout: ends.stdout,
        stderr: ends.stderr,
    }
}

fn check(command: &SpawnCommand) -> Result<()> {
    let invalid = |text: String| {
        Err(RunnerError::new(
            RunnerErrorKind::InvalidArgument,
            OPERATION,
            text,
        ))
    };
    if !is_process_name(&command.name) {
        return invalid(format!(
            "a process name is 1 to {MAX_NAME_BYTES} of [A-Za-z0-9._-], not beginning with a dot"
        ));
    }
    if command.argv.first().is_none_or(String::is_empty) {
        return invalid("argv must name a program".into());
    }
    if !Path::new(&command.cwd).is_absolute() {
        return invalid("cwd must be an absolute directory".into());
    }
    Ok(())
}

/// What makes two requests the same: everything in them but the order of the environment.
fn digest(command: &SpawnCommand) -> String {
    let mut command = command.clone();
    command.env.sort();
    let bytes = wire::SpawnRequest::from(command).encode_to_vec();
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn internal(error: &std::io::Error) -> RunnerError {
    let text = format!("cannot prepare the process: {error}");
    RunnerError::new(RunnerErrorKind::Internal, OPERATION, text)
}
