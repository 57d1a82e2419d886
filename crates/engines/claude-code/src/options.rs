//! What an agent may choose: permission modes and blocks of native options.

use std::collections::BTreeMap;

use astrabox_engine::{Error, ErrorKind, OptionBlock, PermissionMode, Result};
use astrabox_types::{Json, PermissionLevel};
use serde_json::{Map, Value};

/// The mode that a session begins with: the program's own.
pub(crate) const DEFAULT_MODE: &str = "default";

const fn mode(name: &'static str, description: &'static str) -> PermissionMode {
    // All of them work in every sandbox: the sandbox is the boundary, also for a program that asks nobody.
    PermissionMode {
        name,
        description,
        level: PermissionLevel::Default,
    }
}

// `auto` is left out: the program 2.1.328 refuses it for most models ("auto mode unavailable for this model").
/// The modes, for the capabilities.
pub(crate) const PERMISSION_MODES: [PermissionMode; 5] = [
    mode(
        DEFAULT_MODE,
        "Asks before commands and edits, but for commands that only read.",
    ),
    mode(
        "acceptEdits",
        "Edits files and moves them in the workspace unasked; asks before other commands.",
    ),
    mode(
        "plan",
        "Reads and plans; asks before it leaves the mode to do what it planned.",
    ),
    mode(
        "dontAsk",
        "Never asks: what the rules do not allow is denied.",
    ),
    mode(
        "bypassPermissions",
        "Never asks: everything is allowed inside the sandbox, which still holds.",
    ),
];

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

/// The blocks of native options.
pub(crate) const OPTION_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        name: "settings",
        description: "Settings of Claude Code, as its settings.json has them.",
        protected_keys: &[
            // Who may do what.
            "permissions",
            "defaultMode",
            "hooks",
            "disableAllHooks",
            "allowManagedHooksOnly",
            "allowedHttpHookUrls",
            "httpHookAllowedEnvVars",
            "sandbox",
            "skipDangerousModePermissionPrompt",
            "disableBypassPermissionsMode",
            "disableAutoMode",
            "useAutoModeDuringPlan",
            "autoMode",
            "channelsEnabled",
            // Where the model is, and with what it is asked.
            "model",
            "availableModels",
            "modelOverrides",
            "advisorModel",
            "env",
            "apiKeyHelper",
            "proxyAuthHelper",
            "awsAuthRefresh",
            "awsCredentialExport",
            "gcpAuthRefresh",
            "otelHeadersHelper",
            "forceLoginMethod",
            "forceLoginOrgUUID",
            "forceRemoteSettingsRefresh",
            // What else the platform gives.
            "mcpServers",
            "enableAllProjectMcpServers",
            "enabledMcpjsonServers",
            "disabledMcpjsonServers",
            "allowedMcpServers",
            "deniedMcpServers",
            "enabledPlugins",
            "extraKnownMarketplaces",
            "pluginConfigs",
            "statusLine",
            "fileSuggestion",
            "remote",
            "autoUpdatesChannel",
            "minimumVersion",
            // It would delete transcripts, which are the conversation.
            "cleanupPeriodDays",
            "plansDirectory",
            "autoMemoryDirectory",
        ],
    },
    OptionBlock {
        name: "env",
        description: "Variables for the program and its commands: names to texts.",
        protected_keys: &[
            "ANTHROPIC_*",
            "CLAUDE*",
            "AWS_*",
            "CLOUD_ML_*",
            "VERTEX_*",
            "GOOGLE_*",
            "OTEL_*",
            "DISABLE_*",
            "ENABLE_TOOL_SEARCH",
            "IS_SANDBOX",
            "API_*",
            "NODE_*",
            "BUN_*",
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
    OptionBlock {
        name: "agents",
        description: "Sub-agents that the program may start: name to definition (description, prompt, tools, model).",
        protected_keys: &["*.permissionMode", "*.hooks", "*.mcpServers"],
    },
    OptionBlock {
        name: "plugins",
        description: "`directories`: a list of plugin directories inside the sandbox, as /workspace/tools/my-plugin.",
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
    use astrabox_engine::{EngineAdapter as _, check_options};

    use super::*;
    use crate::ClaudeCode;

    #[test]
    fn a_mode_is_known_by_its_native_name() {
        for mode in &PERMISSION_MODES {
            assert!(demand_mode(mode.name).is_ok(), "{}", mode.name);
        }
        for unknown in ["auto", "Default", "never", ""] {
            let error = demand_mode(unknown).expect_err(unknown).to_string();
            assert!(error.contains("bypassPermissions"), "{error}");
        }
    }

    #[test]
    fn what_the_platform_sets_is_refused_in_an_agent() {
        for (name, value, refused) in [
            ("settings", r#"{"effortLevel":"high"}"#, false),
            ("settings", r#"{"permissions":{"allow":["Bash"]}}"#, true),
            ("settings", r#"{"hooks":{}}"#, true),
            ("settings", r#"{"apiKeyHelper":"cat"}"#, true),
            ("settings", r#"{"env":{"ANTHROPIC_BASE_URL":"x"}}"#, true),
            ("settings", r#"{"model":"x"}"#, true),
            ("env", r#"{"MY_TOOL":"1"}"#, false),
            ("env", r#"{"ANTHROPIC_BASE_URL":"http://x"}"#, true),
            ("env", r#"{"ANTHROPIC_CUSTOM_HEADERS":"a: b"}"#, true),
            ("env", r#"{"CLAUDE_CODE_USE_BEDROCK":"1"}"#, true),
            ("env", r#"{"https_proxy":"x"}"#, true),
            ("agents", r#"{"a":{"description":"d","prompt":"p"}}"#, false),
            (
                "agents",
                r#"{"a":{"permissionMode":"bypassPermissions"}}"#,
                true,
            ),
            ("plugins", r#"{"directories":["/workspace/p"]}"#, false),
            ("plugins", "[]", true),
            ("launch", "{}", true),
        ] {
            let options = [(name.to_owned(), Json::parse(value).expect("it is JSON"))];
            let checked = check_options(&ClaudeCode.capabilities(), &options.into());
            assert_eq!(checked.is_err(), refused, "{name} {value}");
        }
    }
}
