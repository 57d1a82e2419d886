//! A process that is killed while it writes loses nothing that it acknowledged.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use astrabox_store::Store;
use astrabox_types::{EventPayload, SessionId};

use crate::support::{Place, says, step};

/// Tells the child which database to write to; without it the child's test does nothing.
const DATABASE: &str = "ASTRABOX_STORE_CRASH_DATABASE";
const SESSION: &str = "ASTRABOX_STORE_CRASH_SESSION";

/// How many writers the child has.
const WRITERS: usize = 8;

/// The child: writes for ever and says what it was acknowledged.
#[test]
fn child_that_writes_until_it_is_killed() {
    let (Some(database), Ok(session)) = (std::env::var_os(DATABASE), std::env::var(SESSION)) else {
        return;
    };
    let id: SessionId = session.parse().expect("an id");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = Store::open(&PathBuf::from(database))
            .await
            .expect("it opens");
        let epoch = store.claim(id).await.expect("claimed");
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                for n in 0.. {
                    let events = vec![
                        says(&format!("{writer}/{n}/a")),
                        says(&format!("{writer}/{n}/b")),
                    ];
                    store
                        .commit(id, step(epoch, events))
                        .await
                        .expect("committed");
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "ack {writer} {n}")
                        .and_then(|()| out.flush())
                        .expect("a pipe");
                }
            });
        }
        while writers.join_next().await.is_some() {}
    });
}

fn child(place: &Place, id: SessionId) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args([
            "crash::child_that_writes_until_it_is_killed",
            "--exact",
            "--nocapture",
        ])
        .env(DATABASE, place.path())
        .env(SESSION, id.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts")
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_by_a_kill() {
    let mut place = Place::new().await;
    let id = place.session().await;
    place.store.close().await;
    let mut acknowledged = [0_usize; WRITERS];
    let mut rounds = Vec::new();
    // Killed at moments that nothing is tuned to.
    for enough in [1, 40, 173] {
        let mut child = child(&place, id);
        let mut count = 0;
        let mut of_round = [0_usize; WRITERS];
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        let mut killed = false;
        // What was said before the kill is read to its end.
        while {
            line.clear();
            output.read_line(&mut line).expect("a pipe")
        } > 0
        {
            let Some(rest) = line.split("ack ").nth(1) else {
                continue;
            };
            let mut numbers = rest.split_whitespace().map(|word| word.parse::<usize>());
            if let (Some(Ok(writer)), Some(Ok(n))) = (numbers.next(), numbers.next())
                && line.ends_with('\n')
            {
                of_round[writer] = n + 1;
                count += 1;
            }
            if count >= enough && !killed {
                child.kill().expect("the child is ours");
                killed = true;
            }
        }
        child.wait().expect("the child is ours");
        for (all, new) in acknowledged.iter_mut().zip(of_round) {
            *all += new;
        }
        rounds.push(of_round);
    }
    place.store = Store::open(&place.path())
        .await
        .expect("it opens after a kill");
    let events = place.store.events(id, 0, 1_000_000).await.expect("read");
    let row = place.store.session(id).await.expect("there");
    assert_eq!(
        row.session.last_seq,
        events.len() as u64,
        "numbers and rows agree"
    );
    let mut seen = [0_usize; WRITERS];
    let mut half = None;
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.seq, at as u64 + 1, "dense");
        let EventPayload::MessageCompleted { text, .. } = &event.payload else {
            continue;
        };
        let parts: Vec<_> = text.split('/').collect();
        match parts[2] {
            "a" => half = Some((parts[0].to_owned(), parts[1].to_owned())),
            _ => {
                let whole = (parts[0].to_owned(), parts[1].to_owned());
                assert_eq!(half.take(), Some(whole), "a step is there as a whole");
                seen[parts[0].parse::<usize>().expect("a number")] += 1;
            }
        }
    }
    assert_eq!(half, None, "no half step");
    for (writer, (seen, acknowledged)) in seen.iter().zip(acknowledged).enumerate() {
        assert!(
            *seen >= acknowledged,
            "writer {writer}: {seen} of {acknowledged} in {rounds:?}"
        );
    }
    assert!(acknowledged.iter().sum::<usize>() >= 214);
    // And it can be written to.
    let epoch = place.store.claim(id).await.expect("claimed");
    place
        .store
        .commit(id, step(epoch, vec![says("on")]))
        .await
        .expect("committed");
}
