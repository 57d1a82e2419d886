use astrabox_engine::line::Line;
use serde_json::json;

use super::harness::{Driver, choose, decline, reply};

fn bash() -> serde_json::Value {
    json!({
        "tool_name": "Bash", "tool_use_id": "t1", "input": {"command": "touch a"},
        "permission_suggestions": [
            {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch a"}],
             "behavior": "allow", "destination": "localSettings"},
            {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        ],
    })
}

#[test]
fn each_choice_of_an_approval_is_answered_in_the_programs_words() {
    let input = json!({"command": "touch a"});
    let rule = |place: &str| {
        json!({"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch a"}],
               "behavior": "allow", "destination": place})
    };
    let mode = json!({"type": "setMode", "mode": "acceptEdits", "destination": "session"});
    let allow = json!({"behavior": "allow", "updatedInput": input});
    let with = |update: serde_json::Value| json!({"behavior": "allow", "updatedInput": input, "updatedPermissions": [update]});
    for (choice, expected) in [
        ("allow", allow),
        ("allow_session", with(rule("session"))),
        ("suggestion_1", with(rule("localSettings"))),
        ("suggestion_2", with(mode)),
        (
            "deny",
            json!({"behavior": "deny", "message": "The user declined this tool call."}),
        ),
        (
            "deny_stop",
            json!({"behavior": "deny", "message": "The user declined this tool call.", "interrupt": true}),
        ),
    ] {
        let mut driver = Driver::running();
        driver.asks("q", bash());
        driver.answer("q", &choose(choice)).expect(choice);
        let wrote = driver.written();
        assert_eq!(wrote[0]["response"]["response"], expected, "{choice}");
        assert!(driver.answer("q", &choose(choice)).is_err(), "it is closed");
    }
    let mut driver = Driver::running();
    driver.asks("q", bash());
    assert!(driver.answer("q", &choose("nonsense")).is_err());
    assert!(driver.answer("q", &reply(&[])).is_err());
    assert!(driver.answer("other", &choose("allow")).is_err());
    assert!(driver.written().is_empty());
}

#[test]
fn questions_are_answered_by_their_texts() {
    let input = json!({"questions": [{"question": "Which?", "header": "H", "multiSelect": true,
        "options": [{"label": "A"}, {"label": "B"}]}]});
    let mut driver = Driver::running();
    let ask = json!({"tool_name": "AskUserQuestion", "tool_use_id": "t1", "input": input});
    driver.asks("q", ask.clone());
    let told = driver.told();
    assert_eq!(
        told,
        [r#"asks q Which?: Some("H") "Which?" ["A", "B"] many free +"#]
    );
    assert!(driver.answer("q", &reply(&[("Other?", &["A"])])).is_err());
    driver
        .answer("q", &reply(&[("Which?", &["A", "B"])]))
        .expect("it fits");
    let wrote = driver.written();
    let response = &wrote[0]["response"]["response"];
    assert_eq!(response["updatedInput"]["answers"]["Which?"], "A, B");
    driver.asks("r", ask);
    driver.answer("r", &decline()).expect("it may be declined");
    assert_eq!(
        driver.written()[0]["response"]["response"]["behavior"],
        "deny"
    );
}

#[test]
fn a_plan_shows_what_the_call_said() {
    let mut driver = Driver::running();
    driver.call("t1", "ExitPlanMode", json!({"plan": "first this"}));
    driver.told();
    let ask = json!({"tool_name": "ExitPlanMode", "tool_use_id": "t1", "input": {}});
    driver.asks("q", ask);
    assert!(driver.told()[0].starts_with(r#"asks q "first this""#));
    driver
        .answer("q", &choose("approve_accept_edits"))
        .expect("it is offered");
    let wrote = driver.written();
    let updates = &wrote[0]["response"]["response"]["updatedPermissions"];
    assert_eq!(updates[0]["mode"], "acceptEdits");
}

#[test]
fn every_request_is_answered_also_one_that_is_not_known() {
    let mut driver = Driver::running();
    driver.value(
        &json!({"type": "control_request", "request_id": "q", "request": {"subtype": "brand_new"}}),
    );
    let head =
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","x"#;
    driver.line(
        Line::Overlong {
            head,
            length: 1 << 25,
        },
        1 << 26,
    );
    let wrote = driver.written();
    for (sent, id) in wrote.iter().zip(["q", "r"]) {
        assert_eq!(sent["response"]["request_id"], id);
        assert_eq!(sent["response"]["subtype"], "error");
    }
    assert_eq!(wrote.len(), 2);
    let told = driver.told();
    assert!(
        told.iter()
            .any(|line| line.contains("unknown_request \"brand_new\"")),
        "{told:?}"
    );
}

#[test]
fn a_withdrawn_question_is_closed() {
    let mut driver = Driver::running();
    driver.asks("q", bash());
    driver.value(&json!({"type": "control_cancel_request", "request_id": "q"}));
    let told = driver.told();
    assert!(told[1].starts_with("withdraws q"), "{told:?}");
    assert!(driver.answer("q", &choose("allow")).is_err());
}

#[test]
fn a_childs_question_outlives_the_turn_and_is_closed_with_the_child() {
    let mut driver = Driver::running();
    driver.system(
        "task_started",
        json!({"task_id": "c1", "tool_use_id": "t0", "description": "d"}),
    );
    let mut ask = bash();
    ask["agent_id"] = json!("c1");
    driver.asks("q", ask);
    driver.asks("own", bash());
    driver.told();
    driver.result();
    let told = driver.told();
    let withdrawn: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("withdraws"))
        .collect();
    assert_eq!(withdrawn, ["withdraws own: the turn has ended"]);
    driver.system(
        "task_notification",
        json!({"task_id": "c1", "status": "stopped"}),
    );
    let told = driver.told();
    assert!(told[0].starts_with("withdraws q"), "{told:?}");
}
