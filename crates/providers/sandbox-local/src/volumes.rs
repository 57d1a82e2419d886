//! Sessions' volumes: what `/workspace` and `/home/agent` are on the host's disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use astrabox_runner_protocol::launch::Volume;
use astrabox_sandbox::{Error, ErrorKind, Result};
use astrabox_types::{SandboxId, VolumeId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::host;
use crate::folder::{Lasting, private_dirs, remove_file, remove_tree, replace};
use crate::launch::RunnerProgram;

/// The volumes of one sandbox root.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    place: PathBuf,
    cache: PathBuf,
}

/// What a volume is, as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeRecord {
    volume: Volume,
    /// Its size, bytes.
    bytes: u64,
}

impl Volumes {
    pub(crate) fn new(place: PathBuf, cache: PathBuf) -> Self {
        Self { place, cache }
    }

    fn folder(&self, id: VolumeId) -> PathBuf {
        self.place.join(id.to_string())
    }

    /// The sandbox that the volume is in, or was in last.
    pub(crate) fn holder(&self, id: VolumeId) -> Result<Option<SandboxId>> {
        holder(&self.folder(id)).map_err(|error| host("create", "the volume", error))
    }

    /// The volume, made when it does not exist, for this sandbox alone (SB7).
    pub(crate) async fn take(
        &self,
        program: &RunnerProgram,
        id: VolumeId,
        bytes: u64,
        sandbox: SandboxId,
        may_live: impl Fn(SandboxId) -> bool,
    ) -> Result<Volume> {
        let folder = self.folder(id);
        let io = |error| host("create", "the volume", error);
        private_dirs(&folder).map_err(io)?;
        private_dirs(&self.cache).map_err(io)?;
        let _hold = hold("create", &folder)?;
        let other = holder(&folder).map_err(io)?;
        if other.is_some_and(|holder| holder != sandbox && may_live(holder)) {
            return Err(in_use("create"));
        }
        let name = sandbox.to_string();
        replace(&folder.join("holder"), name.as_bytes(), Lasting::Process).map_err(io)?;
        if let Some(record) = read(&folder)? {
            return Ok(record.volume);
        }
        let inside = folder.join("content");
        // What an interrupted making left is made again.
        remove_tree(&inside)
            .and_then(|()| private_dirs(&inside))
            .map_err(io)?;
        let volume = program.prepare_volume(&self.cache, &inside, bytes).await?;
        let record = VolumeRecord {
            volume: volume.clone(),
            bytes,
        };
        let text = serde_json::to_vec(&record).map_err(|error| io(error.into()))?;
        replace(&folder.join("volume.json"), &text, Lasting::Host).map_err(io)?;
        Ok(volume)
    }

    /// The volume is in no sandbox any more.
    pub(crate) fn release(&self, id: VolumeId, sandbox: SandboxId) -> Result<()> {
        let folder = self.folder(id);
        let released = match holder(&folder) {
            Ok(Some(holder)) if holder == sandbox => remove_file(&folder.join("holder")),
            other => other.map(drop),
        };
        released.map_err(|error| host("destroy", "the volume", error))
    }

    /// Removes a volume that is in no sandbox.
    pub(crate) fn delete(&self, id: VolumeId, may_live: impl Fn(SandboxId) -> bool) -> Result<()> {
        let folder = self.folder(id);
        let io = |error| host("delete volume", "the volume", error);
        if !folder.try_exists().map_err(io)? {
            return Ok(());
        }
        let _hold = hold("delete volume", &folder)?;
        if holder(&folder).map_err(io)?.is_some_and(may_live) {
            return Err(in_use("delete volume"));
        }
        // The record first: half a volume must not be taken for a whole one.
        remove_file(&folder.join("volume.json"))
            .and_then(|()| remove_tree(&folder))
            .map_err(io)
    }
}

fn in_use(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::WrongState,
        operation,
        "the volume is in another sandbox; destroy that one first",
    )
}

/// Takes hold of a volume, to give it to a sandbox or to remove it; two at once would both find it free.
fn hold(operation: &'static str, folder: &Path) -> Result<File> {
    let io = |error| host(operation, "the volume", error);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join("hold"))
        .map_err(io)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use(operation).with_retryable(true)),
        Err(error) => Err(io(error.into())),
    }
}

fn holder(folder: &Path) -> io::Result<Option<SandboxId>> {
    match fs::read_to_string(folder.join("holder")) {
        Ok(text) => Ok(text.parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(folder: &Path) -> Result<Option<VolumeRecord>> {
    match fs::read(folder.join("volume.json")) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "create",
                "the volume's record cannot be read",
            )
            .with_source(error)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(host("create", "the volume", error)),
    }
}
