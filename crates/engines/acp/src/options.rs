//! What an agent may choose: blocks of native options.

use std::collections::{BTreeMap, VecDeque};

use astrabox_acp_protocol::Wish;
use astrabox_engine::{Error, ErrorKind, OptionBlock, Result};
use astrabox_types::Json;
use serde_json::{Map, Value};

/// The blocks of native options.
pub(crate) const OPTION_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        name: "session",
        description: "`_meta` of session/new, session/load and session/resume: the program's own extensions.",
        protected_keys: &[
            // claude-agent-acp passes these to the SDK of Claude Code.
            "claudeCode.options.cwd",
            "claudeCode.options.continue",
            "claudeCode.options.resume*",
            "claudeCode.options.sessionId",
            "claudeCode.options.forkSession",
            "claudeCode.options.permission*",
            "claudeCode.options.allowDangerouslySkipPermissions",
            "claudeCode.options.canUseTool",
            "claudeCode.options.mcpServers",
            "claudeCode.options.strictMcpConfig",
            "claudeCode.options.env",
            "claudeCode.options.hooks",
            "claudeCode.options.settings",
            "claudeCode.options.model",
            "claudeCode.options.fallbackModel",
            "claudeCode.options.executable*",
            "claudeCode.options.pathToClaudeCodeExecutable",
            "claudeCode.options.extraArgs",
            "claudeCode.options.systemPrompt",
            "systemPrompt",
        ],
    },
    OptionBlock {
        name: "config_options",
        description: "Values of the program's configuration options, by its own ids: a text, or true and false.",
        // The session's permission mode, and the agent's model.
        protected_keys: &["mode", "model"],
    },
];

/// An agent's block as an object; empty when the agent does not give it.
pub(crate) fn block(options: &BTreeMap<String, Json>, name: &str) -> Map<String, Value> {
    match options.get(name).map(Json::value) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// The agent's configuration options, in the order of their ids.
///
/// # Errors
/// `InvalidConfiguration` for a value that no option has.
pub(crate) fn wishes(options: &BTreeMap<String, Json>) -> Result<VecDeque<Wish>> {
    let options = block(options, "config_options").into_iter();
    options
        .map(|(id, value)| match value {
            Value::String(_) | Value::Bool(_) => Ok(Wish::Option { id, value }),
            _ => {
                let text = format!("`config_options.{id}` must be a text, or true or false");
                Err(Error::new(ErrorKind::InvalidConfiguration, "plan", text))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use astrabox_engine::{EngineAdapter as _, check_options};

    use super::*;
    use crate::Acp;

    #[test]
    fn what_the_platform_sets_is_refused_in_an_agent() {
        for (name, value, refused) in [
            (
                "session",
                r#"{"claudeCode":{"options":{"maxTurns":3}}}"#,
                false,
            ),
            ("session", r#"{"claudeCode":{"options":{"env":{}}}}"#, true),
            (
                "session",
                r#"{"claudeCode":{"options":{"permissionMode":"x"}}}"#,
                true,
            ),
            ("session", r#"{"x":1}"#, false),
            ("config_options", r#"{"effort":"high","fast":true}"#, false),
            ("config_options", r#"{"mode":"x"}"#, true),
            ("config_options", r#"{"model":"x"}"#, true),
            ("other", "{}", true),
        ] {
            let json = Json::parse(value).expect("it is JSON");
            let options = BTreeMap::from([(name.to_owned(), json)]);
            let checked = check_options(&Acp.capabilities(), &options);
            assert_eq!(checked.is_err(), refused, "{name} {value}");
        }
    }

    #[test]
    fn options_are_texts_or_yes_and_no() {
        let options = |text: &str| {
            let json = Json::parse(text).expect("it is JSON");
            BTreeMap::from([("config_options".to_owned(), json)])
        };
        let wished = wishes(&options(r#"{"b":"x","a":true}"#)).expect("they are good");
        assert_eq!(wished.len(), 2);
        for wrong in [r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":["x"]}"#] {
            assert!(wishes(&options(wrong)).is_err(), "{wrong}");
        }
        assert!(wishes(&BTreeMap::new()).expect("none").is_empty());
    }
}
