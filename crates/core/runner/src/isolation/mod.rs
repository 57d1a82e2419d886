//! Makes, limits, freezes and destroys one box.
//!
//! [`IsolatedBox::create`] turns a [`BoxSpec`] into a running box: its own user, process, mount,
//! network, IPC, host name and cgroup namespaces, a read-only base, one writable volume, limits, a
//! system call filter, and a first process that starts what the runner asks for. The calling process
//! stays outside of all of it and has to be single-threaded until `create` has returned, because the
//! first process is its fork.
//!
//! What holds for a box, as root: nothing of the host but the base can be read, nothing but its volume
//! and its own memory can be written, nothing but its egress listener can be reached, no process but
//! its own can be seen, and when the runner ends, however it ends, so does the box. Without root the
//! same holds but for what [`Posture`] says.

mod base;
mod cgroup;
mod channel;
mod create;
mod destroy;
mod error;
mod image;
mod init;
mod life;
mod limits;
mod mounts;
mod net;
mod posture;
mod probe;
mod retry;
mod seccomp;
mod seccomp_table;
mod setup;
mod spec;
mod sys;
mod userns;
mod volume;
mod wire;

use std::collections::HashSet;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use channel::{Channel, Received};
use error::Step;
use life::Life;
use wire::{FromInit, Payload, ToInit};

pub use destroy::destroy_leftovers;
pub use error::IsolationError;
pub use image::{prepare_loop_image, prepare_volume};
pub use limits::{LimitBreach, Stats};
pub use posture::{Enforcement, Posture, Strength};
pub use probe::{HostCheck, HostReport, probe_host};
pub use spec::{BOX_ID, Base, BoxSpec, Limits, PermissionLevel, Volume};
pub use wire::SpawnStage;

/// A running box. Dropping it destroys it; [`destroy`](Self::destroy) also says whether that worked.
pub struct IsolatedBox {
    // Dropped before the life that they would hold up.
    root: OwnedFd,
    listener: Option<OwnedFd>,
    channel: Channel,
    posture: Posture,
    watch: limits::Watch,
    owner: (u32, u32),
    rootless: bool,
    start_time: u64,
    frozen: bool,
    oom_seen: u64,
    /// Processes, by their pid in the box, that were sent SIGKILL from here.
    killed: HashSet<u32>,
    gone: bool,
    life: Life,
}

/// A process to start in a box.
#[derive(Debug)]
pub struct SpawnRequest {
    /// Comes back in every message about the process.
    pub tag: u64,
    /// The program, by path or looked for in the `PATH` of `env`, and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// An absolute directory in the box.
    pub cwd: PathBuf,
    /// File descriptor 0.
    pub stdin: OwnedFd,
    /// File descriptor 1.
    pub stdout: OwnedFd,
    /// File descriptor 2.
    pub stderr: OwnedFd,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What the first process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitMessage {
    /// The process runs the program.
    Started {
        /// The request's.
        tag: u64,
        /// Its pid in the box.
        pid: u32,
    },
    /// There is no process.
    SpawnFailed {
        /// The request's.
        tag: u64,
        /// How far it came.
        stage: SpawnStage,
        /// Why it came no further, an errno.
        errno: i32,
    },
    /// The process has ended and is reaped.
    Exited {
        /// The request's.
        tag: u64,
        /// How.
        status: ProcessEnd,
        /// Whether it was killed because the box's memory was used up.
        memory_limit: bool,
    },
    /// The first process, and with it every other, is dead. Nothing comes after this.
    InitGone {
        /// Whether it was killed because the box's memory was used up.
        memory_limit: bool,
    },
}

/// The right to touch the box's files as their owner, for as long as it lives.
///
/// As root the runner's thread has the box's user for file accesses meanwhile, without root's powers
/// over files: what the box could not open, the runner cannot be tricked into opening.
#[derive(Debug)]
pub struct FileAccess<'a> {
    root: BorrowedFd<'a>,
    switched: bool,
    // The file owner is an attribute of the thread.
    _this_thread: PhantomData<*const ()>,
}

impl FileAccess<'_> {
    /// The box's root directory, for `openat2` with `RESOLVE_IN_ROOT` and `RESOLVE_NO_MAGICLINKS`.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root
    }
}

impl Drop for FileAccess<'_> {
    fn drop(&mut self) {
        if self.switched {
            sys::set_file_owner(0, 0);
        }
    }
}

impl IsolatedBox {
    /// Makes a box, up to a first process that takes requests.
    ///
    /// # Errors
    /// What could not be made; then nothing is left of the box.
    pub fn create(spec: &BoxSpec) -> Result<Self, IsolationError> {
        create::create(spec)
    }

