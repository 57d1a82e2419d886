//! The directory that a runner leaves behind.
//!
//! ```text
//! lock                           held (flock) by the runner for its whole life
//! runner.json                    RunnerRecord
//! runner.log, runner.log.1
//! processes/NAME/record.json     ProcessRecord, written before the process is started
//! processes/NAME/stdout/N        bytes from offset N on, N in 20 digits; stderr and stdin likewise
//! ```
//!
//! The runner writes; everybody else only reads, and only when the runner is gone. Segments follow each
//! other without a hole, the lowest begins at or below the acknowledged offset.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::identity::boot_time;
use crate::{ExitInfo, OutputStream, ProcessIdentity, ProcessState, StreamInfo};

/// The format of the records that this build reads and writes.
pub const RECORD_FORMAT: u32 = 1;

/// The longest process name, bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Who serves, or served last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// The sandbox.
    pub sandbox_id: String,
    /// The sandbox root that it belongs to.
    pub root_id: String,
    /// The runner's process.
    pub process: ProcessIdentity,
    /// Counts the runners that have served this directory, from 1.
    pub generation: u64,
    /// When the box was made, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// One process, from the intent to start it to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// Its name.
    pub name: String,
    /// The SHA-256 of the request that asked for it, hexadecimal.
    pub request_sha256: String,
    /// The runner that was to start it, by generation.
    pub generation: u64,
    /// Where it was in its life when this was written.
    pub state: ProcessState,
    /// When it was asked for, milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// Its process id inside the box; 0 before the start.
    pub pid: u32,
    /// Its end, once ended.
    pub exit: Option<ExitInfo>,
}

/// The places in a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Of this directory, which need not be there.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file that a living runner holds locked.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Where [`RunnerRecord`] is.
    #[must_use]
    pub fn runner_record(&self) -> PathBuf {
        self.0.join("runner.json")
    }

    /// The runner's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join("runner.log")
    }

    /// Where the processes are.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.0.join("processes")
    }

    /// Where process `name` is.
    #[must_use]
    pub fn process(&self, name: &str) -> PathBuf {
        self.processes().join(name)
    }

    /// Where [`ProcessRecord`] of process `name` is.
    #[must_use]
    pub fn process_record(&self, name: &str) -> PathBuf {
        self.process(name).join("record.json")
    }

    /// Where the bytes of one output of process `name` are.
    #[must_use]
    pub fn output(&self, name: &str, stream: OutputStream) -> PathBuf {
        self.process(name).join(match stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        })
    }

    /// Where the bytes of stdin of process `name` are.
    #[must_use]
    pub fn stdin(&self, name: &str) -> PathBuf {
        self.process(name).join("stdin")
    }

    /// Who serves, or served last; `None` when no runner ever did.
    pub fn read_runner(&self) -> io::Result<Option<RunnerRecord>> {
        let record: Option<RunnerRecord> = read_record(&self.runner_record())?;
        check_format(record, |record| record.format)
    }

    /// The record of process `name`, if there is one.
    pub fn read_process(&self, name: &str) -> io::Result<Option<ProcessRecord>> {
        let record: Option<ProcessRecord> = read_record(&self.process_record(name))?;
        check_format(record, |record| record.format)
    }

    /// The records of all processes, by name.
    pub fn read_processes(&self) -> io::Result<Vec<ProcessRecord>> {
        let entries = match fs::read_dir(self.processes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            // A directory without a record is a start that did not get as far as its intent.
            if let Some(name) = name.to_str().filter(|name| is_process_name(name)) {
                records.extend(self.read_process(name)?);
            }
        }
        records.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(records)
    }

    /// Which offsets of one output are on disk.
    pub fn output_range(&self, name: &str, stream: OutputStream) -> io::Result<StreamInfo> {
        let (lowest_offset, next_offset) = range(&segments(&self.output(name, stream))?);
        Ok(StreamInfo {
            lowest_offset,
            next_offset,
            full: false,
        })
    }

    /// At most `limit` bytes of one output from `offset` on; empty at or above its end.
    ///
    /// # Errors
    /// `InvalidInput` when `offset` lies below what is on disk.
    pub fn read_output(
        &self,
        name: &str,
        stream: OutputStream,
        offset: u64,
        limit: usize,
    ) -> io::Result<Vec<u8>> {
        let segments = segments(&self.output(name, stream))?;
        let (lowest, next) = range(&segments);
        if offset < lowest {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("offset {offset} was freed, the lowest is {lowest}"),
            ));
        }
        let wanted = limit.min(usize::try_from(next.saturating_sub(offset)).unwrap_or(limit));
        let mut bytes = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            let at = offset + filled as u64;
            let Some(segment) = segments.iter().rfind(|segment| segment.start <= at) else {
                break;
            };
            let file = File::open(&segment.path)?;
            let read = file.read_at(&mut bytes[filled..], at - segment.start)?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// One file of a spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The offset of its first byte.
    pub start: u64,
    /// How many bytes it holds.
    pub length: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// The file name of the segment that begins at `start`.
