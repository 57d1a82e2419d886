//! Begin, stop and end of turns.

use astrabox_engine::line::{Line, LineProtocol};
use astrabox_engine::sandbox::ExitReason;
use astrabox_engine::{EmissionKind, EngineInput};
use astrabox_types::{ContentPart, ImageMediaType};
use serde_json::{Value, json};

use super::harness::{Driver, THREAD, exit, input_id};

fn started(driver: &mut Driver, turn: &str) {
    driver.own("turn/started", json!({"turn": {"id": turn}}));
}

fn completed(driver: &mut Driver, turn: &str, status: &str) {
    driver.own(
        "turn/completed",
        json!({"turn": {"id": turn, "status": status}}),
    );
}

fn status(driver: &mut Driver, kind: &str) {
    driver.own("thread/status/changed", json!({"status": {"type": kind}}));
}

fn ends(driver: &Driver) -> usize {
    let is_end = |kind: &&EmissionKind| matches!(kind, EmissionKind::Terminal(_));
    driver.said.iter().filter(is_end).count()
}

#[test]
fn an_input_is_sent_with_the_boundary_and_told_as_taken_by_the_answer() {
    let mut driver = Driver::bound();
    let input = EngineInput {
        input_id: input_id(5),
        content: vec![
            ContentPart::text("look"),
            ContentPart::Image {
                media_type: ImageMediaType::Png,
                data: "AAAA".to_owned(),
            },
        ],
        notice: Some("the last turn ended abnormally".to_owned()),
    };
    driver.deliver_input(&input).expect("it is taken");
    assert!(driver.told().is_empty(), "nothing is taken yet");
    let sent = driver.wrote.last().expect("it is sent");
    assert_eq!(
        sent["params"],
        json!({
            "threadId": THREAD,
            "clientUserMessageId": input_id(5),
            "input": [
                {"type": "text", "text": "the last turn ended abnormally"},
                {"type": "text", "text": "look"},
                {"type": "image", "url": "data:image/png;base64,AAAA"},
            ],
            "approvalPolicy": "on-request",
            "sandboxPolicy": {"type": "externalSandbox", "networkAccess": "enabled"},
        })
    );
    driver.answer_last("turn/start", &json!({"turn": {"id": "t"}}));
    started(&mut driver, "t");
    completed(&mut driver, "t", "completed");
    assert_eq!(driver.told(), ["consumed 5", "END completed"]);
}

#[test]
fn another_mode_holds_from_the_next_turn_on() {
    let mut driver = Driver::bound();
    let effects = &mut astrabox_engine::line::Effects::default();
    driver
        .protocol
        .set_mode("untrusted", effects)
        .expect("it has it");
    assert!(
        driver
            .protocol
            .set_mode("workspace-write", effects)
            .is_err(),
        "not at this level"
    );
    driver.deliver(1).expect("it is taken");
    assert_eq!(driver.wrote[0]["params"]["approvalPolicy"], "untrusted");
}

#[test]
fn the_input_is_told_as_taken_before_anything_that_it_caused() {
    let answer = |driver: &mut Driver| {
        driver.answer_last("turn/start", &json!({"turn": {"id": "turn-1"}}));
    };
    let begin = |driver: &mut Driver| started(driver, "turn-1");
    let seen = |driver: &mut Driver| {
        let item = json!({"type": "userMessage", "id": "u", "clientId": input_id(1)});
        driver.item("item/started", item);
    };
    let output = |driver: &mut Driver| {
        let delta = json!({"turnId": "turn-1", "itemId": "m", "delta": "hi"});
        driver.own("item/agentMessage/delta", delta);
    };
    type Act<'a> = &'a dyn Fn(&mut Driver);
    let orders: [[Act<'_>; 4]; 4] = [
        [&answer, &begin, &seen, &output],
        [&begin, &answer, &seen, &output],
        [&seen, &output, &begin, &answer],
        [&output, &begin, &answer, &seen],
    ];
    for (at, order) in orders.into_iter().enumerate() {
        let mut driver = Driver::bound();
        driver.deliver(1).expect("it is taken");
        for act in order {
            act(&mut driver);
        }
        driver.complete("completed");
        let expected = ["consumed 1", "delta text/m@1.1 @0 \"hi\"", "END completed"];
        assert_eq!(driver.told(), expected, "order {at}");
    }
}

#[test]
fn a_refused_input_ends_its_turn_and_the_next_one_is_sent() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.deliver(2).expect("it waits");
    driver.refuse_last("turn/start", "thread not found");
    assert_eq!(
        driver.told(),
        ["END failed input_rejected: thread not found"]
    );
    assert_eq!(driver.asked(), ["turn/start", "turn/start"]);
}

