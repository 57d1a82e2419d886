use astrabox_engine::line::Line;
use serde_json::{Value, json};

use super::{bound, running};
use crate::harness::Driver;

/// A kind of update and the update.
type Told = (String, Value);

fn chunk(kind: &str, id: Option<&str>, text: &str) -> Told {
    let mut update = json!({"content": {"type": "text", "text": text}});
    if let Some(id) = id {
        update["messageId"] = json!(id);
    }
    (kind.to_owned(), update)
}

fn said(id: Option<&str>, text: &str) -> Told {
    chunk("agent_message_chunk", id, text)
}

fn thought(text: &str) -> Told {
    chunk("agent_thought_chunk", None, text)
}

fn update(kind: &str, update: Value) -> Told {
    (kind.to_owned(), update)
}

#[test]
fn chunks_are_one_message_until_something_else_comes() {
    let call = || {
        update(
            "tool_call",
            json!({"toolCallId": "c", "title": "x", "rawInput": {"a": 1}}),
        )
    };
    let moved = || {
        update(
            "tool_call_update",
            json!({"toolCallId": "c", "status": "completed"}),
        )
    };
    let figures = || update("usage_update", json!({"used": 1, "size": 2}));
    let cases: [(Vec<Told>, Vec<&str>); 10] = [
        (vec![said(None, "a"), said(None, "b")], vec!["ab"]),
        (
            vec![said(None, "a"), figures(), said(None, "b")],
            vec!["a", "b"],
        ),
        (
            vec![thought("a"), said(None, "b"), thought("c")],
            vec!["a", "b", "c"],
        ),
        (vec![said(Some("1"), "a"), said(Some("1"), "b")], vec!["ab"]),
        (
            vec![said(Some("1"), "a"), said(Some("2"), "b")],
            vec!["a", "b"],
        ),
        (vec![said(Some("1"), "a"), said(None, "b")], vec!["a", "b"]),
        (
            vec![said(None, "a"), call(), said(None, "b")],
            vec!["a", "b"],
        ),
        (
            vec![call(), said(None, "a"), moved(), said(None, "b")],
            vec!["a", "b"],
        ),
        // With an id it is known that it goes on.
        (
            vec![call(), said(Some("1"), "a"), moved(), said(Some("1"), "b")],
            vec!["ab"],
        ),
        (vec![said(None, ""), said(None, "a")], vec!["a"]),
    ];
    for (updates, expected) in cases {
        let mut driver = bound();
        driver.restart = true;
        driver.deliver(1).expect("it is taken");
        for (kind, update) in &updates {
            driver.update(kind, update.clone());
        }
        driver.ends("end_turn");
        let told = driver.told();
        let messages: Vec<_> = told
            .iter()
            .filter(|line| line.starts_with("text/") || line.starts_with("reasoning/"))
            .filter_map(|line| line.split('"').nth(1))
            .collect();
        assert_eq!(messages, expected, "{updates:?}");
    }
}

#[test]
fn deltas_have_the_place_and_the_key_of_their_message() {
    let mut driver = running();
    driver.says("ä");
    driver.says("b");
    driver.ends("end_turn");
    assert_eq!(
        driver.told(),
        [
            r#"reasoning/@1.1: Reasoning "x""#,
            r#"delta text/@1.2 @0 "ä""#,
            r#"delta text/@1.2 @2 "b""#,
            r#"text/@1.2: Text "äb""#,
            "END completed",
        ]
    );
}

#[test]
fn a_message_that_is_very_long_goes_on_as_another() {
    let mut driver = running();
    driver.told();
    let piece = "x".repeat(700 << 10);
    driver.says(&piece);
    driver.says(&piece);
    driver.says("end");
    driver.ends("end_turn");
    let lengths: Vec<_> = driver
        .told()
        .iter()
        .filter(|line| line.starts_with("text/"))
        .map(|line| line.split('"').nth(1).unwrap_or_default().len())
        .collect();
    assert_eq!(lengths, [1400 << 10, 3]);
}

