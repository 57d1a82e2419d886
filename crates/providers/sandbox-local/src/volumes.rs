//! Sessions' volumes: what `/workspace` and `/home/agent` are on the host's disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_runner_protocol::launch::Volume;
use astrabox_sandbox::{Error, ErrorKind, Result};
use astrabox_types::{SandboxId, VolumeId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::host;
use crate::folder::{Lasting, private_dirs, remove_file, remove_tree, replace};
use crate::launch::RunnerProgram;
use crate::pool::Pool;

/// The volumes of one sandbox root.
#[derive(Debug)]
pub(crate) struct Volumes {
    place: PathBuf,
    cache: PathBuf,
    pool: Pool,
    settling: Arc<Settling>,
}

/// What a volume is, as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeRecord {
    /// Its path is below the folder of the volume, so that the folder can be moved.
    volume: Volume,
    /// Its size, bytes.
    bytes: u64,
}

impl Volumes {
    pub(crate) fn new(place: PathBuf, cache: PathBuf, pool: Pool) -> Self {
        Self {
            place,
            cache,
            pool,
            settling: Arc::default(),
        }
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
        if !folder.try_exists().map_err(io)? && self.pool.take(program, bytes, &folder) {
            self.settle();
        }
        private_dirs(&folder).map_err(io)?;
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
        make(program, &self.cache, &folder, bytes).await
    }

    /// Writes to the disk, some time soon, that volumes have moved out of the pool. Nobody has to wait for it: a
    /// journaling file system makes changes durable in their order, so nothing that a sandbox syncs in its volume
    /// outlives a power failure in which the move is lost.
    fn settle(&self) {
        if !self.settling.begin() {
            return;
        }
        let (place, settling) = (self.place.clone(), Arc::clone(&self.settling));
        tokio::task::spawn_blocking(move || {
            while settling.go_on() {
                if let Err(error) = File::open(&place).and_then(|place| place.sync_all()) {
                    tracing::warn!(%error, "the folder of volumes could not be synced");
                }
            }
        });
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

/// Makes a volume in `folder`, which may exist, and returns when it is on disk.
pub(crate) async fn make(
    program: &RunnerProgram,
    cache: &Path,
    folder: &Path,
    bytes: u64,
) -> Result<Volume> {
    let io = |error| host("create", "the volume", error);
    let inside = folder.join("content");
    // What an interrupted making left is made again.
    private_dirs(cache)
        .and_then(|()| remove_tree(&inside))
        .and_then(|()| private_dirs(&inside))
        .map_err(io)?;
    let volume = program.prepare_volume(cache, &inside, bytes).await?;
    let record = VolumeRecord {
        volume: at(&volume, |path| {
            path.strip_prefix(folder).unwrap_or(path).to_path_buf()
        }),
        bytes,
    };
    let text = serde_json::to_vec(&record).map_err(|error| io(error.into()))?;
    replace(&folder.join("volume.json"), &text, Lasting::Host).map_err(io)?;
    Ok(volume)
}

/// The same volume at another path.
fn at(volume: &Volume, change: impl Fn(&Path) -> PathBuf) -> Volume {
    match volume {
        Volume::LoopImage { path } => Volume::LoopImage { path: change(path) },
        Volume::Directory { path } => Volume::Directory { path: change(path) },
    }
}

/// One syncs at a time, for all that ask meanwhile.
///
/// What it holds: whether there is something to sync, and whether somebody does.
#[derive(Debug, Default)]
struct Settling(Mutex<(bool, bool)>);

impl Settling {
    fn state(&self) -> MutexGuard<'_, (bool, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that there is something to sync; whether the caller has to see to it.
    fn begin(&self) -> bool {
        let mut state = self.state();
        let busy = state.1;
        *state = (true, true);
        !busy
    }

    /// Whether there is something to sync still; nobody syncs any more when there is nothing.
    fn go_on(&self) -> bool {
        let mut state = self.state();
        let dirty = state.0;
        *state = (false, dirty);
        dirty
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
        Ok(text) => {
            let record: VolumeRecord = serde_json::from_slice(&text).map_err(|error| {
                let text = "the volume's record cannot be read";
                Error::new(ErrorKind::Internal, "create", text).with_source(error)
            })?;
            let volume = at(&record.volume, |path| folder.join(path));
            Ok(Some(VolumeRecord { volume, ..record }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(host("create", "the volume", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_syncs_for_all_and_the_last_call_is_not_forgotten() {
        let settling = Settling::default();
        assert!(settling.begin(), "nobody does");
        assert!(!settling.begin(), "somebody does");
        assert!(settling.go_on(), "for both");
        assert!(!settling.begin(), "it came while the sync went on");
        assert!(settling.go_on(), "once more");
        assert!(!settling.go_on(), "that was all");
        assert!(settling.begin(), "nobody does any more");
    }

    #[test]
    fn a_volume_that_was_moved_is_found_where_it_is() {
        let place = tempfile::tempdir().expect("a folder");
        let (before, after) = (place.path().join("a"), place.path().join("b"));
        private_dirs(&before).expect("it is new");
        let record = |path: &str| {
            let path = path.into();
            let volume = Volume::LoopImage { path };
            serde_json::to_vec(&VolumeRecord { volume, bytes: 7 }).expect("it is JSON")
        };
        fs::write(before.join("volume.json"), record("content/x")).expect("it is written");
        fs::rename(&before, &after).expect("it moves");
        let found = read(&after).expect("readable").expect("there");
        let path = after.join("content/x");
        assert_eq!(found.volume, Volume::LoopImage { path });
    }
}
