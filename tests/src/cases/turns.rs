//! Turns: streaming, tools, queueing, interrupts, errors.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::time::Duration;

use crate::{Conversation, Program, Stage, Turn, must};
use astrabox_client::v1;
use v1::event::Payload;

const PATIENCE: Duration = Duration::from_secs(60);

pub async fn an_answer_is_streamed_and_then_whole(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(talk.say("DELTAS: 100\nSLOW: 5").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    assert!(turn.text().starts_with("d1 d2 d3"), "{}", turn.text());
    assert_eq!(turn.streamed(), turn.text());
    assert!(turn.deltas.len() > 10, "{} deltas", turn.deltas.len());
    let offsets: Vec<_> = turn.deltas.iter().map(|delta| delta.offset).collect();
    assert!(offsets.is_sorted(), "{offsets:?}");
    must(stage.clear().await);
}

pub async fn reasoning_and_usage_are_told(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(
        talk.say("THINK: what is asked\nSAY: this\nUSAGE: 11 7")
            .await,
    );
    assert_eq!(turn.text(), "this");
    assert!(
        turn.reasoning().contains("what is asked"),
        "{:?}",
        turn.events
    );
    let usage = turn.own().find_map(|payload| match payload {
        Payload::Usage(usage) => usage.usage,
        _ => None,
    });
    assert_eq!(usage.and_then(|usage| usage.output_tokens), Some(7));
    must(stage.clear().await);
}

pub async fn instructions_reach_the_model(program: &Program) {
    let agent = v1::AgentSpec {
        system: "Always think of amaranth.".to_owned(),
        ..Default::default()
    };
    let stage = must(Stage::with(program, agent).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.say("SAY: ready").await);
    let told = stage.model.requests();
    let told = told
        .iter()
        .any(|request| request.body.to_string().contains("amaranth"));
    assert!(told, "the model is told the instructions");
    must(stage.clear().await);
}

pub async fn a_prompt_of_200_kb_arrives_whole(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let long = format!("[[SAY: taken]] {} the-end", "x".repeat(200_000));
    let turn = must(talk.say(&long).await);
    assert_eq!(turn.text(), "taken");
    let whole = stage
        .model
        .requests()
        .iter()
        .any(|request| request.body.to_string().contains("xxx the-end"));
    assert!(whole, "the model gets all of it");
    must(stage.clear().await);
}

/// What a program asks for by itself is refused and told in the audit: it shall ask for nothing.
pub async fn nothing_but_the_model_is_asked_for(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.say("SAY: one").await);
    must(talk.say("RUN: echo two").await);
    let asked = must(stage.server.audit());
    assert!(!asked.is_empty(), "the model was asked");
    let to_model = |line: &String| {
        serde_json::from_str::<serde_json::Value>(line)
            .is_ok_and(|entry| entry["host"] == "model.test" && entry["event"] != "deny")
    };
    let strays: Vec<_> = asked.iter().filter(|line| !to_model(line)).collect();
    assert!(strays.is_empty(), "{strays:#?}");
    must(stage.clear().await);
}

pub async fn a_shell_call_writes_into_the_workspace(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(
        talk.say("RUN: echo made here > /workspace/note.txt && cat /workspace/note.txt && pwd")
            .await,
    );
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    let results = turn.results();
    assert_eq!(results.len(), 1, "{:?}", turn.events);
    assert!(
        results[0].output.contains("made here") && results[0].output.contains("/workspace"),
        "{results:?}"
    );
    assert_eq!(must(talk.file("/workspace/note.txt").await), "made here\n");
    must(stage.clear().await);
}

