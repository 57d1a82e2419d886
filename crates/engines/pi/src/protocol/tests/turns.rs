//! Turns: begin, queue, stop, end.

use astrabox_engine::sandbox::ExitReason;
use serde_json::json;

use super::harness::{Driver, exit};

#[test]
fn an_input_is_consumed_when_it_is_taken_and_ends_when_the_program_rests() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    assert_eq!(driver.told(), Vec::<String>::new());
    driver.begins();
    driver.says(0, "hel");
    driver.message(&json!([{"type": "text", "text": "hello"}]), "stop");
    // Neither the end of a message nor of a run is the end of the turn.
    driver.value(&json!({"type": "turn_end"}));
    driver.value(&json!({"type": "agent_end", "messages": [], "willRetry": false}));
    driver.settles(false);
    assert_eq!(
        driver.told(),
        [
            "consumed 1",
            "delta text/@1.1 @0 \"hel\"",
            "usage/@1.2: in=15 cached=5 out=2 reasoning=0 +",
            "text/@1.1: Text \"hello\" +",
            "END completed in=15 cached=5 out=2 reasoning=0",
        ]
    );
}

#[test]
fn inputs_wait_for_the_end_of_the_turn_before_them() {
    let mut driver = Driver::running();
    driver.deliver(2).expect("it is taken");
    driver.deliver(3).expect("it is taken");
    assert_eq!(driver.asked(), Vec::<String>::new());
    driver.message(&json!([]), "stop");
    driver.settles(false);
    assert_eq!(driver.asked(), ["prompt"]);
    driver.wrote.push(json!({"type": "prompt", "id": "1-3"}));
    driver.begins();
    driver.message(&json!([]), "stop");
    driver.settles(false);
    let told = driver.told().join("\n");
    assert!(
        told.contains("consumed 2") && !told.contains("consumed 3"),
        "{told}"
    );
}

#[test]
fn a_refused_input_fails_its_turn_and_the_next_is_sent() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.deliver(2).expect("it is taken");
    driver.refuse_last("prompt", "no model");
    assert_eq!(driver.told(), ["END failed input_refused: no model"]);
    assert_eq!(driver.asked(), ["prompt", "prompt"]);
}

#[test]
fn a_command_of_an_extension_is_a_turn_that_ends_with_its_answer() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.asks("n", "notify", json!({"message": "No MCP servers"}));
    driver.answer_last("prompt", &json!({"disposition": "handled"}));
    assert_eq!(
        driver.told(),
        [
            "diagnostic/@1.1: program_notice \"No MCP servers\" +",
            "consumed 1",
            "END completed",
        ]
    );
}

#[test]
fn what_the_program_does_by_itself_is_a_turn_without_an_input() {
    let mut driver = Driver::bound();
    driver.value(&json!({"type": "agent_start"}));
    driver.message(&json!([{"type": "text", "text": "by myself"}]), "stop");
    driver.settles(false);
    let told = driver.told();
    assert!(
        !told.iter().any(|line| line.contains("consumed")),
        "{told:?}"
    );
    assert!(
        told.last()
            .is_some_and(|line| line.starts_with("END completed")),
        "{told:?}"
    );
}

#[test]
fn an_input_that_meets_work_of_the_programs_own_is_not_taken_for_it() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.value(&json!({"type": "agent_start"}));
    driver.settles(false);
    assert_eq!(driver.told(), Vec::<String>::new());
    driver.begins();
    driver.message(&json!([]), "stop");
    driver.settles(false);
    let told = driver.told();
    assert_eq!(told.first().map(String::as_str), Some("consumed 1"));
    assert_eq!(
        told.iter().filter(|line| line.starts_with("END")).count(),
        1
    );
}

