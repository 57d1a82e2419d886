//! Messages, reasoning, tool calls and files.

use astrabox_engine::line::Line;
use serde_json::{Value, json};

use super::harness::Driver;

fn piece(driver: &mut Driver, method: &str, item: &str, mut params: Value) {
    params["turnId"] = json!("turn-1");
    params["itemId"] = json!(item);
    driver.own(method, params);
}

#[test]
fn a_message_comes_in_pieces_and_then_whole() {
    let mut driver = Driver::running();
    let item = |text: &str| json!({"type": "agentMessage", "id": "m", "text": text});
    driver.item("item/started", item(""));
    for text in ["ä", "", "b\u{2028}"] {
        piece(
            &mut driver,
            "item/agentMessage/delta",
            "m",
            json!({"delta": text}),
        );
    }
    driver.item("item/completed", item("äb\u{2028}"));
    assert_eq!(
        driver.told(),
        [
            "delta text/m@1.1 @0 \"ä\"",
            "delta text/m@1.1 @2 \"b\\u{2028}\"",
            "text/m@1.1: Text \"äb\\u{2028}\" +",
        ]
    );
}

#[test]
fn the_same_native_id_again_is_another_message() {
    let mut driver = Driver::running();
    for text in ["one", "two"] {
        driver.item("item/started", json!({"type": "agentMessage", "id": "m"}));
        piece(
            &mut driver,
            "item/agentMessage/delta",
            "m",
            json!({"delta": text}),
        );
        driver.item(
            "item/completed",
            json!({"type": "agentMessage", "id": "m", "text": text}),
        );
    }
    let told = driver.told();
    assert_eq!(told[1], "text/m@1.1: Text \"one\" +");
    assert_eq!(told[3], "text/m@1.2: Text \"two\" +");
}

#[test]
fn a_cut_stream_is_said_again_under_another_key_and_told_once() {
    for id in ["m2", "m1"] {
        let mut driver = Driver::running();
        driver.item("item/started", json!({"type": "agentMessage", "id": "m1"}));
        piece(
            &mut driver,
            "item/agentMessage/delta",
            "m1",
            json!({"delta": "one"}),
        );
        let error = json!({"turnId": "turn-1", "willRetry": true, "error": {"message": "again"}});
        driver.own("error", error);
        driver.item("item/started", json!({"type": "agentMessage", "id": id}));
        piece(
            &mut driver,
            "item/agentMessage/delta",
            id,
            json!({"delta": "one"}),
        );
        driver.item(
            "item/completed",
            json!({"type": "agentMessage", "id": id, "text": "one"}),
        );
        driver.complete("completed");
        let told = driver.told();
        let messages: Vec<_> = told
            .iter()
            .filter(|line| line.starts_with("text/"))
            .collect();
        assert_eq!(messages, [&format!("text/{id}@1.3: Text \"one\" +")]);
        assert!(told.contains(&"delta text/m1@1.1 @0 \"one\"".to_owned()));
        assert!(told.contains(&format!("delta text/{id}@1.3 @0 \"one\"")));
    }
}

#[test]
fn reasoning_has_a_summary_and_a_raw_text_each_whole_in_the_end() {
    let mut driver = Driver::running();
    driver.item(
        "item/started",
        json!({"type": "reasoning", "id": "r", "summary": [], "content": []}),
    );
    let summary = |text: &str, part: u64| json!({"delta": text, "summaryIndex": part});
    let raw = |text: &str, part: u64| json!({"delta": text, "contentIndex": part});
    for (text, part) in [("first", 0), (" part", 0), ("second", 1)] {
        piece(
            &mut driver,
            "item/reasoning/summaryTextDelta",
            "r",
            summary(text, part),
        );
    }
    piece(&mut driver, "item/reasoning/textDelta", "r", raw("raw", 0));
    let item = json!({"type": "reasoning", "id": "r", "summary": ["first part", "second"], "content": ["raw"]});
    driver.item("item/completed", item);
    assert_eq!(
        driver.told(),
        [
            "delta reasoning/r@1.1/summary @0 \"first\"",
            "delta reasoning/r@1.1/summary @5 \" part\"",
            "delta reasoning/r@1.1/summary @10 \"\\n\\nsecond\"",
            "delta reasoning/r@1.1/raw @0 \"raw\"",
            "reasoning/r@1.1/summary: Reasoning \"first part\\n\\nsecond\" +",
            "reasoning/r@1.1/raw: Reasoning \"raw\" +",
        ]
    );
    driver.item(
        "item/completed",
        json!({"type": "reasoning", "id": "e", "summary": [], "content": []}),
    );
    assert!(
        driver.told().is_empty(),
        "encrypted reasoning has nothing to tell"
    );
}