#[must_use]
pub fn segment_name(start: u64) -> String {
    format!("{start:020}")
}

/// The segments in `directory` in the order of their offsets, up to the first hole.
pub fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.to_str().filter(|name| name.len() == 20);
        if let Some(start) = digits.and_then(|digits| digits.parse().ok()) {
            found.push(Segment {
                start,
                length: entry.metadata()?.len(),
                path: entry.path(),
            });
        }
    }
    found.sort_by_key(|segment| segment.start);
    let whole = found
        .iter()
        .zip(found.iter().skip(1))
        .take_while(|(this, next)| this.start + this.length == next.start)
        .count();
    found.truncate(whole + 1);
    Ok(found)
}

fn range(segments: &[Segment]) -> (u64, u64) {
    match (segments.first(), segments.last()) {
        (Some(first), Some(last)) => (first.start, last.start + last.length),
        _ => (0, 0),
    }
}

/// Whether `name` can name a process: it is also a file name.
#[must_use]
pub fn is_process_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(allowed)
}

/// Records are written for those who come later on the same boot of the host, and need not be on its disk: what they
/// tell of ends with the host. One that its end has cut is therefore none.
fn read_record<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    const LONGEST: u64 = 64 << 10;
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let written = file.metadata()?.modified()?;
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    match serde_json::from_slice(&text) {
        Ok(record) => Ok(Some(record)),
        Err(_) if written < boot_time()? => Ok(None),
        Err(error) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("unreadable record: {error}"),
        )),
    }
}

fn check_format<T>(record: Option<T>, format: impl Fn(&T) -> u32) -> io::Result<Option<T>> {
    match record {
        Some(record) if format(&record) != RECORD_FORMAT => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("record format {} is not {RECORD_FORMAT}", format(&record)),
        )),
        record => Ok(record),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn process_names_are_file_names_that_cannot_climb() {
        for good in ["engine", "exec-1", "a.b_c", &"x".repeat(64)] {
            assert!(is_process_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            ".x",
            "a/b",
            "a b",
            "ä",
            "a\0",
            &"x".repeat(65),
        ] {
            assert!(!is_process_name(bad), "{bad}");
        }
    }

    #[test]
    fn output_is_read_across_segments_and_up_to_a_hole() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let output = state.output("engine", OutputStream::Stdout);
        fs::create_dir_all(&output).unwrap();
        for (start, content) in [(4, "efgh"), (8, "ij"), (10, "kl"), (20, "lost")] {
            fs::write(output.join(segment_name(start)), content).unwrap();
        }
        let info = state.output_range("engine", OutputStream::Stdout).unwrap();
        assert_eq!((info.lowest_offset, info.next_offset), (4, 12));
        let read = |offset, limit| {
            let bytes = state.read_output("engine", OutputStream::Stdout, offset, limit)?;
            io::Result::Ok(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(read(4, 100).unwrap(), "efghijkl");
        assert_eq!(read(7, 4).unwrap(), "hijk");
        assert_eq!(read(12, 4).unwrap(), "");
        assert_eq!(read(3, 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let nothing = state.output_range("engine", OutputStream::Stderr).unwrap();
        assert_eq!(nothing, StreamInfo::default());
    }

    #[test]
    fn a_missing_record_is_none_and_a_torn_or_newer_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        assert_eq!(state.read_runner().unwrap(), None);
        assert_eq!(state.read_processes().unwrap(), []);
        fs::write(state.runner_record(), "{\"format\":1,").unwrap();
        let torn = state.read_runner().unwrap_err();
        assert_eq!(torn.kind(), io::ErrorKind::InvalidData);
        let file = File::options().write(true).open(state.runner_record());
        let earlier = boot_time().unwrap() - Duration::from_secs(1);
        file.unwrap().set_modified(earlier).unwrap();
        assert_eq!(state.read_runner().unwrap(), None, "the host's end cut it");
        let record = RunnerRecord {
            format: RECORD_FORMAT + 1,
            sandbox_id: "s".into(),
            root_id: "r".into(),
            process: ProcessIdentity {
                pid: 1,
                start_time: 1,
                boot_id: "b".into(),
            },
            generation: 1,
            created_at_ms: 0,
        };
        fs::write(state.runner_record(), serde_json::to_vec(&record).unwrap()).unwrap();
        assert!(state.read_runner().is_err());
    }
}
