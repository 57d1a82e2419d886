//! Processes that hold credentials, or speak with those that do, crash and leave nothing of their memory behind.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::credentials::{CALL, CANARY, World, canary, egress_role, holds};
use crate::{Program, must};

/// How long a crash may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn a_crash_leaves_no_core_file(program: &Program) {
    let mut world = must(World::of(program).await);
    let mut talk = must(world.stage.conversation(program.unasked).await);
    must(talk.say(CALL).await);

    // Inside: by whatever the program starts.
    let crash = "RUN: ulimit -c; cd /tmp && sh -c 'kill -ABRT $$'; ls -A /tmp /workspace /home/agent | grep -c '^core'";
    let turn = must(talk.say(crash).await);
    // As the program tells it, a text in JSON.
    let output = turn.results()[0].output.replace("\\n", "\n");
    let output = output.trim_matches('"');
    let numbers: Vec<_> = output.lines().filter(|line| line.trim() == "0").collect();
    assert_eq!(
        numbers.len(),
        2,
        "the limit, and how many there are: {output}"
    );

    // Outside: the egress role, which comes back, and the server, which is started again.
    must(abort(must(egress_role(&world.stage.server))).await);
    must(talk.say(CALL).await);
    assert_eq!(world.shown(), canary("api"));
    let server = must(world.stage.server.pid().context("the server runs"));
    must(abort(server).await);
    must(world.stage.server.kill().await);
    must(world.stage.server.start_again().await);
    world.stage.client = must(world.stage.server.client().await);
    let mut talk = must(world.stage.again(&talk.id).await);
    must(talk.catch_up().await);
    must(talk.say(CALL).await);
    for runner in must(runners(world.stage.server.folder())) {
        must(limited(runner));
    }
    assert_eq!(
        must(holds(world.stage.server.folder(), CANARY.as_bytes())),
        None
    );
    must(world.clear().await);
}

/// The runners of a server's sandboxes.
fn runners(server: &Path) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir(server.join("state/sandbox/local/sandboxes"))? {
        let record = fs::read(entry?.path().join("runner/runner.json"))?;
        let record: Value = serde_json::from_slice(&record)?;
        let pid = record.pointer("/process/pid").and_then(Value::as_u64);
        pids.push(u32::try_from(pid.context("the runner's pid")?)?);
    }
    ensure!(!pids.is_empty(), "no runner");
    Ok(pids)
}

/// Sees that the process may write no core file, and that no handler would be fed: less than a page is no limit that a
/// core fits in, and 1 is the kernel's mark for "no handler" (core(5)).
fn limited(pid: u32) -> Result<()> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let line = limits.lines().find(|line| line.starts_with("Max core"));
    let words: Vec<_> = line.context("a limit")?.split_whitespace().collect();
    for limit in &words[4..6] {
        ensure!(["0", "1"].contains(limit), "a core of {limit} bytes");
    }
    Ok(())
}

/// Lets a process crash, waits for its end, and sees that it left no core file where it was.
async fn abort(pid: u32) -> Result<()> {
    limited(pid)?;
    let folder = fs::read_link(format!("/proc/{pid}/cwd"))?;
    let before = cores(&folder)?;
    let status = tokio::process::Command::new("kill")
        .args(["-ABRT", &pid.to_string()])
        .status()
        .await?;
    ensure!(status.success(), "kill");
    let begun = Instant::now();
    while is_running(pid) {
        if begun.elapsed() > PATIENCE {
            bail!("a process does not crash");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ensure!(cores(&folder)? == before, "a core file");
    Ok(())
}

fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn cores(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut cores = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("core") {
            cores.push(entry.path());
        }
    }
    cores.sort();
    Ok(cores)
}
