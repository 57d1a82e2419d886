//! Starting programs: cargo with a clean environment, output shown as it comes, a deadline on
//! every wait.

mod counts;
mod descendants;

use std::io::{BufRead as _, BufReader, PipeReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

pub(crate) use counts::{Counts, Skip, Tally};

/// How long output may still come after the program itself has ended: something that it left
/// running can hold the pipe open for ever.
const DRAIN: Duration = Duration::from_secs(2);

/// `cargo` in `dir`, without what the outer `cargo run` put into our environment.
pub(crate) fn cargo(dir: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(dir);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let outer = [
            "CARGO_MANIFEST_",
            "CARGO_PKG_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
        ]
        .iter()
        .any(|prefix| text.starts_with(prefix));
        if outer || text == "CARGO_PRIMARY_PACKAGE" {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs `command` on our own terminal.
pub(crate) fn passthrough(mut command: Command) -> Result<ExitCode> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The command line of `command` as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// How a program ended, and what its output said about tests.
pub(crate) struct Ended {
    /// `None` when it was stopped at its deadline.
    pub(crate) status: Option<ExitStatus>,
    /// Test results read from the output.
    pub(crate) tally: Tally,
}

enum Event {
    Line(String),
    Eof,
    Exit(std::io::Result<ExitStatus>),
}

/// Runs `command` without standard input and prints its output line by line; it and all that it
/// started are killed when it takes longer than `limit`.
pub(crate) fn watch(mut command: Command, limit: Duration) -> Result<Ended> {
    let (reader, writer) = std::io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", shown(&command)))?;
    // Our copies of the pipe's writing end live in `command`.
    drop(command);
    let pid = child.id();
    let (sender, events) = channel();
    let lines = sender.clone();
    // A reader may outlive this function when a daemon keeps the pipe; it ends with the pipe.
    thread::spawn(move || read_lines(reader, &lines));
    thread::spawn(move || wait(child, &sender));
    Ok(follow(&events, pid, limit))
}

fn read_lines(reader: PipeReader, events: &Sender<Event>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        if events.send(Event::Line(text)).is_err() {
            return;
        }
        line.clear();
    }
    // The receiver may be gone: then nobody asks.
    let _ = events.send(Event::Eof);
}

fn wait(mut child: Child, events: &Sender<Event>) {
    let _ = events.send(Event::Exit(child.wait()));
}

fn follow(events: &Receiver<Event>, pid: u32, limit: Duration) -> Ended {
    let mut deadline = Instant::now() + limit;
    let mut tally = Tally::default();
    let mut status = None;
    let mut eof = false;
    let mut killed = false;
    while status.is_none() || !eof {
        let left = deadline.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Line(line)) => {
                println!("{line}");
                tally.read(&line);
            }
            Ok(Event::Eof) => eof = true,
            Ok(Event::Exit(ended)) => {
                status = ended.ok();
                if status.is_none() {
                    break;
                }
                deadline = Instant::now() + DRAIN;
            }
            Err(RecvTimeoutError::Timeout) if status.is_none() && !killed => {
                println!("stopped after {} s, its limit", limit.as_secs());
                descendants::kill_tree(pid);
                killed = true;
                deadline = Instant::now() + DRAIN;
            }
            Err(_) => break,
        }
    }
    Ended {
        status: status.filter(|_| !killed),
        tally,
    }
}

#[cfg(test)]
mod tests;
