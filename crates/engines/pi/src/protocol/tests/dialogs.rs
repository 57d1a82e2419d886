//! Approvals and other dialogs, and their answers.

use astrabox_types::InteractionAnswer;
use serde_json::{Value, json};

use super::harness::{Driver, choose, decline, reply};

/// A driver whose extension asks whether a command may run.
fn asked() -> Driver {
    let mut driver = Driver::running();
    let input = json!({"command": "touch a"});
    driver.call("c", "bash", &input);
    driver.asks_approval("d", "c", "bash", &input);
    driver
}

fn verdict(driver: &mut Driver) -> Value {
    let written = driver.written();
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(written[0]["type"], "extension_ui_response");
    assert_eq!(written[0]["id"], "d");
    let value = written[0]["value"].as_str().expect("a text");
    serde_json::from_str(value).expect("it is JSON")
}

#[test]
fn an_approval_is_asked_for_its_call() {
    let mut driver = asked();
    let told = driver.told();
    assert_eq!(
        told.last().map(String::as_str),
        Some(
            "asks d bash {\"command\":\"touch a\"} call=c@1.1 reason=None [+allow +allow_session -deny -deny_stop] +"
        )
    );
}

#[test]
fn an_approval_is_answered_by_a_choice() {
    let with = |input: Option<&str>, comment: Option<&str>, id: &str| InteractionAnswer::Choose {
        choice_id: id.to_owned(),
        comment: comment.map(str::to_owned),
        input: input.map(str::to_owned),
    };
    for (answer, expected) in [
        (choose("allow"), json!({"choice": "allow"})),
        (choose("allow_session"), json!({"choice": "allow_session"})),
        (choose("deny_stop"), json!({"choice": "deny_stop"})),
        (
            with(None, Some("not now"), "deny"),
            json!({"choice": "deny", "comment": "not now"}),
        ),
        (
            with(Some(r#"{"command":"touch b"}"#), None, "allow"),
            json!({"choice": "allow", "input": {"command": "touch b"}}),
        ),
        (decline(), json!({"choice": "deny", "comment": null})),
    ] {
        let mut driver = asked();
        driver.answer("d", &answer).expect("it is open");
        assert_eq!(verdict(&mut driver), expected);
        assert!(driver.answer("d", &answer).is_err(), "it is answered");
    }
    for answer in [
        choose("maybe"),
        reply("yes"),
        with(Some("[]"), None, "allow"),
        with(Some("{}"), None, "deny"),
    ] {
        let mut driver = asked();
        assert!(driver.answer("d", &answer).is_err(), "{answer:?}");
        assert!(driver.answer("e", &choose("allow")).is_err(), "another id");
        assert!(driver.written().is_empty());
    }
}

#[test]
fn dialogs_of_extensions_are_questions_and_decisions() {
    let cases = [
        (
            "confirm",
            json!({"title": "Sure?", "message": "All is lost."}),
            "asks d \"Sure?\\n\\nAll is lost.\" {\"no\": false, \"yes\": true} +",
            choose("yes"),
            json!({"confirmed": true}),
        ),
        (
            "confirm",
            json!({"title": "Sure?"}),
            "asks d \"Sure?\" {\"no\": false, \"yes\": true} +",
            choose("no"),
            json!({"confirmed": false}),
        ),
        (
            "select",
            json!({"title": "Which?", "options": ["a", "b"]}),
            "asks d answer: None \"Which?\" [\"a\", \"b\"] +",
            reply("b"),
            json!({"value": "b"}),
        ),
        (
            "input",
            json!({"title": "Name", "placeholder": "type"}),
            "asks d answer: None \"Name\\n\\ntype\" [] free +",
            reply("me"),
            json!({"value": "me"}),
        ),
        (
            "editor",
            json!({"title": "Edit", "prefill": "line 1\nline 2"}),
            "asks d answer: None \"Edit\\n\\nline 1\\nline 2\" [] free +",
            decline(),
            json!({"cancelled": true}),
        ),
    ];
    for (method, dialog, told, answer, expected) in cases {
        let mut driver = Driver::running();
        driver.asks("d", method, dialog);
        assert_eq!(driver.told(), [told]);
        driver.answer("d", &answer).expect("it is open");
        let mut written = driver.written();
        let mut written = written.remove(0);
        let members = written.as_object_mut().expect("an object");
        members.remove("type");
        members.remove("id");
        assert_eq!(written, expected);
    }
}

#[test]
fn an_answer_that_does_not_fit_is_refused_and_the_dialog_stays() {
    let mut driver = Driver::running();
    driver.asks(
        "d",
        "select",
        json!({"title": "Which?", "options": ["a", "b"]}),
    );
    for answer in [reply("c"), choose("a")] {
        assert!(driver.answer("d", &answer).is_err());
    }
    driver.answer("d", &reply("a")).expect("it is open");
}

#[test]
fn an_interrupt_dismisses_what_is_open() {
    let mut driver = asked();
    driver.asks("e", "editor", json!({"title": "Edit"}));
    driver.told();
    driver.interrupt();
    let written = driver.written();
    let kinds: Vec<_> = written.iter().map(|sent| sent["type"].clone()).collect();
    assert_eq!(
        kinds,
        ["abort", "extension_ui_response", "extension_ui_response"]
    );
    assert!(written[1..].iter().all(|sent| sent["cancelled"] == true));
    assert_eq!(
        driver.told(),
        [
            "withdraws d: the turn is stopped",
            "withdraws e: the turn is stopped",
        ]
    );
}

#[test]
fn an_open_dialog_ends_with_its_turn_and_with_the_program() {
    let mut driver = asked();
    driver.told();
    driver.message(&json!([]), "stop");
    driver.settles(false);
    assert!(
        driver
            .told()
            .contains(&"withdraws d: the turn has ended".to_owned())
    );
    assert_eq!(driver.written()[0]["cancelled"], true);

    let mut driver = asked();
    driver.told();
    let status = super::harness::exit(astrabox_engine::sandbox::ExitReason::Killed, None, Some(9));
    driver.exit(&status, "");
    assert!(driver.written().is_empty(), "nobody is there to read it");
    assert!(
        driver
            .told()
            .contains(&"withdraws d: the program has ended".to_owned())
    );
}

#[test]
fn a_dialog_outside_of_a_turn_is_dismissed() {
    let mut driver = Driver::bound();
    driver.asks("d", "confirm", json!({"title": "Sure?"}));
    assert_eq!(driver.written()[0]["cancelled"], true);
    assert!(driver.told()[0].contains("dialog_dismissed"));
}

#[test]
fn a_command_that_asks_has_its_input() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.asks("d", "confirm", json!({"title": "Sure?"}));
    let told = driver.told();
    assert_eq!(told[0], "consumed 1");
    assert!(told[1].starts_with("asks d"), "{told:?}");
    driver.interrupt();
    driver.answer_last("prompt", &json!({"disposition": "handled"}));
    assert_eq!(
        driver.told(),
        ["withdraws d: the turn is stopped", "END interrupted"]
    );
}

#[test]
fn what_is_only_shown_is_kept() {
    let mut driver = Driver::bound();
    driver.asks("n", "notify", json!({"message": "hello"}));
    driver.asks("s", "setStatus", json!({"statusText": "busy"}));
    let told = driver.told();
    assert!(told[0].contains("program_notice \"hello\""), "{told:?}");
    assert!(
        told[1].contains("program_display \"setStatus\""),
        "{told:?}"
    );
    assert!(driver.written().is_empty());
}
