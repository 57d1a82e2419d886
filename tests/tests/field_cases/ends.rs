//! How a turn ends when the program does not end it as it should.

use std::time::{Duration, Instant};

use astrabox_client::v1;
use astrabox_testkit::fault_engine::{FaultImage, Protocol};
use astrabox_tests::{FaultStage, must};
use v1::event::Payload;

use crate::support::{
    SOON, completed, count, failed, for_each_program, goes_on, interrupt, interrupted, release,
    say_within, show, until, until_ended,
};

for_each_program!(
    silence_after_a_tool_result_is_a_stalled_turn,
    a_turn_that_is_never_ended_is_a_stalled_turn_and_keeps_its_text,
    an_exit_without_a_result_fails_the_turn_and_keeps_its_text,
    a_program_that_dies_in_a_turn_tells_its_code_and_last_words,
    a_program_that_is_killed_in_a_turn_tells_the_signal,
    an_exit_with_nothing_said_is_no_success,
    a_program_that_lives_on_after_its_result_goes_with_its_sandbox,
    what_comes_after_the_end_belongs_to_the_turn_that_ended,
);

async fn silence_after_a_tool_result_is_a_stalled_turn(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "CALL: look\nRESULT: found\nHOLD", SOON).await;
    failed(&turn, "engine_stalled");
    assert_eq!(turn.results().len(), 1, "{}", show(&turn.events));
    goes_on(&mut talk, "RESULT: found").await;
    must(stage.clear().await);
}

async fn a_turn_that_is_never_ended_is_a_stalled_turn_and_keeps_its_text(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "SAY: whole\nHALF: half of it\nOPEN", SOON).await;
    failed(&turn, "engine_stalled");
    assert!(turn.text().contains("whole"), "{}", show(&turn.events));
    assert!(turn.text().contains("half of it"), "{}", show(&turn.events));
    goes_on(&mut talk, "SAY: whole").await;
    must(stage.clear().await);
}

async fn an_exit_without_a_result_fails_the_turn_and_keeps_its_text(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let prompt = "SAY: whole\nHALF: half of it\nEXIT: 0";
    let turn = say_within(&mut talk, prompt, SOON).await;
    failed(&turn, "no_result");
    assert!(turn.text().contains("whole"), "{}", show(&turn.events));
    assert!(turn.text().contains("half of it"), "{}", show(&turn.events));
    goes_on(&mut talk, "SAY: whole").await;
    must(stage.clear().await);
}

async fn a_program_that_dies_in_a_turn_tells_its_code_and_last_words(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let prompt = "SAY: before\nSTDERR: out of luck\nEXIT: 7";
    let turn = say_within(&mut talk, prompt, SOON).await;
    let message = failed(&turn, "engine_exited");
    assert!(message.contains("exit code 7"), "{message}");
    assert!(message.contains("out of luck"), "{message}");
    goes_on(&mut talk, "SAY: before").await;
    must(stage.clear().await);
}

async fn a_program_that_is_killed_in_a_turn_tells_the_signal(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "SAY: before\nRUN: kill -9 $PPID", SOON).await;
    let message = failed(&turn, "engine_exited");
    assert!(message.contains("signal 9"), "{message}");
    goes_on(&mut talk, "SAY: before").await;
    must(stage.clear().await);
}

async fn an_exit_with_nothing_said_is_no_success(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "EXIT: 0", SOON).await;
    failed(&turn, "no_result");
    assert_eq!(turn.text(), "");
    must(stage.clear().await);
}

async fn a_program_that_lives_on_after_its_result_goes_with_its_sandbox(protocol: Protocol) {
    let mut image = FaultImage::of(protocol);
    image.ignores_sigterm = true;
    let stage = must(FaultStage::with(image, &[]).await);
    let mut talk = must(stage.talk().await);
    // The result is told; the process goes on for ever, hears nothing and ignores SIGTERM.
    let turn = say_within(&mut talk, "SAY: done\nEND\nIDLE\nLOITER", SOON).await;
    completed(&turn);
    let begin = Instant::now();
    release(&talk).await;
    assert!(
        begin.elapsed() < SOON,
        "the release took {:?}",
        begin.elapsed()
    );
    goes_on(&mut talk, "SAY: done").await;
    must(stage.clear().await);
}

async fn what_comes_after_the_end_belongs_to_the_turn_that_ended(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let first = say_within(&mut talk, "CALL: slow\nEND\nRESULT: late", SOON).await;
    completed(&first);
    let second = say_within(&mut talk, "SAY: next", SOON).await;
    completed(&second);
    let journal = must(talk.journal().await);
    assert_eq!(count(&journal, "turn.started"), 2, "{}", show(&journal));
    assert_eq!(count(&journal, "turn.ended"), 2, "{}", show(&journal));
    let of = |wanted: fn(&Payload) -> bool| {
        let found = journal
            .iter()
            .find(|event| event.payload.as_ref().is_some_and(wanted));
        found.map(|event| event.turn_id.clone())
    };
    let call = of(|payload| matches!(payload, Payload::ToolCall(_)));
    let result = of(|payload| matches!(payload, Payload::ToolResult(_)));
    assert_eq!(call, result, "{}", show(&journal));
    must(stage.clear().await);
}

