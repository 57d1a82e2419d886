//! How the program is started for a recording: as the engine's adapter starts it.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use super::{ASKING, MODES};
use crate::model::ScriptedModel;

/// As our engine patches the profile, but for places.
pub(super) fn patch(
    mode: &str,
    home: &Path,
    folder: &Path,
    image: &Path,
    model: &ScriptedModel,
) -> Value {
    let of = |name: &str| MODES.iter().find(|known| known.0 == name);
    let (_, sandbox, approval) = of(mode).copied().unwrap_or(MODES[1]);
    let presets: serde_json::Map<String, Value> = MODES
        .iter()
        .map(|(name, sandbox, approval)| {
            let preset = json!({ "sandbox": sandbox, "approval": approval });
            ((*name).to_owned(), preset)
        })
        .collect();
    let row = |id: &str, config: Value| json!({ "id": id, "config": config });
    let mut rows = vec![
        json!({ "insert": [
            { "id": "astrabox-host", "name": "./host.mjs", "config": {
                "asking": ASKING,
                "modes": MODES.map(|mode| mode.0),
                "instructions": "",
                "landlock": image.join("bin/landlock-run"),
            } },
            { "id": "tool-ask-user", "name": "@deepseek-ai/dsh-tool-ask-user" },
        ] }),
        json!({ "id": "acp", "inject": ["acpAppStartup", "astraboxWire"], "config": {
            "provider": "gateway",
            "model": "scripted-model",
            "stream": { "__jsExpr": "ctx.astraboxWire" },
        } }),
        row(
            "session-persistence-jsonl",
            json!({ "root": home.join(".dsh/sessions"), "compression": "none" }),
        ),
        row(
            "sandbox-policy",
            json!({ "mode": sandbox, "workspaceRoot": folder }),
        ),
        row("approval", json!({ "policy": approval })),
        row(
            "permission",
            json!({ "presets": presets, "defaultPreset": mode }),
        ),
        row(
            "agent-default-model",
            json!({ "provider": "gateway", "model": "scripted-model" }),
        ),
        row("web", json!({ "fetchProvider": "http" })),
        row("tool-web", json!({ "fetch": true, "search": false })),
        row(
            "llm-pi-ai",
            json!({ "providers": { "gateway": {
                "displayName": "Gateway",
                "apiKeyEnv": "DEEPSEEK_API_KEY",
                "api": "anthropic-messages",
                "baseURL": model.base_url(),
                "models": [{ "id": "scripted-model" }],
            } } }),
        ),
    ];
    let off = [
        "llm-deepseek",
        "session-log-deepseek",
        "plugin-package-inventory-deepseek",
        "session-telemetry-otel",
        "otel",
        "deepseek-account",
        "llm-deepseek-account",
        "web-search-deepseek",
        "web-deepseek-api",
    ];
    rows.extend(off.map(|id| json!({ "id": id, "disabled": true })));
    Value::Array(rows)
}

pub(super) fn command(image: &Path, home: &Path, host: &Path) -> Command {
    let mut command = Command::new(image.join("bin/dsh"));
    command
        .args(["--profile", "acp", "--patch"])
        .arg(host.join("host.patch.yml"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .env("HOME", home)
        .env("DSH_HOME", home.join(".dsh"))
        .env("DSH_TELEMETRY_DISABLED", "1")
        .env("DEEPSEEK_API_KEY", "placeholder");
    command
}
