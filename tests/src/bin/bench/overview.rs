//! What each engine costs on a host: image, cold start, first answer, memory; the platform's beside the bare program's.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use astrabox_testkit::model::ScriptedModel;

use crate::bare::Bare;
use crate::engines::{Subject, subjects};
use crate::figure::{Effort, Found, Row, Unit, median};
use crate::memory::{memory, runners};
use crate::sessions::Served;

/// How long a program is left alone before its memory is looked at.
const REST: Duration = Duration::from_secs(1);

/// The rows of every engine.
pub(crate) async fn engines(effort: Effort) -> Result<Found> {
    let mut found = Found::default();
    for subject in subjects(&effort, &mut found).await? {
        engine(&subject, &effort, &mut found).await?;
    }
    found.notes.push(
        "cold: each time another conversation with a program that was just started; first piece: of the first answer of \
         such a program; memory: of all its processes after that answer, without the runner"
            .to_owned(),
    );
    Ok(found)
}

async fn engine(subject: &Subject, effort: &Effort, found: &mut Found) -> Result<()> {
    let kind = subject.dialect.kind();
    let model = ScriptedModel::builder().start().await?;
    let served = Served::real(kind, &model).await?;
    let mut ours = Measured::default();
    let mut bare = Measured::default();
    for _ in 0..effort.times(4) {
        let (mut program, start) = Bare::start(subject.dialect, &subject.root, &model).await?;
        bare.starts.push(start);
        bare.firsts.push(program.timed("DELTAS: 3").await?.first);
        tokio::time::sleep(REST).await;
        let pid = program.pid().context("the program runs")?;
        bare.memory = bare.memory.max(resident_below(pid, true)?);
        program.end().await?;

        let (mut session, start) = served.session().await?;
        ours.starts.push(start);
        ours.firsts.push(session.timed("DELTAS: 3").await?.first);
        tokio::time::sleep(REST).await;
        for runner in runners(served.server.folder())? {
            ours.memory = ours.memory.max(resident_below(runner, false)?);
        }
        session.delete().await?;
    }
    served.clear().await?;
    model.shutdown().await;
    let size = subject.bytes as f64 / 1e6;
    found
        .rows
        .push(Row::value(format!("{kind}: image"), Unit::Megabytes, size));
    for (who, measured) in [("", &ours), (", bare", &bare)] {
        for (what, value, unit) in [
            ("cold start", median(&measured.starts), Unit::Milliseconds),
            ("first piece", median(&measured.firsts), Unit::Milliseconds),
            ("memory", measured.memory / 1e6, Unit::Megabytes),
        ] {
            found
                .rows
                .push(Row::value(format!("{kind}: {what}{who}"), unit, value));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Measured {
    starts: Vec<Duration>,
    firsts: Vec<Duration>,
    /// The most that was resident, bytes.
    memory: f64,
}

/// What is resident of all processes below one, and of it as well when `with_it`.
fn resident_below(pid: u32, with_it: bool) -> Result<f64> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|id| id.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut sum = 0.0;
    let mut open = vec![pid];
    while let Some(id) = open.pop() {
        open.extend(children.get(&id).into_iter().flatten());
        if id != pid || with_it {
            // One that has just ended has nothing.
            sum += memory(id, "VmRSS").unwrap_or_default();
        }
    }
    Ok(sum)
}

/// The parent of a process, from `/proc/PID/stat` (proc(5)): behind the name, which may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}
