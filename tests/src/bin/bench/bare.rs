//! Agent programs without the platform: the same installed program, started from its image and driven over its own
//! protocol, against the same scripted model. What the platform costs is what it takes longer than this.

mod acp;
mod claude_code;
mod codex;
mod pi;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use astrabox_testkit::model::ScriptedModel;
use async_trait::async_trait;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::sessions::Taken;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How an agent program is started and spoken to, as little of it as a turn of plain text needs.
#[async_trait]
pub(crate) trait Dialect: Sync {
    /// The engine's kind.
    fn kind(&self) -> &'static str;

    /// The program of the image at `root`, to be started in `place`.
    fn command(&self, root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command>;

    /// Shakes hands and opens a conversation; gives its key.
    async fn open(&self, talk: &mut Talk) -> Result<String>;

    /// A prompt as a line.
    fn prompt(&self, conversation: &str, number: u64, text: &str) -> Value;

    /// Whether this line is a piece of the answer's text.
    fn is_piece(&self, line: &Value) -> bool;

    /// Whether the program rests after this line.
    fn is_end(&self, line: &Value) -> bool;
}

/// Every engine that can be measured.
pub(crate) const DIALECTS: &[&dyn Dialect] = &[
    &codex::Codex,
    &claude_code::ClaudeCode,
    &pi::Pi,
    &acp::HERMES,
    &acp::DEEPSEEK_HARNESS,
];

/// Folders for a program: its home and its working directory.
pub(crate) struct Place(TempDir);

impl Place {
    fn new() -> Result<Self> {
        // Not below /tmp, where Codex makes no helper programs.
        let mut builder = tempfile::Builder::new();
        let place = Self(builder.prefix("astrabox-bench-").tempdir_in("/var/tmp")?);
        for folder in [place.home(), place.workspace()] {
            fs::create_dir(folder)?;
        }
        Ok(place)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.0.path().join("home")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.0.path().join("workspace")
    }
}

/// Lines to and from a program.
pub(crate) struct Talk {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    last: VecDeque<String>,
}

impl Talk {
    pub(crate) async fn send(&mut self, line: &Value) -> Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    /// Reads until a line fits.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        let search = async {
            loop {
                let line = self.stdout.next_line().await?;
                let Some(line) = line else {
                    bail!("the program ended; it said last: {:?}", self.last);
                };
                let value = serde_json::from_str(&line).unwrap_or(Value::Null);
                if fits(&value) {
                    return Ok(value);
                }
                self.last.push_back(line);
                if self.last.len() > 5 {
                    self.last.pop_front();
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, search).await;
        found.context("the program is silent")?
    }
}

/// A running program.
pub(crate) struct Bare {
    dialect: &'static dyn Dialect,
    talk: Talk,
    conversation: String,
    prompts: u64,
    _place: Place,
}

impl Bare {
    /// Starts the program and opens a conversation; how long that took.
    pub(crate) async fn start(
        dialect: &'static dyn Dialect,
        root: &Path,
        model: &ScriptedModel,
    ) -> Result<(Self, Duration)> {
        let place = Place::new()?;
        let mut command = dialect.command(root, &place, model)?;
        let start = Instant::now();
        let mut child = command
            .current_dir(place.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start the program")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut talk = Talk {
            child,
            stdin: stdin.context("the program's input")?,
            stdout: BufReader::new(stdout.context("the program's output")?).lines(),
            last: VecDeque::new(),
        };
        let conversation = dialect.open(&mut talk).await?;
        let taken = start.elapsed();
        let bare = Self {
            dialect,
            talk,
            conversation,
            prompts: 0,
            _place: place,
        };
        Ok((bare, taken))
    }

    /// Says something and times the answer.
    pub(crate) async fn timed(&mut self, prompt: &str) -> Result<Taken> {
        let dialect = self.dialect;
        self.prompts += 1;
        let line = dialect.prompt(&self.conversation, self.prompts, prompt);
        let start = Instant::now();
        self.talk.send(&line).await?;
        self.talk.until(|line| dialect.is_piece(line)).await?;
        let first = start.elapsed();
        self.talk.until(|line| dialect.is_end(line)).await?;
        Ok(Taken {
            first,
            whole: start.elapsed(),
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.talk.child.id()
    }

    /// Ends the program.
    pub(crate) async fn end(self) -> Result<()> {
        let Talk {
            mut child, stdin, ..
        } = self.talk;
        drop(stdin);
        if tokio::time::timeout(Duration::from_secs(2), child.wait())
            .await
            .is_err()
        {
            child.kill().await?;
        }
        Ok(())
    }
}
