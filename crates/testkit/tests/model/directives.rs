//! Each directive on each wire, streamed and not.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Dialogue, SOON, Said, WIRES, model};

/// What one round of a prompt does, on every wire, streamed and not.
async fn check(prompt: &str, expected: impl Fn(&Said)) {
    let model = model().await;
    for wire in WIRES {
        for stream in [true, false] {
            let got = Dialogue::new(wire, stream).user(prompt).ask(&model).await;
            let said = got.said(wire);
            assert_eq!(got.status, 200, "{wire:?} {stream}: {said:?}");
            expected(&said);
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn plain_text_is_echoed() {
    check("hello\nyou", |said| {
        assert_eq!(said.text, "echo: hello\nyou")
    })
    .await;
}

#[tokio::test]
async fn say_says_and_several_are_one_message() {
    check("SAY: one\nignored\nSAY: two\\nthree", |said| {
        assert_eq!(said.text, "one\ntwo\nthree");
    })
    .await;
}

#[tokio::test]
async fn think_reasons_before_the_answer() {
    check("THINK: so it is\nhello", |said| {
        assert_eq!(said.thought, "so it is");
        assert_eq!(said.text, "echo: hello");
    })
    .await;
}

#[tokio::test]
async fn run_calls_the_shell_tool() {
    check("RUN: ls -l | wc", |said| {
        assert_eq!(said.calls[0].1, "bash");
        assert_eq!(said.calls[0].2, json!({"command": "ls -l | wc"}));
        assert_eq!(said.text, "");
    })
    .await;
}

#[tokio::test]
async fn write_calls_the_file_tool() {
    check("WRITE a/b.txt x\\ny", |said| {
        assert_eq!(said.calls[0].1, "write");
        assert_eq!(
            said.calls[0].2,
            json!({"path": "a/b.txt", "content": "x\ny"})
        );
    })
    .await;
}

#[tokio::test]
async fn tool_calls_any_tool_and_says_which_there_are() {
    check(r#"TOOL: bash {"command": "id", "n": 1}"#, |said| {
        assert_eq!(said.calls[0].2, json!({"command": "id", "n": 1}));
    })
    .await;
    check("TOOL: nope {}", |said| {
        assert_eq!(
            said.text,
            "the request offers no tool `nope`; offered: bash, write, subagent"
        );
    })
    .await;
}

#[tokio::test]
async fn spawn_calls_the_sub_agent_tool() {
    check("SPAWN: SAY: hi", |said| {
        assert_eq!(said.calls[0].1, "subagent");
        assert_eq!(
            said.calls[0].2,
            json!({"description": "scripted", "prompt": "SAY: hi"})
        );
    })
    .await;
}

#[tokio::test]
async fn wait_is_left_out_where_no_tool_waits() {
    check("WAIT\nSAY: on", |said| {
        assert_eq!(said.text, "on");
        assert_eq!(said.calls, []);
    })
    .await;
}

#[tokio::test]
async fn usage_is_what_the_prompt_says() {
    check("USAGE: 100 20 60\nhi", |said| {
        assert_eq!(said.usage, Some((100, 20, 60)));
    })
    .await;
}

#[tokio::test]
async fn an_unreadable_directive_is_answered_with_what_is_wrong() {
    check("DELTAS: many", |said| {
        assert_eq!(
            said.text,
            "unreadable directive DELTAS: many: `many` is no number"
        );
    })
    .await;
}

#[tokio::test]
async fn deltas_are_counted() {
    let model = model().await;
    for wire in WIRES {
        for (prompt, text, deltas) in [
            ("DELTAS: 3", "d1 d2 d3", 3),
            ("DELTAS: 7\nSAY: abcdefghijk", "abcdefghijk", 7),
            ("DELTAS: 1\nhello you", "echo: hello you", 1),
            ("DELTAS: 99\nSAY: abc", "abc", 3),
        ] {
            let said = Dialogue::new(wire, true).user(prompt).ask(&model).await;
            let said = said.said(wire);
            assert_eq!(
                (said.text.as_str(), said.deltas),
                (text, deltas),
                "{wire:?}"
            );
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn slow_waits_between_deltas() {
    let model = model().await;
    for wire in WIRES {
        let start = Instant::now();
        let got = Dialogue::new(wire, true)
            .user("SLOW: 15\nDELTAS: 5")
            .ask(&model)
            .await;
        assert_eq!(got.said(wire).deltas, 5);
        assert!(start.elapsed() >= Duration::from_millis(4 * 15));
    }
    model.shutdown().await;
}

#[tokio::test]
async fn directives_go_on_over_the_rounds_of_a_turn() {
    let model = model().await;
    for wire in WIRES {
        let mut dialogue = Dialogue::new(wire, true)
            .user("SAY: first\nRUN: a\nSAY: second\nRUN: b\nRESULT\nSAY: third");
        let mut heard = Vec::new();
        for output in ["out a", "out b", ""] {
            let said = dialogue.ask(&model).await.said(wire);
            dialogue = dialogue.answered(&said, output);
            let command = said.calls.first().map(|call| call.2["command"].clone());
            heard.push((said.text, command));
        }
        assert_eq!(
            heard,
            [
                ("first".to_owned(), Some(json!("a"))),
                ("second".to_owned(), Some(json!("b"))),
                ("tool said: <<out b>>\nthird".to_owned(), None),
            ],
            "{wire:?}"
        );
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_ends_on_a_tool_result_repeats_its_beginning() {
    let model = model().await;
    let long = "x".repeat(1000);
    let wrapped = "Chunk ID: 1\nWall time: 0.1 seconds\nOutput:\nhi\n";
    for (output, expected) in [
        ("plain\n", "plain"),
        (wrapped, "hi"),
        ("made\n\n<system-reminder>x</system-reminder>", "made"),
        (r#"{"output": "from json", "exit_code": 0}"#, "from json"),
        ("a\nOutput:\nb", "a\nOutput:\nb"),
        (long.as_str(), &long[..400]),
    ] {
        for wire in WIRES {
            let dialogue = Dialogue::new(wire, true).user("RUN: it");
            let said = dialogue.ask(&model).await.said(wire);
            let got = dialogue.answered(&said, output).ask(&model).await;
            assert_eq!(got.said(wire).text, format!("tool said: <<{expected}>>"));
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_the_program_starts_by_itself_is_noted() {
    let model = model().await;
    for wire in WIRES {
        let dialogue = Dialogue::new(wire, true).user("SAY: hi");
        let said = dialogue.ask(&model).await.said(wire);
        let news = "<task-notification>done</task-notification>";
        let got = dialogue.answered(&said, "").user(news).ask(&model).await;
        assert_eq!(got.said(wire).text, "noted");
    }
    model.shutdown().await;
}

#[tokio::test]
async fn recall_lists_what_the_user_said_before() {
    let model = model().await;
    for wire in WIRES {
        let mut dialogue = Dialogue::new(wire, true);
        for prompt in [
            "my name is \"Ada\"",
            "<environment_context>x</environment_context>",
            "RUN: id",
        ] {
            dialogue = dialogue.user(prompt);
            let said = dialogue.ask(&model).await.said(wire);
            dialogue = dialogue.answered(&said, "uid=0");
        }
        let said = dialogue.user("RECALL").ask(&model).await.said(wire);
        assert_eq!(said.text, r#"you said: ["my name is \"Ada\"","RUN: id"]"#);
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_hold_waits_where_it_stands_until_it_is_released() {
    for wire in WIRES {
        let model = model().await;
        let dialogue = Dialogue::new(wire, true).user("SAY: before\nHOLD: here\nSAY: after");
        let mut open = dialogue.open(&model).await;
        open.read_until("before").await;
        model.wait_until_held("here", SOON).await.expect("held");
        assert_eq!(model.held(), ["here"]);
        model.release("here");
        let got = open.rest().await;
        assert_eq!(got.said(wire).text, "before\nafter");

        // A name that was released once stays open.
        assert_eq!(dialogue.ask(&model).await.said(wire).text, "before\nafter");
        assert_eq!(model.held(), [""; 0]);
        model.shutdown().await;
    }
}

#[tokio::test]
async fn a_hold_before_a_call_comes_before_the_call() {
    let model = model().await;
    let dialogue = Dialogue::new(WIRES[1], true).user("HOLD: x\nRUN: ls");
    let mut open = dialogue.open(&model).await;
    open.read_until("response.in_progress").await;
    model.wait_until_held("x", SOON).await.expect("held");
    model.release("x");
    let got = open.rest().await;
    assert_eq!(got.said(WIRES[1]).calls.len(), 1);
    model.shutdown().await;
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_hold_up() {
    for wire in WIRES {
        let model = model().await;
        let mut open = Dialogue::new(wire, true)
            .user("SAY: a\nHOLD: x")
            .open(&model)
            .await;
        open.read_until("a").await;
        model.wait_until_held("x", SOON).await.expect("held");
        drop(open);
        model.wait_until_left("x", SOON).await.expect("left");
        model.shutdown().await;
    }
}

#[tokio::test]
async fn a_stall_sends_one_delta_and_then_nothing_until_it_is_released() {
    for wire in WIRES {
        let model = model().await;
        let mut open = Dialogue::new(wire, true).user("STALL").open(&model).await;
        open.read_until("partial").await;
        model.wait_until_held("stall", SOON).await.expect("stalled");
        model.release_stalls();
        let said = open.rest().await.said(wire);
        assert_eq!(said.text, "partial\nok");
        model.shutdown().await;
    }
}
