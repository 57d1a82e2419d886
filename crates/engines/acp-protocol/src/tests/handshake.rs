use astrabox_engine::ErrorKind;
use astrabox_engine::line::{Handshake, LineProtocol};
use serde_json::{Value, json};

use super::{Plain, bound, initialized, opened, settings};
use crate::harness::{Driver, SESSION};
use crate::{Settings, Wish};

fn driver() -> Driver<Plain> {
    Driver::new(settings(), Plain)
}

fn with(capabilities: Value) -> Value {
    let mut answer = initialized();
    answer["agentCapabilities"] = capabilities;
    answer
}

fn failure(driver: &Driver<Plain>) -> (ErrorKind, String) {
    match driver.protocol.handshake() {
        Handshake::Failed(error) => (error.kind(), error.context().to_owned()),
        other => panic!("not failed: {other:?}"),
    }
}

fn key(driver: &Driver<Plain>) -> Option<String> {
    match driver.protocol.handshake() {
        Handshake::Bound(key) => Some(key),
        _ => None,
    }
}

#[test]
fn a_new_conversation_is_the_one_that_the_program_names() {
    let mut driver = driver();
    driver.restart = true;
    driver.begin(None);
    assert_eq!(driver.last("initialize")["params"]["protocolVersion"], 1);
    driver.answer_last("initialize", &initialized());
    let asked = driver.last("session/new");
    assert_eq!(asked["jsonrpc"], "2.0");
    assert_eq!(asked["id"], "1-2");
    assert_eq!(asked["params"]["cwd"], "/workspace");
    driver.answer_last("session/new", &opened());
    assert_eq!(key(&driver).as_deref(), Some(SESSION));
    assert_eq!(driver.protocol.program().as_deref(), Some("plain 1.0"));
    let state = serde_json::to_string(&driver.protocol).expect("it is JSON");
    assert!(!state.contains("/workspace"), "{state}");
}

#[test]
fn a_conversation_is_resumed_without_a_replay_where_the_program_can() {
    for (capabilities, method) in [
        (
            json!({"sessionCapabilities": {"resume": {}}, "loadSession": true}),
            "session/resume",
        ),
        (json!({"loadSession": true}), "session/load"),
    ] {
        let mut driver = driver();
        driver.begin(Some("old"));
        driver.answer_last("initialize", &with(capabilities));
        assert_eq!(driver.last(method)["params"]["sessionId"], "old");
        driver.answer_last(method, &json!({}));
        assert_eq!(key(&driver).as_deref(), Some("old"), "{method}");
    }
}

