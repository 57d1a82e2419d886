//! Interrupts that the program does not hear, and those that meet it at work.

use std::time::{Duration, Instant};

use astrabox_testkit::fault_engine::{FaultImage, Protocol};
use astrabox_tests::{Conversation, FaultStage, Turn, must};
use v1::event::Payload;

use astrabox_client::v1;

use crate::support::{
    SOON, completed, for_each_program, goes_on, interrupt, interrupted, say_within, until,
    until_ended,
};

for_each_program!(
    an_interrupt_that_is_never_acknowledged_ends_in_a_kill_and_a_resume,
    an_interrupt_of_a_program_that_ignores_every_signal_but_kill_ends_it,
    an_interrupt_in_a_tool_call_leaves_the_conversation,
    an_interrupt_does_not_take_the_queued_inputs,
);

/// Sends a prompt, waits for its first words, interrupts, and gives the turn with the time that took.
async fn interrupted_turn(talk: &mut Conversation, prompt: &str) -> (Turn, Duration) {
    must(talk.send(prompt).await);
    let mut turn = Turn::default();
    let speaks =
        |payload: &Payload| matches!(payload, Payload::MessageCompleted(_) | Payload::ToolCall(_));
    until(talk, &mut turn, speaks).await;
    let begin = Instant::now();
    interrupt(talk).await;
    until_ended(talk, &mut turn).await;
    interrupted(&turn);
    (turn, begin.elapsed())
}

async fn an_interrupt_that_is_never_acknowledged_ends_in_a_kill_and_a_resume(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let (turn, took) = interrupted_turn(&mut talk, "SAY: before\nDEAF").await;
    assert!(took < SOON, "it took {took:?}");
    assert_eq!(turn.text(), "before");
    goes_on(&mut talk, "SAY: before").await;
    must(stage.clear().await);
}

async fn an_interrupt_of_a_program_that_ignores_every_signal_but_kill_ends_it(protocol: Protocol) {
    let mut image = FaultImage::of(protocol);
    image.ignores_sigterm = true;
    let stage = must(FaultStage::with(image, &[]).await);
    let mut talk = must(stage.talk().await);
    let (_, took) = interrupted_turn(&mut talk, "SAY: before\nLOITER").await;
    assert!(took < SOON, "it took {took:?}");
    goes_on(&mut talk, "SAY: before").await;
    must(stage.clear().await);
}

async fn an_interrupt_in_a_tool_call_leaves_the_conversation(protocol: Protocol) {
    let settings = ["sessions.interrupt_timeout = \"5s\""];
    let stage = must(FaultStage::with(FaultImage::of(protocol), &settings).await);
    let mut talk = must(stage.talk().await);
    let (_, took) = interrupted_turn(&mut talk, "RUN: sleep 60").await;
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    goes_on(&mut talk, "RUN: sleep 60").await;
    must(stage.clear().await);
}

async fn an_interrupt_does_not_take_the_queued_inputs(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    must(talk.send("SAY: first\nDEAF").await);
    must(talk.send("SAY: second").await);
    let mut turn = Turn::default();
    until(&mut talk, &mut turn, |payload| {
        matches!(payload, Payload::MessageCompleted(_))
    })
    .await;
    interrupt(&talk).await;
    until_ended(&mut talk, &mut turn).await;
    interrupted(&turn);
    let second = must(talk.turn().await);
    completed(&second);
    assert_eq!(second.text(), "second");
    let third = say_within(&mut talk, "SAY: third", SOON).await;
    completed(&third);
    must(stage.clear().await);
}
