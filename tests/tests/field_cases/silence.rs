//! Model endpoints that go silent, under the real programs.

use std::time::Duration;

use astrabox_client::v1;
use astrabox_testkit::model::ScriptedModel;
use astrabox_testkit::server::ServerOptions;
use astrabox_tests::{CLAUDE_CODE, CODEX, PI, Program, Stage, must};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{completed, failed, say_within, show};

/// By when the program has given up: it asks again a few times, and each time the silence is cut after a second.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// A stage whose egress cuts a connection after a second of silence.
async fn impatient(program: &Program, model: ScriptedModel, options: ServerOptions) -> Stage {
    let options = ServerOptions {
        settings: vec!["egress.idle_timeout = \"1s\"".to_owned()],
        ..options
    };
    let environment = program.environment();
    must(Stage::over(model, &options, environment, v1::AgentSpec::default()).await)
}

/// The stream stops in the middle: the turn fails with the model's error, and the session takes the next one.
async fn half_a_stream(program: &Program) {
    let model = must(ScriptedModel::builder().start().await);
    let options = ServerOptions::with_model(model.address());
    let stage = impatient(program, model, options).await;
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = say_within(&mut talk, "SAY: half of it\nSTALL", GIVEN_UP).await;
    let message = failed(&turn, "model_error");
    assert!(!message.is_empty(), "{}", show(&turn.events));
    let turn = say_within(&mut talk, "SAY: next", GIVEN_UP).await;
    completed(&turn);
    must(stage.clear().await);
}

/// The endpoint takes the connection and never answers: the program gets a typed error of the egress proxy.
async fn no_answer(program: &Program) {
    let silent = must(TcpListener::bind("127.0.0.1:0").await);
    let options = ServerOptions::with_model(must(silent.local_addr()));
    let mut holding = JoinSet::new();
    holding.spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            held.push(connection);
        }
    });
    let model = must(ScriptedModel::builder().start().await);
    let stage = impatient(program, model, options).await;
    let mut talk = must(stage.conversation(program.unasked).await);
    let turn = say_within(&mut talk, "SAY: never said", GIVEN_UP).await;
    let message = failed(&turn, "model_error");
    assert!(!message.is_empty(), "{}", show(&turn.events));
    must(stage.clear().await);
    holding.shutdown().await;
}

#[tokio::test]
async fn a_model_stream_that_goes_silent_fails_the_turn_of_codex() {
    half_a_stream(&CODEX).await;
}

#[tokio::test]
async fn a_model_stream_that_goes_silent_fails_the_turn_of_claude_code() {
    half_a_stream(&CLAUDE_CODE).await;
}

#[tokio::test]
async fn a_model_endpoint_that_never_answers_fails_the_turn_of_codex() {
    no_answer(&CODEX).await;
}

#[tokio::test]
async fn a_model_endpoint_that_never_answers_fails_the_turn_of_claude_code() {
    no_answer(&CLAUDE_CODE).await;
}

#[tokio::test]
async fn a_model_stream_that_goes_silent_fails_the_turn_of_pi() {
    half_a_stream(&PI).await;
}

#[tokio::test]
async fn a_model_endpoint_that_never_answers_fails_the_turn_of_pi() {
    no_answer(&PI).await;
}
