//! Lines that are odd, and calls.

use astrabox_engine::line::{Line, LineProtocol};
use serde_json::json;

use super::harness::Driver;

#[test]
fn what_is_not_known_is_kept() {
    let mut driver = Driver::running();
    driver.value(&json!({"type": "weather_changed", "text": "sun"}));
    driver.text("not a message");
    driver.text("  ");
    driver.line(Line::Garbled("caf\u{fffd}"), 10_000);
    driver.asks("u", "hologram", json!({}));
    driver.value(&json!({"type": "extension_error", "error": "it threw"}));
    driver.value(&json!({"id": "9-9", "type": "response", "command": "x", "success": true}));
    let told = driver.told();
    for (line, part) in told.iter().zip([
        "unknown_event \"weather_changed\"",
        "garbage_line",
        "garbage_line",
        "unknown_request \"hologram\"",
        "extension_error \"it threw\"",
        "unknown_answer",
    ]) {
        assert!(line.contains(part), "{part}: {told:#?}");
    }
    assert_eq!(told.len(), 6, "{told:#?}");
    // Also what nobody knows is answered.
    let written = driver.written();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0]["cancelled"], true);
}

#[test]
fn output_of_a_tool_is_told_as_it_grows_and_whole() {
    let mut driver = Driver::running();
    driver.call("c", "bash", &json!({"command": "x"}));
    for text in ["", "n1\n", "n1\n", "n1\nn2\n"] {
        let result = json!({"content": [{"type": "text", "text": text}]});
        driver.value(
            &json!({"type": "tool_execution_update", "toolCallId": "c", "partialResult": result}),
        );
    }
    driver.returns(
        "c",
        &json!({"content": [{"type": "text", "text": "n1\nn2\n"}]}),
    );
    assert_eq!(
        driver.told(),
        [
            "tool.call/c@1.1: bash {\"command\":\"x\"} +",
            "delta tool.result/c@1.1 @0 \"n1\\n\"",
            "delta tool.result/c@1.1 @3 \"n2\\n\"",
            "tool.result/c@1.1: bash [{\"text\":\"n1\\nn2\\n\",\"type\":\"text\"}] +",
        ]
    );
}

#[test]
fn a_tools_file_is_told_with_its_result() {
    let mut driver = Driver::running();
    driver.call("w", "write", &json!({"path": "a.txt", "content": "x"}));
    driver.returns("w", &json!({"content": [], "details": {"existed": false}}));
    driver.call("e", "edit", &json!({"path": "/workspace/a.txt"}));
    driver.returns("e", &json!({"content": [], "details": {"patch": "@@"}}));
    driver.call("r", "read", &json!({"path": "a.txt"}));
    driver.returns("r", &json!({"content": []}));
    let told = driver.told();
    let files: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("file/"))
        .collect();
    assert_eq!(
        files,
        [
            "file/w@1.1//workspace/a.txt: /workspace/a.txt Added None",
            "file/e@1.2//workspace/a.txt: /workspace/a.txt Modified Some(\"@@\")",
        ]
    );
}

#[test]
fn a_result_after_its_turn_opens_none() {
    let mut driver = Driver::running();
    driver.call("c", "bash", &json!({}));
    driver.message(&json!([]), "stop");
    driver.settles(false);
    driver.told();
    driver.returns("c", &json!({"content": []}));
    driver.says(0, "late");
    driver.message(&json!([{"type": "text", "text": "late"}]), "stop");
    let told = driver.told();
    assert!(told[0].starts_with("tool.result/c@1.1"), "{told:?}");
    assert!(told[1..].iter().all(|line| line.contains("late_event")));
}

#[test]
fn a_line_over_the_cap_degrades_only_what_it_is_about() {
    let mut driver = Driver::running();
    let mut long = |head: &str| {
        let line = Line::Overlong {
            head,
            length: 1 << 24,
        };
        driver.line(line, 1 << 25);
        (driver.told(), driver.written())
    };
    let (told, _) = long(
        r#"{"type":"tool_execution_start","toolCallId":"c","toolName":"write","args":{"content":"xx"#,
    );
    assert!(told[1].contains("write {\"bytes\":16777216"), "{told:?}");
    let (told, _) =
        long(r#"{"type":"tool_execution_end","toolCallId":"c","toolName":"write","result"#);
    assert!(told[1].starts_with("tool.result/c@1.2"), "{told:?}");
    let (told, wrote) =
        long(r#"{"type":"extension_ui_request","id":"d","method":"editor","prefill":"x"#);
    assert!(told[0].contains("line_truncated"));
    assert_eq!(wrote[0]["cancelled"], true);
    // It repeats everything that was said.
    let (told, _) = long(r#"{"type":"agent_end","messages":[{"role":"user""#);
    assert_eq!(told, Vec::<String>::new());
    let (_, _) =
        long(r#"{"type":"message_end","message":{"role":"assistant","content":[{"text":"x"#);
    driver.settles(false);
    assert_eq!(driver.told(), ["END completed"]);
}

#[test]
fn the_tools_are_those_that_the_model_is_told_of() {
    let mut driver = Driver::running();
    let tool = |name: &str| json!({"name": name});
    let system = |added: &[&str], removed: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|name| tool(name)).collect::<Vec<_>>();
        json!({"type": "message_start", "message": {"role": "system", "content": "",
            "toolsAdded": list(added), "toolsRemoved": list(removed)}})
    };
    driver.value(&system(&["bash", "read"], &[]));
    driver.value(&system(&["mcp__echo__say"], &["read"]));
    assert_eq!(driver.protocol.tools(), ["bash", "mcp__echo__say"]);
}

#[test]
fn compaction_is_told() {
    let mut driver = Driver::running();
    driver.value(&json!({"type": "compaction_start", "reason": "threshold"}));
    driver.value(&json!({"type": "compaction_end", "reason": "threshold", "result": {"summary": "s"}, "aborted": false}));
    driver.value(&json!({"type": "compaction_end", "reason": "overflow", "aborted": false, "errorMessage": "too long"}));
    let told = driver.told();
    assert!(told[0].starts_with("compacted/"), "{told:?}");
    assert!(
        told[1].contains("compaction_failed \"too long\""),
        "{told:?}"
    );
}
