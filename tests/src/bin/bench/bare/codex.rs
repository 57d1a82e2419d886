//! `codex app-server` 0.169.0: JSON-RPC without a version field, a line each.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use astrabox_testkit::model::ScriptedModel;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Dialect, Place, Talk};

pub(crate) struct Codex;

#[async_trait]
impl Dialect for Codex {
    fn kind(&self) -> &'static str {
        "codex"
    }

    fn command(&self, root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command> {
        let home = place.home().join(".codex");
        fs::create_dir(&home)?;
        // As the engine's adapter configures it.
        let config = format!(
            "model = \"scripted\"\nmodel_provider = \"astrabox\"\nweb_search = \"disabled\"\n\
             check_for_update_on_startup = false\n[analytics]\nenabled = false\n[features]\nplugins = false\n\
             [model_providers.astrabox]\nname = \"astrabox\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\n\
             env_key = \"MODEL_KEY\"\n",
            model.base_url()
        );
        fs::write(home.join("config.toml"), config)?;
        let mut command = Command::new(root.join("bin/codex"));
        command
            .args(["app-server", "-c", "features.plugins=false"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", place.home())
            .env("CODEX_HOME", home)
            .env("MODEL_KEY", "placeholder");
        Ok(command)
    }

    async fn open(&self, talk: &mut Talk) -> Result<String> {
        let client = json!({"name": "astrabox", "title": "AstraBox", "version": "0.1.0"});
        let params = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
        talk.send(&json!({"id": "i", "method": "initialize", "params": params}))
            .await?;
        talk.until(|line| line["id"] == "i").await?;
        talk.send(&json!({"method": "initialized"})).await?;
        let params = json!({
            "model": "scripted",
            "modelProvider": "astrabox",
            "approvalPolicy": "untrusted",
            "sandbox": "danger-full-access",
        });
        talk.send(&json!({"id": "t", "method": "thread/start", "params": params}))
            .await?;
        let answer = talk.until(|line| line["id"] == "t").await?;
        let thread = answer.pointer("/result/thread/id").and_then(Value::as_str);
        Ok(thread
            .with_context(|| format!("a thread in {answer}"))?
            .to_owned())
    }

    fn prompt(&self, conversation: &str, number: u64, text: &str) -> Value {
        json!({"id": number, "method": "turn/start", "params": {
            "threadId": conversation,
            "input": [{"type": "text", "text": text}],
        }})
    }

    fn is_piece(&self, line: &Value) -> bool {
        line["method"] == "item/agentMessage/delta"
    }

    fn is_end(&self, line: &Value) -> bool {
        line["method"] == "turn/completed"
    }
}
