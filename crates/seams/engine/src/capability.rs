//! What an engine declares, and what a bound conversation has.

use astrabox_model::ModelWire;
use astrabox_types::{EngineFeature, PermissionLevel, SessionKind};
use serde::{Deserialize, Serialize};

use crate::EngineClient;

/// What an engine declares about itself, whatever the session (EN2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCapabilities {
    /// A name for people, as `Codex`.
    pub display_name: &'static str,
    /// The version of the program that this adapter is written for.
    pub program_version: &'static str,
    /// The kinds of session that it can carry.
    pub session_kinds: &'static [SessionKind],
    /// The wire that it speaks to models.
    pub model_wire: ModelWire,
    /// Which content parts it takes: `text`, `image`.
    pub input_content_types: &'static [&'static str],
    /// Its permission modes, by native name; empty when it has none.
    pub permission_modes: &'static [PermissionMode],
    /// The native name of the mode that a session begins with.
    pub default_permission_mode: Option<&'static str>,
    /// The blocks of native options that an agent may give.
    pub option_blocks: &'static [OptionBlock],
    /// Whether an input that is sent while a turn runs joins that turn.
    pub steering: bool,
    /// What its program has besides; what is not here is refused in an agent.
    pub features: &'static [EngineFeature],
    /// Whether the environment names the program, which then tells its permission modes itself.
    pub names_program: bool,
}

impl EngineCapabilities {
    /// Whether its program has this.
    #[must_use]
    pub fn has(&self, feature: EngineFeature) -> bool {
        self.features.contains(&feature)
    }
}

/// One of an engine's permission modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermissionMode {
    /// The native name, verbatim.
    pub name: &'static str,
    /// What it means, for people.
    pub description: &'static str,
    /// The least permission level of a sandbox in which it works.
    pub level: PermissionLevel,
}

/// A block of native options: a JSON object that the program interprets, but for the platform's own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionBlock {
    /// The block's name in `engine_options`.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Keys that the platform sets itself and refuses in an agent, as dotted paths. A part `*` stands for any key,
    /// and `*` at the end of a part for any end.
    pub protected_keys: &'static [&'static str],
}

/// What a bound conversation has, told to clients. Derived, never declared (EN14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineManifest {
    /// The engine's kind.
    pub kind: String,
    /// The tools that the program told of, by native name.
    pub tools: Vec<String>,
    /// Whether it asks people.
    pub interactions: bool,
    /// Whether its permission mode can be changed while it runs.
    pub permission_modes: bool,
    /// Whether its child runs can be stopped.
    pub child_run_control: bool,
    /// Whether it tells about its program.
    pub server_info: bool,
}

impl EngineManifest {
    /// Reads the manifest of a bound client.
    #[must_use]
    pub fn of(kind: &str, client: &dyn EngineClient) -> Self {
        Self {
            kind: kind.to_owned(),
            tools: client.capabilities(),
            interactions: client.interactions().is_some(),
            permission_modes: client.permission_modes().is_some(),
            child_run_control: client.child_run_control().is_some(),
            server_info: client.server_info().is_some(),
        }
    }
}