    /// The listener on the box's `127.0.0.1:egress_port`, non-blocking. Yields it once.
    ///
    /// # Errors
    /// [`IsolationError::InvalidRequest`] the second time.
    pub fn take_egress_listener(&mut self) -> Result<OwnedFd, IsolationError> {
        let taken = IsolationError::InvalidRequest {
            reason: "the egress listener is taken already",
        };
        self.listener.take().ok_or(taken)
    }

    /// Readable when [`read_messages`](Self::read_messages) has something; non-blocking.
    pub fn init_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Asks for a process. The answer is a [`InitMessage::Started`] or [`InitMessage::SpawnFailed`].
    ///
    /// # Errors
    /// [`IsolationError::InvalidRequest`] for what can be no process, [`IsolationError::Busy`] while
    /// the box is frozen and has requests enough, [`IsolationError::InitGone`].
    pub fn spawn(&mut self, request: SpawnRequest) -> Result<(), IsolationError> {
        let payload = Payload::encode(&request)
            .map_err(|reason| IsolationError::InvalidRequest { reason })?;
        let file = memfd_create("spawn", MemfdFlags::CLOEXEC).step("make a request")?;
        let file = std::fs::File::from(file);
        std::io::Write::write_all(&mut &file, &payload).step("make a request")?;
        let fds = [
            file.as_fd(),
            request.stdin.as_fd(),
            request.stdout.as_fd(),
            request.stderr.as_fd(),
        ];
        self.tell(&ToInit::Spawn { tag: request.tag }, &fds)
    }

    /// All that the first process has said since the last call. Empty if that is nothing.
    ///
    /// # Errors
    /// [`IsolationError::InitGone`] once [`InitMessage::InitGone`] has been returned.
    pub fn read_messages(&mut self) -> Result<Vec<InitMessage>, IsolationError> {
        if self.gone {
            return Err(IsolationError::InitGone);
        }
        let mut messages = Vec::new();
        loop {
            match self.channel.receive().step("hear from the box")? {
                Received::Nothing => return Ok(messages),
                Received::End => {
                    self.gone = true;
                    let memory_limit = self.oom_kill_since_last();
                    messages.push(InitMessage::InitGone { memory_limit });
                    return Ok(messages);
                }
                Received::Message(bytes, _) => {
                    messages.extend(FromInit::decode(&bytes).and_then(|said| self.translate(said)));
                }
            }
        }
    }

    fn translate(&mut self, said: FromInit) -> Option<InitMessage> {
        Some(match said {
            FromInit::Started { tag, pid } => {
                let pid = pid.unsigned_abs();
                // A number used again is a new process.
                self.killed.remove(&pid);
                InitMessage::Started { tag, pid }
            }
            FromInit::SpawnFailed { tag, errno, stage } => {
                InitMessage::SpawnFailed { tag, stage, errno }
            }
            FromInit::Exited {
                tag,
                pid,
                signaled,
                value,
            } => {
                let killed_by_us = self.killed.remove(&pid.unsigned_abs());
                let memory_limit = signaled
                    && value == libc::SIGKILL
                    && self.oom_kill_since_last()
                    && !killed_by_us;
                let status = if signaled {
                    ProcessEnd::Signal(value)
                } else {
                    ProcessEnd::Code(value)
                };
                InitMessage::Exited {
                    tag,
                    status,
                    memory_limit,
                }
            }
            FromInit::Ready { .. } | FromInit::SetupFailed { .. } => return None,
        })
    }

    fn oom_kill_since_last(&mut self) -> bool {
        let now = self.life.cgroup.counters().oom_kills.unwrap_or(0);
        let before = std::mem::replace(&mut self.oom_seen, now);
        now > before
    }

    /// Sends a signal to a started process, by its pid in the box, or to its whole process group.
    ///
    /// A process that has ended meanwhile is none: nothing happens. Returns before it has arrived.
    ///
    /// # Errors
    /// [`IsolationError::Busy`], [`IsolationError::InitGone`].
    pub fn signal(&mut self, pid: u32, signal: i32, group: bool) -> Result<(), IsolationError> {
        let invalid = IsolationError::InvalidRequest {
            reason: "there is no such process or signal",
        };
        let pid_in_box = i32::try_from(pid).ok().filter(|pid| *pid > 1);
        let Some(pid_in_box) = pid_in_box.filter(|_| (1..=64).contains(&signal)) else {
            return Err(invalid);
        };
        if signal == libc::SIGKILL {
            self.killed.insert(pid);
        }
        self.tell(
            &ToInit::Signal {
                pid: pid_in_box,
                signal,
                group,
            },
            &[],
        )
    }