#[test]
fn an_input_that_comes_during_a_turn_waits_for_its_end() {
    let mut driver = Driver::running();
    driver.deliver(2).expect("it waits");
    driver.deliver(3).expect("it waits");
    assert!(driver.asked().is_empty(), "turn/start would join the turn");
    driver.complete("completed");
    let sent = driver.written();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["params"]["clientUserMessageId"], json!(input_id(2)));
    assert_eq!(driver.told(), ["END completed"]);
}

#[test]
fn a_turn_that_the_program_begins_by_itself_has_no_input() {
    let mut driver = Driver::bound();
    started(&mut driver, "own");
    let item = json!({"type": "agentMessage", "id": "m", "text": "done in the background"});
    driver.own("item/completed", json!({"turnId": "own", "item": item}));
    driver.deliver(1).expect("it waits");
    completed(&mut driver, "own", "completed");
    driver.answer_last("turn/start", &json!({"turn": {"id": "t"}}));
    completed(&mut driver, "t", "completed");
    assert_eq!(
        driver.told(),
        [
            "text/m@1.1: Text \"done in the background\" +",
            "END completed",
            "consumed 1",
            "END completed",
        ]
    );
}

#[test]
fn an_input_that_the_program_joins_with_a_turn_of_its_own_is_taken_there() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    started(&mut driver, "own");
    driver.answer_last("turn/start", &json!({"turn": {"id": "own"}}));
    completed(&mut driver, "own", "completed");
    assert_eq!(driver.told(), ["consumed 1", "END completed"]);
}

#[test]
fn the_outcome_is_the_programs_word() {
    let error = json!({"message": "too long", "codexErrorInfo": "contextWindowExceeded"});
    for (status, error, expected) in [
        ("completed", Value::Null, "END completed"),
        ("interrupted", Value::Null, "END interrupted"),
        (
            "failed",
            error,
            "END failed model_error: too long (contextWindowExceeded)",
        ),
        ("failed", Value::Null, "END failed model_error:"),
        (
            "exploded",
            Value::Null,
            "END failed unknown_outcome: the turn ended with exploded",
        ),
    ] {
        let mut driver = Driver::running();
        let turn = json!({"id": "turn-1", "status": status, "error": error});
        driver.own("turn/completed", json!({"turn": turn}));
        assert_eq!(driver.told(), [expected]);
    }
}

#[test]
fn an_error_that_is_not_retried_is_the_reason_of_the_failure() {
    let mut driver = Driver::running();
    let error = |text: &str, retry: bool| json!({"turnId": "turn-1", "willRetry": retry, "error": {"message": text}});
    driver.own("error", error("Reconnecting... 1/3", true));
    driver.own("error", error("gave up", false));
    driver.complete("failed");
    assert_eq!(
        driver.told(),
        [
            "diagnostic/@1.1: retrying \"Reconnecting... 1/3\" +",
            "END failed model_error: gave up",
        ]
    );
}

#[test]
fn an_interrupt_is_sent_as_soon_as_the_turn_can_be_stopped() {
    let mut driver = Driver::bound();
    driver.interrupt();
    assert!(driver.asked().is_empty(), "there is nothing to stop");
    driver.deliver(1).expect("it is taken");
    driver.interrupt();
    driver.interrupt();
    assert_eq!(driver.asked(), ["turn/start"], "it has no turn yet");
    let id = "1-3";
    driver.value(&json!({"id": id, "result": {"turn": {"id": "turn-1"}}}));
    assert!(
        driver.asked().is_empty(),
        "it would be answered with an error"
    );
    started(&mut driver, "turn-1");
    let sent = driver.written();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["method"], "turn/interrupt");
    assert_eq!(
        sent[0]["params"],
        json!({"threadId": THREAD, "turnId": "turn-1"})
    );
    driver.interrupt();
    assert!(driver.asked().is_empty(), "once is enough");
    driver.value(&json!({"id": sent[0]["id"], "result": {}}));
    driver.complete("interrupted");
    assert_eq!(driver.told(), ["consumed 1", "END interrupted"]);
}

