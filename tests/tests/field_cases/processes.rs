//! Processes that a program leaves behind, and what it inherits.

use std::fs;
use std::time::{Duration, Instant};

use astrabox_client::v1;
use astrabox_testkit::fault_engine::Protocol;
use astrabox_tests::{FaultStage, must};

use crate::support::{SOON, completed, failed, for_each_program, say_within};

for_each_program!(
    no_child_outlives_its_session,
    orphans_are_reaped,
    nothing_of_the_servers_environment_reaches_the_program,
);

/// A command that starts a child in a session of its own which ignores every signal that can be ignored.
fn stubborn(marker: &str) -> String {
    format!(
        "setsid sh -c 'trap \"\" TERM HUP INT QUIT; while :; do sleep 1; done' {marker} >/dev/null 2>&1 & echo started"
    )
}

/// How many processes of this host have this in their command line.
fn processes(marker: &str) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(marker))
        .count()
}

async fn none_left(marker: &str) {
    let begin = Instant::now();
    while processes(marker) > 0 {
        assert!(begin.elapsed() < SOON, "{} are left", processes(marker));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn no_child_outlives_its_session(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let marker = format!("stubborn-of-{}", talk.id);
    let turn = say_within(&mut talk, &format!("RUN: {}", stubborn(&marker)), SOON).await;
    completed(&turn);
    assert!(processes(&marker) > 0, "the child runs");
    // The program dies; then the session goes.
    let turn = say_within(&mut talk, "EXIT: 5", SOON).await;
    failed(&turn, "engine_exited");
    let request = v1::DeleteSessionRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.delete_session(request).await);
    none_left(&marker).await;
    must(stage.clear().await);
}

async fn orphans_are_reaped(protocol: Protocol) {
    let settings = ["sessions.stall_timeout = \"1m\""];
    let image = astrabox_testkit::fault_engine::FaultImage::of(protocol);
    let stage = must(FaultStage::with(image, &settings).await);
    let mut talk = must(stage.talk().await);
    // Each subshell leaves a child to whoever is process 1 of the box.
    let orphans = "i=0; while [ $i -lt 1300 ]; do (true &); i=$((i+1)); done; echo made";
    let turn = say_within(&mut talk, &format!("RUN: {orphans}"), 3 * SOON).await;
    completed(&turn);
    assert!(turn.results()[0].output.contains("made"));
    let begin = Instant::now();
    loop {
        let count = "cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z'; true";
        let turn = say_within(&mut talk, &format!("RUN: {count}"), SOON).await;
        let output = &turn.results()[0].output;
        if output.contains("\"0\\n\"") {
            break;
        }
        assert!(begin.elapsed() < SOON, "{output}");
    }
    must(stage.clear().await);
}

async fn nothing_of_the_servers_environment_reaches_the_program(protocol: Protocol) {
    let stage = must(FaultStage::of(protocol).await);
    let mut talk = must(stage.talk().await);
    let turn = say_within(&mut talk, "RUN: env | cut -d= -f1 | sort", SOON).await;
    completed(&turn);
    // Cargo in a sandbox is told of the boundary's authority; that is no variable of the server.
    let output = turn.results()[0].output.replace("CARGO_HTTP_CAINFO", "");
    assert!(output.contains("HOME"), "{output}");
    // The server is a child of this test, which cargo started.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    for foreign in [
        "CARGO",
        "RUST",
        "ASTRABOX_RUNNER",
        "ASTRABOX_BIN_DIR",
        "CLAUDECODE",
    ] {
        assert!(!output.contains(foreign), "{output}");
    }
    must(stage.clear().await);
}
