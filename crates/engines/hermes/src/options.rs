//! What an agent may choose: permission modes and the block of native options.

use std::collections::BTreeMap;

use astrabox_engine::{Error, ErrorKind, OptionBlock, PermissionMode, Result};
use astrabox_types::{Json, PermissionLevel};
use serde_json::{Map, Value};

/// The mode that a session begins with.
///
/// The sandbox is the boundary, so the agent works in it without asking for its edits; `default` is there for those
/// who want to see each call first.
pub(crate) const DEFAULT_MODE: &str = "dont_ask";

const fn mode(name: &'static str, description: &'static str) -> PermissionMode {
    PermissionMode {
        name,
        description,
        level: PermissionLevel::Default,
    }
}

/// Hermes' own modes of an ACP session. For Hermes they are about edits of files; the host has them decide on commands
/// that Hermes holds for dangerous too, unless the agent's options set `approvals.mode`.
pub(crate) const PERMISSION_MODES: [PermissionMode; 3] = [
    mode(
        "default",
        "Asks before every tool call, also those of sub-agents and MCP servers.",
    ),
    mode(
        "accept_edits",
        "Edits in the workspace and /tmp run unasked. Asks before edits elsewhere or of sensitive files, as .env, and \
         before commands that Hermes holds for dangerous.",
    ),
    mode(
        DEFAULT_MODE,
        "Commands and edits run unasked, but for edits of sensitive files, as .env.",
    ),
];

/// The block of native options.
pub(crate) const OPTION_BLOCKS: &[OptionBlock] = &[OptionBlock {
    name: "config",
    description: "Keys of Hermes' config.yaml, as agent.max_turns, approvals.mode, compression or model.context_length.",
    protected_keys: &[
        "model.provider",
        "model.default",
        "model.model",
        "model.name",
        "model.base_url",
        "model.api_*",
        "model.key_env",
        "providers",
        "custom_providers",
        "fallback_*",
        "credential_pool_strategies",
        "moa",
        "mcp_servers",
        "terminal.backend",
        "terminal.cwd",
        "hooks",
        "hooks_auto_accept",
        "delegation.provider",
        "delegation.base_url",
        "delegation.api_*",
        "auxiliary.*.provider",
        "auxiliary.*.base_url",
        "auxiliary.*.api_*",
        "auxiliary.title_generation",
        // Work that nobody asked for, after a turn has ended.
        "memory.nudge_interval",
        "memory.provider",
        "skills.creation_nudge_interval",
        "curator",
        // Downloads and catalogues.
        "security.allow_lazy_installs",
        "security.tirith_*",
        "model_catalog",
        "updates",
        "secrets",
        "gateway",
        "cron",
    ],
}];

/// Demands that there is a mode of this name.
///
/// # Errors
/// `InvalidConfiguration`, naming what there is.
pub(crate) fn demand_mode(name: &str) -> Result<()> {
    if PERMISSION_MODES.iter().any(|mode| mode.name == name) {
        return Ok(());
    }
    let names: Vec<_> = PERMISSION_MODES.iter().map(|mode| mode.name).collect();
    let text = format!(
        "no permission mode `{name}`; there are: {}",
        names.join(", ")
    );
    Err(Error::new(
        ErrorKind::InvalidConfiguration,
        "choose mode",
        text,
    ))
}

/// An agent's block as an object; empty when the agent does not give it.
pub(crate) fn block(options: &BTreeMap<String, Json>, name: &str) -> Map<String, Value> {
    match options.get(name).map(Json::value) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use astrabox_engine::{EngineAdapter as _, check_options};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mode_is_one_of_the_programs_own() {
        for mode in ["default", "accept_edits", "dont_ask"] {
            assert!(demand_mode(mode).is_ok(), "{mode}");
        }
        let error = demand_mode("yolo").expect_err("there is none").to_string();
        assert!(error.contains("default, accept_edits, dont_ask"), "{error}");
    }

    #[test]
    fn what_the_platform_sets_is_refused_and_the_rest_is_the_programs_affair() {
        for (config, refused) in [
            (json!({"agent": {"max_turns": 3}}), false),
            (
                json!({"approvals": {"mode": "off", "deny": ["git push*"]}}),
                false,
            ),
            (json!({"model": {"context_length": 32000}}), false),
            (json!({"memory": {"memory_enabled": false}}), false),
            (json!({"model": {"base_url": "https://x.test"}}), true),
            (json!({"model": {"api_key": "x"}}), true),
            (json!({"providers": {}}), true),
            (json!({"fallback_providers": []}), true),
            (json!({"mcp_servers": {}}), true),
            (json!({"hooks": {"pre_tool_call": []}}), true),
            (json!({"terminal": {"backend": "ssh"}}), true),
            (
                json!({"auxiliary": {"vision": {"base_url": "https://x.test"}}}),
                true,
            ),
            (json!({"skills": {"creation_nudge_interval": 5}}), true),
        ] {
            let options = BTreeMap::from([("config".to_owned(), Json::from(config.clone()))]);
            let checked = check_options(&crate::Hermes.capabilities(), &options);
            assert_eq!(checked.is_err(), refused, "{config}");
        }
    }
}
