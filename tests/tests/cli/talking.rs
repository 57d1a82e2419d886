//! A person at a terminal.

use astrabox_client::v1::SessionState;

use crate::pty::Pty;
use crate::stage::{Stage, text};

/// The end of a run, at which the session is named.
const END: &str = "go on with: astrabox run --session";
const RUN: &[&str] = &["run", "--engine", "fake"];

fn run(stage: &Stage, prompt: &str) -> Pty {
    stage.at_terminal(&[RUN, &[prompt]].concat())
}

#[test]
fn an_answer_streams_and_what_the_agent_does_is_shown_beside_it() {
    let stage = Stage::new();
    let mut person = run(
        &stage,
        "THINK: let me see\nRUN: echo one; echo two\nFILE: note text\nSTREAM: 4 go on\nSAY: done",
    );
    person.until("\x1b[2mlet me see\x1b[0m");
    person.until("\x1b[1msh\x1b[0m echo one; echo two");
    person.until("\x1b[2m  one\x1b[0m");
    person.until("\x1b[2m  two\x1b[0m");
    person.until("\x1b[1m/workspace/note\x1b[0m (new)");
    // The first half is there while the agent waits for a word.
    person.until("d1 d2");
    let session = stage.session();
    let file = stage.json(&["session", "files", &session]);
    assert!(file.to_string().contains("note"), "{file}");
    stage.word(&session, "go on");
    person.until("d3 d4");
    person.until("done");
    person.until(END);
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn an_approval_is_answered_in_place() {
    let stage = Stage::new();
    let mut person = run(&stage, "ASK: approval rm -rf build\nASK: approval second");
    person.until("The agent wants to use sh:");
    person.until("rm -rf build");
    person.until("[1] yes");
    person.until("[3] no");
    person.until("if you like: ");
    person.keys("perhaps\n");
    person.until("a number of the list, y, or n: ");
    person.keys("2\n");
    person.until("answer: always");
    person.until("second");
    person.until("if you like: ");
    person.keys("n it is in use\n");
    person.until("answer: no");
    person.until(END);
    assert_eq!(person.end(), 0);
    let journal = stage.piped(&["--json", "session", "events", &stage.session()]);
    let journal = text(&journal.stdout);
    assert!(journal.contains(r#""comment":"it is in use""#), "{journal}");
    stage.clear();
}

#[test]
fn a_question_and_a_decision_are_answered_in_place() {
    let stage = Stage::new();
    let mut person = run(
        &stage,
        "ASK: question which colour\nASK: question and then\nASK: decision which way",
    );
    person.until("? which colour");
    person.until("[2] blue");
    person.until("number, or your own words: ");
    person.keys("2\n");
    person.until("answer: blue");
    person.until("number, or your own words: ");
    person.keys("9\n");
    person.until("a number of the list: ");
    person.keys("a warm grey\n");
    person.until("answer: a warm grey");
    person.until("which way");
    person.until("if you like: ");
    person.keys("1\n");
    person.until("answer: left");
    person.until(END);
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    let stage = Stage::new();
    let mut person = run(&stage, "SAY: begin\nHOLD: go\nASK: approval it");
    person.until("begin");
    person.keys("1\n");
    person.until("1\r\n");
    stage.word(&stage.session(), "go");
    person.until("typed before the question: 1");
    person.until("if you like: ");
    person.keys("3\n");
    person.until("answer: no");
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn ctrl_c_stops_the_turn_and_the_session_can_go_on() {
    let stage = Stage::new();
    let mut person = run(&stage, "SAY: begin\nHOLD: never");
    person.until("begin");
    person.keys("\x03");
    person.until("stopping the turn; Ctrl-C again leaves");
    person.until("the turn was interrupted");
    person.until(END);
    assert_eq!(person.end(), 130);
    let session = stage.session();
    let mut person = stage.at_terminal(&["run", "--session", &session, "RECALL"]);
    person.until("you said: [\"SAY: begin");
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn ctrl_c_stops_a_turn_that_waits_for_an_answer() {
    let stage = Stage::new();
    let mut person = run(&stage, "ASK: approval it");
    person.until("if you like: ");
    person.keys("\x03");
    person.until("the question is closed");
    person.until("the turn was interrupted");
    assert_eq!(person.end(), 130);
    stage.clear();
}

#[test]
fn a_second_ctrl_c_leaves_and_the_session_goes_on() {
    let stage = Stage::new();
    let mut person = run(&stage, "DEAF\nSAY: begin\nHOLD: go\nSAY: all the same");
    person.until("begin");
    person.keys("\x03");
    person.until("Ctrl-C again leaves");
    person.keys("\x03");
    person.until(END);
    person.until("left; the session goes on");
    assert_eq!(person.end(), 130);
    let session = stage.session();
    let mut person = stage.at_terminal(&["run", "--session", &session, "SAY: here again"]);
    person.until("here again");
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn lines_are_turns_until_ctrl_c_while_nothing_runs() {
    let stage = Stage::new();
    let mut person = stage.at_terminal(RUN);
    person.until("> ");
    person.keys("hello\n");
    person.until("echo: hello");
    person.until("> ");
    person.keys("first \\\nsecond\n");
    person.until("echo: first");
    person.until("echo: second");
    person.until("> ");
    person.keys("HOLD: never\n");
    stage.until_state(&stage.session(), SessionState::Busy);
    person.keys("\x03");
    person.until("the turn was interrupted");
    person.until("> ");
    person.keys("\x03");
    person.until(END);
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn who_comes_back_sees_where_it_stands_and_the_turn_that_runs() {
    let stage = Stage::new();
    let mut person = stage.at_terminal(RUN);
    person.until("> ");
    person.keys("hello\n");
    person.until("echo: hello");
    person.until("> ");
    person.keys("DEAF\\\nSTREAM: 4 go\n");
    person.until("d1 d2");
    person.keys("\x03");
    person.until("Ctrl-C again leaves");
    person.keys("\x03");
    assert_eq!(person.end(), 130);
    let session = stage.session();
    stage.json(&["session", "send", &session, "STREAM: 6 go"]);
    let mut person = stage.at_terminal(&["run", "--session", &session]);
    person.until(&format!("session {session} ("));
    person.until("d1 d2 d3");
    stage.word(&session, "go");
    person.until("d4 d5 d6");
    person.until("> ");
    person.keys("\x04");
    person.until(END);
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn what_the_agent_says_by_itself_is_shown_at_the_prompt() {
    let stage = Stage::new();
    let mut person = stage.at_terminal(RUN);
    person.until("> ");
    person.keys("BACKGROUND: go the build is done\n");
    person.until("> ");
    stage.word(&stage.session(), "go");
    person.until("the agent goes on by itself");
    person.until("the build is done");
    person.until("> ");
    person.keys("\x04");
    assert_eq!(person.end(), 0);
    stage.clear();
}

#[test]
fn a_server_that_is_killed_is_waited_for() {
    let mut stage = Stage::new();
    let mut person = run(&stage, "SAY: begin\nASK: approval it\nSAY: after");
    person.until("if you like: ");
    stage.kill();
    person.until("the server is away; trying again for 60 s");
    stage.start();
    person.until("the server is back");
    // The question is there again.
    person.until("if you like: ");
    person.keys("1\n");
    person.until("answer: yes");
    person.until("after");
    person.until(END);
    assert_eq!(person.end(), 0);
    assert_eq!(
        person.seen().matches("begin").count(),
        1,
        "nothing is shown twice: {}",
        person.seen()
    );
    stage.clear();
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let mut stage = Stage::new();
    let mut person =
        stage.at_terminal(&[RUN, &["--reconnect", "1", "SAY: begin\nHOLD: go"]].concat());
    person.until("begin");
    stage.kill();
    person.until("the server is away; trying again for 1 s");
    person.until(END);
    person.until("the server is not reached");
    assert_eq!(person.end(), 3);
    stage.start();
    stage.word(&stage.session(), "go");
    stage.clear();
}

#[test]
fn a_terminal_without_colours_gets_none() {
    let stage = Stage::new();
    let prompt = "THINK: thought\nRUN: echo x\nSAY: \u{1b}[31mred";
    let arguments = [RUN, &[prompt]].concat();
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let mut person = stage.at_terminal_with(&arguments, &variables);
        person.until("thought");
        // What the agent says is no command to the terminal, with colours or without.
        person.until("\u{241b}[31mred");
        assert_eq!(person.end(), 0);
        assert!(!person.seen().contains('\x1b'), "{:?}", person.seen());
    }
    stage.clear();
}