pub async fn a_written_file_is_told_as_a_change(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(talk.say("WRITE hello.txt hello\\nworld").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    let changed = turn.own().find_map(|payload| match payload {
        Payload::FileChanged(changed) => Some(changed),
        _ => None,
    });
    let changed = changed.expect("a file.changed event");
    assert!(changed.path.ends_with("hello.txt"), "{changed:?}");
    assert_eq!(changed.kind(), v1::FileChangeKind::Added);
    assert!(must(talk.file("/workspace/hello.txt").await).starts_with("hello"));
    must(stage.clear().await);
}

pub async fn two_queued_inputs_get_a_turn_each_in_order(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.send("SAY: first\nHOLD: gate\nSAY: done").await);
    must(stage.model.wait_until_held("gate", PATIENCE).await);
    must(talk.send("SAY: second").await);
    must(talk.send("SAY: third").await);
    stage.model.release("gate");
    let mut texts = Vec::new();
    for _ in 0..3 {
        let turn = must(talk.turn().await);
        assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
        texts.push(turn.text());
    }
    assert!(
        texts[0].contains("first") && texts[0].contains("done"),
        "{texts:?}"
    );
    assert_eq!(&texts[1..], ["second", "third"]);
    must(stage.clear().await);
}

pub async fn an_interrupt_stops_a_streaming_answer(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.send("SAY: begun\nHOLD: gate\nSAY: never").await);
    must(stage.model.wait_until_held("gate", PATIENCE).await);
    must(interrupt(&talk.client, &talk.id).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Interrupted);
    assert!(!turn.text().contains("never"));
    stage.model.release("gate");
    assert_eq!(must(talk.say("SAY: usable").await).text(), "usable");
    must(stage.clear().await);
}

pub async fn an_interrupt_stops_a_running_tool(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(
        talk.send("RUN: echo begun > /workspace/begun; sleep 300")
            .await,
    );
    until_called(&mut talk).await;
    must(interrupt(&talk.client, &talk.id).await);
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Interrupted);
    assert_eq!(must(talk.say("SAY: usable").await).text(), "usable");
    must(stage.clear().await);
}

pub async fn an_error_of_the_model_fails_the_turn_with_a_reason(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = must(talk.say("STATUS: 401").await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Failed);
    assert!(!turn.ended().failure_reason.is_empty());
    assert!(!turn.ended().failure_message.is_empty());
    assert_eq!(must(talk.say("SAY: usable").await).text(), "usable");
    must(stage.clear().await);
}

pub async fn a_killed_engine_fails_its_turn_and_the_session_goes_on(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    assert_eq!(must(talk.say("SAY: apple").await).text(), "apple");
    // Its own shell kills the program that called it.
    let kill = format!(
        "RUN: for p in /proc/[0-9]*; do [ \"$(cat $p/comm 2>/dev/null)\" = {} ] && kill -9 ${{p#/proc/}}; done",
        program.process
    );
    let turn = must(talk.say(&kill).await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Failed);
    assert_eq!(turn.ended().failure_reason, "engine_exited");
    let turn = must(talk.say("RECALL").await);
    assert!(
        turn.text().contains("SAY: apple"),
        "the conversation goes on: {}",
        turn.text()
    );
    must(stage.clear().await);
}

pub async fn only_allowed_hosts_are_reached_from_inside(program: &Program) {
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let probe = "RUN: perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(\"127.0.0.1:3128\") or die; \
                 print $s \"CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n\"; print scalar <$s>; \
                 print IO::Socket::INET->new(PeerAddr => \"1.1.1.1:443\", Timeout => 2) ? \"open\" : \"closed\"'";
    let turn = must(talk.say(probe).await);
    let output = &turn.results()[0].output;
    assert!(
        output.contains(" 403 ") && output.contains("closed"),
        "{output}"
    );
    must(stage.clear().await);
}

async fn interrupt(
    client: &astrabox_client::Client,
    id: &str,
) -> Result<(), astrabox_client::ClientError> {
    let request = v1::InterruptSessionRequest {
        session_id: id.to_owned(),
        ..Default::default()
    };
    client.interrupt_session(request).await.map(drop)
}

async fn until_called(talk: &mut Conversation) {
    let mut turn = Turn::default();
    while !must(
        talk.read_into(&mut turn, |payload| matches!(payload, Payload::ToolCall(_)))
            .await,
    ) {}
}
