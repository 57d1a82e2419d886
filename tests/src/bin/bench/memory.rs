//! Memory of the server and of runners, by the kernel's own count (`/proc/PID/status`, proc(5)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use astrabox_testkit::model::ScriptedModel;
use astrabox_testkit::server::{ServerOptions, ServerProcess};
use serde_json::Value;

use crate::figure::{Effort, Found, Row, Statistic, Unit};
use crate::sessions::{FAKE_NOTE, Served};

/// How long a process is left alone before it is looked at.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// Resident memory at rest.
pub(crate) async fn resident(effort: Effort) -> Result<Found> {
    let mut found = Found::default();
    let model = ScriptedModel::builder().start().await?;
    let mut server = ServerProcess::start(&ServerOptions::with_model(model.address())).await?;
    tokio::time::sleep(REST).await;
    let idle = memory(server.pid().context("the server runs")?, "VmRSS")?;
    server.stop().await?;
    model.shutdown().await;
    found.rows.push(
        Row::value("astraboxd, idle", Unit::Megabytes, idle / 1e6).at_most(Statistic::Value, 40.0),
    );

    let served = Served::fake().await?;
    let pid = served.server.pid().context("the server runs")?;
    let mut sessions = Vec::new();
    // The first ones fill caches that the others share.
    for _ in 0..10 {
        sessions.push(one(&served).await?);
    }
    tokio::time::sleep(REST).await;
    let before = memory(pid, "VmRSS")?;
    let more = effort.times(60);
    for _ in 0..more {
        sessions.push(one(&served).await?);
    }
    tokio::time::sleep(REST).await;
    let each = (memory(pid, "VmRSS")? - before) / more as f64;
    found.rows.push(
        Row::value(
            "server, each idle live session",
            Unit::Kilobytes,
            each / 1e3,
        )
        .at_most(Statistic::Value, 300.0),
    );
    let runners = runners(served.server.folder())?;
    ensure!(runners.len() == sessions.len(), "{} runners", runners.len());
    let mut largest = 0.0_f64;
    for runner in &runners {
        largest = largest.max(memory(*runner, "VmRSS")?);
    }
    found.rows.push(
        Row::value("the largest runner", Unit::Megabytes, largest / 1e6)
            .at_most(Statistic::Value, 4.0),
    );
    found.notes.push(format!(
        "sessions: each has said 100 pieces and rests, watched by one client; {}",
        FAKE_NOTE
    ));
    drop(sessions);
    served.clear().await?;
    Ok(found)
}

/// A session that has had a turn.
async fn one(served: &Served) -> Result<crate::sessions::Session> {
    let (mut session, _) = served.session().await?;
    session.timed("DELTAS: 100").await?;
    Ok(session)
}

/// A line of 50 MiB, which is over the cap of a line: it is drained to a blob.
pub(crate) async fn long_line(_: Effort) -> Result<Found> {
    const LINE: usize = 50 << 20;
    let served = Served::fake().await?;
    let (mut session, _) = served.session().await?;
    session.timed("DELTAS: 100").await?;
    let server = served.server.pid().context("the server runs")?;
    let runner = *runners(served.server.folder())?
        .first()
        .context("a runner")?;
    let mut before = Vec::new();
    for pid in [server, runner] {
        forget_peak(pid)?;
        before.push(memory(pid, "VmRSS")?);
    }
    session.send(&format!("LONG: {LINE}")).await?;
    session.turn(|_| {}).await?;
    let mut found = Found::default();
    let mut sum = 0.0;
    for ((pid, name), before) in [(server, "server"), (runner, "runner")]
        .into_iter()
        .zip(before)
    {
        let more = (memory(pid, "VmHWM")? - before) / LINE as f64;
        sum += more;
        found.rows.push(Row::value(
            format!("{name}, peak over rest"),
            Unit::Times,
            more,
        ));
    }
    found
        .rows
        .push(Row::value("both", Unit::Times, sum).at_most(Statistic::Value, 3.0));
    drop(session);
    served.clear().await?;
    found.notes.push(FAKE_NOTE.to_owned());
    Ok(found)
}

/// A size that the kernel tells of a process, bytes.
pub(crate) fn memory(pid: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kilobytes: f64 = kilobytes
        .with_context(|| format!("{name} of a process"))?
        .parse()?;
    Ok(kilobytes * 1024.0)
}

/// Lets the peak begin again at what is resident now.
pub(crate) fn forget_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("begin the peak again")
}

/// The runners of a server's sandboxes.
pub(crate) fn runners(server: &Path) -> Result<Vec<u32>> {
    let sandboxes = server.join("state/sandbox/local/sandboxes");
    let mut pids = Vec::new();
    for entry in fs::read_dir(sandboxes)? {
        let record = fs::read(entry?.path().join("runner/runner.json"))?;
        let record: Value = serde_json::from_slice(&record)?;
        let pid = record.pointer("/process/pid").and_then(Value::as_u64);
        pids.push(u32::try_from(pid.context("the runner's pid")?)?);
    }
    Ok(pids)
}
