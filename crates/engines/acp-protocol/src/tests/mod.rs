//! A plain program, and what the protocol makes of what it says.

mod handshake;
mod machine;
mod requests;
mod serving;
mod turns;
mod updates;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::Driver;
use crate::{Dialect, Settings};

/// A program that speaks ACP and nothing else.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Plain;

impl Dialect for Plain {}

fn settings() -> Settings {
    Settings {
        cwd: "/workspace".to_owned(),
        ..Settings::default()
    }
}

fn initialized() -> Value {
    json!({
        "protocolVersion": 1,
        "agentInfo": {"name": "plain", "version": "1.0"},
        "agentCapabilities": {"loadSession": true, "promptCapabilities": {"image": true}},
    })
}

fn opened() -> Value {
    let modes = json!([{"id": "ask", "name": "Ask"}, {"id": "free", "name": "Free"}]);
    json!({
        "sessionId": crate::harness::SESSION,
        "modes": {"currentModeId": "ask", "availableModes": modes},
    })
}

/// Bound, with nothing said or written.
fn bound() -> Driver<Plain> {
    Driver::bound(settings(), Plain, &initialized(), &opened())
}

/// Bound, and with a turn that answers the first input and has begun to speak.
fn running() -> Driver<Plain> {
    let mut driver = bound();
    driver.deliver(1).expect("it is taken");
    driver.update(
        "agent_thought_chunk",
        json!({"content": {"type": "text", "text": "x"}}),
    );
    driver.said.clear();
    driver
}
