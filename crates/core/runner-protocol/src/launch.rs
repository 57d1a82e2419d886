//! What a launcher and the `astrabox-runner` program tell each other.
//!
//! `astrabox-runner run SPEC` takes a [`LaunchSpec`] in a file that only its owner can read, makes the
//! box, detaches from its launcher, and writes one [`Report`] line to the standard output it was started
//! with. The other commands answer with one `Report` line too: `clean SPEC` removes what a dead runner
//! left, `probe` tells what this host can do, `prepare-volume CACHE PLACE BYTES` makes a volume in the
//! directory `PLACE`, with templates kept in `CACHE`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use astrabox_types::PermissionLevel;
use serde::{Deserialize, Serialize};

use crate::ProcessIdentity;

/// The format of [`LaunchSpec`] that this build reads and writes.
pub const SPEC_FORMAT: u32 = 1;

/// The name of the runner's socket in its run directory.
pub const RUNNER_SOCKET: &str = "runner.sock";

/// The name of the socket, in the run directory, that hands out the egress listener.
pub const EGRESS_SOCKET: &str = "egress.sock";

/// The longest path of a unix socket, bytes, without its closing zero (`sun_path` of unix(7)).
pub const MAX_SOCKET_PATH: usize = 107;

/// The longest report line, bytes.
pub const MAX_REPORT_BYTES: u64 = 64 << 10;

/// Everything that a runner has to know. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// [`SPEC_FORMAT`].
    pub format: u32,
    /// The sandbox.
    pub sandbox_id: String,
    /// The sandbox root that it belongs to.
    pub root_id: String,
    /// Sockets and mount points. Short, mode 0700, made by the launcher, gone at the end.
    pub run_dir: PathBuf,
    /// Records, spools and the log. Mode 0700, made by the launcher, outlives the runner.
    pub state_dir: PathBuf,
    /// What the box sees as its system.
    pub base: Base,
    /// The named directory tree with the agent program, read-only in the box.
    pub image: Option<PathBuf>,
    /// What holds `/workspace` and `/home/agent`.
    pub volume: Volume,
    /// The user id that the box's user has on the host.
    pub host_uid: u32,
    /// How much of the machine the box may use.
    pub limits: Limits,
    /// How much of the kernel the box may use.
    pub level: PermissionLevel,
    /// The box's host name.
    pub hostname: String,
    /// The loopback port of the egress listener inside the box.
    pub egress_port: u16,
    /// How much unacknowledged output each stream of a process may hold, bytes.
    pub spool_bytes: u64,
    /// How much of its stdin is kept for comparison with repeated writes, and the most that may wait for
    /// a process that does not read, bytes.
    pub stdin_bytes: u64,
    /// The most processes on record.
    pub max_processes: u32,
    /// The length at which the log is begun anew (the one before is kept), bytes.
    pub log_bytes: u64,
}

/// What the box sees as its system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Base {
    /// The host's `/usr` and a few generated files.
    Host,
    /// A root tree.
    Dir(PathBuf),
}

/// What holds `/workspace` and `/home/agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Volume {
    /// An ext4 image, mounted through a loop device.
    LoopImage {
        /// The image file.
        path: PathBuf,
    },
    /// A directory.
    Directory {
        /// The directory.
        path: PathBuf,
    },
}

/// How much of the machine the box may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// CPU time, thousandths of one core.
    pub cpu_millis: u32,
    /// The volume, bytes.
    pub disk_bytes: u64,
    /// One file, bytes.
    pub file_bytes: u64,
}

/// Why a spec file was not taken.
#[derive(Debug)]
pub enum SpecError {
    /// It cannot be read or written.
    Io(io::Error),
    /// Others than its owner can read it, or it belongs to somebody else.
    Exposed,
    /// It is not a spec of this format.
    Malformed(String),
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "launch spec: {error}"),
            Self::Exposed => {
                f.write_str("launch spec: must belong to the caller and have mode 0600")
            }
            Self::Malformed(why) => write!(f, "launch spec: {why}"),
        }
    }
}

impl std::error::Error for SpecError {}

impl From<io::Error> for SpecError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl LaunchSpec {
    /// Writes it to a new file that only this user can read.
    pub fn write(&self, path: &Path) -> Result<(), SpecError> {
        let text = serde_json::to_vec_pretty(self).map_err(malformed)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // It need not outlive a crash of the host: no runner does.
        file.write_all(&text)?;
        Ok(())
    }

