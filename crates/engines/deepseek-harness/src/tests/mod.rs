mod dialect;
mod recordings;

use astrabox_acp_protocol::Settings;
use astrabox_acp_protocol::harness::{Driver, SESSION};
use serde_json::{Value, json};

use crate::protocol::DshDialect;

/// What the program answers to `initialize`.
fn initialized() -> Value {
    json!({
        "protocolVersion": 1,
        "agentInfo": {"name": "deepseek-harness-acp", "version": "0.0.1"},
        "agentCapabilities": {
            "mcpCapabilities": {"http": true},
            "promptCapabilities": {"image": false, "audio": false, "embeddedContext": false},
            "sessionCapabilities": {"close": {}, "list": {}, "resume": {}},
        },
        "authMethods": [],
    })
}

/// What the program, with the plugin, answers to `session/new`.
fn opened() -> Value {
    let modes = ["workspace-write", "danger-full-access", "ask"];
    let modes = modes.map(|id| json!({"id": id, "name": id}));
    json!({
        "sessionId": SESSION,
        "configOptions": [],
        "modes": {"currentModeId": "workspace-write", "availableModes": modes},
    })
}

fn driver() -> Driver<DshDialect> {
    let settings = Settings {
        cwd: "/workspace".to_owned(),
        ..Settings::default()
    };
    Driver::bound(settings, DshDialect::default(), &initialized(), &opened())
}
