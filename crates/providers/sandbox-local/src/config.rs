//! The block `sandbox.local`.

use std::path::PathBuf;

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
}

/// Twice the line cap of the engines' driver (16 MiB) and room for what follows.
const SPOOL_BYTES: u64 = 64 << 20;

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            runner: None,
            base: None,
            spool_bytes: SPOOL_BYTES,
            first_uid: 1_900_000_000,
            uids: 65_536,
        }
    }
}
