//! How a conversation comes to be bound.

use astrabox_engine::ErrorKind;
use astrabox_engine::line::{Handshake, LineProtocol};
use serde_json::json;

use super::harness::{Driver, THREAD};

#[test]
fn a_new_conversation_is_opened_after_the_program_said_who_it_is() {
    let mut driver = Driver::new();
    driver.begin(None);
    let sent = driver.written();
    assert_eq!(sent[0]["method"], "initialize");
    assert_eq!(sent[0]["id"], "1-1", "an id carries the activation");
    assert_eq!(sent[0]["params"]["capabilities"]["experimentalApi"], true);
    assert!(matches!(driver.protocol.handshake(), Handshake::Pending));

    let agent = "astrabox/0.169.0 (Debian 12.0.0; x86_64) unknown (astrabox; 0.1)";
    driver.value(&json!({"id": "1-1", "result": {"userAgent": agent}}));
    assert_eq!(driver.protocol.program().as_deref(), Some("codex 0.169.0"));
    let sent = driver.written();
    assert_eq!(sent[0], json!({"method": "initialized"}));
    assert_eq!(
        sent[1],
        json!({"id": "1-2", "method": "thread/start", "params": {
            "cwd": "/workspace",
            "model": "model-1",
            "modelProvider": "astrabox",
            "approvalPolicy": "on-request",
            "sandbox": "danger-full-access",
        }})
    );
    driver.value(&json!({"id": "1-2", "result": {"thread": {"id": THREAD}}}));
    assert!(matches!(driver.protocol.handshake(), Handshake::Bound(key) if key == THREAD));
    assert!(driver.told().is_empty());
}

#[test]
fn a_stored_conversation_is_resumed_by_its_id_and_without_its_history() {
    let mut driver = Driver::new();
    driver.begin(Some(THREAD));
    driver.answer_last("initialize", &json!({}));
    let sent = driver.wrote.last().expect("it is asked for");
    assert_eq!(sent["method"], "thread/resume");
    assert_eq!(sent["params"]["threadId"], THREAD);
    assert_eq!(sent["params"]["excludeTurns"], true);
    driver.answer_last("thread/resume", &json!({"thread": {"id": THREAD}}));
    assert!(matches!(driver.protocol.handshake(), Handshake::Bound(key) if key == THREAD));
}

#[test]
fn a_conversation_that_cannot_be_opened_says_why() {
    let lost = "no rollout found for thread id thread-1";
    let config = "failed to load configuration: invalid type: integer `7`";
    for (expected, refusal, kind) in [
        (Some(THREAD), lost, ErrorKind::ConversationLost),
        (Some(THREAD), config, ErrorKind::InvalidConfiguration),
        (None, config, ErrorKind::InvalidConfiguration),
        (None, "no", ErrorKind::StartFailed),
    ] {
        let mut driver = Driver::new();
        driver.begin(expected);
        driver.answer_last("initialize", &json!({}));
        let method = if expected.is_some() {
            "thread/resume"
        } else {
            "thread/start"
        };
        driver.refuse_last(method, refusal);
        let Handshake::Failed(error) = driver.protocol.handshake() else {
            panic!("{refusal}");
        };
        assert_eq!(error.kind(), kind, "{refusal}");
        assert!(error.to_string().contains(refusal), "{error}");
    }
}

#[test]
fn another_conversation_than_the_expected_one_is_never_accepted() {
    for (answer, kind) in [
        (
            json!({"thread": {"id": "thread-2"}}),
            ErrorKind::ConversationLost,
        ),
        (json!({"thread": {}}), ErrorKind::Protocol),
        (json!(null), ErrorKind::Protocol),
    ] {
        let mut driver = Driver::new();
        driver.begin(Some(THREAD));
        driver.answer_last("initialize", &json!({}));
        driver.answer_last("thread/resume", &answer);
        let Handshake::Failed(error) = driver.protocol.handshake() else {
            panic!("{answer}");
        };
        assert_eq!(error.kind(), kind, "{answer}");
        assert!(driver.deliver(1).is_err(), "nothing is delivered to it");
    }
}

#[test]
fn a_program_that_refuses_the_greeting_is_not_bound() {
    let mut driver = Driver::new();
    driver.begin(None);
    driver.refuse_last("initialize", "too old");
    let Handshake::Failed(error) = driver.protocol.handshake() else {
        panic!("it is refused");
    };
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn requests_after_another_activation_carry_its_number() {
    let mut driver = Driver::bound();
    driver.protocol.attached(7);
    driver.deliver(1).expect("it is taken");
    assert!(driver.last("turn/start").starts_with("7-"));
}
