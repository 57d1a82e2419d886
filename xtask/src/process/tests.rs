use std::process::Command;
use std::time::{Duration, Instant};

use super::{shown, watch};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn the_exit_status_and_both_streams_are_read() {
    let script = "echo '2 passed, 0 failed'; echo 'test x ... ignored, why' >&2; exit 3";
    let ended = watch(shell(script), Duration::from_secs(30)).unwrap();
    assert_eq!(ended.status.unwrap().code(), Some(3));
    assert_eq!(ended.tally.counts().passed, 2);
    assert_eq!(ended.tally.skips().len(), 1);
}

#[test]
fn a_program_over_its_limit_is_stopped_with_its_children() {
    let start = Instant::now();
    let ended = watch(shell("sleep 300 & wait"), Duration::from_millis(300)).unwrap();
    assert!(ended.status.is_none());
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_child_that_keeps_the_pipe_open_does_not_hold_us() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 300 & echo $! > {}", file.display());
    let start = Instant::now();
    let ended = watch(shell(&script), Duration::from_secs(200)).unwrap();
    let elapsed = start.elapsed();
    let pid = std::fs::read_to_string(&file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    super::descendants::kill_tree(pid);
    assert!(ended.status.unwrap().success());
    assert!(elapsed < Duration::from_secs(100));
}

#[test]
fn a_missing_program_is_named() {
    let error = watch(Command::new("no-such-program"), Duration::from_secs(1))
        .err()
        .unwrap();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[test]
fn a_command_is_shown_without_the_folder_of_its_program() {
    let mut command = Command::new("/usr/bin/cargo");
    command.args(["test", "-p", "x"]);
    assert_eq!(shown(&command), "cargo test -p x");
}