#[test]
fn what_is_no_text_is_kept() {
    let mut driver = running();
    let link = json!({"type": "resource_link", "name": "a", "uri": "file:///w/a"});
    driver.update("agent_message_chunk", json!({"content": link}));
    let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
    driver.update("agent_message_chunk", json!({"content": image}));
    let told = driver.told();
    assert!(told[1].ends_with(r#""[a](file:///w/a)""#), "{told:?}");
    assert!(
        told[2].contains("message_not_text") && told[2].ends_with(" +"),
        "{told:?}"
    );
}

fn calls(driver: &mut Driver<super::Plain>, updates: &[Value]) -> Vec<String> {
    for update in updates {
        let kind = update["kind_"].as_str().unwrap_or("tool_call_update");
        let mut update = update.clone();
        update.as_object_mut().expect("an object").remove("kind_");
        driver.update(kind, update);
    }
    let told = driver.told().into_iter();
    told.filter(|line| line.starts_with("tool.") || line.starts_with("file/"))
        .collect()
}

#[test]
fn a_call_is_told_once_its_input_is_known() {
    let mut driver = running();
    driver.restart = true;
    let told = calls(
        &mut driver,
        &[
            json!({"kind_": "tool_call", "toolCallId": "c", "title": "Run", "kind": "execute", "status": "pending", "rawInput": {}}),
            json!({"toolCallId": "c", "rawInput": {"command": "ls"}}),
            json!({"toolCallId": "c", "status": "in_progress"}),
            json!({"toolCallId": "c", "status": "completed", "content": [{"type": "content", "content": {"type": "text", "text": "a"}}]}),
        ],
    );
    assert_eq!(
        told,
        [
            r#"tool.call/c@1.2: execute {"command":"ls"} +"#,
            r#"tool.result/c@1.2: execute [{"content":{"text":"a","type":"text"},"type":"content"}] +"#,
        ]
    );
}

#[test]
fn a_result_that_leaves_out_the_text_is_told_with_it() {
    let text = json!([{"type": "content", "content": {"type": "text", "text": "a"}}]);
    for (raw, expected) in [
        (json!("b"), r#""b""#),
        (
            json!({"exit_code": 0}),
            r#"{"content":[{"content":{"text":"a","type":"text"},"type":"content"}],"rawOutput":{"exit_code":0}}"#,
        ),
    ] {
        let mut driver = running();
        let done = json!({"toolCallId": "c", "title": "x", "status": "completed", "content": text, "rawOutput": raw});
        let told = calls(&mut driver, &[done]);
        assert_eq!(told[1], format!("tool.result/c@1.2: x {expected} +"));
    }
}

#[test]
fn a_call_is_told_at_the_latest_when_it_runs_or_ends() {
    for (updates, expected) in [
        (
            vec![
                json!({"kind_": "tool_call", "toolCallId": "c", "title": "bash", "kind": "other", "status": "in_progress"}),
            ],
            vec![r#"tool.call/c@1.2: bash {"title":"bash"} +"#],
        ),
        (
            vec![
                json!({"toolCallId": "c", "title": "t", "name": "Bash", "status": "failed", "rawInput": {"a": 1}, "rawOutput": "no"}),
            ],
            vec![
                r#"tool.call/c@1.2: Bash {"a":1} +"#,
                r#"tool.result/c@1.2: Bash "no" error +"#,
            ],
        ),
        // Nobody knows this call.
        (
            vec![json!({"toolCallId": "z", "status": "completed"})],
            vec![],
        ),
    ] {
        let mut driver = running();
        assert_eq!(calls(&mut driver, &updates), expected, "{updates:?}");
    }
    let mut driver = running();
    driver.update(
        "tool_call",
        json!({"toolCallId": "c", "title": "x", "status": "pending"}),
    );
    driver.ends("cancelled");
    let told = driver.told();
    assert!(
        told.iter()
            .any(|line| line.starts_with("tool.call/c@1.2: x ")),
        "{told:?}"
    );
}

#[test]
fn diffs_of_a_call_that_is_done_are_changed_files() {
    let diff = json!([{"type": "diff", "path": "/w/a", "oldText": null, "newText": "x\n"}]);
    let text = json!([{"type": "content", "content": {"type": "text", "text": "done"}}]);
    for (status, expected) in [
        (
            "completed",
            Some(r#"file/c@1.2//w/a: /w/a Added Some("@@ -0,0 +1,1 @@\n+x\n")"#),
        ),
        ("failed", None),
    ] {
        let mut driver = running();
        driver.restart = true;
        let told = calls(
            &mut driver,
            &[
                json!({"kind_": "tool_call", "toolCallId": "c", "title": "Write", "kind": "edit", "content": diff}),
                json!({"toolCallId": "c", "status": status, "content": text}),
            ],
        );
        assert_eq!(told.get(2).map(String::as_str), expected, "{told:?}");
        assert_eq!(told.len(), if expected.is_some() { 3 } else { 2 });
    }
}

#[test]
fn a_result_may_come_after_its_turn_but_not_after_the_next_input() {
    let mut driver = running();
    for id in ["a", "b"] {
        driver.update(
            "tool_call",
            json!({"toolCallId": id, "title": id, "rawInput": {"x": 1}}),
        );
    }
    driver.ends("end_turn");
    driver.told();
    let done = |id: &str| json!({"toolCallId": id, "status": "completed"});
    driver.update("tool_call_update", done("a"));
    assert!(driver.told()[0].starts_with("tool.result/a@1.2"));
    driver.deliver(2).expect("it is taken");
    driver.update("tool_call_update", done("b"));
    assert!(driver.told()[0].contains("late_event"));
}

#[test]
fn what_is_said_while_no_turn_runs_is_kept_and_opens_none() {
    let mut driver = bound();
    driver.restart = true;
    driver.says("by the ");
    driver.says("way");
    driver.update("tool_call", json!({"toolCallId": "c", "title": "x"}));
    driver.deliver(1).expect("it is taken");
    let told = driver.told();
    assert!(
        told[0].contains("late_event") && told[0].ends_with(" +"),
        "{told:?}"
    );
    assert!(
        told[1].ends_with(r#"unasked_message "by the way""#),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
}

#[test]
fn output_of_another_session_is_a_childs() {
    let mut driver = running();
    let text = json!({"content": {"type": "text", "text": "c"}});
    driver.update_of("child", "agent_message_chunk", text);
    driver.update_of(
        "child",
        "tool_call",
        json!({"toolCallId": "t", "title": "x", "rawInput": {"a": 1}}),
    );
    driver.says("own");
    let told = driver.told();
    assert_eq!(
        told,
        [
            r#"[child] delta text/@1.2 @0 "c""#,
            r#"[child] text/@1.2: Text "c""#,
            r#"[child] tool.call/t@1.3: x {"a":1} +"#,
            r#"reasoning/@1.1: Reasoning "x""#,
            r#"delta text/@1.4 @0 "own""#,
        ]
    );
}

#[test]
fn what_else_the_program_tells_is_kept_or_known_to_be_of_no_use() {
    let entries =
        json!([{"content": "look", "status": "completed"}, {"content": "do", "status": "pending"}]);
    for (kind, update, expected) in [
        (
            "plan",
            json!({"entries": entries}),
            Some(r#"plan "[x] look\n[ ] do""#),
        ),
        (
            "notice",
            json!({"title": "a", "description": "b"}),
            Some(r#"notice "a: b""#),
        ),
        (
            "compaction_update",
            json!({"status": "completed"}),
            Some("ContextCompacted"),
        ),
        (
            "compaction_update",
            json!({"status": "failed", "error": "e"}),
            Some(r#"compaction_failed "e""#),
        ),
        ("compaction_update", json!({"status": "in_progress"}), None),
        (
            "brand_new",
            json!({"x": 1}),
            Some(r#"unknown_event "brand_new""#),
        ),
        (
            "available_commands_update",
            json!({"availableCommands": []}),
            None,
        ),
        ("session_info_update", json!({"title": "t"}), None),
        (
            "user_message_chunk",
            json!({"content": {"type": "text", "text": "x"}}),
            None,
        ),
    ] {
        let mut driver = bound();
        driver.deliver(1).expect("it is taken");
        driver.update(kind, update);
        let told = driver.told();
        match expected {
            None => assert!(told.is_empty(), "{kind}: {told:?}"),
            Some(expected) => assert!(
                told.len() == 1 && told[0].contains(expected) && told[0].ends_with(" +"),
                "{kind}: {told:?}"
            ),
        }
    }
    let mut driver = bound();
    driver.notify("brand/new", &json!({"x": 1}));
    driver.text("garbage");
    driver.text("");
    driver.line(Line::Garbled("\u{fffd}"));
    let told = driver.told();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|line| line.ends_with(" +")), "{told:?}");
}

#[test]
fn a_line_over_the_limit_degrades_alone() {
    let overlong = |driver: &mut Driver<super::Plain>, head: &str| {
        driver.line(Line::Overlong {
            head,
            length: 50 << 20,
        });
        driver.told()
    };
    let mut driver = running();
    driver.restart = true;
    driver.update(
        "tool_call",
        json!({"toolCallId": "c", "title": "x", "rawInput": {"a": 1}}),
    );
    driver.told();
    let begin =
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess-1","update":{"#;
    let told = overlong(
        &mut driver,
        &format!(r#"{begin}"sessionUpdate":"tool_call_update","toolCallId":"c","rawOutput":"x"#),
    );
    assert!(told[0].contains("line_truncated"), "{told:?}");
    assert!(
        told[1].contains(r#"{"bytes":52428800,"truncated":true}"#),
        "{told:?}"
    );
    driver.says("a");
    overlong(
        &mut driver,
        &format!(r#"{begin}"sessionUpdate":"agent_message_chunk","content":{{"text":"x"#),
    );
    driver.ends("end_turn");
    let told = driver.told();
    assert!(told[0].ends_with(r#"Text "a" truncated"#), "{told:?}");
    driver.wrote.clear();
    overlong(
        &mut driver,
        r#"{"jsonrpc":"2.0","id":7,"method":"fs/write_text_file","params":{"x"#,
    );
    assert_eq!(driver.written()[0]["error"]["code"], -32600);
}

#[test]
fn what_a_terminal_of_the_program_shows_is_the_output_of_its_call() {
    let mut driver = running();
    driver.restart = true;
    let terminal = json!([{"type": "terminal", "terminalId": "c"}]);
    driver.update("tool_call", json!({"toolCallId": "c", "name": "exec", "status": "in_progress", "content": terminal, "rawInput": {"command": "ls"}}));
    driver.told();
    for piece in ["a\n", "b\n"] {
        let meta = json!({"terminal_output_delta": {"data": piece, "terminal_id": "c"}});
        driver.update(
            "tool_call_update",
            json!({"toolCallId": "c", "_meta": meta}),
        );
    }
    driver.update(
        "tool_call_update",
        json!({"toolCallId": "c", "status": "completed"}),
    );
    assert_eq!(
        driver.told(),
        [
            r#"delta tool.result/c@1.2 @0 "a\n""#,
            r#"delta tool.result/c@1.2 @2 "b\n""#,
            r#"tool.result/c@1.2: exec "a\nb\n" +"#,
        ]
    );
}

#[test]
fn a_child_session_is_a_child_run_that_may_outlive_the_turn() {
    let mut driver = running();
    driver.restart = true;
    let begun = json!({"sessionId": "kid", "title": "look", "capabilities": {"cancel": {}}, "state": {"state": "running"}});
    driver.update("subagent_update", begun);
    driver.update_of(
        "kid",
        "agent_message_chunk",
        json!({"content": {"type": "text", "text": "c"}}),
    );
    driver.ends("end_turn");
    let told = driver.told();
    assert_eq!(
        told[0],
        r#"child kid Running title=Some("look") call=None +"#
    );
    assert_eq!(
        told[told.len() - 2..],
        ["background opened", "END completed"]
    );
    driver.stop_child("kid").expect("it can be stopped");
    assert_eq!(driver.last("session/cancel")["params"]["sessionId"], "kid");
    assert!(driver.stop_child("other").is_err());
    driver.update(
        "subagent_update",
        json!({"sessionId": "kid", "state": {"state": "idle", "stopReason": "cancelled"}}),
    );
    assert_eq!(
        driver.told(),
        [
            r#"child kid Stopped title=Some("look") call=None +"#,
            "background closed"
        ]
    );
    assert!(driver.stop_child("kid").is_err());
}
