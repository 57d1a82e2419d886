//! Programs that read what the program prints.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::Value;

use crate::stage::{Stage, text};

#[test]
fn in_a_pipe_the_answer_is_plain_and_alone() {
    let stage = Stage::new();
    let prompt = "THINK: thought\nRUN: echo x\nDELTAS: 3\nFILE: a b\nSAY: end";
    let mut command = stage.command(&["run", "--engine", "fake"]);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(prompt.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "d1 d2 d3\nend\n");
    let beside = text(&output.stderr);
    assert!(output.status.success(), "{beside}");
    for line in ["thought", "> sh echo x", "  x", "+ /workspace/a (new)"] {
        assert!(beside.lines().any(|told| told == line), "{line}: {beside}");
    }
    assert!(!beside.contains('\x1b'), "{beside:?}");
    let quiet = stage.piped(&["run", "--engine", "fake", "--quiet", prompt]);
    assert_eq!(text(&quiet.stdout), "d1 d2 d3\nend\n");
    assert_eq!(text(&quiet.stderr), "");
    stage.clear();
}

#[test]
fn json_lines_have_the_session_everything_that_happens_and_the_result() {
    let stage = Stage::new();
    let mut command = stage.command(&["run", "--json", "--engine", "fake", "--approve"]);
    command.arg("STREAM: 4 go\nASK: approval it\nASKS: 3");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("it prints text");
        let line: Value = serde_json::from_str(&line).expect("each line is an object");
        // Half of the answer is told before the rest of it is there.
        if !line["delta"].is_null() && lines.iter().all(|line: &Value| line["delta"].is_null()) {
            stage.word(&stage.session(), "go");
        }
        lines.push(line);
    }
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let keys: Vec<&String> = lines
        .iter()
        .flat_map(|line| line.as_object().expect("an object").keys())
        .collect();
    assert_eq!(
        (keys[0].as_str(), keys[keys.len() - 1].as_str()),
        ("session", "result")
    );
    assert!(lines.len() == keys.len() && keys.iter().any(|key| *key == "delta"));
    assert_eq!(lines[lines.len() - 1]["result"]["outcome"], "completed");
    let said = lines
        .iter()
        .filter_map(|line| line["event"]["message_completed"]["text"].as_str());
    assert_eq!(
        said.collect::<Vec<_>>(),
        ["d1 d2 d3 d4", "answer: yes", "answers: yes, yes, yes"]
    );
    let session = stage.session();
    let watched = stage.piped(&["session", "watch", "--json", "--until-idle", &session]);
    let events = text(&watched.stdout);
    let mut seq = 0;
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).expect("each line is an object");
        seq += 1;
        assert_eq!(event["event"]["seq"], seq);
    }
    assert!(seq > 5);
    let plain = text(
        &stage
            .piped(&["session", "watch", "--until-idle", &session])
            .stdout,
    );
    assert!(
        plain.contains("answers: yes, yes, yes\n") && !plain.contains('\x1b'),
        "{plain}"
    );
    stage.clear();
}

#[test]
fn a_turn_tells_by_its_exit_code_how_it_ended() {
    let stage = Stage::new();
    for (prompt, code) in [("SAY: x", 0), ("FAIL: no luck", 6), ("EXIT: 3", 6)] {
        let output = stage.piped(&["run", "--engine", "fake", "--rm", prompt]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{prompt}: {}",
            text(&output.stderr)
        );
    }
    let missing = stage.piped(&[
        "run",
        "--session",
        "sesn_0192d3e4f5a67b8c9d0e1f2a3b4c5d6e",
        "x",
    ]);
    assert_eq!(missing.status.code(), Some(4), "{}", text(&missing.stderr));
    stage.clear();
}

#[test]
fn without_a_terminal_the_question_names_the_command_that_answers_it() {
    let stage = Stage::new();
    let mut command = stage.command(&["run", "--engine", "fake", "ASK: approval it"]);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let session = stage.until_session();
    stage.until_state(&session, astrabox_client::v1::SessionState::WaitingInput);
    let answered = stage.piped(&["session", "respond", &session, "--decline"]);
    assert!(answered.status.success(), "{}", text(&answered.stderr));
    let output = child.wait_with_output().expect("it ends");
    let beside = text(&output.stderr);
    assert!(
        beside.contains(&format!("astrabox session respond {session} int_")),
        "{beside}"
    );
    assert!(beside.contains("answered by "), "{beside}");
    assert_eq!(text(&output.stdout), "answer: no\n");
    stage.clear();
}
