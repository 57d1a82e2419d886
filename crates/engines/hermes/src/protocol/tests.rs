//! What the host tells beyond ACP, and what becomes of it.

use astrabox_acp_protocol::Settings;
use astrabox_acp_protocol::harness::{Driver, SESSION, choose};
use astrabox_engine::line::{Effects, LineProtocol as _};
use astrabox_types::ChildRunId;
use serde_json::{Value, json};

use super::Hosted;

fn bound() -> Driver<Hosted> {
    let mode = |id: &str| json!({"id": id, "name": id});
    let opened = json!({
        "sessionId": SESSION,
        "modes": {"currentModeId": "default", "availableModes": [mode("default"), mode("dont_ask")]},
    });
    let initialized = json!({"protocolVersion": 1, "agentCapabilities": {}});
    let settings = Settings {
        cwd: "/workspace".to_owned(),
        ..Settings::default()
    };
    let mut driver = Driver::bound(settings, Hosted, &initialized, &opened);
    driver.restart = true;
    driver
}

/// Bound, with a turn that has begun to speak.
fn running() -> Driver<Hosted> {
    let mut driver = bound();
    driver.deliver(1).expect("it is taken");
    driver.says("x");
    driver.said.clear();
    driver
}

fn of_host(told: &Value) -> Value {
    json!({"astrabox": told})
}

fn call(id: &str, tool: &str, input: &Value) -> Value {
    json!({
        "toolCallId": id,
        "title": format!("{tool}: …"),
        "kind": "execute",
        "status": "pending",
        "rawInput": input,
        "_meta": of_host(&json!({"tool": tool, "nativeId": "call_1"})),
    })
}

fn ended(id: &str, tool: &str, output: &str, status: &str) -> Value {
    json!({
        "toolCallId": id,
        "kind": "execute",
        "status": status,
        "rawOutput": output,
        "_meta": of_host(&json!({"tool": tool, "nativeId": "call_1", "status": "ok"})),
    })
}

fn run(driver: &mut Driver<Hosted>, run: &str, state: &str, more: Value) {
    let mut params = json!({"sessionId": SESSION, "run": run, "state": state});
    params
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().cloned().unwrap_or_default());
    driver.notify("_astrabox/run", &params);
}

#[test]
fn a_call_has_its_own_name_input_and_result() {
    let mut driver = running();
    driver.update(
        "tool_call",
        call("tc-1", "terminal", &json!({"command": "ls"})),
    );
    driver.update(
        "tool_call_update",
        ended("tc-1", "terminal", "{\"output\": \"a\"}", "completed"),
    );
    let told = driver.told();
    assert!(
        told.iter()
            .any(|line| line.contains("terminal {\"command\":\"ls\"}")),
        "{told:#?}"
    );
    assert!(
        told.iter()
            .any(|line| line.contains("terminal \"{\\\"output\\\"")),
        "{told:#?}"
    );
}

#[test]
fn a_sub_agent_is_a_run_with_calls_and_words_of_its_own() {
    let mut driver = running();
    let goal = json!({"goal": "look"});
    driver.update("tool_call", call("tc-1", "delegate_task", &goal));
    run(
        &mut driver,
        "sa-0-1",
        "running",
        json!({"goal": "look", "call": "tc-1"}),
    );
    driver.update_of(
        "sa-0-1",
        "tool_call",
        call("tc-2", "terminal", &json!({"command": "ls"})),
    );
    driver.update_of(
        "sa-0-1",
        "tool_call_update",
        ended("tc-2", "terminal", "{}", "completed"),
    );
    let content = json!({"type": "text", "text": "seen"});
    driver.update_of("sa-0-1", "agent_message_chunk", json!({"content": content}));
    run(&mut driver, "sa-0-1", "completed", json!({}));
    let told = driver.told();
    let of_child: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("[sa-0-1]"))
        .collect();
    assert!(
        of_child.iter().any(|line| line.contains("terminal {")),
        "{told:#?}"
    );
    assert!(
        of_child.iter().any(|line| line.contains("Text \"seen\"")),
        "{told:#?}"
    );
    let facts: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("child "))
        .collect();
    assert!(
        facts[0].starts_with("child sa-0-1 Running title=Some(\"look\") call=Some(\"tc-1@"),
        "{facts:#?}"
    );
    assert!(facts[1].starts_with("child sa-0-1 Completed"), "{facts:#?}");
    let last_word = told.iter().position(|line| line.contains("Text \"seen\""));
    let end = told
        .iter()
        .position(|line| line.contains("Completed title"));
    assert!(last_word < end, "its words come before its end: {told:#?}");
}