#[test]
fn a_refused_interrupt_is_sent_again_while_the_turn_runs() {
    let mut driver = Driver::running();
    driver.interrupt();
    driver.refuse_last("turn/interrupt", "no active turn to interrupt");
    assert_eq!(driver.asked(), ["turn/interrupt"]);
    driver.own("warning", json!({"message": "still here"}));
    assert_eq!(driver.asked(), ["turn/interrupt"]);
    driver.complete("interrupted");
    assert_eq!(ends(&driver), 1);
}

#[test]
fn what_was_said_before_an_interrupt_is_kept_and_marked() {
    for (status, kept) in [
        ("interrupted", true),
        ("failed", true),
        ("completed", false),
    ] {
        let mut driver = Driver::running();
        driver.item(
            "item/started",
            json!({"type": "agentMessage", "id": "m", "text": ""}),
        );
        driver.own(
            "item/agentMessage/delta",
            json!({"turnId": "turn-1", "itemId": "m", "delta": "one "}),
        );
        driver.own(
            "item/agentMessage/delta",
            json!({"turnId": "turn-1", "itemId": "m", "delta": "two"}),
        );
        driver.said.clear();
        driver.complete(status);
        let told = driver.told();
        let message = "text/m@1.1: Text \"one two\" truncated".to_owned();
        assert_eq!(told.contains(&message), kept, "{status}: {told:?}");
    }
}

#[test]
fn an_interrupted_turns_commands_are_stopped_and_others_left_alone() {
    let mut driver = Driver::running();
    let command = |id: &str| json!({"type": "commandExecution", "id": id, "command": "sleep 60"});
    driver.item("item/started", command("before"));
    driver.complete("completed");
    driver.deliver(2).expect("it is taken");
    driver.answer_last("turn/start", &json!({"turn": {"id": "turn-2"}}));
    started(&mut driver, "turn-2");
    driver.own(
        "item/started",
        json!({"turnId": "turn-2", "item": command("during")}),
    );
    driver.own(
        "item/started",
        json!({"turnId": "turn-2", "item": command("never ran")}),
    );
    driver.interrupt();
    completed(&mut driver, "turn-2", "interrupted");
    driver.written();
    let told = driver.told();
    assert!(told.contains(&"background opened".to_owned()), "{told:?}");

    driver.value(&json!({"id": "1-7", "result": {"data": [
        {"itemId": "before", "processId": "11"},
        {"itemId": "during", "processId": "12"},
    ], "nextCursor": null}}));
    let sent = driver.written();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0]["method"], "thread/backgroundTerminals/terminate");
    assert_eq!(
        sent[0]["params"],
        json!({"threadId": THREAD, "processId": "12"})
    );

    let ended = |id: &str, turn: &str| json!({"turnId": turn, "item": {"type": "commandExecution", "id": id, "status": "failed"}});
    driver.own("item/completed", ended("during", "turn-2"));
    driver.own("item/completed", ended("before", "turn-1"));
    driver.own("item/completed", ended("never ran", "turn-2"));
    let told = driver.told();
    assert!(told[0].starts_with("tool.result/during@1.2:"), "{told:?}");
    assert!(told[1].starts_with("tool.result/before@1.1:"), "{told:?}");
    assert_eq!(told[2], "background closed");
    assert!(told[3].contains("late_event"), "{told:?}");
}

#[test]
fn a_turn_whose_end_is_missing_is_looked_up_when_the_thread_rests() {
    let turn =
        |status: &str, at: Value| json!({"id": "turn-1", "status": status, "completedAt": at});
    let list = |turn: Value| json!({"data": [turn], "nextCursor": null});
    for (answer, ended) in [
        (list(turn("completed", json!(17))), Some("END completed")),
        (
            list(turn("interrupted", json!(17))),
            Some("END interrupted"),
        ),
        (list(turn("inProgress", Value::Null)), None),
        // A status without an end is no verdict: such turns were seen to go on.
        (list(turn("interrupted", Value::Null)), None),
        (
            list(json!({"id": "turn-0", "status": "completed", "completedAt": 1})),
            None,
        ),
        (json!({"data": []}), None),
        (json!(null), None),
    ] {
        let mut driver = Driver::running();
        status(&mut driver, "idle");
        status(&mut driver, "idle");
        assert_eq!(driver.wrote.len(), 1, "it is asked once");
        driver.answer_last("thread/turns/list", &answer);
        let told = driver.told();
        match ended {
            Some(end) => assert_eq!(told, [end], "{answer}"),
            None => assert!(told.is_empty(), "{told:?}"),
        }
        driver.complete("completed");
        let told = driver.told();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].contains("late_event"), ended.is_some(), "{told:?}");
    }
}

