//! The folder of one sandbox, and the record in it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use astrabox_runner_protocol::ProcessIdentity;
use astrabox_runner_protocol::launch::LaunchSpec;
use astrabox_runner_protocol::state::StateDir;
use astrabox_sandbox::egress::EgressPolicy;
use astrabox_sandbox::{Claim, Error, ErrorKind, Result};
use astrabox_types::{SandboxId, Timestamp};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::host;

/// What is remembered of a sandbox. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) id: SandboxId,
    pub(crate) claim: Claim,
    pub(crate) created_at: Timestamp,
    pub(crate) image: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) egress: EgressPolicy,
    /// Its user id on the host, when it has one of its own.
    pub(crate) host_uid: Option<u32>,
    /// Whether it was made whole; one that was not, and that nobody is making, is only to be removed.
    pub(crate) complete: bool,
}

/// The folder of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
    run_dir: PathBuf,
}

/// Held by whoever makes or removes the sandbox, in this process or another. It ends with its holder.
#[derive(Debug)]
pub(crate) struct Hold(#[expect(dead_code, reason = "held locked, not used")] File);

impl Folder {
    /// The folder of this sandbox. Its run directory has a short name, because socket paths are limited.
    pub(crate) fn of(sandboxes: &Path, run_dir: &Path, id: SandboxId) -> Self {
        let text = id.to_string();
        // The last digits of a version 7 uuid are its random ones.
        let short = &text[text.len() - 16..];
        Self {
            path: sandboxes.join(&text),
            run_dir: run_dir.join(short),
        }
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    pub(crate) fn record_path(&self) -> PathBuf {
        self.path.join("sandbox.json")
    }

    pub(crate) fn spec_path(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    pub(crate) fn state(&self) -> StateDir {
        StateDir::new(self.path.join("runner"))
    }

    /// Makes the folder and writes its first record, so that whatever is made after can be found.
    pub(crate) fn begin(&self, record: &Record) -> Result<Hold> {
        private_dir(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::new(
                ErrorKind::AlreadyExists,
                "create",
                "a sandbox of this id exists",
            ),
            _ => host("create", "the sandbox's folder", error),
        })?;
        let begun = (|| {
            // Somebody may look at this very moment whether it is held, and holds it for that moment.
            let hold = self.lock(FlockOperation::LockExclusive)?;
            self.write_record(record)?;
            private_dir(&self.path.join("runner"))?;
            private_dir(&self.run_dir)?;
            Ok(hold)
        })();
        begun.map_err(|error| {
            // Nothing else was made yet; the first error is the one to tell.
            let _ = self.remove();
            host("create", "the sandbox's folder", error)
        })
    }

    fn lock(&self, how: FlockOperation) -> io::Result<Hold> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join("hold"))?;
        flock(&file, how)?;
        Ok(Hold(file))
    }

    /// Takes hold of the sandbox; `None` while somebody else makes or removes it, and when it has no folder.
    pub(crate) fn try_hold(&self) -> io::Result<Option<Hold>> {
        match self.lock(FlockOperation::NonBlockingLockExclusive) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotFound
                ) =>
            {
                Ok(None)
            }
            hold => hold.map(Some),
        }
    }

    /// Whether somebody makes or removes the sandbox at this moment.
    pub(crate) fn is_held(&self) -> io::Result<bool> {
        Ok(self.path.try_exists()? && self.try_hold()?.is_none())
    }

    /// Replaces the record whole. It need not outlive a crash of the host, because nothing that it tells of does.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        self.write_record(record)
            .map_err(|error| host("create", "the sandbox's record", error))
    }

    fn write_record(&self, record: &Record) -> io::Result<()> {
        replace(
            &self.record_path(),
            &serde_json::to_vec(record)?,
            Lasting::Process,
        )
    }

    /// The record; `None` when there is no sandbox of this id.
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        match fs::read(self.record_path()) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                Error::new(
                    ErrorKind::Internal,
                    "read",
                    "the sandbox's record cannot be read",
                )
                .with_source(error)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(host("read", "the sandbox's record", error)),
        }
    }

    /// The launch spec, when the sandbox came so far.
    pub(crate) fn spec(&self) -> Option<LaunchSpec> {
        LaunchSpec::read(&self.spec_path()).ok()
    }

    /// The runner that serves it, or served it last.
    pub(crate) fn runner(&self) -> io::Result<Option<ProcessIdentity>> {
        Ok(self.state().read_runner()?.map(|record| record.process))
    }

    /// Whether its runner is there; an error says that one cannot tell.
    pub(crate) fn runner_is_alive(&self) -> io::Result<bool> {
        match self.runner()? {
            Some(runner) => runner.is_alive(),
            None => Ok(false),
        }
    }

    /// Whether the sandbox has to be taken for one that has processes: its runner is there, or it is being
    /// made, or nobody can tell.
    pub(crate) fn may_live(&self) -> bool {
        !matches!(
            (self.runner_is_alive(), self.is_held()),
            (Ok(false), Ok(false))
        )
    }

    /// Removes the folder: the spec before the runner's state, the record last.
    pub(crate) fn remove(&self) -> io::Result<()> {
        remove_tree(&self.run_dir)?;
        remove_file(&self.spec_path())?;
        remove_tree(&self.path.join("runner"))?;
        remove_file(&self.record_path())?;
        remove_tree(&self.path)
    }

    /// Whether anything of it is left.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        Ok(self.path.try_exists()? || self.run_dir.try_exists()?)
    }
}

