//! What an agent may choose: permission modes and blocks of native options.

use std::collections::BTreeMap;

use astrabox_engine::{Error, ErrorKind, OptionBlock, PermissionMode, Result};
use astrabox_types::{Json, PermissionLevel};
use serde_json::{Map, Value, json};

/// The mode that a session begins with.
///
/// The sandbox is the boundary, so the agent works in it without asking; `untrusted` is there for those who want
/// to see each command first.
pub(crate) const DEFAULT_MODE: &str = "on-request";

/// A permission mode and what it means in Codex's own words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    public: PermissionMode,
    /// `approvalPolicy` of thread and turn.
    pub(crate) approval: &'static str,
    /// Whose boundary holds.
    pub(crate) boundary: Boundary,
}

/// Whose boundary holds while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// Our sandbox alone.
    Outer,
    /// Codex's own sandbox inside ours.
    Inner,
}

const fn mode(
    name: &'static str,
    description: &'static str,
    approval: &'static str,
    boundary: Boundary,
) -> Mode {
    let level = match boundary {
        Boundary::Outer => PermissionLevel::Default,
        Boundary::Inner => PermissionLevel::Advanced,
    };
    let public = PermissionMode {
        name,
        description,
        level,
    };
    Mode {
        public,
        approval,
        boundary,
    }
}

// Codex has two kinds of modes: approval policies and sandbox modes. An approval policy runs with the sandbox
// policy `externalSandbox`; a sandbox mode runs with the approval policy that Codex itself pairs it with. The
// policy `granular` is no name but an object, and `on-failure` is gone in 0.169.0.
const MODES: [Mode; 6] = [
    mode(
        DEFAULT_MODE,
        "The model decides when to ask. In this sandbox commands and edits run unasked; MCP tools are asked for.",
        "on-request",
        Boundary::Outer,
    ),
    mode(
        "untrusted",
        "Asks before every command and every edit.",
        "untrusted",
        Boundary::Outer,
    ),
    mode("never", "Never asks.", "never", Boundary::Outer),
    mode(
        "read-only",
        "Codex's own sandbox: commands read files and change nothing, without network.",
        "on-request",
        Boundary::Inner,
    ),
    mode(
        "workspace-write",
        "Codex's own sandbox: commands change the workspace only, without network.",
        "on-request",
        Boundary::Inner,
    ),
    mode(
        "danger-full-access",
        "Codex's own sandbox is off and says so to the model; this sandbox still holds.",
        "on-request",
        Boundary::Inner,
    ),
];

/// The modes, for the capabilities.
pub(crate) const PERMISSION_MODES: [PermissionMode; MODES.len()] = {
    let mut all = [MODES[0].public; MODES.len()];
    let mut at = 0;
    while at < MODES.len() {
        all[at] = MODES[at].public;
        at += 1;
    }
    all
};

impl Mode {
    /// The mode of this name, if a sandbox of this level can hold it.
    ///
    /// # Errors
    /// `InvalidConfiguration`, naming what there is.
    pub(crate) fn find(name: &str, advanced: bool) -> Result<&'static Self> {
        let allowed = |mode: &&Self| advanced || mode.public.level == PermissionLevel::Default;
        let known = MODES.iter().find(|mode| mode.public.name == name);
        known.filter(allowed).ok_or_else(|| {
            let names: Vec<_> = MODES
                .iter()
                .filter(allowed)
                .map(|mode| mode.public.name)
                .collect();
            let text = match known {
                None => format!("no permission mode `{name}`; there are: {}", names.join(", ")),
                Some(_) => format!(
                    "permission mode `{name}` needs an environment with permission level `advanced`; \
                     without it there are: {}",
                    names.join(", ")
                ),
            };
            Error::new(ErrorKind::InvalidConfiguration, "choose mode", text)
        })
    }

    /// `sandbox` of `thread/start` and `thread/resume`, which have no value for an outer sandbox.
    pub(crate) fn thread_sandbox(&self) -> &'static str {
        match self.boundary {
            Boundary::Outer => "danger-full-access",
            Boundary::Inner => self.public.name,
        }
    }

    /// `sandboxPolicy` of `turn/start`.
    pub(crate) fn sandbox_policy(&self) -> Value {
        match (self.boundary, self.public.name) {
            (Boundary::Outer, _) => json!({"type": "externalSandbox", "networkAccess": "enabled"}),
            (_, "read-only") => json!({"type": "readOnly", "networkAccess": false}),
            (_, "workspace-write") => json!({
                "type": "workspaceWrite",
                "writableRoots": [],
                "networkAccess": false,
                "excludeTmpdirEnvVar": false,
                "excludeSlashTmp": false,
            }),
            _ => json!({"type": "dangerFullAccess"}),
        }
    }
}

