//! What the program needs of the place where it runs, and the place that is a process.

use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::Path;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Where the program runs. Paths are those inside the sandbox.
pub trait Host: Send {
    /// The next line of standard input; waits at most `within`, or for ever.
    fn line(&mut self, within: Option<Duration>) -> impl Future<Output = Heard> + Send;
    /// Writes to standard output.
    fn print(&mut self, bytes: &[u8]);
    /// Writes to standard error.
    fn eprint(&mut self, text: &str);
    /// A word that no other conversation has: `[a-z0-9]`.
    fn nonce(&mut self) -> String;
    /// A file's content.
    fn read(&self, path: &str) -> Option<Vec<u8>>;
    /// Whether a file is there.
    fn exists(&self, path: &str) -> bool;
    /// Adds to a file and makes it and its parents when they are not there.
    fn append(&mut self, path: &str, bytes: &[u8]) -> bool;
    /// Starts a command with `sh` in the workspace; one at a time.
    fn start_tool(&mut self, command: &str);
    /// What the command did since; returns at once.
    fn poll_tool(&mut self) -> ToolEvent;
    /// Ends the command.
    fn kill_tool(&mut self);
}

/// What came from standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A line, without its line feed.
    Line(String),
    /// Nothing, in the time given.
    Nothing,
    /// It ended.
    End,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEvent {
    /// It printed.
    Output(String),
    /// It ended with this code.
    Done(i32),
    /// Nothing yet.
    Nothing,
}

/// The host that is a real process.
pub struct StdHost {
    lines: Receiver<String>,
    tool: Option<Tool>,
}

struct Tool {
    child: Child,
    output: Receiver<Vec<u8>>,
}

/// Lines or pieces that may wait between the reading thread and the program.
const WAITING: usize = 64;
/// How long the output of a command may come after its exit.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl StdHost {
    /// This process.
    #[must_use]
    pub fn new() -> Self {
        let (sender, lines) = sync_channel(WAITING);
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, tool: None }
    }
}

impl Default for StdHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for StdHost {
    fn line(&mut self, within: Option<Duration>) -> impl Future<Output = Heard> + Send {
        // It blocks: the program is all that this process does.
        let heard = match within {
            None => self
                .lines
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(within) => self.lines.recv_timeout(within),
        };
        std::future::ready(match heard {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        })
    }

    fn print(&mut self, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        // Who does not read any more closes standard input as well.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn eprint(&mut self, text: &str) {
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn nonce(&mut self) -> String {
        let mut bytes = [0_u8; 8];
        if let Ok(mut file) = File::open("/dev/urandom") {
            let _ = file.read_exact(&mut bytes);
        }
        format!("{:016x}", u64::from_ne_bytes(bytes))
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(path).ok()
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> bool {
        let write = || {
            if let Some(parent) = Path::new(path).parent() {
                fs::create_dir_all(parent)?;
            }
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(bytes)
        };
        write().is_ok()
    }

    fn start_tool(&mut self, command: &str) {
        let child = Command::new("/bin/sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(astrabox_engine::sandbox::WORKSPACE)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        self.tool = child.ok().map(|mut child| {
            let (sender, output) = sync_channel(WAITING);
            if let Some(mut stdout) = child.stdout.take() {
                std::thread::spawn(move || {
                    let mut buffer = [0_u8; 4096];
                    while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                        if sender.send(buffer[..length].to_vec()).is_err() {
                            return;
                        }
                    }
                });
            }
            Tool { child, output }
        });
    }

    fn poll_tool(&mut self) -> ToolEvent {
        let Some(tool) = &mut self.tool else {
            return ToolEvent::Done(127);
        };
        // A process left in the background keeps the pipe open: the shell's exit is the end, but for what it
        // printed last.
        let exited = tool.child.try_wait().ok().flatten();
        let grace = if exited.is_some() {
            LAST_WORDS
        } else {
            Duration::ZERO
        };
        if let Ok(bytes) = tool.output.recv_timeout(grace) {
            return ToolEvent::Output(String::from_utf8_lossy(&bytes).into_owned());
        }
        match exited {
            Some(status) => {
                self.tool = None;
                ToolEvent::Done(status.code().unwrap_or(-1))
            }
            None => ToolEvent::Nothing,
        }
    }

    fn kill_tool(&mut self) {
        if let Some(mut tool) = self.tool.take() {
            let _ = tool.child.kill();
            let _ = tool.child.wait();
        }
    }
}

/// Runs a future whose host blocks, as [`StdHost`] does, to its end. One that waits for nothing waits for ever.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}
