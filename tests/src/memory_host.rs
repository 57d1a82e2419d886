//! Programs of the testkit in a sandbox in memory.

use std::collections::VecDeque;
use std::time::Duration;

use astrabox_conformance::doubles::{MemoryFiles, ProgramIo};
use astrabox_sandbox::{BoxPath, WORKSPACE, WriteOptions};
use astrabox_testkit::fake_engine::{Heard, Host, ToolEvent};

/// The place where a program runs that is a part of this process.
pub struct MemoryHost {
    io: ProgramIo,
    nonce: Option<String>,
    heard: Vec<u8>,
    ended: bool,
    tool: VecDeque<ToolEvent>,
}

impl MemoryHost {
    /// A place for the program that was given this.
    #[must_use]
    pub fn new(io: ProgramIo) -> Self {
        Self {
            io,
            nonce: None,
            heard: Vec::new(),
            ended: false,
            tool: VecDeque::new(),
        }
    }

    /// The same, where the program's word that no other has is this one: each run says the same.
    #[must_use]
    pub fn fixed(io: ProgramIo, nonce: &str) -> Self {
        Self {
            nonce: Some(nonce.to_owned()),
            ..Self::new(io)
        }
    }

    fn take_line(&mut self) -> Option<Heard> {
        if let Some(at) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.heard[..at]).into_owned();
            self.heard.drain(..=at);
            return Some(Heard::Line(line));
        }
        self.ended.then_some(Heard::End)
    }
}

fn path(text: &str) -> BoxPath {
    BoxPath::new(text).expect("the program's paths are plain")
}

fn read(files: &MemoryFiles, at: &str) -> Option<Vec<u8>> {
    let bytes = files.read(&path(at), 0, u64::MAX).ok()?;
    Some(bytes.to_vec())
}

impl Host for MemoryHost {
    async fn line(&mut self, within: Option<Duration>) -> Heard {
        let deadline = within.map(|within| tokio::time::Instant::now() + within);
        loop {
            if let Some(heard) = self.take_line() {
                return heard;
            }
            // Nothing is taken from the process before `read` is ready.
            let read = match deadline {
                Some(deadline) => match tokio::time::timeout_at(deadline, self.io.read()).await {
                    Ok(read) => read,
                    Err(_) => return Heard::Nothing,
                },
                None => self.io.read().await,
            };
            match read {
                Some(bytes) => self.heard.extend_from_slice(&bytes),
                None => self.ended = true,
            }
        }
    }

    fn print(&mut self, bytes: &[u8]) {
        self.io.print(bytes);
    }

    fn eprint(&mut self, text: &str) {
        self.io.eprint(text);
    }

    fn nonce(&mut self) -> String {
        match &self.nonce {
            Some(nonce) => nonce.clone(),
            None => astrabox_types::EventId::new().uuid().simple().to_string(),
        }
    }

    fn read(&self, at: &str) -> Option<Vec<u8>> {
        read(&self.io.files, at)
    }

    fn exists(&self, at: &str) -> bool {
        self.io.files.read(&path(at), 0, 0).is_ok()
    }

    fn append(&mut self, at: &str, bytes: &[u8]) -> bool {
        let mut content = read(&self.io.files, at).unwrap_or_default();
        content.extend_from_slice(bytes);
        self.io
            .files
            .write(&path(at), content.into(), WriteOptions::default())
            .is_ok()
    }

    /// A very small shell: `echo`, `cat`, `exit`, and `sleep`, which is for ever.
    fn start_tool(&mut self, command: &str) {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let (output, code) = match (word, rest.split_once(" > ")) {
            ("echo", Some((text, file))) => {
                let written = self.append(&format!("{WORKSPACE}/{file}"), text.as_bytes());
                (String::new(), i32::from(!written))
            }
            ("echo", None) => (format!("{rest}\n"), 0),
            ("cat", _) => match self.read(&format!("{WORKSPACE}/{rest}")) {
                Some(content) => (String::from_utf8_lossy(&content).into_owned(), 0),
                None => (format!("{rest}: no such file\n"), 1),
            },
            ("exit", _) => (String::new(), rest.parse().unwrap_or(2)),
            ("sleep", _) => {
                self.tool = VecDeque::from([ToolEvent::Output("sleeping\n".to_owned())]);
                return;
            }
            _ => (format!("{word}: not found\n"), 127),
        };
        self.tool = VecDeque::from([ToolEvent::Output(output), ToolEvent::Done(code)]);
    }

    fn poll_tool(&mut self) -> ToolEvent {
        self.tool.pop_front().unwrap_or(ToolEvent::Nothing)
    }

    fn kill_tool(&mut self) {
        self.tool.clear();
    }
}