#[test]
fn a_call_is_told_at_its_begin_and_its_end_and_between_by_what_it_prints() {
    let mut driver = Driver::running();
    let command = |status: &str| json!({"type": "commandExecution", "id": "c", "command": "ls", "status": status});
    driver.item("item/started", command("inProgress"));
    piece(
        &mut driver,
        "item/commandExecution/outputDelta",
        "c",
        json!({"delta": "a\n"}),
    );
    piece(
        &mut driver,
        "item/commandExecution/outputDelta",
        "c",
        json!({"delta": "b\n"}),
    );
    driver.item("item/completed", command("failed"));
    let mcp = |status: &str| json!({"type": "mcpToolCall", "id": "m", "server": "s", "tool": "t", "arguments": {"n": 1}, "status": status});
    driver.item("item/started", mcp("inProgress"));
    piece(
        &mut driver,
        "item/mcpToolCall/progress",
        "m",
        json!({"message": "half"}),
    );
    driver.item("item/completed", mcp("completed"));
    assert_eq!(
        driver.told(),
        [
            "tool.call/c@1.1: commandExecution {\"command\":\"ls\"} +",
            "delta tool.result/c@1.1 @0 \"a\\n\"",
            "delta tool.result/c@1.1 @2 \"b\\n\"",
            "tool.result/c@1.1: commandExecution {\"status\":\"failed\"} error +",
            "tool.call/m@1.2: mcp__s__t {\"n\":1} +",
            "delta tool.result/m@1.2 @0 \"half\"",
            "tool.result/m@1.2: mcp__s__t {\"status\":\"completed\"} +",
        ]
    );
}

#[test]
fn a_call_whose_begin_was_not_told_has_both_ends_all_the_same() {
    let mut driver = Driver::running();
    driver.item(
        "item/completed",
        json!({"type": "imageView", "id": "i", "path": "/workspace/a.png"}),
    );
    piece(
        &mut driver,
        "item/commandExecution/outputDelta",
        "never",
        json!({"delta": "a"}),
    );
    let told = driver.told();
    assert_eq!(
        told[0],
        "tool.call/i@1.1: imageView {\"path\":\"/workspace/a.png\"} +"
    );
    assert_eq!(
        told[1],
        "tool.result/i@1.1: imageView {\"path\":\"/workspace/a.png\"} +"
    );
    assert!(told[2].contains("unknown_event"), "{told:?}");
}

#[test]
fn files_change_when_a_patch_is_applied_and_only_then() {
    let change =
        |path: &str, kind: Value, diff: &str| json!({"path": path, "kind": kind, "diff": diff});
    let item = |status: &str| {
        json!({"type": "fileChange", "id": "p", "status": status, "changes": [
            change("/workspace/new", json!({"type": "add"}), "x\n"),
            change("/workspace/gone", json!({"type": "delete"}), "y\n"),
            change("/workspace/old", json!({"type": "update", "move_path": null}), "@@ -1 +1 @@\n-a\n+b\n"),
            change("/workspace/from", json!({"type": "update", "move_path": "/workspace/to"}), "@@ -1 +1 @@\n-a\n+b\n\n\nMoved to: /workspace/to"),
        ]})
    };
    for status in ["completed", "failed", "declined"] {
        let mut driver = Driver::running();
        driver.item("item/started", item("inProgress"));
        driver.item("item/completed", item(status));
        let told = driver.told();
        let files: Vec<_> = told
            .iter()
            .filter(|line| line.starts_with("file/"))
            .collect();
        if status != "completed" {
            assert!(files.is_empty(), "{files:?}");
            continue;
        }
        assert_eq!(
            files,
            [
                "file/p@1.1//workspace/new: /workspace/new Added Some(\"@@ -0,0 +1,1 @@\\n+x\\n\")",
                "file/p@1.1//workspace/gone: /workspace/gone Deleted Some(\"@@ -1,1 +0,0 @@\\n-y\\n\")",
                "file/p@1.1//workspace/old: /workspace/old Modified Some(\"@@ -1 +1 @@\\n-a\\n+b\\n\")",
                "file/p@1.1//workspace/from: /workspace/from Deleted None",
                "file/p@1.1//workspace/to: /workspace/to Added Some(\"@@ -1 +1 @@\\n-a\\n+b\\n\")",
            ]
        );
    }
}

