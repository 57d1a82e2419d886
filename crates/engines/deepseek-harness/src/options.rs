//! What an agent may choose: permission modes and blocks of native options.

use std::collections::BTreeMap;

use astrabox_engine::{Error, ErrorKind, OptionBlock, PermissionMode, Result};
use astrabox_types::{Json, PermissionLevel};
use serde_json::{Map, Value};

/// The mode that a session begins with: the program's own.
pub(crate) const DEFAULT_MODE: &str = "workspace-write";

/// The mode in which each call is asked for.
pub(crate) const ASKING: &str = "ask";

/// A permission mode: a preset of the program's sandbox mode and approval policy, in its own words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    public: PermissionMode,
    /// The sandbox mode of commands and file tools.
    pub(crate) sandbox: &'static str,
    /// The approval policy.
    pub(crate) approval: &'static str,
}

impl Mode {
    pub(crate) fn name(&self) -> &'static str {
        self.public.name
    }
}

const fn mode(
    name: &'static str,
    description: &'static str,
    sandbox: &'static str,
    approval: &'static str,
) -> Mode {
    // All of them work in every sandbox: where the program's bubblewrap finds no namespaces it takes Landlock.
    let public = PermissionMode {
        name,
        description,
        level: PermissionLevel::Default,
    };
    Mode {
        public,
        sandbox,
        approval,
    }
}

// The first three are the presets that the program comes with. The last one is a preset of its approval policy `ask`
// with the platform's sandbox as the boundary.
const MODES: [Mode; 4] = [
    mode(
        "read-only",
        "Commands and file tools change nothing; a call that needs more is asked for.",
        "read-only",
        "ask",
    ),
    mode(
        DEFAULT_MODE,
        "Commands and file tools write in the workspace and /tmp; a call that needs more is asked for.",
        "workspace-write",
        "ask",
    ),
    mode(
        "danger-full-access",
        "Never asks: everything is allowed inside the sandbox, which still holds.",
        "danger-full-access",
        "never",
    ),
    mode(
        ASKING,
        "Asks before every command, every edit and every MCP tool, also those of sub-agents.",
        "danger-full-access",
        "ask",
    ),
];

/// The modes, for the capabilities.
pub(crate) const PERMISSION_MODES: [PermissionMode; 4] = [
    MODES[0].public,
    MODES[1].public,
    MODES[2].public,
    MODES[3].public,
];

/// Every mode.
pub(crate) fn modes() -> &'static [Mode] {
    &MODES
}

/// The mode of this name. The program starts without tools when it does not know its mode, so it is never asked.
///
/// # Errors
/// `InvalidConfiguration`, naming what there is.
pub(crate) fn demand_mode(name: &str) -> Result<&'static Mode> {
    MODES
        .iter()
        .find(|mode| mode.name() == name)
        .ok_or_else(|| {
            let names: Vec<_> = MODES.iter().map(Mode::name).collect();
            let names = names.join(", ");
            let text = format!("no permission mode `{name}`; there are: {names}");
            Error::new(ErrorKind::InvalidConfiguration, "choose mode", text)
        })
}

/// The blocks of native options.
pub(crate) const OPTION_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        name: "session",
        description: "Configuration options of the session, by the ids that the program offers, as `reasoning_effort`.",
        protected_keys: &["model", "cwd", "workspaceId", "sessionId", "mcpServers"],
    },
    OptionBlock {
        name: "model",
        description: "Facts about the model, as an entry of `models` in the program's model row has them: contextWindow, maxTokens, reasoningEfforts, compat.",
        // Pictures reach the program over another way than prompts.
        protected_keys: &["id", "input", "inputModalities"],
    },
    OptionBlock {
        name: "profile",
        description: "Rows of the program's profile, by id: `config`, which replaces the row's whole configuration, or `disabled`.",
        protected_keys: &[
            // What speaks with the platform.
            "acp*",
            "astrabox*",
            "typert*",
            "remote-access",
            // Who may do what.
            "approval",
            "permission",
            "sandbox*",
            "fs-sandbox",
            "subprocess",
            // Where the model is, and with what it is asked.
            "llm*",
            "deepseek*",
            "agent",
            "agent-default-model",
            "agent-loop",
            "authorization",
            "credentials",
            "web-search-deepseek",
            "web-deepseek-api",
            "system-prompt",
            // The conversation and what is told about it.
            "session*",
            "storage*",
            "otel",
            "plugin*",
            "tool-plugin-manager",
            "config-editor",
            "settings",
            "hmr",
            // A row is changed, never made.
            "*.insert",
            "*.name",
            "*.id",
            "*.inject",
            "*.intercept",
            "*.isolate",
            "*.group",
        ],
    },
    OptionBlock {
        name: "env",
        description: "Variables for the program and its commands: names to texts.",
        protected_keys: &[
            "DSH_*",
            "DEEPSEEK_*",
            "AGENTS_HOME",
            "BASH_ENV",
            "ANTHROPIC_*",
            "OPENAI_*",
            "OTEL_*",
            "PKG_*",
            "NODE_*",
            "LD_*",
            "SSL_*",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "PATH",
            "TMPDIR",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
        ],
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
    use astrabox_engine::{EngineAdapter as _, check_options};
    use serde_json::json;

    use super::*;
    use crate::DeepseekHarness;

    #[test]
    fn a_mode_is_known_by_its_native_name() {
        for mode in &PERMISSION_MODES {
            assert_eq!(demand_mode(mode.name).expect(mode.name).name(), mode.name);
        }
        for unknown in ["custom", "auto", "Ask", ""] {
            let error = demand_mode(unknown).expect_err(unknown).to_string();
            assert!(error.contains("danger-full-access"), "{error}");
        }
        assert_eq!(demand_mode(ASKING).expect("there is").approval, "ask");
    }

    #[test]
    fn platform_owned_keys_are_refused_and_the_programs_own_are_taken() {
        let check = |block: &str, value: Value| {
            let options = BTreeMap::from([(block.to_owned(), Json::from(value))]);
            check_options(&DeepseekHarness.capabilities(), &options)
        };
        for (block, value) in [
            ("session", json!({"model": "x"})),
            ("session", json!({"cwd": "/"})),
            ("model", json!({"id": "x"})),
            ("profile", json!({"acp": {"config": {}}})),
            (
                "profile",
                json!({"session-log-deepseek": {"disabled": false}}),
            ),
            ("profile", json!({"llm-pi-ai": {"config": {}}})),
            ("profile", json!({"tool-workflow": {"insert": []}})),
            ("profile", json!({"tool-workflow": {"name": "./x.mjs"}})),
            ("env", json!({"DSH_PERMISSION_MODE": "x"})),
            ("env", json!({"DEEPSEEK_BASE_URL": "x"})),
        ] {
            let error = check(block, value.clone()).expect_err("it is the platform's");
            assert!(error.to_string().contains("platform"), "{value}: {error}");
        }
        for (block, value) in [
            ("session", json!({"reasoning_effort": "max"})),
            ("model", json!({"contextWindow": 128_000})),
            ("profile", json!({"tool-workflow": {"disabled": true}})),
            ("profile", json!({"compaction-basic": {"config": {"a": 1}}})),
            ("env", json!({"EDITOR": "vi"})),
        ] {
            assert!(check(block, value.clone()).is_ok(), "{block} {value}");
        }
    }
}
