use serde_json::json;

use super::{bound, running};
use crate::harness::choose;

#[test]
fn a_permission_is_asked_with_the_programs_options_and_answered_with_one() {
    let mut driver = running();
    driver.restart = true;
    driver.says("I will");
    driver.update("tool_call", json!({"toolCallId": "c", "title": "bash", "rawInput": {"command": "ls"}, "status": "pending"}));
    driver.told();
    // Some programs do not say again what the call is.
    driver.asks_permission(7, json!({"toolCallId": "c"}));
    assert_eq!(
        driver.told(),
        [r#"asks 7 bash {"command":"ls"} call=c@1.3 reason=None [+yes +always -no] +"#]
    );
    driver.wrote.clear();
    assert!(driver.answer("7", &choose("maybe")).is_err());
    driver
        .answer("7", &choose("always"))
        .expect("it is an option");
    let wrote = driver.written();
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "always"}});
    assert_eq!(
        wrote,
        [json!({"jsonrpc": "2.0", "id": 7, "result": outcome})]
    );
    assert!(driver.answer("7", &choose("always")).is_err());
}

#[test]
fn a_call_that_was_only_announced_is_told_before_its_question() {
    let mut driver = running();
    driver.update(
        "tool_call",
        json!({"toolCallId": "c", "title": "x", "kind": "execute", "status": "pending"}),
    );
    driver.told();
    driver.asks_permission(
        "a",
        json!({"toolCallId": "c", "rawInput": {"command": "ls"}}),
    );
    let told = driver.told();
    assert_eq!(told[0], r#"tool.call/c@1.2: execute {"command":"ls"}"#);
    assert!(
        told[1].starts_with(r#"asks a execute {"command":"ls"} call=c@1.2"#),
        "{told:?}"
    );
}

#[test]
fn a_permission_for_an_unknown_call_says_for_itself_what_it_is_about() {
    let mut driver = bound();
    driver.deliver(1).expect("it is taken");
    let call = json!({"toolCallId": "perm-check-1", "title": "rm", "kind": "execute", "rawInput": {"command": "rm"}});
    driver.asks_permission(0, call);
    driver.asks_permission(1, json!({"toolCallId": "z", "title": "other"}));
    assert_eq!(
        driver.told(),
        [
            "consumed 1",
            r#"asks 0 execute {"command":"rm"} call=- reason=None [+yes +always -no] +"#,
            r#"asks 1 other {"title":"other"} call=- reason=None [+yes +always -no] +"#,
        ]
    );
}

#[test]
fn a_stop_tells_the_program_that_nobody_answers() {
    let mut driver = running();
    driver.restart = true;
    for id in [1, 2] {
        driver.asks_permission(id, json!({"toolCallId": "c", "title": "x"}));
    }
    driver.told();
    driver.wrote.clear();
    driver.interrupt();
    let wrote = driver.written();
    assert_eq!(wrote[0]["method"], "session/cancel");
    for (sent, id) in wrote[1..].iter().zip([1, 2]) {
        assert_eq!(sent["id"], id);
        assert_eq!(sent["result"]["outcome"]["outcome"], "cancelled");
    }
    let withdrawn: Vec<_> = driver.told();
    assert_eq!(withdrawn.len(), 2, "{withdrawn:?}");
    assert!(driver.answer("1", &choose("yes")).is_err());
}

#[test]
fn a_question_that_is_open_when_its_turn_ends_is_closed() {
    let mut driver = running();
    driver.asks_permission(1, json!({"toolCallId": "c", "title": "x"}));
    driver.ends("end_turn");
    let told = driver.told();
    assert!(
        told.contains(&"withdraws 1: the turn has ended".to_owned()),
        "{told:?}"
    );
    assert_eq!(
        driver.written().last().map(|sent| sent["id"].clone()),
        Some(json!(1))
    );
}

#[test]
fn the_program_takes_a_question_back() {
    let mut driver = running();
    driver.asks_permission("q", json!({"toolCallId": "c", "title": "x"}));
    driver.told();
    driver.wrote.clear();
    driver.notify("$/cancel_request", &json!({"requestId": "q"}));
    assert_eq!(
        driver.told(),
        ["withdraws q: the program no longer waits for it"]
    );
    assert_eq!(driver.written()[0]["error"]["code"], -32800);
    driver.notify("$/cancel_request", &json!({"requestId": "q"}));
    assert!(driver.written().is_empty());
}

#[test]
fn nobody_is_asked_while_no_turn_runs() {
    let mut driver = bound();
    driver.asks_permission(3, json!({"toolCallId": "c", "title": "x"}));
    let told = driver.told();
    assert!(
        told.len() == 1 && told[0].contains("permission_refused"),
        "{told:?}"
    );
    assert_eq!(
        driver.written()[0]["result"]["outcome"]["outcome"],
        "cancelled"
    );
}

#[test]
fn every_request_is_answered() {
    let mut driver = running();
    driver.wrote.clear();
    driver.asks(5, "fs/read_text_file", &json!({"path": "/etc/passwd"}));
    driver.asks("x", "brand/new", &json!({}));
    let wrote = driver.written();
    assert_eq!(wrote[0]["id"], 5);
    assert_eq!(wrote[1]["id"], "x");
    assert!(
        wrote.iter().all(|sent| sent["error"]["code"] == -32601),
        "{wrote:?}"
    );
    assert_eq!(
        driver
            .told()
            .iter()
            .filter(|line| line.contains("unknown_request"))
            .count(),
        2
    );
}

fn form() -> serde_json::Value {
    let options = json!([{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]);
    json!({
        "mode": "form",
        "sessionId": "sess-1",
        "message": "Which?",
        "requestedSchema": {"type": "object", "properties": {"q": {"type": "string", "oneOf": options}}},
    })
}

#[test]
fn a_form_is_a_question_and_its_answer_is_in_the_programs_words() {
    let mut driver = running();
    driver.restart = true;
    driver.told();
    driver.asks(4, "elicitation/create", &form());
    let told = driver.told();
    assert_eq!(
        told.last().map(String::as_str),
        Some(r#"asks 4 q: None "Which?" ["Red", "Blue"] +"#)
    );
    driver.wrote.clear();
    assert!(driver.answer("4", &choose("Red")).is_err());
    let answers = [("q".to_owned(), vec!["Blue".to_owned()])].into();
    driver
        .answer("4", &astrabox_types::InteractionAnswer::Reply { answers })
        .expect("it is offered");
    let result = json!({"action": "accept", "content": {"q": "b"}});
    assert_eq!(
        driver.written(),
        [json!({"jsonrpc": "2.0", "id": 4, "result": result})]
    );
}

#[test]
fn a_form_that_nobody_can_answer_is_cancelled() {
    let mut driver = bound();
    driver.asks(4, "elicitation/create", &form());
    assert_eq!(driver.written()[0]["result"]["action"], "cancel");
    let mut driver = running();
    driver.wrote.clear();
    driver.asks(
        5,
        "elicitation/create",
        &json!({"mode": "url", "sessionId": "sess-1", "url": "x"}),
    );
    assert_eq!(driver.written()[0]["result"]["action"], "cancel");
    driver.asks(6, "elicitation/create", &form());
    driver.interrupt();
    assert_eq!(driver.written()[1]["result"]["action"], "cancel");
}