/// What a file has to outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// The process that writes it.
    Process,
    /// The host's power supply.
    Host,
}

/// Replaces a file whole.
pub(crate) fn replace(path: &Path, content: &[u8], lasting: Lasting) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(content)?;
    if lasting == Lasting::Process {
        return fs::rename(&fresh, path);
    }
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    path.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a directory that only this user can enter; it must not exist.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes a directory and its parents; one that exists will do.
pub(crate) fn private_dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, Instant};

    use astrabox_types::{AssignmentId, SessionId, VolumeId};

    use super::*;

    pub(crate) fn record(id: SandboxId) -> Record {
        Record {
            id,
            claim: Claim {
                session_id: SessionId::new(),
                assignment_id: AssignmentId::new("assignment-1").expect("plain"),
                volume_id: VolumeId::new(),
            },
            created_at: Timestamp::now(),
            image: None,
            labels: BTreeMap::new(),
            egress: EgressPolicy::default(),
            host_uid: None,
            complete: false,
        }
    }

    fn folder(place: &Path) -> (Folder, Record) {
        let record = record(SandboxId::new());
        (Folder::of(place, &place.join("run"), record.id), record)
    }

    #[test]
    fn a_sandbox_has_one_maker_at_a_time_and_is_taken_for_living_meanwhile() {
        let place = tempfile::tempdir().expect("a folder");
        let (folder, record) = folder(place.path());
        fs::create_dir(place.path().join("run")).expect("it is new");
        let hold = folder.begin(&record).expect("it is new");
        assert!(folder.is_held().expect("one can tell"));
        assert!(folder.may_live());
        assert!(folder.try_hold().expect("one can tell").is_none());
        let again = folder.begin(&record).expect_err("it exists");
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        drop(hold);
        // A process that another test is just starting may have the lock until it has begun its own program.
        let end = Instant::now() + Duration::from_secs(10);
        while folder.may_live() {
            assert!(Instant::now() < end, "nobody holds it");
            std::thread::yield_now();
        }
        assert_eq!(folder.read().expect("readable"), Some(record));
        folder.remove().expect("removable");
        folder.remove().expect("removable again");
        assert!(!folder.exists().expect("one can tell"));
    }

    #[test]
    fn a_folder_that_cannot_be_begun_leaves_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        // There is no directory for run directories.
        let (folder, record) = folder(place.path());
        folder
            .begin(&record)
            .expect_err("the run directory has no parent");
        assert!(!folder.exists().expect("one can tell"));
    }
}
