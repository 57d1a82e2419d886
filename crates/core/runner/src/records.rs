//! Writing the state directory: who serves, and which process was asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use astrabox_runner_protocol::OutputStream;
use astrabox_runner_protocol::state::{ProcessRecord, RunnerRecord, StateDir};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;

use crate::output::Output;
use crate::process::Process;
use crate::spool::Spool;

/// The state directory, owned: while this lives, no other runner writes it.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) state: StateDir,
    /// Held locked.
    _lock: File,
}

impl Records {
    /// Takes the directory; `None` when another runner has it.
    pub(crate) fn take(state: StateDir) -> io::Result<Option<Self>> {
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state.lock())?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        make_private_dir(&state.processes())?;
        Ok(Some(Self { state, _lock: lock }))
    }

    /// Writes down who serves.
    pub(crate) fn write_runner(&self, record: &RunnerRecord) -> io::Result<()> {
        replace(&self.state.runner_record(), record)
    }

    /// Writes down that a process is about to be started, so that whoever comes after this runner knows that it
    /// may have run.
    pub(crate) fn write_intent(&self, record: &ProcessRecord) -> io::Result<()> {
        // Of an earlier process of this name there may be something left that could not be removed.
        self.remove_process(&record.name)?;
        make_private_dir(&self.state.process(&record.name))?;
        replace(&self.state.process_record(&record.name), record)
    }

    /// Writes down what became of a process.
    pub(crate) fn write_process(&self, record: &ProcessRecord) -> io::Result<()> {
        replace(&self.state.process_record(&record.name), record)
    }

    /// Drops a process with its output.
    pub(crate) fn remove_process(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.state.process(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The processes of earlier runners.
    pub(crate) fn restore(&self) -> io::Result<Vec<Process>> {
        let records = self.state.read_processes()?.into_iter();
        records
            .map(|record| {
                let output = |stream| {
                    Spool::restore(self.state.output(&record.name, stream)).map(Output::ended)
                };
                let stdout = output(OutputStream::Stdout)?;
                let stderr = output(OutputStream::Stderr)?;
                Ok(Process::restored(record, stdout, stderr))
            })
            .collect()
    }
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a record whole: a reader sees the old or the new one. Nothing is synced: what records tell of ends with
/// the host at the latest, and [`StateDir`] takes one that the host's end has cut for none.
fn replace(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_has_one_runner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let take = || Records::take(StateDir::new(dir.path())).unwrap();
        let first = take().unwrap();
        assert!(take().is_none());
        drop(first);
        assert!(take().is_some());
    }
}
