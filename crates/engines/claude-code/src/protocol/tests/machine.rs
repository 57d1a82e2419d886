use astrabox_engine::line::Line;
use serde_json::json;

use super::harness::Driver;

#[test]
fn what_is_not_known_is_kept() {
    let mut driver = Driver::running();
    driver.value(&json!({"type": "brand_new", "x": 1}));
    driver.system("brand_new", json!({}));
    driver.stream(json!({"type": "brand_new"}));
    driver.text("garbage");
    driver.line(Line::Garbled("\u{fffd}"), 1 << 20);
    driver.text("");
    let told = driver.told();
    let topics: Vec<_> = told
        .iter()
        .filter_map(|line| line.split(": ").nth(1)?.split(' ').next())
        .collect();
    assert_eq!(
        topics,
        [
            "unknown_event",
            "unknown_event",
            "unknown_event",
            "garbage_line",
            "garbage_line"
        ]
    );
    assert!(told.iter().all(|line| line.ends_with(" +")), "{told:?}");
}

#[test]
fn a_result_over_the_limit_degrades_alone() {
    let mut driver = Driver::running();
    driver.call("t1", "Bash", json!({}));
    driver.told();
    let head = r#"{"type":"user","message":{"role":"user","content":[{"tool_use_id":"t1","type":"tool_result","content":"x"#;
    driver.line(
        Line::Overlong {
            head,
            length: 50 << 20,
        },
        60 << 20,
    );
    let told = driver.told();
    assert!(told[0].contains("line_truncated"), "{told:?}");
    assert!(
        told[1].contains(r#"Bash {"bytes":52428800,"truncated":true}"#),
        "{told:?}"
    );
    let head = r#"{"duration_api_ms":1,"is_error":false,"result":"x"#;
    driver.line(
        Line::Overlong {
            head,
            length: 20 << 20,
        },
        90 << 20,
    );
    assert!(driver.told().iter().any(|line| line == "END completed"));
}

#[test]
fn line_separators_inside_a_text_are_part_of_it() {
    let mut driver = Driver::running();
    driver.text("{\"type\":\"assistant\",\"parent_tool_use_id\":null,\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\u{2028}b\"}]}}");
    let told = driver.told();
    assert!(told[0].contains("a\\u{2028}b"), "{told:?}");
}

#[test]
fn a_retry_says_its_message_anew() {
    let mut driver = Driver::running();
    driver.says(0, "par");
    driver.system(
        "api_retry",
        json!({"error": "server_error", "error_status": 500}),
    );
    driver.says(0, "whole");
    driver.block(json!({"type": "text", "text": "whole"}));
    driver.result();
    let told = driver.told();
    assert!(
        told.iter()
            .any(|line| line.contains("retrying \"server_error (HTTP 500)\"")),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|line| line.contains("truncated")),
        "{told:?}"
    );
}

#[test]
fn a_mode_is_changed_at_once_and_a_refusal_is_told() {
    let mut driver = Driver::bound();
    assert!(driver.set_mode("auto").is_err());
    driver.set_mode("plan").expect("there is such a mode");
    driver.refuse_last("set_permission_mode", "not now");
    assert!(driver.told()[0].contains("permission_mode_refused"));
    driver.system("status", json!({"permissionMode": "default"}));
    assert!(driver.told()[0].contains("permission_mode_changed"));
}

#[test]
fn background_work_is_told_from_its_begin_until_the_program_rests() {
    let mut driver = Driver::running();
    let tasks = |ids: &[&str]| {
        let tasks: Vec<_> = ids.iter().map(|id| json!({"task_id": id})).collect();
        json!({ "tasks": tasks })
    };
    driver.call("t0", "Agent", json!({}));
    driver.system("background_tasks_changed", tasks(&["c1"]));
    driver.system(
        "task_started",
        json!({"task_id": "c1", "tool_use_id": "t0", "description": "d"}),
    );
    driver.result();
    let told = driver.told();
    assert!(
        told.iter()
            .any(|line| line.starts_with("child c1 Running title=Some(\"d\") call=Some(\"t0@")),
        "{told:?}"
    );
    let opened = told.iter().filter(|line| *line == "background opened");
    assert_eq!(opened.count(), 1, "{told:?}");
    let last = told.last().map(String::as_str).unwrap_or_default();
    assert!(
        last.starts_with("END completed"),
        "it was told before: {told:?}"
    );
    driver.stop_child("c1").expect("it runs");
    assert_eq!(driver.asked(), ["stop_task"]);
    driver.system(
        "task_updated",
        json!({"task_id": "c1", "patch": {"status": "killed"}}),
    );
    driver.system(
        "task_notification",
        json!({"task_id": "c1", "status": "stopped"}),
    );
    driver.system("init", json!({"tools": []}));
    driver.system("background_tasks_changed", tasks(&[]));
    let told = driver.told();
    assert_eq!(told.len(), 1, "its end is told once: {told:?}");
    driver.says(0, "noted");
    driver.result();
    driver.system("session_state_changed", json!({"state": "idle"}));
    let told = driver.told();
    let closed = told.iter().filter(|line| *line == "background closed");
    assert_eq!(closed.count(), 1, "{told:?}");
    assert!(driver.stop_child("c1").is_err());
}

#[test]
fn a_childs_words_are_its_own() {
    let mut driver = Driver::running();
    driver.system(
        "task_started",
        json!({"task_id": "c1", "tool_use_id": "t0", "description": "d"}),
    );
    let message = json!({"content": [{"type": "text", "text": "mine"}]});
    driver.value(&json!({"type": "assistant", "parent_tool_use_id": "t0", "message": message}));
    driver.value(&json!({"type": "assistant", "parent_tool_use_id": "t9", "agent_id": "c9", "message": message}));
    let told = driver.told();
    assert!(
        told[1].starts_with("[c1] ") && told[2].starts_with("[c9] "),
        "{told:?}"
    );
    driver.block(json!({"type": "text", "text": "ours"}));
    assert!(!driver.told()[0].starts_with('['));
}
