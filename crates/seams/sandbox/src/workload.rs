//! What an engine may do inside its sandbox: processes with offsets, and files.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::Result;

/// The session's working directory inside a sandbox.
pub const WORKSPACE: &str = "/workspace";
/// The home directory inside a sandbox.
pub const HOME: &str = "/home/agent";
/// Where the image's tree is inside a sandbox, read-only.
pub const IMAGE_ROOT: &str = "/opt/astrabox/image";
/// The port on the sandbox's loopback where the egress proxy answers.
pub const EGRESS_PROXY_PORT: u16 = 3128;

/// One sandbox as its engine sees it. See the crate's clauses SB11 to SB17.
///
/// A lost connection is `Detached`: the processes go on, and a new connection reads on from its offset.
#[async_trait]
pub trait Workload: Send + Sync + 'static {
    /// Starts a process (SB13). Nothing of the host's environment is inherited.
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus>;

    /// Streams the process's output from these offsets, then its exit (SB11, SB14).
    async fn attach(&self, process: &ProcessName, stdout: u64, stderr: u64)
    -> Result<OutputStream>;

    /// Writes to standard input at `offset` and returns the next offset (SB12).
    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64>;

    /// Closes standard input after everything accepted is written.
    async fn close_stdin(&self, process: &ProcessName) -> Result<()>;

    /// Frees the kept output below these offsets.
    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()>;

    /// Sends a signal.
    async fn signal(&self, process: &ProcessName, signal: Signal, scope: SignalScope)
    -> Result<()>;

    /// Where the process stands; `None` when no process had this name.
    async fn status(&self, process: &ProcessName) -> Result<Option<ProcessStatus>>;

    /// Reads at most `limit` bytes from `offset`.
    async fn read_file(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes>;

    /// Writes a whole file; parents are made.
    async fn write_file(&self, path: &BoxPath, content: Bytes, options: WriteOptions)
    -> Result<()>;

    /// What is directly in a directory, in name order.
    async fn list_files(&self, path: &BoxPath) -> Result<Vec<FileInfo>>;

    /// About one file or directory; links are not followed at the end.
    async fn stat(&self, path: &BoxPath) -> Result<FileInfo>;

    /// Makes a directory and its parents.
    async fn make_dir(&self, path: &BoxPath) -> Result<()>;

    /// Removes a file or a whole tree. A path that does not exist is not an error.
    async fn remove(&self, path: &BoxPath) -> Result<()>;

    /// Moves a file or tree, over an existing file.
    async fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()>;
}

/// A process's name, unique in its sandbox's life: 1 to 64 of `[a-z0-9-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessName(String);

