//! What a provider can do: drives behaviour and conformance alike.

use astrabox_types::PermissionLevel;
use serde::{Deserialize, Serialize};

/// What a provider declares. A declared capability must pass its cases; an undeclared one is `Unsupported`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// `pause` and `resume` keep processes and memory.
    pub pause: bool,
    /// `snapshot` seals the volume, and a volume can be made from a snapshot.
    pub snapshot: bool,
    /// Sandboxes expire by themselves and `renew` moves the time.
    pub renew: bool,
    /// The egress policy of a running sandbox can be changed.
    pub update_egress: bool,
    /// Which permission levels a sandbox can have.
    pub permission_levels: Vec<PermissionLevel>,
    /// The disk limit is enforced by the kernel, not by looking.
    pub hard_disk_limit: bool,
}