#[test]
fn a_turn_is_stopped_as_soon_as_the_program_works_on_it() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.interrupt();
    driver.interrupt();
    assert_eq!(driver.asked(), ["prompt"]);
    driver.wrote.push(json!({"type": "prompt", "id": "1-2"}));
    driver.begins();
    driver.written();
    driver.interrupt();
    driver.says(0, "word");
    driver.message(&json!([{"type": "text", "text": "word"}]), "aborted");
    driver.settles(true);
    let told = driver.told().join("\n");
    assert!(told.contains("Text \"word\" truncated"), "{told}");
    assert!(told.contains("END interrupted"), "{told}");
}

#[test]
fn what_was_heard_of_a_message_that_was_broken_off_stays() {
    let mut driver = Driver::running();
    driver.says(0, "half");
    driver.message(&json!([]), "aborted");
    driver.settles(true);
    let told = driver.told().join("\n");
    assert!(told.contains("Text \"half\" truncated"), "{told}");
}

#[test]
fn an_error_of_the_model_fails_the_turn_and_what_was_said_stays() {
    let mut driver = Driver::running();
    driver.says(0, "half of it");
    let message = json!({"role": "assistant", "content": [{"type": "text", "text": "half of it"}],
        "stopReason": "error", "errorMessage": "terminated"});
    driver.value(&json!({"type": "message_end", "message": message}));
    driver.settles(false);
    assert_eq!(
        driver.told(),
        [
            "delta text/@1.1 @0 \"half of it\"",
            "text/@1.1: Text \"half of it\" truncated",
            "END failed model_error: terminated",
        ]
    );
}

#[test]
fn what_is_said_anew_after_a_retry_is_told_once() {
    let mut driver = Driver::running();
    driver.says(0, "half");
    let message = json!({"role": "assistant", "content": [{"type": "text", "text": "half"}],
        "stopReason": "error", "errorMessage": "terminated"});
    driver.value(&json!({"type": "message_end", "message": message}));
    driver.value(&json!({"type": "agent_end", "messages": [], "willRetry": true}));
    driver.value(&json!({"type": "auto_retry_start", "attempt": 1, "errorMessage": "terminated"}));
    driver.value(&json!({"type": "agent_start"}));
    driver.value(&json!({"type": "message_start", "message": {"role": "assistant"}}));
    driver.message(&json!([{"type": "text", "text": "whole"}]), "stop");
    driver.settles(false);
    let told = driver.told().join("\n");
    assert!(!told.contains("Text \"half\""), "{told}");
    assert!(told.contains("retrying \"terminated\""), "{told}");
    assert!(told.contains("Text \"whole\"") && told.contains("END completed"));
}

#[test]
fn a_rest_without_an_answer_is_no_success() {
    let mut driver = Driver::running();
    driver.settles(false);
    let told = driver.told();
    assert!(told[0].starts_with("END failed no_result"), "{told:?}");
}

#[test]
fn an_exit_ends_the_turn_for_a_reason() {
    for (reason, code, signal, stopped, expected) in [
        (
            ExitReason::Exited,
            Some(0),
            None,
            false,
            "END failed no_result",
        ),
        (
            ExitReason::Exited,
            Some(7),
            None,
            false,
            "END failed engine_exited",
        ),
        (
            ExitReason::Killed,
            None,
            Some(9),
            false,
            "END failed engine_exited",
        ),
        (ExitReason::Killed, None, Some(9), true, "END interrupted"),
    ] {
        let mut driver = Driver::running();
        driver.deliver(2).expect("it is taken");
        driver.says(0, "so far");
        if stopped {
            driver.interrupt();
        }
        driver.written();
        driver.exit(&exit(reason, code, signal), "last words");
        let told = driver.told().join("\n");
        assert!(
            told.contains("Text \"so far\" truncated") && told.contains(expected),
            "{told}"
        );
        assert_eq!(driver.asked(), Vec::<String>::new());
    }
}

#[test]
fn an_exit_outside_of_a_turn_is_told_unless_it_was_wanted() {
    let mut driver = Driver::bound();
    driver.exit(&exit(ExitReason::Exited, Some(1), None), "");
    assert!(driver.told()[0].contains("engine_exited"));
}