#[test]
fn a_question_of_a_sub_agent_that_ends_is_withdrawn_and_answered() {
    let mut driver = running();
    run(&mut driver, "sa-0-1", "running", json!({"goal": "look"}));
    let options = json!([{"optionId": "allow_once", "name": "Allow", "kind": "allow_once"}]);
    driver.asks(
        7,
        "session/request_permission",
        &json!({
            "sessionId": "sa-0-1",
            "toolCall": call("tc-9", "terminal", &json!({"command": "ls"})),
            "options": options,
        }),
    );
    assert_eq!(driver.open_questions(), ["7"]);
    driver.told();
    driver.written();
    run(&mut driver, "sa-0-1", "interrupted", json!({}));
    let told = driver.told();
    assert!(
        told.iter().any(|line| line.starts_with("withdraws 7")),
        "{told:#?}"
    );
    assert!(
        told.iter()
            .any(|line| line.starts_with("child sa-0-1 Stopped")),
        "{told:#?}"
    );
    let written = driver.written();
    assert_eq!(
        written[0]["result"]["outcome"]["outcome"], "cancelled",
        "{written:?}"
    );
}

#[test]
fn a_sub_agent_that_works_can_be_stopped_and_no_other() {
    let mut driver = running();
    run(&mut driver, "sa-0-1", "running", json!({"goal": "look"}));
    let mut effects = Effects::at(1);
    let run_id = |id: &str| ChildRunId(id.to_owned());
    let stopped = driver.protocol.stop_child(&run_id("sa-0-1"), &mut effects);
    stopped.expect("it works");
    let line: Value = serde_json::from_str(&effects.take_outgoing()[0]).expect("it is JSON");
    assert_eq!(line["method"], "_astrabox/stop_run");
    assert_eq!(line["params"]["run"], "sa-0-1");
    let refused = driver.protocol.stop_child(&run_id("sa-0-2"), &mut effects);
    assert!(refused.is_err());
}

#[test]
fn what_hermes_asks_by_itself_is_shown_with_its_reason() {
    for (asked, expected) in [
        (
            json!({"command": "rm -rf x", "description": "recursive delete"}),
            r#"terminal {"command":"rm -rf x"} call=- reason=Some("recursive delete")"#,
        ),
        (
            json!({"tool": "write_file", "arguments": {"path": ".env"}}),
            r#"write_file {"path":".env"} call=- reason=None"#,
        ),
    ] {
        let mut driver = running();
        driver.asks_permission(3, call("perm-check-1", "terminal", &asked));
        let told = driver.told();
        assert!(told.iter().any(|line| line.contains(expected)), "{told:#?}");
        driver.answer("3", &choose("yes")).expect("it is open");
    }
}

#[test]
fn a_failed_turn_has_a_reason() {
    let mut driver = running();
    driver.refuse_last("session/prompt", -32051, "HTTP 401: no");
    let told = driver.told();
    assert_eq!(
        told.last().map(String::as_str),
        Some("END failed model_error: HTTP 401: no")
    );
}

#[test]
fn usage_is_the_conversations_and_a_turns_share_of_it() {
    let mut driver = bound();
    let before = json!({"inputTokens": 100, "outputTokens": 10, "totalTokens": 110});
    driver.notify("_astrabox/used_before", &before);
    driver.deliver(1).expect("it is taken");
    let usage = json!({"inputTokens": 160, "outputTokens": 17, "totalTokens": 177});
    let told = json!({"compactions": 1});
    driver.answer_last(
        "session/prompt",
        &json!({"stopReason": "end_turn", "usage": usage, "_meta": of_host(&told)}),
    );
    let told = driver.told();
    assert!(
        told.iter()
            .any(|line| line.contains(": in=160 cached=0 out=17")),
        "{told:#?}"
    );
    assert_eq!(
        told.last().map(String::as_str),
        Some("END completed in=60 cached=0 out=7 reasoning=0")
    );
    assert!(
        told.iter().any(|line| line.contains("ContextCompacted")),
        "{told:#?}"
    );
}

#[test]
fn what_could_not_be_kept_or_was_left_is_told() {
    let mut driver = bound();
    driver.notify("_astrabox/unsaved", &json!({"message": "disk full"}));
    driver.notify("_astrabox/left", &json!({"calls": ["terminal"]}));
    driver.notify("_astrabox/new", &json!({}));
    let told = driver.told();
    assert!(
        told[0].contains("native_state_unsaved \"disk full\""),
        "{told:#?}"
    );
    assert!(
        told[1].contains("transcript_repaired") && told[1].contains("terminal"),
        "{told:#?}"
    );
    assert!(
        told[2].contains("unknown_event \"_astrabox/new\""),
        "{told:#?}"
    );
}