impl ProcessName {
    /// Takes a name.
    ///
    /// # Errors
    /// When it is not 1 to 64 of `[a-z0-9-]`.
    pub fn new(name: impl Into<String>) -> std::result::Result<Self, InvalidPath> {
        let name = name.into();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err(InvalidPath("a process name is 1 to 64 of a-z, 0-9 and -"));
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An absolute path inside a sandbox, without `.`, `..`, empty parts or NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BoxPath(String);

/// A text that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPath(pub(crate) &'static str);

impl BoxPath {
    /// Takes an absolute path.
    ///
    /// # Errors
    /// When it is not absolute, longer than 4096 bytes, or has `.`, `..`, an empty part or NUL.
    pub fn new(path: impl Into<String>) -> std::result::Result<Self, InvalidPath> {
        let path = path.into();
        let Some(rest) = path.strip_prefix('/') else {
            return Err(InvalidPath("a path inside a sandbox begins with /"));
        };
        if path.len() > 4096 || path.contains('\0') {
            return Err(InvalidPath("a path has at most 4096 bytes and no NUL"));
        }
        if !rest.is_empty() && rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(InvalidPath("a path has no empty part, `.` or `..`"));
        }
        Ok(Self(path))
    }

    /// The path below this one.
    ///
    /// # Errors
    /// When the result would not be a path.
    pub fn join(&self, rest: &str) -> std::result::Result<Self, InvalidPath> {
        Self::new(format!("{}/{rest}", self.0.trim_end_matches('/')))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is this directory or inside it.
    #[must_use]
    pub fn is_within(&self, directory: &str) -> bool {
        self.0
            .strip_prefix(directory.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for BoxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BoxPath {
    type Error = InvalidPath;
    fn try_from(text: String) -> std::result::Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl From<BoxPath> for String {
    fn from(path: BoxPath) -> Self {
        path.0
    }
}

/// A process to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnSpec {
    /// Its name.
    pub name: ProcessName,
    /// Program and arguments; the program is an absolute path inside the sandbox. Never a secret.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: BoxPath,
    /// What standard input is.
    pub stdin: Stdio,
    /// How long it may live.
    pub wall_limit: Option<Duration>,
}

/// What a standard stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// A pipe that is written through the workload.
    Piped,
    /// Empty.
    Null,
}

/// A running attachment.
pub type OutputStream = BoxStream<'static, Result<OutputEvent>>;

/// One thing that an attachment tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputEvent {
    /// Bytes.
    Output(Output),
    /// The process ended and everything that it wrote was told before. The last event.
    Exited(ExitStatus),
}

/// Bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether they are of standard error.
    pub stderr: bool,
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
}

/// Where a process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The pid inside the sandbox.
    pub pid: u32,
    /// The offset at which the next byte of standard input goes.
    pub stdin_offset: u64,
    /// The lowest offset of standard output that is still kept.
    pub stdout_kept: u64,
    /// The lowest offset of standard error that is still kept.
    pub stderr_kept: u64,
    /// How it ended, if it did.
    pub exit: Option<ExitStatus>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitStatus {
    /// The exit code, when it exited.
    pub code: Option<i32>,
    /// The signal, when it was killed by one.
    pub signal: Option<i32>,
    /// Why.
    pub reason: ExitReason,
}

/// Why a process ended (SB14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// By itself.
    Exited,
    /// By a signal that was asked for.
    Killed,
    /// It used more memory than its limit.
    MemoryLimit,
    /// It made more processes than its limit.
    PidsLimit,
    /// It wrote more than its limit.
    DiskLimit,
    /// It lived longer than its limit.
    WallTime,
    /// Its sandbox ended.
    SandboxDied,
}

impl ExitReason {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed => "killed",
            Self::MemoryLimit => "memory_limit",
            Self::PidsLimit => "pids_limit",
            Self::DiskLimit => "disk_limit",
            Self::WallTime => "wall_time",
            Self::SandboxDied => "sandbox_died",
        }
    }
}

/// The signals that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalScope {
    /// The process.
    Process,
    /// Its process group.
    Group,
    /// Everything in the sandbox that was started in it.
    Sandbox,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Only the owner may read it (mode 0600 instead of 0644).
    pub private: bool,
    /// It may be executed.
    pub executable: bool,
    /// It must not exist before.
    pub exclusive: bool,
    /// It is on disk when the call returns.
    pub durable: bool,
}

/// About one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name in its directory.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its size, bytes.
    pub size: u64,
    /// When it was last written.
    pub modified_at: astrabox_types::Timestamp,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_plain() {
        for good in ["/", "/workspace", "/workspace/a b/ü"] {
            assert_eq!(BoxPath::new(good).expect(good).as_str(), good);
        }
        for bad in [
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/a/../b",
            "/./a",
            "/a\0",
            &format!("/{}", "a".repeat(4096)),
        ] {
            assert!(BoxPath::new(bad).is_err(), "{bad:?}");
        }
        let workspace = BoxPath::new("/workspace").expect("plain");
        assert!(
            workspace
                .join("a/b")
                .expect("plain")
                .is_within("/workspace")
        );
        assert!(
            !BoxPath::new("/workspace2")
                .expect("plain")
                .is_within("/workspace")
        );
        assert!(workspace.join("../etc").is_err());
    }

    #[test]
    fn a_process_name_is_short_and_plain() {
        assert!(ProcessName::new("exec-1").is_ok());
        for bad in ["", "A", "a b", "a/b", &"a".repeat(65)] {
            assert!(ProcessName::new(bad).is_err(), "{bad:?}");
        }
    }
}
