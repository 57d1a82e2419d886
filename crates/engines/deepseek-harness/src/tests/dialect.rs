//! The plugin's own messages, by hand.

use std::collections::BTreeMap;

use astrabox_acp_protocol::harness::{Driver, SESSION, choose, exit, input};
use astrabox_engine::ErrorKind;
use astrabox_engine::sandbox::ExitReason;
use astrabox_types::InteractionAnswer;
use serde_json::{Value, json};

use super::driver;
use crate::protocol::DshDialect;

fn tell(driver: &mut Driver<DshDialect>, what: &str, mut params: Value) {
    if params.get("sessionId").is_none() {
        params["sessionId"] = json!(SESSION);
    }
    driver.notify(&format!("_astrabox/{what}"), &params);
}

fn piece(driver: &mut Driver<DshDialect>, session: &str, id: &str, text: &str) {
    let content = json!({"type": "text", "text": text});
    let update = json!({"messageId": id, "content": content});
    driver.update_of(session, "agent_message_chunk", update);
}

#[test]
fn pieces_and_their_whole_are_one_message() {
    let mut driver = driver();
    driver.deliver(1).expect("it is taken");
    piece(&mut driver, SESSION, "a:1/0", "one ");
    piece(&mut driver, SESSION, "a:1/0", "two");
    let whole = json!({"messageId": "a:1/0", "kind": "text", "text": "one two"});
    tell(&mut driver, "message", whole);
    driver.ends("end_turn");
    expect_test::expect![[r#"
        consumed 1
        delta text/@1.1 @0 "one "
        delta text/@1.1 @4 "two"
        text/@1.1: Text "one two"
        END completed"#]]
    .assert_eq(&driver.told().join("\n"));
}

#[test]
fn what_a_failed_attempt_said_is_said_anew() {
    let mut driver = driver();
    driver.deliver(1).expect("it is taken");
    piece(&mut driver, SESSION, "a:1/0", "half");
    let failure = json!({"message": "terminated", "code": "TRANSPORT"});
    let retry = json!({"retry": 1, "maxRetries": 5, "failure": failure});
    tell(&mut driver, "retry", retry);
    tell(&mut driver, "dropped", json!({}));
    let whole = json!({"messageId": "a:2/0", "kind": "text", "text": "all"});
    tell(&mut driver, "message", whole);
    driver.ends("end_turn");
    expect_test::expect![[r#"
        consumed 1
        delta text/@1.1 @0 "half"
        diagnostic/@1.2: api_retry "the model is asked again (1 of 5): terminated" +
        text/@1.3: Text "all"
        END completed"#]]
    .assert_eq(&driver.told().join("\n"));
}

#[test]
fn a_child_is_told_apart_and_ends_with_the_process() {
    let mut driver = driver();
    driver.deliver(1).expect("it is taken");
    let call = json!({"toolCallId": "c1", "title": "subagent", "kind": "other", "rawInput": {"prompt": "p"}});
    driver.update("tool_call", call);
    let child = json!({"id": "kid", "parent": SESSION, "state": "running", "title": "a task", "callId": "c1"});
    tell(&mut driver, "child", child);
    piece(&mut driver, "kid", "kid:1/0", "from the child");
    let whole = json!({"sessionId": "kid", "messageId": "kid:1/0", "kind": "text", "text": "from the child"});
    tell(&mut driver, "message", whole);
    driver.exit(&exit(ExitReason::Killed, None, Some(9)), "");
    expect_test::expect![[r#"
        consumed 1
        tool.call/c1@1.1: subagent {"prompt":"p"} +
        child kid Running title=Some("a task") call=Some("c1@1.1") +
        [kid] delta text/@1.2 @0 "from the child"
        [kid] text/@1.2: Text "from the child"
        child kid Stopped title=Some("a task") call=Some("c1@1.1")
        END failed engine_exited: the program ended (killed): signal 9"#]]
    .assert_eq(&driver.told().join("\n"));
}

#[test]
fn a_running_child_is_stopped_and_no_other() {
    let mut driver = driver();
    driver.deliver(1).expect("it is taken");
    let error = driver.stop_child("kid").expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let child = json!({"id": "kid", "state": "running"});
    tell(&mut driver, "child", child);
    driver.stop_child("kid").expect("it runs");
    let asked = driver.last("_astrabox/stop");
    assert_eq!(asked["params"], json!({"sessionId": SESSION, "id": "kid"}));
    driver.refuse_last("_astrabox/stop", -32602, "it is gone");
    tell(
        &mut driver,
        "child",
        json!({"id": "kid", "state": "stopped"}),
    );
    assert!(driver.stop_child("kid").is_err());
    let told = driver.told().join("\n");
    assert!(told.contains("child_run_not_stopped"), "{told}");
    assert!(told.contains("child kid Stopped"), "{told}");
}

#[test]
fn a_turn_that_nobody_asked_for_begins_and_ends_by_the_programs_word() {
    let mut driver = driver();
    tell(&mut driver, "background", json!({"running": true}));
    tell(&mut driver, "turn", json!({"state": "started"}));
    piece(&mut driver, SESSION, "a:1/0", "noted");
    let usage = json!({"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 0, "cachedWriteTokens": 0, "totalTokens": 12});
    let end = json!({"state": "ended", "reason": {"kind": "completed"}, "usage": usage});
    tell(&mut driver, "turn", end);
    tell(&mut driver, "background", json!({"running": false}));
    expect_test::expect![[r#"
        background opened
        delta text/@1.1 @0 "noted"
        usage/@1.2: in=10 cached=0 out=2 reasoning=0 +
        text/@1.1: Text "noted"
        END completed in=10 cached=0 out=2 reasoning=0
        background closed"#]]
    .assert_eq(&driver.told().join("\n"));
}

#[test]
fn a_question_is_answered_in_the_tools_form() {
    let questions = json!({"sessionId": SESSION, "questions": [
        {"id": "colour", "question": "Which?", "header": "Colour", "options": [{"label": "Red"}, {"label": "Blue"}]},
        {"id": "name", "question": "Who?", "multiSelect": true},
    ]});
    let mut driver = driver();
    driver.deliver(1).expect("it is taken");
    driver.asks("astrabox-1", "_astrabox/question", &questions);
    assert_eq!(driver.open_questions(), ["astrabox-1"]);
    let reply = |answers: &[(&str, &[&str])]| InteractionAnswer::Reply {
        answers: answers
            .iter()
            .map(|(id, texts)| {
                let texts = texts.iter().map(|text| (*text).to_owned()).collect();
                ((*id).to_owned(), texts)
            })
            .collect::<BTreeMap<_, Vec<_>>>(),
    };
    for wrong in [choose("Red"), reply(&[("other", &["x"])])] {
        let error = driver
            .answer("astrabox-1", &wrong)
            .expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
    }
    let answer = reply(&[("colour", &["Blue"]), ("name", &["me", "you"])]);
    driver.answer("astrabox-1", &answer).expect("it is open");
    let sent = driver.written().pop().expect("an answer");
    assert_eq!(sent["id"], "astrabox-1");
    assert_eq!(
        sent["result"],
        json!({"answers": [
            {"id": "colour", "selected": ["Blue"]},
            {"id": "name", "selected": [], "custom": "me\nyou"},
        ]})
    );
    assert!(driver.answer("astrabox-1", &answer).is_err());
    driver.asks("astrabox-2", "_astrabox/question", &questions);
    let declined = InteractionAnswer::Decline { comment: None };
    driver.answer("astrabox-2", &declined).expect("it is open");
    let sent = driver.written().pop().expect("an answer");
    assert_eq!(sent["result"], json!({"declined": true, "comment": null}));
}

#[test]
fn what_is_not_known_is_kept_and_answered() {
    let mut driver = driver();
    tell(&mut driver, "new_thing", json!({"a": 1}));
    driver.asks("astrabox-1", "_astrabox/new_question", &json!({}));
    // A question that belongs to no turn has nobody to answer it.
    driver.asks(
        "astrabox-2",
        "_astrabox/question",
        &json!({"questions": []}),
    );
    let told = driver.told().join("\n");
    assert!(told.contains("unknown_event"), "{told}");
    assert_eq!(told.matches("unknown_request").count(), 2, "{told}");
    let answers = driver.written();
    assert!(answers.iter().all(|sent| sent["error"]["code"] == -32601));
    tell(&mut driver, "tools", json!({"names": ["bash", "read"]}));
    assert_eq!(
        astrabox_engine::line::LineProtocol::tools(&driver.protocol),
        ["bash", "read"]
    );
}

#[test]
fn the_parts_of_a_prompt_stay_apart() {
    let mut driver = driver();
    let mut input = input(1, "go on");
    input.notice = Some("The turn before was cut.".to_owned());
    driver.deliver_input(&input).expect("it is taken");
    let prompt = &driver.last("session/prompt")["params"]["prompt"];
    assert_eq!(prompt[0]["text"], "The turn before was cut.\n\n");
    assert_eq!(prompt[1]["text"], "go on");
}
