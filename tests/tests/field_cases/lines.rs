//! Lines that are too long, cut, garbled, or from nobody knows where.

use astrabox_client::v1;
use astrabox_testkit::fault_engine::{FaultImage, Protocol};
use astrabox_tests::{FaultStage, Turn, must};
use v1::event::Payload;

use crate::support::{
    SOON, completed, for_each_program, goes_on, has_diagnostic, say_within, show,
};

for_each_program!(
    a_line_over_one_mebibyte_is_whole,
    of_a_line_of_50_mebibytes_only_the_tool_result_is_cut,
    a_line_in_pieces_is_read_at_its_line_feed,
    characters_that_are_split_between_reads_are_whole,
    only_a_line_feed_ends_a_line,
    garbage_between_lines_is_kept_and_harms_nothing,
    an_event_that_nobody_knows_is_kept,
    a_request_that_nobody_knows_is_answered_and_kept,
);

/// How much of `x` is in the only tool result.
fn size_of_result(turn: &Turn) -> usize {
    let results = turn.results();
    assert_eq!(results.len(), 1, "{}", show(&turn.events));
    results[0].output.matches('x').count()
}

async fn a_line_over_one_mebibyte_is_whole(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let size = (1 << 20) + 1;
    let prompt = format!("CALL: dump\nBIG: {size}\nSAY: after");
    let turn = say_within(&mut talk, &prompt, SOON).await;
    completed(&turn);
    assert!(size_of_result(&turn) >= size, "{}", size_of_result(&turn));
    assert_eq!(turn.text(), "after");
    must(stage.clear().await);
}

async fn of_a_line_of_50_mebibytes_only_the_tool_result_is_cut(protocol: Protocol) {
    // The program is silent while it makes such a line.
    let settings = ["sessions.stall_timeout = \"10s\""];
    let stage = must(FaultStage::with(FaultImage::of(protocol), &settings).await);
    let mut talk = must(stage.talk().await);
    let prompt = format!("SAY: before\nCALL: dump\nBIG: {}\nSAY: after", 50 << 20);
    let turn = say_within(&mut talk, &prompt, 3 * SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), "beforeafter");
    assert!(size_of_result(&turn) < 1 << 20);
    assert!(
        has_diagnostic(&turn.events, "line_truncated"),
        "{}",
        show(&turn.events)
    );
    goes_on(&mut talk, "SAY: before").await;
    must(stage.clear().await);
}

async fn a_line_in_pieces_is_read_at_its_line_feed(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let prompt = "PIECES: 65536\nCALL: dump\nBIG: 300000\nSAY: after";
    let turn = say_within(&mut talk, prompt, SOON).await;
    completed(&turn);
    assert!(size_of_result(&turn) >= 300_000);
    assert_eq!(turn.text(), "after");
    must(stage.clear().await);
}

async fn characters_that_are_split_between_reads_are_whole(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let text = "gr\u{fc}\u{df}e \u{1f600}\u{4f60}\u{597d}";
    let turn = say_within(&mut talk, &format!("PIECES: 1\nSAY: {text}"), SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), text);
    must(stage.clear().await);
}

async fn only_a_line_feed_ends_a_line(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\rg";
    let turn = say_within(&mut talk, &format!("SAY: {text}"), SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), text);
    must(stage.clear().await);
}

async fn garbage_between_lines_is_kept_and_harms_nothing(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let prompt =
        "GARBAGE: npm WARN deprecated\nSAY: one\nGARBAGE: {\"half\": \nRAW\nGARBAGE: []\nSAY: two";
    let turn = say_within(&mut talk, prompt, SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), "onetwo");
    let kept = turn.events.iter().filter(|event| {
        matches!(&event.payload, Some(Payload::DiagnosticRaw(raw)) if raw.topic == "garbage_line")
    });
    assert_eq!(kept.count(), 4, "{}", show(&turn.events));
    must(stage.clear().await);
}

async fn an_event_that_nobody_knows_is_kept(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "STRANGE: hailstones\nSAY: on", SOON).await;
    completed(&turn);
    let kept = turn.events.iter().any(|event| {
        matches!(&event.payload, Some(Payload::DiagnosticRaw(raw)) if raw.topic == "unknown_event")
            && event.native.contains("hailstones")
    });
    assert!(kept, "{}", show(&turn.events));
    must(stage.clear().await);
}

async fn a_request_that_nobody_knows_is_answered_and_kept(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "REQUEST: moon_phase", SOON).await;
    completed(&turn);
    assert!(turn.text().starts_with("reply: "), "{}", turn.text());
    assert!(
        has_diagnostic(&turn.events, "unknown_request"),
        "{}",
        show(&turn.events)
    );
    must(stage.clear().await);
}
