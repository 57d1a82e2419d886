//! Model streams that go silent, under the real programs.

use std::time::Duration;

use astrabox_tests::{Stage, must};

use crate::support::{completed, failed, say_within};

/// By when the program has given up: it asks again a few times, and each time the silence is cut after a second.
const GIVEN_UP: Duration = Duration::from_secs(40);
const SETTINGS: [&str; 1] = ["egress.idle_timeout = \"1s\""];

#[tokio::test]
async fn a_model_stream_that_goes_silent_fails_the_turn_of_codex() {
    let stage = must(Stage::with(&SETTINGS).await);
    let mut talk = must(stage.conversation("never").await);
    let turn = say_within(&mut talk, "SAY: half of it\nSTALL", GIVEN_UP).await;
    failed(&turn, "model_error");
    let turn = say_within(&mut talk, "SAY: next", GIVEN_UP).await;
    completed(&turn);
    must(stage.clear().await);
}