    /// Reads it from a file that nobody else can read.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        const LONGEST: u64 = 64 << 10;
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mine = metadata.uid() == rustix::process::geteuid().as_raw();
        if !mine || metadata.mode() & 0o077 != 0 {
            return Err(SpecError::Exposed);
        }
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text)?;
        let spec: Self = serde_json::from_slice(&text).map_err(malformed)?;
        if spec.format != SPEC_FORMAT {
            return Err(SpecError::Malformed(format!(
                "format {} is not {SPEC_FORMAT}",
                spec.format
            )));
        }
        Ok(spec)
    }

    /// The runner's socket.
    #[must_use]
    pub fn runner_socket(&self) -> PathBuf {
        self.run_dir.join(RUNNER_SOCKET)
    }

    /// The socket that hands out the egress listener.
    #[must_use]
    pub fn egress_socket(&self) -> PathBuf {
        self.run_dir.join(EGRESS_SOCKET)
    }
}

fn malformed(error: serde_json::Error) -> SpecError {
    SpecError::Malformed(error.to_string())
}

/// The one line that a command of `astrabox-runner` answers with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report<T> {
    /// Done.
    Ok(T),
    /// Not done.
    Failed(Failure),
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// To branch on.
    pub kind: FailureKind,
    /// For people; holds no host path.
    pub message: String,
}

/// What a command can fail of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The spec or an argument is unusable.
    InvalidSpec,
    /// The base, the image or the volume is not there.
    NotFound,
    /// A runner already serves this state directory.
    Busy,
    /// This host cannot do what was asked.
    Unsupported,
    /// The host has no room or no more of something.
    Exhausted,
    /// The kernel refused something that should have worked.
    Internal,
}

/// The answer of `run`: the runner that now serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Its process.
    pub process: ProcessIdentity,
    /// Counts the runners that have served this state directory, from 1.
    pub generation: u64,
}

/// The answer of `clean`: nothing is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cleaned {}

/// The answer of `probe`: what this host can do for boxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// Whether boxes would be made without root.
    pub rootless: bool,
    /// What was looked at.
    pub checks: Vec<HostCheck>,
}

/// One thing that a host needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCheck {
    /// A short name, stable.
    pub name: String,
    /// Whether it is there.
    pub ok: bool,
    /// Whether no box can be made without it; otherwise boxes are only weaker, as their posture says.
    pub required: bool,
    /// What was found.
    pub detail: String,
    /// What to do if it is not there; empty if it is.
    pub remedy: String,
}

impl HostReport {
    /// Whether boxes can be made at all.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.checks.iter().all(|check| check.ok || !check.required)
    }
}

impl<T: Serialize> Report<T> {
    /// The line, with its line feed.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_else(|error| {
            let message = error.to_string();
            format!(r#"{{"failed":{{"kind":"internal","message":{message:?}}}}}"#).into_bytes()
        });
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    pub(crate) fn sample() -> LaunchSpec {
        LaunchSpec {
            format: SPEC_FORMAT,
            sandbox_id: "sbx_1".into(),
            root_id: "r1".into(),
            run_dir: "/run/x".into(),
            state_dir: "/var/x".into(),
            base: Base::Host,
            image: None,
            volume: Volume::Directory { path: "/v".into() },
            host_uid: 1_900_000_000,
            limits: Limits {
                memory_bytes: 1 << 30,
                pids: 100,
                cpu_millis: 1000,
                disk_bytes: 1 << 30,
                file_bytes: 1 << 30,
            },
            level: PermissionLevel::Default,
            hostname: "box".into(),
            egress_port: 3128,
            spool_bytes: 64 << 20,
            stdin_bytes: 32 << 20,
            max_processes: 256,
            log_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_spec_survives_its_file_which_nobody_else_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spec.json");
        sample().write(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(LaunchSpec::read(&path).unwrap(), sample());
        assert!(matches!(sample().write(&path), Err(SpecError::Io(_))));
    }

    #[test]
    fn an_exposed_foreign_or_newer_spec_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spec.json");
        sample().write(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(LaunchSpec::read(&path), Err(SpecError::Exposed)));

        let newer = LaunchSpec {
            format: SPEC_FORMAT + 1,
            ..sample()
        };
        let path = dir.path().join("newer.json");
        newer.write(&path).unwrap();
        let error = LaunchSpec::read(&path).unwrap_err().to_string();
        assert!(error.contains("format 2"), "{error}");

        let path = dir.path().join("unknown.json");
        let mut value = serde_json::to_value(sample()).unwrap();
        value["surprise"] = true.into();
        std::fs::write(&path, value.to_string()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = LaunchSpec::read(&path).unwrap_err().to_string();
        assert!(error.contains("surprise"), "{error}");
    }

    #[test]
    fn a_report_is_one_line() {
        let report: Report<Started> = Report::Failed(Failure {
            kind: FailureKind::Busy,
            message: "two\nlines".into(),
        });
        let line = report.line();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(
            serde_json::from_slice::<Report<Started>>(&line).unwrap(),
            report
        );
    }
}
