//! Programs of the Agent Client Protocol, version 1: JSON-RPC 2.0, a line each.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use astrabox_testkit::model::ScriptedModel;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Dialect, Place, Talk};

/// One program of the protocol.
pub(crate) struct Acp {
    pub(crate) kind: &'static str,
    pub(crate) command: fn(&Path, &Place, &ScriptedModel) -> Result<Command>,
}

/// Hermes Agent 0.19.0.
pub(crate) const HERMES: Acp = Acp {
    kind: "hermes",
    command: hermes,
};

/// DeepSeek Harness 0.2.1rc2, as it comes: without the plugin of the engine it tells whole messages.
pub(crate) const DEEPSEEK_HARNESS: Acp = Acp {
    kind: "deepseek_harness",
    command: deepseek_harness,
};

#[async_trait]
impl Dialect for Acp {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn command(&self, root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command> {
        let mut command = (self.command)(root, place, model)?;
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", place.home());
        Ok(command)
    }

    async fn open(&self, talk: &mut Talk) -> Result<String> {
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let initialize =
            json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params});
        talk.send(&initialize).await?;
        talk.until(|line| line["id"] == "i").await?;
        let params = json!({"cwd": "/tmp", "mcpServers": []});
        let new = json!({"jsonrpc": "2.0", "id": "n", "method": "session/new", "params": params});
        talk.send(&new).await?;
        let answer = talk.until(|line| line["id"] == "n").await?;
        let id = answer.pointer("/result/sessionId").and_then(Value::as_str);
        Ok(id
            .with_context(|| format!("a session in {answer}"))?
            .to_owned())
    }

    fn prompt(&self, conversation: &str, number: u64, text: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": number, "method": "session/prompt", "params": {
            "sessionId": conversation,
            "prompt": [{"type": "text", "text": text}],
        }})
    }

    fn is_piece(&self, line: &Value) -> bool {
        line.pointer("/params/update/sessionUpdate") == Some(&json!("agent_message_chunk"))
    }

    fn is_end(&self, line: &Value) -> bool {
        line.pointer("/result/stopReason").is_some()
    }
}

fn hermes(root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command> {
    let home = place.home().join(".hermes");
    fs::create_dir_all(&home)?;
    // JSON is YAML.
    let config = json!({
        "model": {
            "provider": "custom",
            "default": "scripted",
            "base_url": format!("{}/v1", model.base_url()),
            "api_key": "${MODEL_KEY}",
            "api_mode": "chat_completions",
        },
        "approvals": {"mode": "manual"},
        "terminal": {"backend": "local"},
        "auxiliary": {"title_generation": {"enabled": false}},
        "model_catalog": {"enabled": false},
        "security": {"allow_lazy_installs": false, "tirith_enabled": false},
        "lsp": {"enabled": false},
    });
    fs::write(home.join("config.yaml"), config.to_string())?;
    // A copy: in a sandbox its packages cannot be written to, and here it adds certificates to one of them.
    let packages = place.home().join("python");
    let copied = std::process::Command::new("cp")
        .args(["-r", "--"])
        .args([&root.join("python"), &packages])
        .status()?;
    ensure!(copied.success(), "the packages of Hermes are not copied");
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-P", "-s", "-B", "-c"])
        .arg("import sys; from acp_adapter.entry import main; sys.exit(main())")
        .env_clear()
        .env("PYTHONPATH", packages)
        .env("HERMES_HOME", home)
        .env("HERMES_DISABLE_LAZY_INSTALLS", "1")
        .env("TIRITH_ENABLED", "false")
        .env("MODEL_KEY", "placeholder");
    Ok(command)
}

fn deepseek_harness(root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command> {
    let mut command = Command::new(root.join("bin/dsh"));
    command
        .args(["--profile", "acp"])
        .env_clear()
        .env("DSH_HOME", place.home().join(".dsh"))
        .env("DSH_TELEMETRY_DISABLED", "1")
        .env("DEEPSEEK_BASE_URL", model.base_url())
        .env("DEEPSEEK_API_KEY", "placeholder");
    Ok(command)
}