#[tokio::test]
async fn a_codex_thread_that_rests_is_asked_how_its_turn_stands() {
    let settings = ["sessions.stall_timeout = \"1m\""];
    let image = FaultImage::of(Protocol::Codex);
    let stage = must(FaultStage::with(image, &settings).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(
        &mut talk,
        "CALL: a\nRESULT: b\nSAY: done\nREST: ended\nOPEN",
        SOON,
    )
    .await;
    completed(&turn);
    assert_eq!(turn.text(), "done");
    goes_on(&mut talk, "SAY: done").await;
    must(stage.clear().await);
}

#[tokio::test]
async fn a_claude_program_that_rests_without_a_result_fails_its_turn_and_keeps_its_text() {
    let settings = ["sessions.stall_timeout = \"1m\""];
    let image = FaultImage::of(Protocol::Claude);
    let stage = must(FaultStage::with(image, &settings).await);
    let mut talk = must(stage.talk().await);
    let prompt = "CALL: a\nRESULT: b\nSAY: done\nREST: ended\nOPEN";
    let turn = say_within(&mut talk, prompt, SOON).await;
    failed(&turn, "no_result");
    assert_eq!(turn.text(), "done");
    goes_on(&mut talk, "SAY: done").await;
    must(stage.clear().await);
}

#[tokio::test]
async fn a_codex_status_without_the_time_of_an_end_is_no_end() {
    let stage = must(FaultStage::of(Protocol::Codex).await);
    let mut talk = must(stage.talk().await);
    let prompt = "SAY: one\nREST: open\nRUN: sleep 0.3\nSAY: two";
    let turn = say_within(&mut talk, prompt, SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), "onetwo");
    let journal = must(talk.journal().await);
    assert_eq!(count(&journal, "turn.ended"), 1, "{}", show(&journal));
    must(stage.clear().await);
}

#[tokio::test]
async fn a_codex_turn_that_only_looks_ended_can_be_interrupted() {
    let settings = ["sessions.stall_timeout = \"1m\""];
    let stage = must(FaultStage::with(FaultImage::of(Protocol::Codex), &settings).await);
    let mut talk = must(stage.talk().await);
    must(talk.send("SAY: one\nREST: open\nHOLD").await);
    let mut turn = astrabox_tests::Turn::default();
    until(&mut talk, &mut turn, |payload| {
        matches!(payload, Payload::MessageCompleted(_))
    })
    .await;
    interrupt(&talk).await;
    until_ended(&mut talk, &mut turn).await;
    interrupted(&turn);
    must(stage.clear().await);
}

#[tokio::test]
async fn a_prompt_that_codex_refuses_is_a_failed_turn() {
    let stage = must(FaultStage::of(Protocol::Codex).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "REFUSE", SOON).await;
    let message = failed(&turn, "input_rejected");
    assert!(message.contains("refused"), "{message}");
    let turn = say_within(&mut talk, "SAY: next", Duration::from_secs(5)).await;
    completed(&turn);
    must(stage.clear().await);
}

#[tokio::test]
async fn a_prompt_that_an_acp_program_refuses_is_a_failed_turn() {
    let stage = must(FaultStage::of(Protocol::Acp).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "REFUSE", SOON).await;
    let message = failed(&turn, "input_rejected");
    assert!(message.contains("refused"), "{message}");
    let turn = say_within(&mut talk, "SAY: next", Duration::from_secs(5)).await;
    completed(&turn);
    must(stage.clear().await);
}

#[tokio::test]
async fn what_an_acp_program_replays_is_not_journaled_again() {
    let stage = must(FaultStage::of(Protocol::Acp).await);
    let mut talk = must(stage.talk().await);
    completed(&must(talk.say("SAY: once").await));
    release(&talk).await;
    completed(&must(talk.say("SAY: twice").await));
    let journal = must(talk.journal().await);
    assert_eq!(
        count(&journal, "message.completed"),
        2,
        "{}",
        show(&journal)
    );
    assert!(
        !show(&journal).contains("said before"),
        "{}",
        show(&journal)
    );
    must(stage.clear().await);
}

#[tokio::test]
async fn the_end_of_a_run_of_pi_is_no_end_of_its_turn() {
    let stage = must(FaultStage::of(Protocol::Pi).await);
    let mut talk = must(stage.talk().await);
    // `agent_end` comes, and the program lives on and goes on.
    let prompt = "SAY: one\nREST: ended\nRUN: sleep 0.3\nSAY: two";
    let turn = say_within(&mut talk, prompt, SOON).await;
    completed(&turn);
    assert_eq!(turn.text(), "onetwo");
    let journal = must(talk.journal().await);
    assert_eq!(count(&journal, "turn.ended"), 1, "{}", show(&journal));
    must(stage.clear().await);
}

#[tokio::test]
async fn a_turn_of_pi_in_which_nothing_is_said_is_no_success() {
    let stage = must(FaultStage::of(Protocol::Pi).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "STDERR: not a word\nEND", SOON).await;
    failed(&turn, "no_result");
    goes_on(&mut talk, "not a word").await;
    must(stage.clear().await);
}
