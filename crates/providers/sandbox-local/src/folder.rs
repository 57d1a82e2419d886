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
    /// Whether it was made whole; one that was not is only to be removed.
    pub(crate) complete: bool,
}

/// The folder of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
    run_dir: PathBuf,
}

impl Folder {
    /// The folder of this sandbox. Its run directory has a short name, because socket paths are limited.
    pub(crate) fn of(sandboxes: &Path, run_dir: &Path, id: SandboxId) -> Self {
        let text = id.to_string();
        let short = &text[text.len() - 16..];
        Self {
            path: sandboxes.join(&text),
            run_dir: run_dir.join(short),
        }
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    pub(crate) fn spec_path(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    pub(crate) fn state(&self) -> StateDir {
        StateDir::new(self.path.join("runner"))
    }

    /// Makes the folder and writes its first record, so that whatever is made after can be found.
    pub(crate) fn begin(&self, record: &Record) -> Result<()> {
        let made = || -> io::Result<()> {
            private_dir(&self.path)?;
            private_dir(&self.path.join("runner"))?;
            private_dir(&self.run_dir)
        };
        made().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::new(
                ErrorKind::AlreadyExists,
                "create",
                "a sandbox of this id exists",
            ),
            _ => host("create", "the sandbox's folder", error),
        })?;
        self.write(record)
    }

    /// Replaces the record, whole and on disk.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let written = || -> io::Result<()> {
            let text = serde_json::to_vec(record)?;
            let fresh = self.path.join("sandbox.json.new");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&fresh, self.path.join("sandbox.json"))?;
            File::open(&self.path)?.sync_all()
        };
        written().map_err(|error| host("create", "the sandbox's record", error))
    }

    /// The record; `None` when there is no sandbox of this id.
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        match fs::read(self.path.join("sandbox.json")) {
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

    /// Removes the folder, the record last.
    pub(crate) fn remove(&self) -> Result<()> {
        let removed = || -> io::Result<()> {
            remove_tree(&self.run_dir)?;
            remove_tree(&self.path.join("runner"))?;
            for name in [
                "spec.json",
                "sandbox.json.new",
                "launch.log",
                "sandbox.json",
            ] {
                match fs::remove_file(self.path.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            remove_tree(&self.path)
        };
        removed().map_err(|error| host("destroy", "the sandbox's folder", error))
    }

    /// Whether anything of it is left.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        Ok(self.path.try_exists()? || self.run_dir.try_exists()?)
    }
}

fn remove_tree(path: &Path) -> io::Result<()> {
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
