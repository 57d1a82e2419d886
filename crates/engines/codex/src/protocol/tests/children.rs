//! Sub-agents are kept apart, and background work is told.

use astrabox_engine::ErrorKind;
use astrabox_engine::line::{Effects, LineProtocol};
use astrabox_engine::sandbox::ExitReason;
use astrabox_types::ChildRunId;
use serde_json::{Value, json};

use super::harness::{Driver, exit};

const CHILD: &str = "child-1";

fn child(driver: &mut Driver, method: &str, params: Value) {
    driver.notify(CHILD, method, params);
}

fn child_turn(driver: &mut Driver, method: &str, status: &str) {
    child(
        driver,
        method,
        json!({"turn": {"id": "child-turn", "status": status}}),
    );
}

fn spawn(driver: &mut Driver) {
    let call = |status: &str, receivers: Value, states: Value| {
        json!({
            "type": "collabAgentToolCall", "id": "c", "tool": "spawnAgent", "status": status,
            "prompt": "look around\nand tell", "receiverThreadIds": receivers, "agentsStates": states,
        })
    };
    driver.item("item/started", call("inProgress", json!([]), json!({})));
    let states = json!({CHILD: {"status": "pendingInit", "message": null}});
    driver.item("item/completed", call("completed", json!([CHILD]), states));
}

#[test]
fn a_childs_output_carries_its_id_and_its_end_is_never_the_parents() {
    let mut driver = Driver::running();
    spawn(&mut driver);
    driver.told();
    child_turn(&mut driver, "turn/started", "inProgress");
    let item = |text: &str| json!({"turnId": "child-turn", "item": {"type": "agentMessage", "id": "m", "text": text}});
    child(&mut driver, "item/started", item(""));
    child(
        &mut driver,
        "item/agentMessage/delta",
        json!({"turnId": "child-turn", "itemId": "m", "delta": "hi"}),
    );
    child(&mut driver, "item/completed", item("hi"));
    child(
        &mut driver,
        "thread/status/changed",
        json!({"status": {"type": "idle"}}),
    );
    child_turn(&mut driver, "turn/completed", "completed");
    assert_eq!(
        driver.told(),
        [
            "[child-1] delta text/m@1.2 @0 \"hi\"",
            "[child-1] text/m@1.2: Text \"hi\" +",
            "child child-1 Completed title=Some(\"look around\") call=Some(\"c@1.1\")",
            "background closed",
        ]
    );
    assert!(
        driver.asked().is_empty(),
        "a child that rests is no reason to ask"
    );
    driver.complete("completed");
    assert_eq!(driver.told(), ["END completed"]);
}

#[test]
fn a_child_is_told_when_it_begins_moves_and_ends() {
    for (status, state) in [
        ("completed", "Completed"),
        ("interrupted", "Stopped"),
        ("failed", "Failed"),
    ] {
        let mut driver = Driver::running();
        child_turn(&mut driver, "turn/started", "inProgress");
        assert_eq!(
            driver.told(),
            [
                "child child-1 Running title=None call=None",
                "background opened"
            ]
        );
        spawn(&mut driver);
        let told = driver.told();
        assert_eq!(
            told.last().map(String::as_str),
            Some("child child-1 Running title=Some(\"look around\") call=Some(\"c@1.1\") +")
        );
        child_turn(&mut driver, "turn/completed", status);
        assert!(
            driver.told()[0].starts_with(&format!("child child-1 {state}")),
            "{status}"
        );
        child_turn(&mut driver, "turn/started", "inProgress");
        assert!(
            driver.told()[0].starts_with("child child-1 Running"),
            "it can run again"
        );
    }
}

#[test]
fn a_child_of_the_second_generation_is_told_by_its_activity() {
    let mut driver = Driver::running();
    let activity = |kind: &str| json!({"type": "subAgentActivity", "id": "a", "kind": kind, "agentThreadId": CHILD, "agentPath": "/root/task"});
    for method in ["item/started", "item/completed"] {
        driver.item(method, activity("started"));
    }
    child_turn(&mut driver, "turn/started", "inProgress");
    driver.item("item/completed", activity("interacted"));
    driver.item("item/completed", activity("completed"));
    let running = "child child-1 Running title=Some(\"/root/task\") call=Some(\"a\") +";
    assert_eq!(
        driver.told(),
        [running, "background opened"],
        "its own turn says more than its parent"
    );
    child_turn(&mut driver, "turn/completed", "completed");
    assert!(driver.told()[0].starts_with("child child-1 Completed"));
}

