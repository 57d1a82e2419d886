use astrabox_engine::sandbox::ExitReason;
use serde_json::json;

use super::harness::{Driver, exit};

fn ends(told: &[String]) -> Vec<&str> {
    let ends = told.iter().filter_map(|line| line.strip_prefix("END "));
    ends.map(|end| end.split(" in=").next().unwrap_or(end))
        .collect()
}

#[test]
fn a_turn_ends_with_its_result_whatever_the_program_does_then() {
    let mut driver = Driver::running();
    driver.says(0, "hello");
    driver.block(json!({"type": "text", "text": "hello"}));
    driver.result();
    let told = driver.told();
    assert_eq!(ends(&told), ["completed"]);
    // It neither rests nor exits: nothing more is waited for, and the next input is sent.
    driver.deliver(2).expect("it is taken");
    assert_eq!(driver.asked(), ["user"]);
}

#[test]
fn an_input_is_consumed_before_what_it_causes() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    assert!(driver.told().is_empty());
    driver.begins(1);
    driver.says(0, "x");
    let told = driver.told();
    assert!(told[0].starts_with("consumed 1"), "{told:?}");
}

#[test]
fn an_input_that_comes_while_a_turn_runs_waits_for_its_end() {
    let mut driver = Driver::running();
    driver.deliver(2).expect("it is taken");
    assert!(driver.asked().is_empty());
    driver.result();
    assert_eq!(driver.asked(), ["user"]);
}

#[test]
fn an_end_without_a_result_fails_the_turn_and_keeps_its_text() {
    for (reason, code, signal, expected) in [
        (ExitReason::Exited, Some(0), None, "failed no_result"),
        (ExitReason::Exited, Some(1), None, "failed engine_exited"),
        (ExitReason::Exited, None, Some(9), "failed engine_exited"),
        (ExitReason::Killed, None, Some(9), "failed engine_exited"),
        (
            ExitReason::MemoryLimit,
            None,
            Some(9),
            "failed memory_limit",
        ),
    ] {
        let mut driver = Driver::running();
        driver.says(0, "half a sen");
        driver.exit(&exit(reason, code, signal), "oops");
        let told = driver.told();
        assert!(
            told.iter()
                .any(|line| line.contains("\"half a sen\" truncated")),
            "{told:?}"
        );
        assert!(ends(&told)[0].starts_with(expected), "{told:?}");
    }
}

#[test]
fn a_program_that_rests_without_a_result_has_ended_the_turn() {
    let mut driver = Driver::running();
    driver.system("session_state_changed", json!({"state": "idle"}));
    assert!(ends(&driver.told())[0].starts_with("failed no_result"));
    // The rest after the turn before is no word on an input that is still to be taken.
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.system("session_state_changed", json!({"state": "idle"}));
    assert!(driver.told().is_empty());
}

#[test]
fn an_interrupt_waits_until_the_input_is_taken() {
    let mut driver = Driver::bound();
    driver.deliver(1).expect("it is taken");
    driver.interrupt();
    assert_eq!(driver.asked(), ["user"]);
    driver.begins(1);
    driver.interrupt();
    assert_eq!(driver.asked(), ["interrupt"]);
    driver.value(&json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming",
    }));
    assert_eq!(ends(&driver.told()), ["interrupted"]);
}

#[test]
fn an_interrupt_that_came_too_early_is_repeated() {
    let mut driver = Driver::running();
    driver.interrupt();
    driver.answer_last("interrupt", &json!({"still_queued": ["x"]}));
    assert_eq!(driver.asked(), ["interrupt", "interrupt"]);
}

#[test]
fn a_reply_of_the_programs_own_is_a_turn_without_input() {
    let mut driver = Driver::bound();
    driver.system("init", json!({"tools": []}));
    driver.says(0, "noted");
    driver.block(json!({"type": "text", "text": "noted"}));
    let own =
        json!({"type": "result", "subtype": "success", "origin": {"kind": "task-notification"}});
    driver.value(&own);
    assert_eq!(ends(&driver.told()), ["completed"]);
    // One that comes before an input is taken does not end that input's turn.
    driver.deliver(1).expect("it is taken");
    driver.says(0, "noted again");
    driver.value(&own);
    let told = driver.told();
    assert!(ends(&told).is_empty(), "{told:?}");
    assert!(told.contains(&"response completed".to_owned()), "{told:?}");
    driver.begins(1);
    driver.result();
    assert_eq!(ends(&driver.told()), ["completed"]);
}

#[test]
fn what_comes_after_the_end_opens_no_turn() {
    let mut driver = Driver::running();
    driver.call("t1", "Bash", json!({}));
    driver.result();
    driver.told();
    driver.block(json!({"type": "text", "text": "late"}));
    driver.returns("t1", json!("late"));
    driver.result();
    let told = driver.told();
    assert!(ends(&told).is_empty(), "{told:?}");
    assert_eq!(
        told.iter()
            .filter(|line| line.contains("late_event"))
            .count(),
        2,
        "{told:?}"
    );
    let results = told
        .iter()
        .filter(|line| line.starts_with("tool.result/t1"));
    assert_eq!(results.count(), 1, "a call is answered whenever: {told:?}");
}

#[test]
fn the_programs_word_on_an_input_ends_its_turn_where_the_result_is_missing() {
    for (state, end) in [("completed", "completed"), ("cancelled", "interrupted")] {
        let mut driver = Driver::running();
        driver.lifecycle(1, state);
        assert_eq!(ends(&driver.told()), [end]);
    }
}