#[test]
fn a_thread_that_goes_on_takes_the_question_back() {
    let mut driver = Driver::running();
    status(&mut driver, "systemError");
    status(&mut driver, "active");
    let turn = json!({"id": "turn-1", "status": "interrupted", "completedAt": 1});
    driver.answer_last("thread/turns/list", &json!({"data": [turn]}));
    assert!(driver.told().is_empty());
    driver.complete("completed");
    assert_eq!(driver.told(), ["END completed"]);
}

#[test]
fn a_turn_that_did_not_begin_is_not_looked_up() {
    let mut driver = Driver::bound();
    status(&mut driver, "idle");
    driver.deliver(1).expect("it is taken");
    status(&mut driver, "idle");
    assert_eq!(driver.asked(), ["turn/start"]);
}

#[test]
fn another_turn_ends_the_one_that_was_forgotten() {
    let mut driver = Driver::running();
    started(&mut driver, "turn-2");
    completed(&mut driver, "turn-2", "completed");
    let told = driver.told();
    assert!(told[0].starts_with("END failed no_result"), "{told:?}");
    assert_eq!(told[1], "END completed");
}

#[test]
fn what_comes_after_the_end_is_kept_and_opens_nothing() {
    let mut driver = Driver::running();
    driver.complete("completed");
    driver.told();
    driver.complete("completed");
    started(&mut driver, "turn-1");
    driver.item("item/started", json!({"type": "agentMessage", "id": "m"}));
    driver.own(
        "item/agentMessage/delta",
        json!({"turnId": "turn-1", "itemId": "m", "delta": "x"}),
    );
    driver.item(
        "item/completed",
        json!({"type": "agentMessage", "id": "m", "text": "x"}),
    );
    let told = driver.told();
    assert_eq!(told.len(), 5);
    assert!(
        told.iter().all(|line| line.contains("late_event")),
        "{told:?}"
    );
}

#[test]
fn an_exit_ends_the_open_turn_with_its_reason() {
    for (reason, code, signal, stop, expected) in [
        (
            ExitReason::Exited,
            Some(1),
            None,
            false,
            "END failed engine_exited: the program ended (exited): exit code 1; standard error: boom",
        ),
        (
            ExitReason::Killed,
            None,
            Some(9),
            false,
            "END failed engine_exited: the program ended (killed): signal 9; standard error: boom",
        ),
        (ExitReason::Killed, None, Some(9), true, "END interrupted"),
        (
            ExitReason::MemoryLimit,
            None,
            Some(9),
            true,
            "END failed memory_limit: the program ended (memory_limit): signal 9; standard error: boom",
        ),
        (
            ExitReason::PidsLimit,
            Some(1),
            None,
            false,
            "END failed pids_limit: the program ended (pids_limit): exit code 1; standard error: boom",
        ),
        (
            ExitReason::DiskLimit,
            Some(1),
            None,
            false,
            "END failed disk_limit: the program ended (disk_limit): exit code 1; standard error: boom",
        ),
        (
            ExitReason::WallTime,
            None,
            Some(9),
            false,
            "END failed wall_time: the program ended (wall_time): signal 9; standard error: boom",
        ),
        (
            ExitReason::SandboxDied,
            None,
            None,
            false,
            "END failed sandbox_died: the program ended (sandbox_died): no exit code; standard error: boom",
        ),
    ] {
        let mut driver = Driver::running();
        if stop {
            driver.interrupt();
        }
        driver.exit(&exit(reason, code, signal), "boom");
        assert_eq!(driver.told(), [expected]);
        driver.exit(&exit(reason, code, signal), "boom");
        assert!(driver.told().is_empty(), "it ends once");
        assert!(driver.deliver(9).is_err());
    }
}

#[test]
fn an_exit_before_the_answer_to_an_input_fails_it_untaken() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.deliver(2).expect("it waits");
    driver.exit(&exit(ExitReason::Exited, Some(0), None), "");
    assert_eq!(
        driver.told(),
        ["END failed no_result: the program ended (exited): exit code 0"]
    );
}

#[test]
fn an_exit_without_a_turn_is_noted_unless_it_was_wanted() {
    for close in [false, true] {
        let mut driver = Driver::bound();
        if close {
            driver
                .protocol
                .close(&mut astrabox_engine::line::Effects::default());
        }
        driver.exit(&exit(ExitReason::Exited, Some(0), None), "");
        assert_eq!(driver.told().len(), usize::from(!close));
    }
}

