//! The egress role beside a plain relay and mitmproxy: one client, one upstream, one machine, one run.

mod certificates;
mod client;
pub(crate) mod relay;
mod stage;
pub(crate) mod upstream;

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

use crate::figure::{Effort, Found, Row, Statistic, Unit, median, percentile};
use crate::memory::{REST, forget_peak, memory};
use client::{Connection, alone, each, load};
use stage::{Kind, Route, Stage};

/// How many connections ask at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// How long each of them is asked in one round.
const ROUND: Duration = Duration::from_secs(1);
/// A large body.
const LARGE: u64 = 1 << 30;

/// Ends the process when its input does: whoever started it keeps that open.
#[expect(
    clippy::disallowed_methods,
    reason = "the process has nothing that a destructor would have to give back"
)]
fn ends_with_its_input() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Tells whoever started the process where it listens.
fn print_address(listener: &TcpListener) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    Ok(out.flush()?)
}

/// What a small request takes more than without anybody in between.
pub(crate) async fn latency(effort: Effort) -> Result<Found> {
    let stage = Stage::start().await?;
    let mut found = Found::default();
    let mut straight = Vec::new();
    for route in &stage.routes {
        let requests = effort.times(if route.kind == Kind::Mitmproxy {
            1000
        } else {
            6000
        });
        let times = each(route.clone(), requests).await?;
        let name = route.kind.name();
        found.rows.push(Row::times(name, &times));
        let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        match route.kind {
            Kind::Direct => straight = times,
            _ => {
                for percent in [50.0, 99.0] {
                    let added = percentile(&times, percent) - percentile(&straight, percent);
                    let name = format!("{name}, added, p{percent}");
                    found.rows.push(Row::value(name, Unit::Milliseconds, added));
                }
            }
        }
    }
    finish(stage, found).await
}

/// Small requests per second over connections that stay.
pub(crate) async fn rate(effort: Effort) -> Result<Found> {
    let stage = Stage::start().await?;
    let mut found = Found::default();
    for connections in CONNECTIONS {
        let mut rates = vec![Vec::new(); stage.routes.len()];
        let mut costs = vec![Vec::new(); stage.routes.len()];
        for _ in 0..effort.times(5) {
            for (at, route) in stage.routes.iter().enumerate() {
                let (rate, cost) = one_round(route, connections).await?;
                rates[at].push(rate);
                costs[at].extend(cost);
            }
        }
        let rate = |kind| {
            let at = stage.routes.iter().position(|route| route.kind == kind)?;
            Some(percentile(&rates[at], 50.0))
        };
        for (at, route) in stage.routes.iter().enumerate() {
            let name = format!("{}, {connections} connections", route.kind.name());
            let median = percentile(&rates[at], 50.0);
            found.rows.push(Row::value(name, Unit::PerSecond, median));
            if !costs[at].is_empty() {
                let cost = percentile(&costs[at], 50.0);
                let name = format!("{}, its processor time of each", route.kind.name());
                found.rows.push(Row::value(name, Unit::Milliseconds, cost));
            }
        }
        for (kind, goal) in [(Kind::Relay, 0.6), (Kind::Mitmproxy, 20.0)] {
            if let (Some(ours), Some(other)) = (rate(Kind::Role), rate(kind)) {
                let name = format!("egress role to {}, {connections}", kind.name());
                let row = Row::value(name, Unit::Times, ours / other);
                found.rows.push(row.at_least(Statistic::Value, goal));
            }
        }
    }
    finish(stage, found).await
}

/// Requests per second, and the milliseconds of processor that the process in between spends on each.
async fn one_round(route: &Route, connections: usize) -> Result<(f64, Option<f64>)> {
    let (before, spent) = std::sync::mpsc::channel();
    let pid = route.pid;
    let begin = move || {
        let _ = before.send(pid.map(processor));
    };
    let load = load(route.clone(), connections, ROUND, begin).await?;
    let cost = match (pid, spent.recv()?) {
        (Some(pid), Some(before)) => Some((processor(pid)? - before?) / load.requests as f64),
        _ => None,
    };
    Ok((load.per_second, cost))
}

