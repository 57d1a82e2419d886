//! What a protocol wants done in its sandbox for the program: files and processes, as data and as deeds.
//!
//! A job is asked for by [`Effects::job`](super::Effects::job), is part of the checkpoint until it is done, and is
//! begun only when that checkpoint is durable (EN7). After a restart it is done again, so each is one that may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_sandbox::{
    BoxPath, Error, ErrorKind, ExitStatus, FileKind, OutputEvent, ProcessName, Signal, SignalScope,
    SpawnSpec, Stdio, WORKSPACE, Workload, WriteOptions,
};
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

/// The longest text that is read or shown (1 MiB): it goes to the program in one line, which is in the checkpoint.
pub const LONGEST_TEXT: u64 = 1 << 20;
/// How much of a file is looked through for the lines that are wanted (64 MiB).
const SEARCHED: u64 = 64 << 20;
/// How much is read in one call.
const CHUNK: u64 = 1 << 20;

/// Something to do in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Unique in the conversation; the result comes with it.
    pub id: String,
    /// What.
    pub work: Work,
}

/// What there is to do. Texts are only read and written below the workspace, and never through a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Work {
    /// Reads a text file: from this line on, counted from 1, and at most so many lines.
    ReadText {
        /// The file.
        path: BoxPath,
        /// The first line.
        line: Option<u64>,
        /// How many.
        lines: Option<u64>,
    },
    /// Writes a whole text file; parents are made.
    WriteText {
        /// The file.
        path: BoxPath,
        /// What is in it then.
        text: String,
    },
    /// Starts a command whose output goes to a file. One that has this name already is that one.
    Start {
        /// Its name, unique in the sandbox's life.
        process: ProcessName,
        /// Program and arguments; the program may be a name that is looked up.
        command: Vec<String>,
        /// Its whole environment.
        env: BTreeMap<String, String>,
        /// Its directory; below the workspace.
        cwd: BoxPath,
        /// Where its output goes.
        output: BoxPath,
    },
    /// Looks at a command: the end of its output, at most so many bytes, and whether it has ended.
    Look {
        /// Its name.
        process: ProcessName,
        /// Where its output is.
        output: BoxPath,
        /// How much of the output is wanted, bytes.
        limit: u64,
    },
    /// Waits until a command has ended.
    AwaitEnd {
        /// Its name.
        process: ProcessName,
    },
    /// Kills a command with everything in its process group.
    Kill {
        /// Its name.
        process: ProcessName,
    },
    /// Kills a command and removes its output.
    Forget {
        /// Its name.
        process: ProcessName,
        /// Where its output is.
        output: BoxPath,
    },
}

/// What came of a job.
pub type JobResult = std::result::Result<Done, Undone>;

/// What a job gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It is done, and gives nothing.
    Nothing,
    /// The text that was read.
    Text(String),
    /// What a command showed.
    Shown {
        /// The end of its output.
        text: String,
        /// Whether there was more before it.
        cut: bool,
        /// How it ended, if it did.
        exit: Option<ExitStatus>,
    },
    /// How a command ended.
    Ended(ExitStatus),
}

/// Why a job was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// Whether what it is about is not there.
    pub missing: bool,
    /// What went wrong, for the program.
    pub message: String,
}

impl Undone {
    fn refused(message: impl Into<String>) -> Self {
        Self {
            missing: false,
            message: message.into(),
        }
    }
}

/// Does a job. `None` when the connection to the sandbox is lost: it is still to be done.
pub(super) async fn run(workload: Arc<dyn Workload>, job: Job) -> (String, Option<JobResult>) {
    let workload = workload.as_ref();
    let done = match job.work {
        Work::ReadText { path, line, lines } => read_text(workload, &path, line, lines).await,
        Work::WriteText { path, text } => write_text(workload, &path, text).await,
        Work::Start {
            process,
            command,
            env,
            cwd,
            output,
        } => start(workload, process, command, env, cwd, output).await,
        Work::Look {
            process,
            output,
            limit,
        } => look(workload, &process, &output, limit).await,
        Work::AwaitEnd { process } => await_end(workload, &process).await,
        Work::Kill { process } => kill(workload, &process).await,
        Work::Forget { process, output } => forget(workload, &process, &output).await,
    };
    let result = match done {
        Ok(done) => Some(Ok(done)),
        Err(Stop::Undone(undone)) => Some(Err(undone)),
        Err(Stop::Detached) => None,
    };
    (job.id, result)
}

/// Why a job stops.
enum Stop {
    Undone(Undone),
    Detached,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Detached | ErrorKind::DeadlineExceeded => Self::Detached,
            kind => Self::Undone(Undone {
                missing: kind == ErrorKind::NotFound,
                message: error.context().to_owned(),
            }),
        }
    }
}

/// An error about a file, with the file's name.
fn of(path: &BoxPath) -> impl FnOnce(Error) -> Stop {
    move |error| match Stop::from(error) {
        Stop::Undone(Undone { missing, message }) => Stop::Undone(Undone {
            missing,
            message: format!("`{path}`: {message}"),
        }),
        Stop::Detached => Stop::Detached,
    }
}

impl From<Undone> for Stop {
    fn from(undone: Undone) -> Self {
        Self::Undone(undone)
    }
}