fn used(total: [u64; 2], last: [u64; 2]) -> Value {
    let count = |[input, output]: [u64; 2]| json!({"inputTokens": input, "outputTokens": output});
    json!({"turnId": "turn-1", "tokenUsage": {"total": count(total), "last": count(last)}})
}

#[test]
fn usage_is_told_when_it_grows_and_a_turns_own_is_the_difference() {
    let mut driver = Driver::running();
    for total in [[10, 1], [10, 1], [30, 4]] {
        driver.own("thread/tokenUsage/updated", used(total, [20, 3]));
    }
    driver.complete("completed");
    assert_eq!(
        driver.told(),
        [
            "usage/@1.1: in=10 cached=0 out=1 reasoning=0 +",
            "usage/@1.2: in=30 cached=0 out=4 reasoning=0 +",
            "END completed in=30 cached=0 out=4 reasoning=0",
        ]
    );
}

#[test]
fn a_resumed_conversations_past_is_not_the_next_turns_use() {
    for told_before in [true, false] {
        let mut driver = Driver::new();
        driver.begin(Some(THREAD));
        driver.answer_last("initialize", &json!({}));
        driver.answer_last("thread/resume", &json!({"thread": {"id": THREAD}}));
        if told_before {
            driver.own("thread/tokenUsage/updated", used([100, 10], [50, 5]));
        }
        assert!(driver.told().is_empty());
        driver.deliver(1).expect("it is taken");
        driver.answer_last("turn/start", &json!({"turn": {"id": "turn-1"}}));
        started(&mut driver, "turn-1");
        driver.own("thread/tokenUsage/updated", used([120, 11], [20, 1]));
        driver.complete("completed");
        let told = driver.told();
        assert_eq!(
            told[2], "END completed in=20 cached=0 out=1 reasoning=0",
            "{told_before}"
        );
    }
}

#[test]
fn lines_that_are_no_messages_are_kept_and_change_nothing() {
    let mut driver = Driver::running();
    driver.text("thread 'main' panicked");
    driver.text("");
    driver.text("   ");
    driver.line(Line::Garbled("\u{fffd}\u{fffd}"), 500);
    driver.text(r#"{"method":"brand/new","params":{"n":1.0}}"#);
    driver.text(r#"{"id":"1-99","result":{}}"#);
    driver.text(&"x".repeat(100_000));
    let kept: Vec<_> = driver
        .said
        .iter()
        .filter_map(|kind| match kind {
            EmissionKind::Diagnostic(draft) => {
                Some(draft.native.as_ref().map_or(0, |it| it.text().len()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(kept, [24, 8, 9, 0, (64 << 10) + 2]);
    assert_eq!(
        driver.told(),
        [
            "diagnostic/@1.1: garbage_line \"a line of 22 bytes is not a message\" +",
            "diagnostic/@1.2: garbage_line \"a line of 6 bytes is not UTF-8\" +",
            "diagnostic/@1.3: unknown_event \"brand/new\" +",
            "diagnostic/@1.4: unknown_answer \"an answer to `1-99`, which was not asked\"",
            "diagnostic/@1.5: garbage_line \"a line of 100000 bytes is not a message\" +",
        ]
    );
    driver.complete("completed");
    assert_eq!(driver.told(), ["END completed"]);
}

#[test]
fn warnings_are_kept_and_noise_is_left_out() {
    let mut driver = Driver::bound();
    driver.own("warning", json!({"message": "w"}));
    driver.value(&json!({"method": "configWarning", "params": {"summary": "c", "details": "d"}}));
    driver.own(
        "mcpServer/startupStatus/updated",
        json!({"name": "s", "error": "no such file"}),
    );
    driver.own(
        "mcpServer/startupStatus/updated",
        json!({"name": "s", "error": null}),
    );
    driver.value(&json!({"method": "account/rateLimits/updated", "params": {}}));
    driver.own(
        "turn/diff/updated",
        json!({"turnId": "turn-1", "diff": "x"}),
    );
    assert_eq!(
        driver.told(),
        [
            "diagnostic/@1.1: warning \"w\" +",
            "diagnostic/@1.2: config_warning \"c: d\" +",
            "diagnostic/@1.3: mcp_server_failed \"no such file\" +",
        ]
    );
}
