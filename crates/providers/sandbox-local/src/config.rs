//! The block `sandbox.local`.

use std::path::PathBuf;

use astrabox_sandbox::{Error, ErrorKind, Result};
use serde::Deserialize;

/// The settings of the local provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LocalConfig {
    /// The `astrabox-runner` program; beside the running program when absent.
    pub(crate) runner: Option<PathBuf>,
    /// A root tree that sandboxes see as their system; the host's `/usr` when absent.
    pub(crate) base: Option<PathBuf>,
    /// How much output that nobody has acknowledged yet each stream of a process may hold, bytes. At least twice
    /// the longest line that engines take.
    pub(crate) spool_bytes: u64,
    /// The first host user id for sandboxes; only root uses it.
    pub(crate) first_uid: u32,
    /// How many host user ids there are.
    pub(crate) uids: u32,
    /// How many volumes of a size are made before anybody asks; 0 for none.
    pub(crate) fresh_volumes: usize,
}

/// Twice the line cap of the engines' driver (16 MiB) and room for what follows.
const SPOOL_BYTES: u64 = 64 << 20;
/// Less would make every program wait for its reader.
const LEAST_SPOOL: u64 = 1 << 20;

/// Each has its blocks on disk, well below a megabyte; more than this is a slip.
const MOST_FRESH_VOLUMES: usize = 1024;

/// Host user ids below this belong to people and services.
const LOWEST_UID: u32 = 65_536;

impl LocalConfig {
    /// Refuses settings with which no sandbox could be made.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |text: &str| Err(Error::new(ErrorKind::Invalid, "configure", text));
        if self.base.as_ref().is_some_and(|base| !base.is_absolute()) {
            return invalid("`sandbox.local.base` must be an absolute path");
        }
        if self.first_uid < LOWEST_UID || self.first_uid.checked_add(self.uids).is_none() {
            return invalid(
                "`sandbox.local.first_uid` must be at least 65536 and leave room for all",
            );
        }
        if self.uids == 0 {
            return invalid("`sandbox.local.uids` must not be 0");
        }
        if self.fresh_volumes > MOST_FRESH_VOLUMES {
            return invalid("`sandbox.local.fresh_volumes` must be at most 1024");
        }
        if self.spool_bytes < LEAST_SPOOL {
            return invalid("`sandbox.local.spool_bytes` must be at least 1 MiB");
        }
        Ok(())
    }
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            runner: None,
            base: None,
            spool_bytes: SPOOL_BYTES,
            first_uid: 1_900_000_000,
            uids: 65_536,
            fresh_volumes: 16,
        }
    }
}
