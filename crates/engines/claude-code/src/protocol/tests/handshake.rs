use astrabox_engine::ErrorKind;
use astrabox_engine::line::{Handshake, LineProtocol as _};
use serde_json::json;

use super::harness::{Driver, KEY};

fn failure(driver: &Driver) -> ErrorKind {
    match driver.protocol.handshake() {
        Handshake::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_conversation_is_bound_when_the_program_names_it() {
    let mut driver = Driver::new();
    driver.begin(Some(KEY));
    assert_eq!(driver.asked(), ["initialize"]);
    driver.begin(None);
    driver.answer_last("initialize", &json!({"claude_code_version": "2.1.328"}));
    driver.answer_last("set_permission_mode", &json!({"mode": "default"}));
    assert!(matches!(driver.protocol.handshake(), Handshake::Pending));
    driver.system("status", json!({"permissionMode": "default"}));
    assert!(matches!(driver.protocol.handshake(), Handshake::Bound(key) if key == KEY));
    assert_eq!(driver.protocol.program().as_deref(), Some("claude 2.1.328"));
}

#[test]
fn another_conversation_is_never_accepted() {
    let mut driver = Driver::new();
    driver.begin(Some("another"));
    assert_eq!(failure(&driver), ErrorKind::ConversationLost);

    let mut driver = Driver::new();
    driver.begin(None);
    driver.answer_last("initialize", &json!({}));
    driver.value(&json!({
        "type": "system", "subtype": "status", "permissionMode": "default", "session_id": "another",
    }));
    assert_eq!(failure(&driver), ErrorKind::ConversationLost);
}

#[test]
fn a_refusal_says_what_is_wrong() {
    for (error, kind) in [
        (
            "No conversation found with session ID: x",
            ErrorKind::ConversationLost,
        ),
        ("out of memory", ErrorKind::StartFailed),
    ] {
        let mut driver = Driver::new();
        driver.begin(None);
        driver.value(&json!({
            "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [error],
        }));
        assert_eq!(failure(&driver), kind, "{error}");
    }
    let mut driver = Driver::new();
    driver.begin(None);
    driver.refuse_last("initialize", "no");
    assert_eq!(failure(&driver), ErrorKind::Protocol);
    let mut driver = Driver::new();
    driver.begin(None);
    driver.answer_last("initialize", &json!({}));
    driver.refuse_last("set_permission_mode", "unavailable");
    assert_eq!(failure(&driver), ErrorKind::InvalidConfiguration);
}
