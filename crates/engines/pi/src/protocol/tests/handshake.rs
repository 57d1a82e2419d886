//! The opening of a conversation.

use astrabox_engine::ErrorKind;
use astrabox_engine::line::{Handshake, LineProtocol};
use serde_json::json;

use super::harness::{Driver, KEY};

fn outcome(driver: &Driver) -> Result<String, Option<ErrorKind>> {
    match driver.protocol.handshake() {
        Handshake::Bound(key) => Ok(key),
        Handshake::Failed(error) => Err(Some(error.kind())),
        Handshake::Pending => Err(None),
    }
}

#[test]
fn the_program_proves_which_conversation_it_has() {
    let file = "/home/agent/.pi/agent/sessions/x.jsonl";
    for (state, expected) in [
        (
            json!({"sessionId": KEY, "sessionFile": file}),
            Ok(KEY.to_owned()),
        ),
        (
            json!({"sessionId": "another", "sessionFile": file}),
            Err(Some(ErrorKind::ConversationLost)),
        ),
        (json!({"sessionId": KEY}), Err(Some(ErrorKind::Protocol))),
        (json!({}), Err(Some(ErrorKind::Protocol))),
    ] {
        let mut driver = Driver::new();
        driver.begin(None);
        assert_eq!(outcome(&driver), Err(None));
        driver.answer_last("get_state", &state);
        assert_eq!(outcome(&driver), expected, "{state}");
    }
}

#[test]
fn another_conversation_than_the_expected_is_refused() {
    let mut driver = Driver::new();
    driver.begin(Some("another"));
    assert_eq!(outcome(&driver), Err(Some(ErrorKind::ConversationLost)));
    let mut driver = Driver::new();
    driver.begin(Some(KEY));
    assert_eq!(outcome(&driver), Err(None));
    driver.refuse_last("get_state", "no");
    assert_eq!(outcome(&driver), Err(Some(ErrorKind::Protocol)));
}

#[test]
fn a_call_that_was_lost_is_told_when_the_conversation_goes_on() {
    let mut driver = Driver::with(vec!["bash (call_1)".to_owned()]);
    driver.begin(Some(KEY));
    driver.answer_last(
        "get_state",
        &json!({"sessionId": KEY, "sessionFile": "/s.jsonl"}),
    );
    let told = driver.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("transcript_repaired") && told[0].contains("bash (call_1)"),
        "{told:?}"
    );
}

#[test]
fn nothing_is_taken_before_the_conversation_is_there() {
    let mut driver = Driver::new();
    driver.begin(None);
    assert!(driver.deliver(1).is_err());
}
