//! Sessions' volumes: what `/workspace` and `/home/agent` are on the host's disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use astrabox_runner_protocol::launch::Volume;
use astrabox_sandbox::{Error, ErrorKind, Result};
use astrabox_types::{SandboxId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::error::host;
use crate::folder::private_dirs;
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

    /// The volume, made when it does not exist, for this sandbox alone (SB7).
    pub(crate) async fn take(
        &self,
        program: &RunnerProgram,
        id: VolumeId,
        bytes: u64,
        sandbox: SandboxId,
        lives: impl Fn(SandboxId) -> bool,
    ) -> Result<Volume> {
        let folder = self.folder(id);
        let io = |error| host("create", "the volume", error);
        private_dirs(&folder).map_err(io)?;
        private_dirs(&self.cache).map_err(io)?;
        if let Some(holder) = holder(&folder).map_err(io)?
            && holder != sandbox
            && lives(holder)
        {
            return Err(Error::new(
                ErrorKind::WrongState,
                "create",
                "the volume is in another sandbox now",
            ));
        }
        fs::write(folder.join("holder"), sandbox.to_string()).map_err(io)?;
        if let Some(record) = read(&folder)? {
            return Ok(record.volume);
        }
        let inside = folder.join("content");
        // What an interrupted making left is made again.
        match fs::remove_dir_all(&inside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => private_dirs(&inside).map_err(io)?,
        }
        let volume = program.prepare_volume(&self.cache, &inside, bytes).await?;
        let record = VolumeRecord {
            volume: volume.clone(),
            bytes,
        };
        let text = serde_json::to_vec(&record).map_err(|error| io(error.into()))?;
        fs::write(folder.join("volume.json.new"), text).map_err(io)?;
        fs::rename(folder.join("volume.json.new"), folder.join("volume.json")).map_err(io)?;
        Ok(volume)
    }

    /// The volume is in no sandbox any more.
    pub(crate) fn release(&self, id: VolumeId, sandbox: SandboxId) -> Result<()> {
        let folder = self.folder(id);
        let released = || -> io::Result<()> {
            if holder(&folder)? == Some(sandbox) {
                fs::remove_file(folder.join("holder"))?;
            }
            Ok(())
        };
        released().map_err(|error| host("destroy", "the volume", error))
    }

    /// Removes a volume that is in no sandbox.
    pub(crate) fn delete(&self, id: VolumeId, lives: impl Fn(SandboxId) -> bool) -> Result<()> {
        let folder = self.folder(id);
        let io = |error| host("delete volume", "the volume", error);
        if holder(&folder).map_err(io)?.is_some_and(lives) {
            return Err(Error::new(
                ErrorKind::WrongState,
                "delete volume",
                "the volume is in a sandbox; destroy it first",
            ));
        }
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io(error)),
            _ => Ok(()),
        }
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