#[test]
fn what_is_replayed_is_not_told_again() {
    let mut driver = driver();
    driver.restart = true;
    driver.begin(Some(SESSION));
    driver.answer_last("initialize", &initialized());
    driver.says("said before");
    driver.update(
        "tool_call",
        json!({"toolCallId": "c", "title": "x", "rawInput": {"a": 1}}),
    );
    driver.update(
        "user_message_chunk",
        json!({"content": {"type": "text", "text": "x"}}),
    );
    driver.answer_last("session/load", &json!({}));
    assert_eq!(driver.told(), Vec::<String>::new());
    driver.deliver(1).expect("it is taken");
    driver.says("new");
    assert_eq!(driver.told(), ["consumed 1", r#"delta text/@1.1 @0 "new""#]);
}

#[test]
fn a_conversation_that_is_not_there_is_lost() {
    let mut driver = driver();
    driver.begin(Some("old"));
    driver.answer_last("initialize", &initialized());
    driver.refuse_last("session/load", -32002, "not found");
    assert_eq!(
        failure(&driver),
        (ErrorKind::ConversationLost, "not found".to_owned())
    );

    let mut driver = self::driver();
    driver.begin(Some("old"));
    driver.answer_last("initialize", &with(json!({})));
    assert_eq!(failure(&driver).0, ErrorKind::ConversationLost);

    let mut driver = self::driver();
    driver.begin(Some("old"));
    driver.answer_last("initialize", &initialized());
    driver.answer_last("session/load", &json!({"sessionId": "other"}));
    assert_eq!(failure(&driver).0, ErrorKind::ConversationLost);
}

#[test]
fn a_program_of_another_version_or_without_a_conversation_is_refused() {
    let mut driver = driver();
    driver.begin(None);
    driver.answer_last("initialize", &json!({"protocolVersion": 2}));
    assert_eq!(failure(&driver).0, ErrorKind::Protocol);

    let mut driver = self::driver();
    driver.begin(None);
    driver.refuse_last("initialize", -32603, "no");
    assert_eq!(failure(&driver), (ErrorKind::Protocol, "no".to_owned()));

    let mut driver = self::driver();
    driver.begin(None);
    driver.answer_last("initialize", &initialized());
    driver.answer_last("session/new", &json!({}));
    assert_eq!(failure(&driver).0, ErrorKind::Protocol);

    let mut driver = self::driver();
    driver.begin(None);
    driver.answer_last("initialize", &initialized());
    driver.refuse_last("session/new", -32000, "log in");
    assert_eq!(
        failure(&driver),
        (ErrorKind::StartFailed, "log in".to_owned())
    );
}

fn choice(id: &str, category: &str, values: &[&str]) -> Value {
    let options: Vec<_> = values.iter().map(|value| json!({"value": value})).collect();
    json!({"id": id, "category": category, "type": "select", "currentValue": values[0], "options": options})
}

#[test]
fn options_and_mode_are_set_in_their_order_before_it_is_bound() {
    let options = json!([
        choice("m", "mode", &["ask", "free"]),
        choice("e", "thought_level", &["low", "high"])
    ]);
    let mut opened = opened();
    opened["configOptions"] = options;
    opened["modes"] = Value::Null;
    let wish = Wish::Option {
        id: "e".to_owned(),
        value: json!("high"),
    };
    let settings = Settings {
        mode: Some("free".to_owned()),
        wishes: [wish].into(),
        ..settings()
    };
    let mut driver = Driver::new(settings, Plain);
    driver.restart = true;
    driver.begin(None);
    driver.answer_last("initialize", &initialized());
    driver.answer_last("session/new", &opened);
    let sent = driver.last("session/set_config_option")["params"].clone();
    assert_eq!(
        sent,
        json!({"sessionId": SESSION, "configId": "e", "value": "high"})
    );
    assert_eq!(key(&driver), None);
    driver.answer_last(
        "session/set_config_option",
        &json!({"configOptions": opened["configOptions"]}),
    );
    let sent = driver.last("session/set_config_option")["params"].clone();
    assert_eq!(
        sent,
        json!({"sessionId": SESSION, "configId": "m", "value": "free"})
    );
    driver.answer_last("session/set_config_option", &json!({}));
    assert!(key(&driver).is_some());
}

#[test]
fn what_the_program_does_not_offer_is_refused() {
    let option = |id: &str| Wish::Option {
        id: id.to_owned(),
        value: json!("x"),
    };
    for (settings, expected) in [
        (
            Settings {
                mode: Some("other".to_owned()),
                ..settings()
            },
            "ask, free",
        ),
        (
            Settings {
                wishes: [option("gone")].into(),
                ..settings()
            },
            "no option `gone`",
        ),
    ] {
        let mut driver = Driver::new(settings, Plain);
        driver.begin(None);
        driver.answer_last("initialize", &initialized());
        driver.answer_last("session/new", &opened());
        let (kind, text) = failure(&driver);
        assert_eq!(kind, ErrorKind::InvalidConfiguration);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_mode_is_set_while_it_runs_and_the_programs_own_change_is_told() {
    let mut driver = bound();
    driver.restart = true;
    assert!(driver.set_mode("other").is_err());
    driver.set_mode("free").expect("there is such a mode");
    assert_eq!(driver.last("session/set_mode")["params"]["modeId"], "free");
    driver.update("current_mode_update", json!({"currentModeId": "free"}));
    driver.answer_last("session/set_mode", &json!({}));
    assert_eq!(driver.told(), Vec::<String>::new().as_slice());
    driver.update("current_mode_update", json!({"currentModeId": "ask"}));
    assert_eq!(driver.told()[1], "permission mode ask");
    driver.set_mode("free").expect("there is such a mode");
    driver.refuse_last("session/set_mode", -32603, "not now");
    assert!(driver.told()[0].contains("permission_mode_refused"));
}
