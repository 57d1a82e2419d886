//! A smallest MCP server over Streamable HTTP (protocol revision 2025-06-18): one tool, `say`, that repeats its text.

use serde_json::{Value, json};

use super::{Answer, Received};

/// Answers one request; the tool's result is `mcp says <text>`.
#[must_use]
pub fn echo(request: &Received) -> Answer {
    if request.method != "POST" {
        // No stream of its own, and no session to end.
        return Answer {
            status: 405,
            ..Answer::default()
        };
    }
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
        return Answer::new(400, "text/plain", "not JSON");
    };
    let Some(id) = message.get("id").filter(|id| !id.is_null()) else {
        return Answer {
            status: 202,
            ..Answer::default()
        };
    };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{
            "name": "say", "description": "Repeats a text.",
            "inputSchema": {
                "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
            },
        }]}),
        Some("tools/call") => {
            let text = message["params"]["arguments"]["text"].as_str();
            let text = format!("mcp says {}", text.unwrap_or_default());
            json!({"content": [{"type": "text", "text": text}]})
        }
        _ => json!({}),
    };
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
    Answer::new(200, "application/json", answer.to_string())
}