#[test]
fn plans_compactions_and_strangers_are_told_each_in_its_way() {
    let mut driver = Driver::running();
    driver.item(
        "item/started",
        json!({"type": "plan", "id": "turn-1-plan", "text": ""}),
    );
    piece(
        &mut driver,
        "item/plan/delta",
        "turn-1-plan",
        json!({"delta": "# do"}),
    );
    driver.item(
        "item/completed",
        json!({"type": "plan", "id": "turn-1-plan", "text": "# do it"}),
    );
    driver.item(
        "item/started",
        json!({"type": "contextCompaction", "id": "k"}),
    );
    driver.item(
        "item/completed",
        json!({"type": "contextCompaction", "id": "k"}),
    );
    driver.item("item/started", json!({"type": "brandNew", "id": "b"}));
    driver.item(
        "item/completed",
        json!({"type": "brandNew", "id": "b", "n": 1}),
    );
    driver.item(
        "item/completed",
        json!({"type": "userMessage", "id": "u", "clientId": null}),
    );
    assert_eq!(
        driver.told(),
        [
            "delta text/turn-1-plan@1.1 @0 \"# do\"",
            "text/turn-1-plan@1.1: Text \"# do it\" +",
            "compacted/k@1.2: ContextCompacted +",
            "diagnostic/@1.3: unknown_item \"brandNew\" +",
        ]
    );
}

#[test]
fn a_line_over_the_cap_degrades_only_what_it_is_about() {
    let mut driver = Driver::running();
    driver.item(
        "item/started",
        json!({"type": "commandExecution", "id": "c", "command": "yes"}),
    );
    driver.item("item/started", json!({"type": "agentMessage", "id": "m"}));
    piece(
        &mut driver,
        "item/agentMessage/delta",
        "m",
        json!({"delta": "long"}),
    );
    driver.told();
    let item = |kind: &str, id: &str| {
        format!(
            r#"{{"method":"item/completed","params":{{"item":{{"type":"{kind}","id":"{id}","x":"xxx"#
        )
    };
    for (head, length) in [
        (item("commandExecution", "c"), 20_000_000),
        (item("agentMessage", "m"), 30_000_000),
        (item("agentMessage", "unknown"), 30_000_000),
    ] {
        driver.line(
            Line::Overlong {
                head: &head,
                length,
            },
            1000,
        );
    }
    let told = driver.told();
    assert_eq!(
        [&told[1], &told[3]],
        [
            "tool.result/c@1.1: commandExecution {\"bytes\":20000000,\"truncated\":true}",
            "text/m@1.2: Text \"long\" truncated",
        ]
    );
    let notes = told.iter().filter(|line| line.contains("line_truncated"));
    assert_eq!(notes.count(), 3, "{told:?}");

    let head = r#"{"method":"item/fileChange/requestApproval","id":7,"params":{"xxx"#;
    driver.line(
        Line::Overlong {
            head,
            length: 20_000_000,
        },
        2000,
    );
    let sent = driver.written();
    assert_eq!(sent[0]["id"], 7);
    assert_eq!(sent[0]["error"]["code"], -32600);

    let head = r#"{"method":"turn/completed","params":{"threadId":"thread-1","turn":{"id":"turn-1","items":[xxx"#;
    driver.line(
        Line::Overlong {
            head,
            length: 20_000_000,
        },
        3000,
    );
    let turn = json!({"id": "turn-1", "status": "completed", "completedAt": 1});
    driver.answer_last("thread/turns/list", &json!({"data": [turn]}));
    assert_eq!(
        driver.told().last().map(String::as_str),
        Some("END completed")
    );
}

#[test]
fn an_answer_over_the_cap_counts_as_refused() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    let head = format!(
        r#"{{"id":"{}","result":{{"turn":xxx"#,
        driver.last("turn/start")
    );
    driver.line(
        Line::Overlong {
            head: &head,
            length: 20_000_000,
        },
        1000,
    );
    assert!(driver.told()[1].starts_with("END failed input_rejected"));
}
