use astrabox_engine::sandbox::ExitReason;
use astrabox_types::{ContentPart, ImageMediaType};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Plain, bound, initialized, opened, running, settings};
use crate::harness::{Driver, exit, input};
use crate::{Dialect, UsageScope};

#[test]
fn an_input_is_a_prompt_and_its_answer_the_end() {
    let mut driver = bound();
    driver.restart = true;
    let mut said = input(1, "look");
    said.notice = Some("the last turn was cut".to_owned());
    said.content.push(ContentPart::Image {
        media_type: ImageMediaType::Png,
        data: "AAAA".to_owned(),
    });
    driver.deliver_input(&said).expect("it is taken");
    let sent = driver.last("session/prompt");
    assert_eq!(sent["params"]["sessionId"], "sess-1");
    assert_eq!(
        sent["params"]["prompt"],
        json!([
            {"type": "text", "text": "the last turn was cut"},
            {"type": "text", "text": "look"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        ])
    );
    driver.says("hi");
    driver.ends("end_turn");
    assert_eq!(
        driver.told(),
        [
            "consumed 1",
            r#"delta text/@1.1 @0 "hi""#,
            r#"text/@1.1: Text "hi""#,
            "END completed",
        ]
    );
}

#[test]
fn a_picture_for_a_program_that_takes_none_is_refused() {
    let mut answer = initialized();
    answer["agentCapabilities"] = json!({});
    let mut driver = Driver::bound(settings(), Plain, &answer, &opened());
    let mut said = input(1, "look");
    said.content.push(ContentPart::Image {
        media_type: ImageMediaType::Png,
        data: "AAAA".to_owned(),
    });
    assert!(driver.deliver_input(&said).is_err());
    assert!(driver.written().is_empty());
}

#[test]
fn an_input_waits_for_the_outcome_of_the_one_before() {
    let mut driver = running();
    driver.restart = true;
    driver.deliver(2).expect("it is taken");
    driver.deliver(3).expect("it is taken");
    assert_eq!(driver.asked(), ["session/prompt"]);
    driver
        .wrote
        .push(json!({"id": "1-3", "method": "session/prompt"}));
    driver.ends("end_turn");
    driver.ends("refusal");
    driver.ends("end_turn");
    let told = driver.told();
    let ends: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("END") || line.starts_with("consumed"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        ends,
        [
            "END completed",
            "consumed 2",
            "END failed refusal: the model refused to go on",
            "consumed 3",
            "END completed"
        ]
    );
}

#[test]
fn a_stopped_turn_is_interrupted_and_the_next_one_runs() {
    let mut driver = running();
    driver.restart = true;
    driver.says("wor");
    driver.interrupt();
    driver.interrupt();
    assert_eq!(driver.asked(), ["session/prompt", "session/cancel"]);
    driver
        .wrote
        .push(json!({"id": "1-3", "method": "session/prompt"}));
    driver.told();
    driver.ends("cancelled");
    assert_eq!(
        driver.told(),
        [r#"text/@1.2: Text "wor" truncated"#, "END interrupted"]
    );
    driver.deliver(2).expect("it is taken");
    driver.says("again");
    driver.ends("end_turn");
    assert_eq!(
        driver.told().last().map(String::as_str),
        Some("END completed")
    );
}

#[test]
fn a_stop_before_the_program_began_is_told_once_more_when_it_does() {
    let mut driver = bound();
    driver.restart = true;
    driver.deliver(1).expect("it is taken");
    driver.interrupt();
    assert_eq!(driver.asked(), ["session/prompt", "session/cancel"]);
    driver.says("a");
    driver.says("b");
    assert_eq!(driver.asked(), ["session/cancel"]);
}

#[test]
fn an_error_is_a_failed_turn_with_its_reason() {
    for (code, stop, expected) in [
        (-32603, false, "END failed engine_error: no model"),
        (-32000, false, "END failed auth_required: no model"),
        (-32603, true, "END interrupted"),
    ] {
        let mut driver = running();
        if stop {
            driver.interrupt();
        }
        driver.refuse_last("session/prompt", code, "no model");
        assert_eq!(driver.told().last().map(String::as_str), Some(expected));
    }
}

/// A program whose figures count so.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts<const SCOPE: u8>;

impl<const SCOPE: u8> Dialect for Counts<SCOPE> {
    const USAGE: UsageScope = match SCOPE {
        0 => UsageScope::Turn,
        1 => UsageScope::Process,
        _ => UsageScope::Conversation,
    };
}

/// What two turns say of themselves and of everything so far, where the program tells 10 and then 25.
fn counted<const SCOPE: u8>() -> Vec<(String, String)> {
    let mut driver = Driver::bound(settings(), Counts::<SCOPE>, &initialized(), &opened());
    driver.restart = true;
    let mut counted = Vec::new();
    for (n, input) in [(1, 10), (2, 25)] {
        driver.deliver(n).expect("it is taken");
        driver.update("usage_update", json!({"used": 5, "size": 100}));
        let usage =
            json!({"inputTokens": input, "outputTokens": 2 * n, "totalTokens": input + 2 * n});
        let answer = json!({"stopReason": "end_turn", "usage": usage});
        driver.answer_last("session/prompt", &answer);
        let told = driver.told();
        assert!(told.iter().any(|line| line.contains("5 of 100 tokens")));
        let total = told.iter().find(|line| line.starts_with("usage/"));
        let count = |line: &String| line.split("in=").nth(1).map(|rest| rest[..2].to_owned());
        let total = total.and_then(count).unwrap_or_default();
        counted.push((total, told.last().and_then(count).unwrap_or_default()));
    }
    counted
}

#[test]
fn figures_count_what_the_dialect_says() {
    let pairs = |list: [(&str, &str); 2]| list.map(|(all, turn)| (all.to_owned(), turn.to_owned()));
    assert_eq!(counted::<0>(), pairs([("10", "10"), ("35", "25")]));
    assert_eq!(counted::<1>(), pairs([("10", "10"), ("25", "15")]));
    // What other processes of the conversation used before is not known.
    assert_eq!(counted::<2>(), pairs([("10", ""), ("25", "15")]));
}

#[test]
fn the_end_of_the_process_is_the_end_of_the_turn() {
    for (stop, reason, code, expected) in [
        (false, ExitReason::Exited, Some(0), "END failed no_result"),
        (
            false,
            ExitReason::Exited,
            Some(3),
            "END failed engine_exited",
        ),
        (false, ExitReason::Killed, None, "END failed engine_exited"),
        (true, ExitReason::Killed, None, "END interrupted"),
        (
            false,
            ExitReason::MemoryLimit,
            None,
            "END failed memory_limit",
        ),
    ] {
        let mut driver = running();
        driver.says("half");
        driver.asks_permission(1, json!({"toolCallId": "c", "title": "x"}));
        driver.told();
        if stop {
            driver.interrupt();
        }
        driver.deliver(2).expect("it is taken");
        driver.exit(&exit(reason, code, None), "why");
        let told = driver.told();
        assert!(
            told.contains(&"withdraws 1: the turn is being stopped".to_owned()) == stop,
            "{told:?}"
        );
        let last = told.last().expect("something is told");
        assert!(last.starts_with(expected), "{last}");
        assert!(driver.deliver(3).is_err());
    }
}

#[test]
fn an_end_without_a_turn_is_told_unless_it_was_wanted() {
    let mut driver = bound();
    driver.exit(&exit(ExitReason::Exited, Some(1), None), "why");
    let told = driver.told();
    assert!(
        told.len() == 1 && told[0].contains("engine_exited"),
        "{told:?}"
    );
}

#[test]
fn an_answer_that_was_not_asked_for_is_kept() {
    let mut driver = running();
    driver.value(&json!({"jsonrpc": "2.0", "id": "9-9", "result": {}}));
    assert!(driver.told()[0].contains("unknown_answer"));
}
