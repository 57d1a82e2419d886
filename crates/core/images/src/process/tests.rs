use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Finished, Invocation, RunError, run};

const AMPLE: Duration = Duration::from_secs(20);

fn shell(script: &str, limit: Duration) -> Invocation {
    Invocation {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        dir: "/".into(),
        stdin: File::open("/dev/null").unwrap(),
        limit,
    }
}

async fn finished(script: &str) -> (Finished, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let on_line = |line: &str| told.lock().unwrap().push(line.to_owned());
    let finished = run(shell(script, AMPLE), &on_line).await.unwrap();
    (finished, told.into_inner().unwrap())
}

/// Waits until a process is gone or waits to be reaped by somebody else.
async fn is_dead(pid: &str) -> bool {
    let deadline = Instant::now() + AMPLE;
    while Instant::now() < deadline {
        match fs::read_to_string(Path::new("/proc").join(pid).join("stat")) {
            Err(_) => return true,
            Ok(stat) if stat.contains(") Z ") => return true,
            Ok(_) => sleep(Duration::from_millis(5)).await,
        }
    }
    false
}

#[tokio::test]
async fn lines_of_both_outputs_are_told_and_kept() {
    let (ended, told) = finished("echo a; echo b >&2; printf c; exit 3").await;
    assert_eq!(ended.status.code(), Some(3));
    let mut sorted = told.clone();
    sorted.sort();
    assert_eq!(sorted, ["a", "b", "c"]);
    assert_eq!(ended.lines, told);
}

#[tokio::test]
async fn only_the_last_lines_are_kept_and_long_ones_are_cut() {
    let (ended, told) = finished("for i in $(seq 100); do echo $i; done; seq -s x 9999").await;
    assert_eq!(told.len(), 101);
    assert_eq!(ended.lines.len(), 40);
    assert_eq!(ended.lines[0], "62");
    assert_eq!(ended.lines[39].len(), 4096);
}

#[tokio::test]
async fn the_environment_is_the_given_one_and_nothing_else() {
    let (ended, _) = finished("/usr/bin/env").await;
    let names: Vec<_> = ended
        .lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .filter(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"))
        .collect();
    assert_eq!(names, ["PATH"]);
}

#[tokio::test]
async fn a_program_that_leaves_a_child_behind_is_not_waited_for() {
    let (ended, _) = finished("sleep 600 & echo $!").await;
    assert!(ended.status.success());
    assert!(is_dead(&ended.lines[0]).await);
}

#[tokio::test]
async fn a_program_over_its_limit_is_killed_with_its_children() {
    let (told, mut pids) = mpsc::channel(1);
    let on_line = |line: &str| told.try_send(line.to_owned()).unwrap();
    let ended = run(
        shell("sleep 600 & echo $!; wait", Duration::from_millis(500)),
        &on_line,
    );
    assert!(matches!(ended.await, Err(RunError::Limit)));
    assert!(is_dead(&pids.recv().await.unwrap()).await);
}

#[tokio::test]
async fn a_dropped_run_is_killed_with_its_children() {
    let (told, mut pids) = mpsc::channel(2);
    let on_line = |line: &str| told.try_send(line.to_owned()).unwrap();
    let mut running = Box::pin(run(
        shell("echo $$; sleep 600 & echo $!; wait", AMPLE),
        &on_line,
    ));
    let mut seen = Vec::new();
    while seen.len() < 2 {
        tokio::select! {
            _ = &mut running => panic!("it ended by itself"),
            pid = pids.recv() => seen.push(pid.unwrap()),
        }
    }
    drop(running);
    for pid in &seen {
        assert!(is_dead(pid).await, "{pid}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_started() {
    let mut invocation = shell("", AMPLE);
    invocation.program = "/nonexistent/program".into();
    assert!(matches!(
        run(invocation, &|_| ()).await,
        Err(RunError::Start(_))
    ));
}