/// The blocks of native options.
pub(crate) const OPTION_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        name: "config",
        description: "Overrides of Codex's config.toml, for the whole conversation.",
        protected_keys: &[
            "model",
            "model_provider",
            "model_providers",
            "model_catalog_json",
            "profile",
            "profiles",
            "cwd",
            "approval_policy",
            "sandbox_mode",
            "sandbox_workspace_write",
            "permissions",
            "default_permissions",
            "developer_instructions",
            "mcp_servers",
            "web_search",
            "tools.web_search",
            "features.plugins",
            "analytics",
            "check_for_update_on_startup",
        ],
    },
    OptionBlock {
        name: "turn_start",
        description: "Parameters of turn/start, for each turn, as effort or summary.",
        protected_keys: &[
            "threadId",
            "input",
            "clientUserMessageId",
            "cwd",
            "model",
            "approvalPolicy",
            "sandboxPolicy",
            "permissions",
            "runtimeWorkspaceRoots",
            "environments",
            "toolOutput",
            "collaborationMode.settings.model",
        ],
    },
    OptionBlock {
        name: "model_catalog",
        description: "A complete model catalogue file, in place of the one that Codex brings.",
        protected_keys: &[],
    },
];

/// An agent's block as an object; empty when the agent does not give it.
pub(crate) fn block(options: &BTreeMap<String, Json>, name: &str) -> Map<String, Value> {
    match options.get(name).map(Json::value) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_sandbox_modes_need_the_advanced_level() {
        for mode in &PERMISSION_MODES {
            let advanced = mode.level == PermissionLevel::Advanced;
            assert_eq!(
                Mode::find(mode.name, false).is_ok(),
                !advanced,
                "{}",
                mode.name
            );
            assert!(Mode::find(mode.name, true).is_ok());
        }
        let error = Mode::find("workspace-write", false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`advanced`") && error.contains("untrusted"),
            "{error}"
        );
        let error = Mode::find("granular", true).unwrap_err().to_string();
        assert!(error.contains("no permission mode"), "{error}");
        assert!(Mode::find(DEFAULT_MODE, false).is_ok());
    }

    #[test]
    fn an_approval_policy_leaves_the_boundary_to_the_outer_sandbox() {
        for (name, approval, thread, policy) in [
            (
                "on-request",
                "on-request",
                "danger-full-access",
                "externalSandbox",
            ),
            (
                "untrusted",
                "untrusted",
                "danger-full-access",
                "externalSandbox",
            ),
            ("never", "never", "danger-full-access", "externalSandbox"),
            ("read-only", "on-request", "read-only", "readOnly"),
            (
                "workspace-write",
                "on-request",
                "workspace-write",
                "workspaceWrite",
            ),
            (
                "danger-full-access",
                "on-request",
                "danger-full-access",
                "dangerFullAccess",
            ),
        ] {
            let mode = Mode::find(name, true).expect(name);
            assert_eq!(mode.approval, approval, "{name}");
            assert_eq!(mode.thread_sandbox(), thread, "{name}");
            assert_eq!(mode.sandbox_policy()["type"], policy, "{name}");
        }
    }
}
