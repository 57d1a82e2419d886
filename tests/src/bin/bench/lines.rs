//! The way of an engine's line to the gRPC client.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use astrabox_client::WatchItem;
use astrabox_client::v1::event::Payload;
use tokio::task::JoinSet;

use crate::figure::{Effort, Found, Row, Statistic, Unit};
use crate::sessions::{FAKE_NOTE, Served, Session};

/// From the moment at which the program writes a line to the moment at which the client has it.
pub(crate) async fn latency(effort: Effort) -> Result<Found> {
    const MANY: usize = 50;
    let served = Served::fake().await?;
    let mut sessions = Vec::new();
    for _ in 0..MANY {
        sessions.push(served.session().await?.0);
    }
    let mut found = Found::default();
    let pieces = effort.times(200);
    let alone = sessions.split_off(MANY - 1);
    let (times, alone) = told(alone, pieces, 10_000).await?;
    found
        .rows
        .push(row("1 session, 100 lines a second", &times));
    sessions.extend(alone);
    let (times, sessions) = told(sessions, pieces, 50_000).await?;
    found
        .rows
        .push(row("50 sessions, 20 lines a second each", &times));
    drop(sessions);
    served.clear().await?;
    found.notes.push(FAKE_NOTE.to_owned());
    found.notes.push(
        "each line tells when it was written, by the host's clock; nothing in between is asked"
            .to_owned(),
    );
    Ok(found)
}

fn row(name: &str, times: &[Duration]) -> Row {
    Row::times(name, times)
        .at_most(Statistic::P50, 2.0)
        .at_most(Statistic::P99, 10.0)
}

/// Has each session tell the time so often, in pieces this far apart, and gives how old each piece was.
async fn told(
    sessions: Vec<Session>,
    pieces: usize,
    pause_us: u64,
) -> Result<(Vec<Duration>, Vec<Session>)> {
    let mut readers = JoinSet::new();
    let count = sessions.len() as u32;
    for (n, mut session) in (0..).zip(sessions) {
        readers.spawn(async move {
            // Spread over one pause, as sessions are that nobody began together.
            tokio::time::sleep(Duration::from_micros(pause_us) * n / count).await;
            session.send(&format!("CLOCK: {pieces} {pause_us}")).await?;
            let mut ages = Vec::new();
            session
                .turn(|delta| {
                    let now = since_epoch();
                    let told = delta.text.split_whitespace();
                    ages.extend(told.filter_map(|word| age(word, now)));
                })
                .await?;
            ensure!(
                ages.len() == pieces,
                "{} of {pieces} pieces came",
                ages.len()
            );
            Ok((ages, session))
        });
    }
    let (mut all, mut sessions) = (Vec::new(), Vec::new());
    while let Some(ended) = readers.join_next().await {
        let (ages, session) = ended.context("a reader failed")??;
        all.extend(ages);
        sessions.push(session);
    }
    Ok((all, sessions))
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn age(word: &str, now: Duration) -> Option<Duration> {
    let told = Duration::from_nanos(word.parse().ok()?);
    Some(now.saturating_sub(told))
}

/// How many pieces come through one session per second.
pub(crate) async fn rate(effort: Effort) -> Result<Found> {
    let served = Served::fake().await?;
    let (mut session, _) = served.session().await?;
    session.timed("DELTAS: 1000").await?;
    let count = effort.times(40_000);
    let mut best = 0.0_f64;
    for _ in 0..3 {
        session.send(&format!("DELTAS: {count}")).await?;
        let (mut text, mut messages, mut start) = (String::new(), 0_usize, None);
        session
            .turn(|delta| {
                start.get_or_insert_with(Instant::now);
                text.push_str(&delta.text);
                messages += 1;
            })
            .await?;
        let start = start.context("pieces")?;
        best = best.max(count as f64 / start.elapsed().as_secs_f64());
        ensure!(
            text == expected(count),
            "the pieces add up to something else"
        );
        ensure!(messages > 1, "the pieces came in one");
    }
    drop(session);
    served.clear().await?;
    let row = Row::value("pieces through one session", Unit::PerSecond, best);
    Ok(Found {
        rows: vec![row.at_least(Statistic::Value, 5_000.0)],
        notes: vec![
            FAKE_NOTE.to_owned(),
            format!(
                "the best of 3 answers of {count} lines, from the first piece at the client to the turn's end; pieces that \
                 wait for the client are joined"
            ),
        ],
    })
}

/// Takes a piece as a client does: who comes back gets the text so far again, with its place.
fn take(pieces: &mut String, offset: u64, text: &str) {
    let known = usize::try_from(offset)
        .ok()
        .and_then(|offset| pieces.len().checked_sub(offset));
    match known {
        Some(known) => pieces.push_str(text.get(known..).unwrap_or_default()),
        // A gap: it shows in the comparison with the whole.
        None => pieces.push_str(text),
    }
}

/// A client that stops reading for 6 s, while an engine that does not stop says 20,000 pieces.
pub(crate) async fn slow_reader(_: Effort) -> Result<Found> {
    const COUNT: usize = 20_000;
    const PAUSE_US: u64 = 300;
    const STOP: Duration = Duration::from_secs(6);
    let served = Served::fake().await?;
    let (mut session, _) = served.session().await?;
    session.send(&format!("CLOCK: {COUNT} {PAUSE_US}")).await?;
    let (mut pieces, mut whole, mut cuts) = (String::new(), None, 0_u32);
    let mut stopped = false;
    while whole.is_none() {
        match session.next().await {
            Ok(WatchItem::Delta(delta)) => take(&mut pieces, delta.offset, &delta.text),
            Ok(WatchItem::Event(event)) => {
                if let Some(Payload::MessageCompleted(message)) = event.payload {
                    whole = Some(message.text);
                }
            }
            Ok(WatchItem::CaughtUp { .. }) => {}
            Err(_) if cuts < 10 => {
                cuts += 1;
                session.watch_again().await?;
            }
            Err(error) => return Err(error.context("cut again and again")),
        }
        if !stopped && !pieces.is_empty() {
            stopped = true;
            tokio::time::sleep(STOP).await;
        }
    }
    drop(session);
    served.clear().await?;
    let whole = whole.unwrap_or_default();
    let said = whole.split_whitespace().count();
    ensure!(said == COUNT, "the answer has {said} pieces");
    // Pieces of a message are its beginning, in order and without a gap, or something is lost. A client that was away
    // at the message's end gets the whole of it and no more pieces.
    let complete = if cuts == 0 {
        pieces == whole
    } else {
        whole.starts_with(&pieces)
    };
    let lost = if complete {
        0
    } else {
        COUNT - pieces.split_whitespace().count().min(COUNT - 1)
    };
    let lost = Row::value("pieces lost", Unit::Count, lost as f64);
    Ok(Found {
        rows: vec![
            lost.at_most(Statistic::Value, 0.0),
            Row::value(
                "times cut, and gone on from the cursor",
                Unit::Count,
                f64::from(cuts),
            ),
        ],
        notes: vec![
            FAKE_NOTE.to_owned(),
            format!(
                "a piece every {PAUSE_US} us; the client stops at the first one, so almost all are said meanwhile"
            ),
        ],
    })
}

/// What `DELTAS: count` says.
fn expected(count: usize) -> String {
    let words: Vec<_> = (1..=count).map(|n| format!("d{n}")).collect();
    words.join(" ")
}
