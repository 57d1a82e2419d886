//! What the calls take and give, in types that cannot hold an unknown value.

use astrabox_types::PermissionLevel;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ProcessIdentity;

/// Who answered the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerInfo {
    /// The protocol version agreed on.
    pub version: u32,
    /// The runner's own version, as `0.1.0`.
    pub runner_version: String,
    /// The sandbox that it holds.
    pub sandbox_id: String,
    /// The sandbox root that the sandbox belongs to.
    pub root_id: String,
    /// The runner's process.
    pub process: ProcessIdentity,
    /// Counts the runners that have served this state directory, from 1.
    pub generation: u64,
}

/// A process to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpawnCommand {
    /// Unique among the processes on record: 1 to 64 of `[A-Za-z0-9._-]`, not beginning with a dot.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment, as name and value; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// An absolute directory inside the box.
    pub cwd: String,
    /// Whether stdin is a pipe (else `/dev/null`).
    pub stdin: bool,
    /// How long its process group may live, milliseconds; 0: for ever.
    pub wall_limit_ms: u64,
    /// How much unacknowledged output each stream may hold, bytes; 0: the box's default.
    pub spool_bytes: u64,
}

/// Where a process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// Asked for, not yet known to run.
    Starting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// By itself, or by a signal that nobody here sent.
    Exited,
    /// The box's memory limit.
    MemoryLimit,
    /// The box's limit of processes.
    PidsLimit,
    /// The box's disk limit.
    DiskLimit,
    /// Its own wall-time limit.
    WallTime,
    /// A signal call.
    Killed,
    /// The box ended under it.
    BoxDied,
    /// The runner that held it ended, and the box with it.
    RunnerRestarted,
}

/// How a process ended, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitInfo {
    /// Why.
    pub reason: ExitReason,
    /// How; absent where nobody saw it.
    pub status: Option<ExitStatus>,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The offset after the last byte of stdout.
    pub stdout_end: u64,
    /// The offset after the last byte of stderr.
    pub stderr_end: u64,
    /// Processes of the box killed for memory while it ran.
    pub oom_kills: u64,
    /// Forks refused to the box while it ran.
    pub forks_refused: u64,
}

/// One of a process's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// The offsets of one output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// The lowest offset that can still be read.
    pub lowest_offset: u64,
    /// The offset of the next byte.
    pub next_offset: u64,
    /// Whether the spool is full, so that the process has to wait.
    pub full: bool,
}

/// The offsets of stdin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StdinInfo {
    /// Whether bytes can still be written.
    pub open: bool,
    /// The offset of the next byte to accept.
    pub accepted: u64,
    /// How many of the accepted bytes the process's pipe has taken.
    pub delivered: u64,
}

/// One process on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: ProcessState,
    /// When it was asked for, milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// Its process id inside the box; 0 before the start.
    pub pid: u32,
    /// Its stdin.
    pub stdin: StdinInfo,
    /// Its stdout.
    pub stdout: StreamInfo,
    /// Its stderr.
    pub stderr: StreamInfo,
    /// Its end, once ended.
    pub exit: Option<ExitInfo>,
}

/// What an attached reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachEvent {
    /// Bytes of one stream, consecutive with those before.
    Output {
        /// Which stream.
        stream: OutputStream,
        /// The offset of the first byte.
        offset: u64,
        /// At least one byte.
        data: Bytes,
    },
    /// The end, after the whole of both streams. Nothing follows.
    Exited(ExitInfo),
}

/// Whom a signal goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalTarget {
    /// The one process of this name.
    Process(String),
    /// The process of this name and those of its process group.
    Group(String),
    /// Every process of the box except its first. Signal 9 only.
    Box,
}

/// How the box is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxState {
    /// It runs.
    Running,
    /// It is frozen.
    Frozen,
    /// Its first process has died; nothing can be started any more.
    Gone(ExitReason),
}

/// The box and all its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxStatus {
    /// How it is.
    pub state: BoxState,
    /// When it was made, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// Its processes on record, by name.
    pub processes: Vec<ProcessInfo>,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a pipe or a device.
    Other,
}

/// A file as the box's user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// The last component of its path.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its length, bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When its content changed last, milliseconds since the Unix epoch.
    pub modified_ms: i64,
    /// Where a symbolic link points, unresolved.
    pub link_target: Option<String>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteFileOptions {
    /// Permission bits; 0: 0644.
    pub mode: u32,
    /// Refuse when the name is taken, instead of replacing it.
    pub exclusive: bool,
    /// Content and name are on disk before the answer.
    pub sync: bool,
    /// Make the missing parents, mode 0755.
    pub create_parents: bool,
}

/// What the box uses. A value is absent where nothing on this host measures it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Memory in use, bytes.
    pub memory_bytes: Option<u64>,
    /// The most memory that was in use, bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// CPU time used, microseconds.
    pub cpu_us: Option<u64>,
    /// Bytes in use on the volume.
    pub disk_used_bytes: Option<u64>,
    /// Bytes that the volume can hold.
    pub disk_total_bytes: Option<u64>,
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// Forks refused.
    pub forks_refused: u64,
}

/// How a limit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// Nothing enforces it.
    None,
    /// The runner looks at intervals and ends what is over the limit.
    Soft,
    /// The kernel enforces it at every moment.
    Hard,
}

/// How a limit is kept, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitPosture {
    /// How.
    pub enforcement: Enforcement,
    /// By what, as `cgroup v2 memory`.
    pub how: String,
}

/// What confines the box, as found by looking at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posture {
    /// The permission level that it was made with.
    pub level: PermissionLevel,
    /// Whether runner and box live without any privilege of the host's root.
    pub rootless: bool,
    /// The user id that the box's processes have on the host.
    pub host_uid: u32,
    /// The user id that they have inside.
    pub box_uid: u32,
    /// Its own namespaces, named as in `/proc/PID/ns`.
    pub namespaces: Vec<String>,
    /// Whether no program in it can gain privileges.
    pub no_new_privileges: bool,
    /// Whether it has no capability and can get none.
    pub no_capabilities: bool,
    /// Whether a system call filter is in force.
    pub seccomp: bool,
    /// Whether its only way out is the egress listener.
    pub loopback_only: bool,
    /// Where its programs come from, read-only: `host` or `dir`.
    pub base: String,
    /// Whether its mount table shows no path of the host but standard ones.
    pub host_paths_hidden: bool,
    /// The version of the cgroups that hold it; 0: none.
    pub cgroup_version: u32,
    /// How the memory limit is kept.
    pub memory: LimitPosture,
    /// How the limit of processes is kept.
    pub pids: LimitPosture,
    /// How the limit of CPU time is kept.
    pub cpu: LimitPosture,
    /// How the limit of the volume is kept.
    pub disk: LimitPosture,
    /// How the limit of one file's size is kept.
    pub file_size: LimitPosture,
    /// How the box is frozen.
    pub freeze: LimitPosture,
    /// What is weaker than it could be, and why.
    pub notes: Vec<String>,
}
