//! `pi` 1.6.0 in its RPC mode: JSON lines.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use astrabox_testkit::model::ScriptedModel;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Dialect, Place, Talk};

pub(crate) struct Pi;

#[async_trait]
impl Dialect for Pi {
    fn kind(&self) -> &'static str {
        "pi"
    }

    fn command(&self, root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command> {
        let home = place.home().join(".pi/agent");
        fs::create_dir_all(&home)?;
        let models = json!({"providers": {"astrabox": {
            "baseUrl": format!("{}/v1", model.base_url()),
            "api": "openai-completions",
            "apiKey": "$MODEL_KEY",
            "models": [{"id": "scripted", "name": "scripted", "input": ["text"]}],
        }}});
        fs::write(home.join("models.json"), models.to_string())?;
        let modules = root.join("lib/node_modules/@earendil-works/pi-coding-agent");
        let mut command = Command::new(root.join("bin/node"));
        command
            .arg(modules.join("dist/bundle/cli.js"))
            .args(["--mode", "rpc", "--provider", "astrabox"])
            .args(["--model", "scripted", "--no-approve", "--no-extensions"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", place.home())
            .env("PI_CODING_AGENT_DIR", home)
            .env("MODEL_KEY", "placeholder")
            // As the engine's adapter sets them.
            .env("PI_OFFLINE", "1")
            .env("PI_TELEMETRY", "0")
            .env("PI_SKIP_VERSION_CHECK", "1");
        Ok(command)
    }

    async fn open(&self, talk: &mut Talk) -> Result<String> {
        talk.send(&json!({"id": "s", "type": "get_state"})).await?;
        let answer = talk.until(|line| line["id"] == "s").await?;
        let id = answer.pointer("/data/sessionId").and_then(Value::as_str);
        Ok(id
            .with_context(|| format!("a session in {answer}"))?
            .to_owned())
    }

    fn prompt(&self, _: &str, number: u64, text: &str) -> Value {
        json!({"id": number.to_string(), "type": "prompt", "message": text})
    }

    fn is_piece(&self, line: &Value) -> bool {
        line["type"] == "message_update" && line["assistantMessageEvent"]["type"] == "text_delta"
    }

    fn is_end(&self, line: &Value) -> bool {
        line["type"] == "agent_settled"
    }
}
