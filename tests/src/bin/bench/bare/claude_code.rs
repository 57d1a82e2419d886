//! `claude` 2.1.328 with `stream-json` on both sides and its control protocol.

use std::path::Path;

use anyhow::Result;
use astrabox_testkit::model::ScriptedModel;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Dialect, Place, Talk};

pub(crate) struct ClaudeCode;

#[async_trait]
impl Dialect for ClaudeCode {
    fn kind(&self) -> &'static str {
        "claude_code"
    }

    fn command(&self, root: &Path, place: &Place, model: &ScriptedModel) -> Result<Command> {
        let mut command = Command::new(root.join("bin/claude"));
        command
            .args(["-p", "--verbose", "--include-partial-messages"])
            .args([
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
            ])
            .args([
                "--permission-prompt-tool",
                "stdio",
                "--permission-mode",
                "default",
            ])
            .args(["--model", "scripted", "--strict-mcp-config"])
            .args(["--setting-sources=user,project,local", "--settings", "{}"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", place.home())
            .env("CLAUDE_CONFIG_DIR", place.home().join(".claude"))
            .env("ANTHROPIC_BASE_URL", model.base_url())
            .env("ANTHROPIC_API_KEY", "placeholder")
            // As the engine's adapter sets them.
            .env("CLAUDE_CODE_ENTRYPOINT", "sdk-py")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("CLAUDE_CODE_MAX_RETRIES", "3")
            .env("DISABLE_AUTOUPDATER", "1")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_ERROR_REPORTING", "1")
            .env("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1")
            .env("ENABLE_TOOL_SEARCH", "false");
        Ok(command)
    }

    async fn open(&self, talk: &mut Talk) -> Result<String> {
        let request = json!({"subtype": "initialize", "hooks": null});
        let line = json!({"type": "control_request", "request_id": "i", "request": request});
        talk.send(&line).await?;
        talk.until(|line| line["type"] == "control_response")
            .await?;
        Ok(String::new())
    }

    fn prompt(&self, _: &str, _: u64, text: &str) -> Value {
        let content = json!([{"type": "text", "text": text}]);
        json!({
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": null,
            "session_id": "",
        })
    }

    fn is_piece(&self, line: &Value) -> bool {
        line["type"] == "stream_event"
            && line["event"]["type"] == "content_block_delta"
            && line["event"]["delta"]["type"] == "text_delta"
    }

    fn is_end(&self, line: &Value) -> bool {
        // Idle is its own word; a `result` can come while work goes on.
        line["subtype"] == "session_state_changed" && line["state"] == "idle"
    }
}
