//! The patch of the program's profile: which rows the platform sets, which are off, and the plugin.

use astrabox_engine::model::CredentialKind;
use astrabox_engine::sandbox::{HOME, IMAGE_ROOT, WORKSPACE};
use astrabox_engine::{EngineStartupContext, Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use crate::options::{ASKING, Mode, block, modes};
use crate::plan::SESSIONS;
use crate::recipe::LANDLOCK;

/// The variable with the model's key.
pub(crate) const KEY_VARIABLE: &str = "DEEPSEEK_API_KEY";

/// The name of the route to models that are not DeepSeek's, in the program's lists.
const GATEWAY: &str = "gateway";
/// The program's own route to DeepSeek's models.
const OFFICIAL: &str = "deepseek-official";

/// Rows that are off.
///
/// The first two write the session's log and the list of plugins into every request to a model. Then come telemetry,
/// the account of DeepSeek's site, and tools that ask DeepSeek's site with the model's key.
const OFF: [&str; 8] = [
    "session-log-deepseek",
    "plugin-package-inventory-deepseek",
    "session-telemetry-otel",
    "otel",
    "deepseek-account",
    "llm-deepseek-account",
    "web-search-deepseek",
    "web-deepseek-api",
];

/// The patch, as the list that `--patch` takes. The file is YAML, of which JSON is a part.
///
/// A row's `config` replaces the row's whole configuration, so what the program comes with is repeated where it is
/// to stay.
///
/// # Errors
/// `InvalidConfiguration` for an option block that cannot be read.
pub(crate) fn patch(context: &EngineStartupContext, mode: &Mode) -> Result<Value> {
    let agent = &context.agent;
    let route = Route::of(context);
    let model = &context.model.model_name;
    let mut rows = vec![
        json!({"insert": [
            {"id": "astrabox-host", "name": "./host.mjs", "config": {
                "asking": ASKING,
                "modes": modes().iter().map(Mode::name).collect::<Vec<_>>(),
                "instructions": agent.system,
                "landlock": format!("{IMAGE_ROOT}/{LANDLOCK}"),
            }},
            // The profile leaves this tool out, since it has nobody who answers.
            {"id": "tool-ask-user", "name": "@deepseek-ai/dsh-tool-ask-user"},
        ]}),
        json!({"id": "acp", "inject": ["acpAppStartup", "astraboxWire"], "config": {
            "provider": route.name(),
            "model": model,
            // An expression in the form that the program gives its `!!js` texts.
            "stream": {"__jsExpr": "ctx.astraboxWire"},
        }}),
        row(
            "session-persistence-jsonl",
            json!({
                "root": format!("{HOME}/{SESSIONS}"),
                // Whole lines, which a torn tail can be cut to.
                "compression": "none",
            }),
        ),
        row(
            "sandbox-policy",
            json!({"mode": mode.sandbox, "workspaceRoot": WORKSPACE}),
        ),
        row("approval", json!({"policy": mode.approval})),
        row(
            "permission",
            json!({"presets": presets(), "defaultPreset": mode.name()}),
        ),
        row(
            "agent-default-model",
            json!({"provider": route.name(), "model": model}),
        ),
        row(
            "system-prompt",
            json!({
                "personaPrefix": "You are a coding agent powered by the {{model}} model.",
                // A variable of the plugin's, so that braces in the text stand for themselves.
                "personaSuffix": if agent.system.is_empty() { "" } else { "{{agent_instructions}}" },
            }),
        ),
        row("web", json!({"fetchProvider": "http"})),
        row("tool-web", json!({"fetch": true, "search": false})),
    ];
    rows.extend(route.rows(context));
    rows.extend(own_rows(&block(&agent.engine_options, "profile"))?);
    rows.extend(OFF.map(|id| json!({"id": id, "disabled": true})));
    Ok(Value::Array(rows))
}

fn row(id: &str, config: Value) -> Value {
    json!({"id": id, "config": config})
}

fn presets() -> Map<String, Value> {
    let presets = modes().iter().map(|mode| {
        let preset = json!({"sandbox": mode.sandbox, "approval": mode.approval});
        (mode.name().to_owned(), preset)
    });
    presets.collect()
}

/// The rows that the agent changes.
fn own_rows(profile: &Map<String, Value>) -> Result<Vec<Value>> {
    let rows = profile.iter().map(|(id, row)| {
        let invalid = |text: String| Error::new(ErrorKind::InvalidConfiguration, "plan", text);
        let Value::Object(row) = row else {
            return Err(invalid(format!("`profile.{id}` must be an object")));
        };
        if let Some(key) = row
            .keys()
            .find(|key| !["config", "disabled"].contains(&key.as_str()))
        {
            let text = format!("`profile.{id}.{key}` is not known; there are: config, disabled");
            return Err(invalid(text));
        }
        let mut row = row.clone();
        row.insert("id".to_owned(), json!(id));
        Ok(Value::Object(row))
    });
    rows.collect()
}

/// How the program asks a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// In DeepSeek's manner: thinking is switched on without a budget, which other endpoints refuse.
    Official,
    /// As any endpoint of the Messages API.
    Gateway,
}

impl Route {
    fn of(context: &EngineStartupContext) -> Self {
        let model = &context.model;
        // The program's own route sends its key as `x-api-key` and has no other way.
        let key = model.credential_kind != CredentialKind::Bearer;
        if key && model.model_name.starts_with("deepseek") {
            Self::Official
        } else {
            Self::Gateway
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Official => OFFICIAL,
            Self::Gateway => GATEWAY,
        }
    }

    fn rows(self, context: &EngineStartupContext) -> [Value; 2] {
        let model = &context.model;
        let mut entry = block(&context.agent.engine_options, "model");
        entry.insert("id".to_owned(), json!(model.model_name));
        if self == Self::Official {
            let config = json!({
                "baseURL": model.base_url,
                "apiKeyEnv": KEY_VARIABLE,
                "models": [entry],
            });
            let other = json!({"id": "llm-pi-ai", "disabled": true});
            return [row("llm-deepseek", config), other];
        }
        let mut provider = json!({
            "displayName": "Gateway",
            "apiKeyEnv": KEY_VARIABLE,
            "api": "anthropic-messages",
            "baseURL": model.base_url,
            "models": [entry],
        });
        if model.credential_kind == CredentialKind::Bearer {
            let bearer = format!("Bearer {}", context.model_placeholder);
            provider["headers"] = json!({"authorization": bearer, "x-api-key": null});
        }
        let config = json!({"providers": {GATEWAY: provider}});
        let other = json!({"id": "llm-deepseek", "disabled": true});
        [row("llm-pi-ai", config), other]
    }
}