/// How old the first event of a stream is at the client.
pub(crate) async fn stream(effort: Effort) -> Result<Found> {
    let stage = Stage::start().await?;
    let mut found = Found::default();
    for route in &stage.routes {
        let route = route.clone();
        let (kind, streams) = (route.kind, effort.times(200));
        let ages = alone(move || async move {
            let request = client::request(&route, "GET /v1/events", "");
            let mut connection = Connection::open(&route).await?;
            let mut ages = Vec::new();
            for _ in 0..streams {
                ages.push(connection.first_event(&request).await?);
            }
            Ok(ages)
        });
        let row = Row::times(format!("{}, first event", kind.name()), &ages.await?);
        found.rows.push(match kind {
            Kind::Role => row.at_most(Statistic::P99, 5.0),
            _ => row,
        });
    }
    finish(stage, found).await
}

/// A body of 1 GiB in each direction.
pub(crate) async fn body(effort: Effort) -> Result<Found> {
    let stage = Stage::start().await?;
    let mut found = Found::default();
    for way in [Way::Down, Way::Up] {
        for route in &stage.routes {
            // What it cannot do fast it does not have to do for long.
            let length = match route.kind {
                Kind::Mitmproxy => LARGE / 8,
                _ => LARGE,
            };
            let before = match route.pid {
                Some(pid) => {
                    forget_peak(pid)?;
                    Some(memory(pid, "VmRSS")?)
                }
                None => None,
            };
            let mut times = Vec::new();
            for _ in 0..effort.times(3) {
                times.push(through(route.clone(), way, length).await?);
            }
            let rate = length as f64 / 1e3 / median(&times);
            let name = format!("{}, {}", route.kind.name(), way.name());
            let row = Row::value(name, Unit::MegabytesPerSecond, rate);
            let ours = route.kind == Kind::Role;
            found.rows.push(match ours {
                true => row.at_least(Statistic::Value, 500.0),
                false => row,
            });
            if let (Some(pid), Some(before)) = (route.pid, before) {
                let more = (memory(pid, "VmHWM")? - before) / 1e6;
                let name = format!("{}, {}, peak over rest", route.kind.name(), way.name());
                let row = Row::value(name, Unit::Megabytes, more);
                found.rows.push(match ours {
                    true => row.at_most(Statistic::Value, 16.0),
                    false => row,
                });
            }
        }
    }
    found
        .notes
        .push("mitmproxy gets an eighth of the body".to_owned());
    finish(stage, found).await
}

/// The direction of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Down => "1 GiB down",
            Self::Up => "1 GiB up",
        }
    }
}

async fn through(route: Route, way: Way, length: u64) -> Result<Duration> {
    alone(move || async move {
        let mut connection = Connection::open(&route).await?;
        match way {
            Way::Down => connection.download(&route, length).await,
            Way::Up => connection.upload(&route, length).await,
        }
    })
    .await
}

/// Resident memory of the process in between.
pub(crate) async fn resident(effort: Effort) -> Result<Found> {
    let stage = Stage::start().await?;
    let mut found = Found::default();
    let many = effort.times(500);
    tokio::time::sleep(REST).await;
    for route in &stage.routes {
        let Some(pid) = route.pid else {
            continue;
        };
        let rest = memory(pid, "VmRSS")?;
        let name = route.kind.name();
        let row = Row::value(format!("{name}, at rest"), Unit::Megabytes, rest / 1e6);
        found.rows.push(row);
        let route = route.clone();
        let busy = alone(move || async move {
            let request = client::request(&route, "GET /v1/small", "");
            let mut open = Vec::new();
            for _ in 0..many {
                let mut connection = Connection::open(&route).await?;
                connection.ask(&request).await?;
                open.push(connection);
            }
            memory(pid, "VmRSS")
        });
        let busy = busy.await?;
        let row = format!("{name}, {many} connections");
        found
            .rows
            .push(Row::value(row, Unit::Megabytes, busy / 1e6));
        let each = (busy - rest) / many as f64 / 1e3;
        let row = format!("{name}, each of them");
        found.rows.push(Row::value(row, Unit::Kilobytes, each));
    }
    finish(stage, found).await
}

async fn finish(stage: Stage, mut found: Found) -> Result<Found> {
    found.notes.extend(stage.notes.iter().cloned());
    stage.end().await?;
    Ok(found)
}

/// The processor time that a process's threads have taken so far, milliseconds (`/proc/PID/task/TID/schedstat`, proc(5)).
fn processor(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split(' ').next().context("its time")?;
        nanoseconds += first.parse::<f64>()?;
    }
    Ok(nanoseconds / 1e6)
}
