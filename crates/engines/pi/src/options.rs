//! What an agent may choose: blocks of native options, approvals among them.

use std::collections::BTreeMap;

use astrabox_engine::sandbox::BoxPath;
use astrabox_engine::{Error, ErrorKind, OptionBlock, Result};
use astrabox_types::Json;
use serde_json::{Map, Value};

/// The blocks of native options.
pub(crate) const OPTION_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        name: "approvals",
        description: "`ask`: the tools that wait for a person before they run, by name; `*` stands for any text, as \
                      in `[\"bash\", \"write\", \"edit\", \"mcp__*\"]`. Pi has no permission modes; without this \
                      block it asks for nothing.",
        protected_keys: &[],
    },
    OptionBlock {
        name: "settings",
        description: "Settings of Pi, as its settings.json has them.",
        protected_keys: &[
            // Where the model is.
            "defaultProvider",
            "defaultModel",
            "enabledModels",
            "httpProxy",
            // Where the conversation is.
            "sessionDir",
            "sessionShareDestination",
            // What runs inside of the program; the block `extensions` is for that.
            "extensions",
            "packages",
            "npmCommand",
            "selfUpdateCommand",
            "defaultProjectTrust",
            "enableInstallTelemetry",
            "enableAnalytics",
        ],
    },
    OptionBlock {
        name: "model",
        description: "What Pi is to know of the model, as an entry of its models.json: `contextWindow`, `maxTokens`, \
                      `reasoning`, `input`, `thinkingLevelMap`, `compat`, `samplingParams`.",
        protected_keys: &["id", "name", "api", "baseUrl", "headers", "apiKey"],
    },
    OptionBlock {
        name: "env",
        description: "Variables for the program and its commands: names to texts.",
        protected_keys: &[
            "PI_*",
            "ASTRABOX_*",
            "NODE_*",
            "AWS_*",
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
        name: "extensions",
        description: "`paths`: a list of extension files or directories inside the sandbox, as \
                      /workspace/tools/review.ts. Nothing else is loaded as an extension.",
        protected_keys: &[],
    },
    OptionBlock {
        name: "project",
        description: "`trust`: whether the workspace's own .pi directory counts (settings, skills, prompts, MCP \
                      servers); false by default. AGENTS.md always does.",
        protected_keys: &[],
    },
];

/// What of an agent's options is the platform's own.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    /// The tools to ask for, as patterns.
    pub(crate) ask: Vec<String>,
    /// Extensions of the agent's own.
    pub(crate) extensions: Vec<BoxPath>,
    /// Whether the workspace's own configuration counts.
    pub(crate) trust: bool,
}

impl Choices {
    /// Reads the blocks that are not Pi's own.
    ///
    /// # Errors
    /// `InvalidConfiguration`, naming the block and the key.
    pub(crate) fn of(options: &BTreeMap<String, Json>) -> Result<Self> {
        let paths: Vec<String> =
            only(options, "extensions", "paths", "a list of paths")?.unwrap_or_default();
        let ask: Vec<String> =
            only(options, "approvals", "ask", "a list of tool names")?.unwrap_or_default();
        if ask.iter().any(String::is_empty) {
            return Err(invalid("`approvals.ask` has an empty name".to_owned()));
        }
        let extensions = paths.into_iter().map(|path| {
            BoxPath::new(path.clone())
                .map_err(|error| invalid(format!("`extensions.paths` has `{path}`: {error}")))
        });
        Ok(Self {
            ask,
            extensions: extensions.collect::<Result<_>>()?,
            trust: only(options, "project", "trust", "true or false")?.unwrap_or_default(),
        })
    }
}

/// The one key of a block.
fn only<T: serde::de::DeserializeOwned>(
    options: &BTreeMap<String, Json>,
    name: &str,
    key: &str,
    form: &str,
) -> Result<Option<T>> {
    let mut block = block(options, name);
    let value = block.remove(key);
    if let Some(unknown) = block.keys().next() {
        return Err(invalid(format!(
            "`{name}.{unknown}` is not known; there is: {key}"
        )));
    }
    let Some(value) = value else {
        return Ok(None);
    };
    serde_json::from_value(value)
        .map(Some)
        .map_err(|_| invalid(format!("`{name}.{key}` must be {form}")))
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidConfiguration, "plan", text)
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

    use super::*;
    use crate::Pi;

    fn options(name: &str, value: &str) -> BTreeMap<String, Json> {
        BTreeMap::from([(name.to_owned(), Json::parse(value).expect("it is JSON"))])
    }

    #[test]
    fn what_the_platform_sets_is_refused_in_an_agent() {
        for (name, value, refused) in [
            ("settings", r#"{"defaultThinkingLevel":"high"}"#, false),
            ("settings", r#"{"compaction":{"enabled":false}}"#, false),
            ("settings", r#"{"defaultProvider":"x"}"#, true),
            ("settings", r#"{"defaultModel":"x"}"#, true),
            ("settings", r#"{"sessionDir":"/tmp"}"#, true),
            ("settings", r#"{"extensions":["-builtin:mcp"]}"#, true),
            ("settings", r#"{"packages":["npm:x"]}"#, true),
            (
                "model",
                r#"{"contextWindow":200000,"reasoning":true}"#,
                false,
            ),
            ("model", r#"{"baseUrl":"http://x"}"#, true),
            ("model", r#"{"headers":{"Authorization":"x"}}"#, true),
            ("model", r#"{"id":"x"}"#, true),
            ("env", r#"{"MY_TOOL":"1"}"#, false),
            ("env", r#"{"PI_CODING_AGENT_DIR":"x"}"#, true),
            ("env", r#"{"ASTRABOX_MODEL_KEY":"x"}"#, true),
            ("env", r#"{"NODE_OPTIONS":"--import=x"}"#, true),
            ("env", r#"{"https_proxy":"x"}"#, true),
            ("approvals", r#"{"ask":["bash"]}"#, false),
            ("providers", "{}", true),
        ] {
            let checked = check_options(&Pi.capabilities(), &options(name, value));
            assert_eq!(checked.is_err(), refused, "{name} {value}");
        }
    }

    #[test]
    fn the_blocks_of_the_platform_are_read_whole_or_refused() {
        for (name, value, expected) in [
            ("approvals", r#"{"ask":["bash","mcp__*"]}"#, None),
            (
                "approvals",
                r#"{"ask":"bash"}"#,
                Some("`approvals.ask` must be"),
            ),
            ("approvals", r#"{"ask":[""]}"#, Some("empty name")),
            (
                "approvals",
                r#"{"mode":"all"}"#,
                Some("`approvals.mode` is not known"),
            ),
            ("extensions", r#"{"paths":["/workspace/x.ts"]}"#, None),
            ("extensions", r#"{"paths":["../x"]}"#, Some("../x")),
            ("project", r#"{"trust":true}"#, None),
            ("project", r#"{"trust":1}"#, Some("true or false")),
        ] {
            let read = Choices::of(&options(name, value));
            let error = read.err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(error, None, "{name} {value}"),
                Some(part) => assert!(
                    error.as_ref().is_some_and(|text| text.contains(part)),
                    "{error:?}"
                ),
            }
        }
        assert_eq!(
            Choices::of(&BTreeMap::new()).expect("nothing is wrong"),
            Choices::default()
        );
    }
}
