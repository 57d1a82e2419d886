//! Somebody at another terminal.

use crate::stage::Stage;

#[test]
fn a_second_terminal_follows_the_turn_and_tells_who_answered() {
    let stage = Stage::new();
    let mut person = stage.at_terminal(&[
        "run",
        "--engine",
        "fake",
        "STREAM: 4 go\nASK: approval it\nASK: question which\nSAY: done",
    ]);
    person.until("d1 d2");
    let session = stage.session();
    let mut other = stage.at_terminal(&["session", "watch", &session]);
    other.until("input: STREAM: 4 go");
    other.until("d1 d2");
    stage.word(&session, "go");
    other.until("d3 d4");
    other.until("? sh");
    person.until("if you like: ");
    person.keys("y\n");
    other.until("answered by ");
    other.until(": yes");
    person.until("your own words: ");
    // The other one is quicker this time.
    let answered = stage.piped(&["session", "respond", &session, "--answer", "q=red"]);
    assert!(answered.status.success());
    person.until("answered by ");
    person.until(": red");
    person.until("done");
    assert_eq!(person.end(), 0);
    other.until("done");
    other.until("the turn is completed");
    other.keys("\x03");
    assert_eq!(other.end(), 130);
    stage.clear();
}

#[test]
fn a_watch_ends_when_nothing_runs_and_goes_on_over_the_death_of_the_server() {
    let mut stage = Stage::new();
    let mut person = stage.at_terminal(&["run", "--engine", "fake", "STREAM: 4 go\nSAY: done"]);
    person.until("d1 d2");
    let session = stage.session();
    let mut other = stage.at_terminal(&["session", "watch", &session, "--until-idle"]);
    other.until("d1 d2");
    stage.kill();
    other.until("the server is away");
    stage.start();
    other.until("the server is back");
    stage.word(&session, "go");
    other.until("d3 d4");
    other.until("done");
    assert_eq!(other.end(), 0);
    person.until("done");
    assert_eq!(person.end(), 0);
    stage.clear();
}