    /// Stops every process of the box where it is. Does nothing if it is frozen already.
    ///
    /// # Errors
    /// What the kernel refused; then the box goes on as before.
    pub fn freeze(&mut self) -> Result<(), IsolationError> {
        if !self.life.cgroup.freeze()? {
            self.tell(
                &ToInit::SignalAll {
                    signal: libc::SIGSTOP,
                },
                &[],
            )?;
        }
        self.frozen = true;
        Ok(())
    }

    /// Lets the box go on.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn thaw(&mut self) -> Result<(), IsolationError> {
        self.life.cgroup.thaw()?;
        if self.life.cgroup.enforced().freeze.is_none() {
            self.tell(
                &ToInit::SignalAll {
                    signal: libc::SIGCONT,
                },
                &[],
            )?;
        }
        self.frozen = false;
        Ok(())
    }

    /// Kills every process of the box but its first, which goes on taking requests. Thaws the box.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn kill_all(&mut self) -> Result<(), IsolationError> {
        if self.life.cgroup.enforced().freeze.is_some() {
            // Frozen, nobody can fork out of the way; thawed, everybody dies before doing anything.
            let killed = self
                .life
                .cgroup
                .freeze()
                .and_then(|_| self.life.cgroup.kill_all_but(self.life.first_pid()));
            self.life.cgroup.thaw()?;
            killed?;
        }
        self.frozen = false;
        self.tell(
            &ToInit::SignalAll {
                signal: libc::SIGKILL,
            },
            &[],
        )
    }

    /// What the box uses.
    pub fn stats(&mut self) -> Stats {
        let counted = self.life.cgroup.counters();
        let (disk_used_bytes, disk_limit_bytes) = self.watch.disk(self.root.as_fd());
        let looked = (counted.memory.is_none() || counted.pids.is_none())
            .then(|| limits::use_of_tree(self.life.first_pid(), self.root.as_fd()));
        Stats {
            memory_bytes: counted.memory.or(looked.map(|found| found.memory)),
            memory_peak_bytes: counted.memory_peak,
            pids: counted.pids.or(looked.map(|found| found.pids)),
            cpu_usec: counted.cpu_usec,
            oom_kills: counted.oom_kills.unwrap_or(0),
            pids_denied: counted.pids_denied.unwrap_or(0),
            disk_used_bytes,
            disk_limit_bytes,
        }
    }

    /// Looks at the limits that the kernel does not keep, for the caller to end the box or a process.
    ///
    /// To be called every second or so; cheap where the kernel keeps everything.
    pub fn poll_limits(&mut self) -> Option<LimitBreach> {
        self.watch.look(self.life.first_pid(), self.root.as_fd())
    }

    /// The box's root directory as a path descriptor: good for looking, see [`files`](Self::files).
    pub fn root_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The right to touch the box's files, held while the result lives: not across an await.
    pub fn files(&self) -> FileAccess<'_> {
        if !self.rootless {
            sys::set_file_owner(self.owner.0, self.owner.1);
        }
        FileAccess {
            root: self.root.as_fd(),
            switched: !self.rootless,
            _this_thread: PhantomData,
        }
    }

    /// The host's uid and gid of the box's files.
    pub fn host_owner(&self) -> (u32, u32) {
        self.owner
    }

    /// What really confines the box.
    pub fn posture(&self) -> &Posture {
        &self.posture
    }

    /// The pid of the first process, outside.
    pub fn init_pid(&self) -> i32 {
        self.life.first_pid()
    }

    /// When the first process started, in clock ticks since boot.
    pub fn init_start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether the box is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Kills every process, waits for the last, and removes what the box had but its volume's content.
    ///
    /// The caller must have closed what it had open in the volume.
    ///
    /// # Errors
    /// What is left; [`destroy_leftovers`] can be asked to go on.
    pub fn destroy(self) -> Result<(), IsolationError> {
        let Self {
            root,
            listener,
            channel,
            mut life,
            ..
        } = self;
        // The root holds the mounts, the mounts the loop device.
        drop((root, listener, channel));
        life.end()
    }

    fn tell(&self, message: &ToInit, fds: &[BorrowedFd<'_>]) -> Result<(), IsolationError> {
        match self.channel.send(&message.encode(), fds) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN) => Err(IsolationError::Busy),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(IsolationError::InitGone),
            Err(error) => Err(error).step("ask the box"),
        }
    }
}