#[test]
fn a_child_without_events_of_its_own_ends_by_what_its_parent_is_told() {
    for (status, state) in [
        ("completed", "Completed"),
        ("errored", "Failed"),
        ("shutdown", "Stopped"),
        ("notFound", "Stopped"),
    ] {
        let mut driver = Driver::running();
        spawn(&mut driver);
        driver.told();
        let call = json!({
            "type": "collabAgentToolCall", "id": "w", "tool": "wait", "status": "completed",
            "receiverThreadIds": [CHILD], "agentsStates": {CHILD: {"status": status}},
        });
        driver.item("item/completed", call);
        let told = driver.told();
        assert!(
            told[2].starts_with(&format!("child child-1 {state}")),
            "{told:?}"
        );
    }
}

#[test]
fn work_that_outlives_the_turn_is_told_until_its_end() {
    let mut driver = Driver::running();
    spawn(&mut driver);
    driver.item(
        "item/started",
        json!({"type": "commandExecution", "id": "x", "command": "sleep 9"}),
    );
    driver.told();
    driver.complete("completed");
    assert_eq!(driver.told(), ["END completed"]);
    driver.deliver(2).expect("it is taken");
    driver.answer_last("turn/start", &json!({"turn": {"id": "turn-2"}}));
    child_turn(&mut driver, "turn/completed", "completed");
    driver.own(
        "item/commandExecution/outputDelta",
        json!({"turnId": "turn-1", "itemId": "x", "delta": "late"}),
    );
    driver.item(
        "item/completed",
        json!({"type": "commandExecution", "id": "x", "status": "completed"}),
    );
    assert_eq!(
        driver.told(),
        [
            "consumed 2",
            "child child-1 Completed title=Some(\"look around\") call=Some(\"c@1.1\")",
            "delta tool.result/x@1.2 @0 \"late\"",
            "tool.result/x@1.2: commandExecution {\"status\":\"completed\"} +",
            "background closed",
        ]
    );
}

#[test]
fn a_command_that_the_program_has_forgotten_is_not_waited_for() {
    let mut driver = Driver::running();
    driver.item(
        "item/started",
        json!({"type": "commandExecution", "id": "x", "command": "sleep 9"}),
    );
    driver.complete("completed");
    driver.told();
    driver.answer_last(
        "thread/backgroundTerminals/list",
        &json!({"data": [], "nextCursor": null}),
    );
    assert_eq!(driver.told(), ["background closed"]);
}

#[test]
fn a_running_child_can_be_stopped_and_another_cannot() {
    let mut driver = Driver::running();
    spawn(&mut driver);
    let effects = &mut Effects::default();
    let run = ChildRunId(CHILD.to_owned());
    let error = driver.protocol.stop_child(&run, effects).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    child_turn(&mut driver, "turn/started", "inProgress");
    driver.protocol.stop_child(&run, effects).expect("it runs");
    let sent: Value = serde_json::from_str(&effects.take_outgoing()[0]).expect("it is JSON");
    assert_eq!(sent["method"], "turn/interrupt");
    assert_eq!(
        sent["params"],
        json!({"threadId": CHILD, "turnId": "child-turn"})
    );
}

#[test]
fn children_end_with_the_program() {
    let mut driver = Driver::running();
    spawn(&mut driver);
    child_turn(&mut driver, "turn/started", "inProgress");
    child(
        &mut driver,
        "item/agentMessage/delta",
        json!({"turnId": "child-turn", "itemId": "m", "delta": "half"}),
    );
    driver.complete("completed");
    driver.told();
    driver.exit(&exit(ExitReason::SandboxDied, None, None), "");
    let told = driver.told();
    assert_eq!(told[0], "[child-1] text/m@1.2: Text \"half\" truncated");
    assert!(told[1].starts_with("child child-1 Stopped"), "{told:?}");
    assert_eq!(told[2], "background closed");
    assert!(told[3].contains("engine_exited"), "{told:?}");
}

#[test]
fn a_childs_question_closes_with_its_own_turn_and_not_with_its_parents() {
    let mut driver = Driver::running();
    child_turn(&mut driver, "turn/started", "inProgress");
    let params = json!({"threadId": CHILD, "turnId": "child-turn", "itemId": "x", "command": "ls"});
    driver.request(0, "item/commandExecution/requestApproval", &params);
    driver.told();
    driver.complete("completed");
    assert_eq!(driver.told(), ["END completed"]);
    child_turn(&mut driver, "turn/completed", "interrupted");
    assert_eq!(driver.told()[0], "withdraws 1.0: the turn has ended");
}

#[test]
fn many_children_leave_a_small_state() {
    let mut driver = Driver::running();
    for n in 0..2000 {
        let thread = format!("child-{n}");
        let turn = |status: &str| json!({"turn": {"id": "t", "status": status}});
        driver.notify(&thread, "turn/started", turn("inProgress"));
        driver.notify(&thread, "turn/completed", turn("completed"));
    }
    let state = serde_json::to_string(&driver.protocol).expect("it is JSON");
    assert!(state.len() < 64 << 10, "{} bytes", state.len());
}
