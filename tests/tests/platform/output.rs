//! What engines print, and what of it is in the journal.

use astrabox_types::{EventPayload, FileChangeKind, MessageKind};

use crate::stage::Stage;
use crate::told::{check, ended, ends, texts};

fn diagnostics(events: &[astrabox_types::JournalEvent]) -> Vec<(String, Option<String>)> {
    let find = |event: &astrabox_types::JournalEvent| match &event.payload {
        EventPayload::DiagnosticRaw { topic, .. } => Some((
            topic.clone(),
            event.native.as_ref().map(|json| json.text().to_owned()),
        )),
        _ => None,
    };
    events.iter().filter_map(find).collect()
}

#[tokio::test]
async fn every_kind_of_output_is_told() {
    let mut stage = Stage::new().await;
    let prompt = "THINK: hm\nDELTAS: 3\nRUN: echo hi\nRUN: exit 3\nFILE: a.txt one\nFILE: a.txt two\nUSAGE: 10 20";
    let id = stage.create(prompt).await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    let mut seen = Vec::new();
    for event in &events {
        match &event.payload {
            EventPayload::MessageCompleted { kind, text, .. } => {
                seen.push(format!("{kind:?} {text}"))
            }
            EventPayload::ToolCall { name, input, .. } => {
                seen.push(format!("{name} {}", input.text()))
            }
            EventPayload::ToolResult {
                output, is_error, ..
            } => seen.push(format!("{is_error} {}", output.text())),
            EventPayload::FileChanged { path, kind, .. } => seen.push(format!("{path} {kind:?}")),
            EventPayload::TurnEnded { usage, .. } => {
                let usage = usage.clone().expect("it tells");
                seen.push(format!(
                    "{:?} {:?}",
                    usage.input_tokens, usage.output_tokens
                ));
            }
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            format!("{:?} hm", MessageKind::Reasoning),
            format!("{:?} d1 d2 d3", MessageKind::Text),
            r#"sh {"command":"echo hi"}"#.to_owned(),
            r#"false {"code":0,"output":"hi\n"}"#.to_owned(),
            r#"sh {"command":"exit 3"}"#.to_owned(),
            r#"true {"code":3,"output":""}"#.to_owned(),
            format!("/workspace/a.txt {:?}", FileChangeKind::Added),
            format!("/workspace/a.txt {:?}", FileChangeKind::Modified),
            "Some(10) Some(20)".to_owned(),
        ]
    );
}

#[tokio::test]
async fn unknown_lines_and_garbage_are_kept_and_break_nothing() {
    let mut stage = Stage::new().await;
    let id = stage
        .create("WEATHER\nGARBAGE\nSAY: after\u{2028}all")
        .await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed"]);
    assert_eq!(
        texts(&events),
        ["after\u{2028}all"],
        "only a line feed ends a line"
    );
    let weather = r#"{"type":"weather","sun":1.50}"#.to_owned();
    assert_eq!(
        diagnostics(&events),
        [
            ("unknown_event".to_owned(), Some(weather)),
            ("garbage_line".to_owned(), None),
            ("garbage_line".to_owned(), None),
            ("garbage_line".to_owned(), None),
        ]
    );
}

#[tokio::test]
async fn a_line_in_the_smallest_pieces_is_one_line() {
    let mut stage = Stage::new().await;
    let id = stage.create("SPLIT: über alles 😀").await;
    stage.until(id, "the end", ended(1)).await;
    assert_eq!(texts(&stage.journal(id).await), ["über alles 😀"]);
}

#[tokio::test]
async fn a_long_line_is_whole_and_one_over_the_cap_is_told_of() {
    let mut stage = Stage::new().await;
    let id = stage
        .create("LONG: 1100000\nLONG: 17000000\nSAY: after")
        .await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed"]);
    let lengths: Vec<_> = texts(&events).iter().map(String::len).collect();
    assert_eq!(lengths, [1_100_000, 5]);
    assert_eq!(diagnostics(&events), [("overlong_line".to_owned(), None)]);
}

#[tokio::test]
async fn a_request_that_nobody_knows_is_answered_and_told_of() {
    let mut stage = Stage::new().await;
    let id = stage.create("REQUEST: open the door").await;
    stage.until(id, "the end", ended(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["reply: nobody knows `open the door`"]);
    assert_eq!(diagnostics(&events)[0].0, "unknown_request");
}