/// Refuses what is not below the workspace, or is reached through a symbolic link: whether that leads out cannot be
/// seen from here.
async fn demand_inside(workload: &dyn Workload, path: &BoxPath) -> Result<(), Stop> {
    if !path.is_within(WORKSPACE) {
        let text = format!("`{path}` is not below {WORKSPACE}");
        return Err(Undone::refused(text).into());
    }
    let mut at = BoxPath::new(WORKSPACE).map_err(|error| Undone::refused(error.to_string()))?;
    let below = path.as_str()[WORKSPACE.len()..].split('/');
    for part in below.filter(|part| !part.is_empty()) {
        at = at
            .join(part)
            .map_err(|error| Undone::refused(error.to_string()))?;
        match workload.stat(&at).await {
            Ok(info) if info.kind == FileKind::Symlink => {
                return Err(Undone::refused(format!("`{at}` is a symbolic link")).into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(of(&at)(error)),
        }
    }
    Ok(())
}

async fn read_text(
    workload: &dyn Workload,
    path: &BoxPath,
    line: Option<u64>,
    lines: Option<u64>,
) -> Result<Done, Stop> {
    demand_inside(workload, path).await?;
    let first = line.unwrap_or(1).max(1);
    let (mut text, mut offset, mut at) = (Vec::new(), 0, 1);
    let last = lines.map(|lines| first.saturating_add(lines));
    'reading: loop {
        let chunk = workload
            .read_file(path, offset, CHUNK)
            .await
            .map_err(of(path))?;
        if chunk.is_empty() {
            break;
        }
        offset += chunk.len() as u64;
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if last.is_some_and(|last| at >= last) {
                break 'reading;
            }
            if at >= first {
                text.extend_from_slice(piece);
            }
            at += u64::from(piece.ends_with(b"\n"));
        }
        if text.len() as u64 > LONGEST_TEXT || offset > SEARCHED {
            let text = format!("`{path}` is too long; ask for fewer lines of it");
            return Err(Undone::refused(text).into());
        }
    }
    let text = String::from_utf8(text);
    let text = text.map_err(|_| Undone::refused(format!("`{path}` is not a text in UTF-8")))?;
    Ok(Done::Text(text))
}

async fn write_text(workload: &dyn Workload, path: &BoxPath, text: String) -> Result<Done, Stop> {
    demand_inside(workload, path).await?;
    let content = Bytes::from(text);
    workload
        .write_file(path, content, WriteOptions::default())
        .await
        .map_err(of(path))?;
    Ok(Done::Nothing)
}

async fn start(
    workload: &dyn Workload,
    process: ProcessName,
    command: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: BoxPath,
    output: BoxPath,
) -> Result<Done, Stop> {
    demand_inside(workload, &cwd).await?;
    if workload.status(&process).await?.is_some() {
        return Ok(Done::Nothing);
    }
    // There before the command is, so that a look finds it.
    workload
        .write_file(&output, Bytes::new(), WriteOptions::default())
        .await?;
    // The command takes the shell's place, so that its end is the process's.
    let shell = ["/bin/sh", "-c", "exec \"$@\" >\"$0\" 2>&1", output.as_str()];
    let argv = shell
        .into_iter()
        .map(str::to_owned)
        .chain(command)
        .collect();
    workload
        .spawn(SpawnSpec {
            name: process,
            argv,
            env,
            cwd,
            stdin: Stdio::Null,
            wall_limit: None,
        })
        .await?;
    Ok(Done::Nothing)
}

async fn look(
    workload: &dyn Workload,
    process: &ProcessName,
    output: &BoxPath,
    limit: u64,
) -> Result<Done, Stop> {
    // First the end, so that what is shown with it is everything.
    let status = workload.status(process).await?;
    let exit = status.and_then(|status| status.exit);
    let size = workload.stat(output).await?.size;
    let from = size.saturating_sub(limit.min(LONGEST_TEXT));
    let mut bytes = Vec::new();
    while from + (bytes.len() as u64) < size {
        let left = size - from - bytes.len() as u64;
        let chunk = workload
            .read_file(output, from + bytes.len() as u64, left.min(CHUNK))
            .await?;
        if chunk.is_empty() {
            break;
        }
        bytes.extend_from_slice(&chunk);
    }
    // A character that was cut at the begin is left out.
    let whole = bytes.iter().position(|byte| byte & 0xC0 != 0x80);
    let begin = if from > 0 {
        whole.unwrap_or(bytes.len())
    } else {
        0
    };
    Ok(Done::Shown {
        text: String::from_utf8_lossy(&bytes[begin..]).into_owned(),
        cut: from > 0,
        exit,
    })
}

async fn await_end(workload: &dyn Workload, process: &ProcessName) -> Result<Done, Stop> {
    // Its output is in a file: of what it is attached for only the end comes.
    let mut output = workload.attach(process, 0, 0).await?;
    while let Some(event) = output.next().await {
        if let OutputEvent::Exited(exit) = event? {
            return Ok(Done::Ended(exit));
        }
    }
    Err(Stop::Detached)
}

async fn kill(workload: &dyn Workload, process: &ProcessName) -> Result<Done, Stop> {
    let sent = workload
        .signal(process, Signal::Kill, SignalScope::Group)
        .await;
    match sent {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WrongState) => {
            Err(error.into())
        }
        _ => Ok(Done::Nothing),
    }
}

async fn forget(
    workload: &dyn Workload,
    process: &ProcessName,
    output: &BoxPath,
) -> Result<Done, Stop> {
    kill(workload, process).await?;
    workload.remove(output).await?;
    Ok(Done::Nothing)
}
