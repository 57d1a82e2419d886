//! Writes that wait at the same time share a commit.

use std::path::Path;

use crate::support::{Place, says, step};

/// How many transactions the write-ahead log holds: frames that end one carry the size of the database.
/// Source: the file format of SQLite, "WAL format".
fn commits(database: &Path) -> usize {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    let log = std::fs::read(name).expect("there is a log");
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
    let page = usize::try_from(number(8)).expect("a page size");
    let salt = &log[16..24];
    let frames = (32..).step_by(24 + page);
    frames
        .take_while(|at| at + 24 + page <= log.len())
        .filter(|at| &log[at + 8..at + 16] == salt && number(at + 4) != 0)
        .count()
}

#[tokio::test]
async fn one_write_after_another_has_a_commit_each() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let before = commits(&place.path());
    for n in 0..10 {
        let written = place
            .store
            .commit(id, step(epoch, vec![says(&n.to_string())]))
            .await;
        written.expect("committed");
    }
    assert_eq!(commits(&place.path()) - before, 10);
}

#[tokio::test]
async fn writes_at_the_same_time_share_commits() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let before = commits(&place.path());
    let writes = (0..200).map(|n| {
        place
            .store
            .commit(id, step(epoch, vec![says(&n.to_string())]))
    });
    for written in futures::future::join_all(writes).await {
        written.expect("committed");
    }
    let shared = commits(&place.path()) - before;
    assert!(shared <= 20, "200 writes took {shared} commits");
}

#[tokio::test]
async fn what_waits_at_the_end_is_written() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let writes = (0..50).map(|n| {
        place
            .store
            .commit(id, step(epoch, vec![says(&n.to_string())]))
    });
    let (written, ()) = tokio::join!(futures::future::join_all(writes), place.store.close());
    assert!(
        written.iter().all(Result::is_ok),
        "they were sent before the end"
    );
    let late = place.store.commit(id, step(epoch, vec![])).await;
    assert!(
        matches!(late, Err(astrabox_store::Error::Closed)),
        "{late:?}"
    );
    let read = place.store.session(id).await;
    assert!(
        matches!(read, Err(astrabox_store::Error::Closed)),
        "{read:?}"
    );
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_its_write_from_being_whole() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    for n in 0..20 {
        let events = vec![says(&format!("{n}a")), says(&format!("{n}b"))];
        let mut write = std::pin::pin!(place.store.commit(id, step(epoch, events)));
        let _ = futures::poll!(&mut write);
    }
    place
        .store
        .commit(id, step(epoch, vec![says("last")]))
        .await
        .expect("committed");
    let texts = crate::support::texts(&place.store, id).await;
    let steps = &texts[..texts.len() - 1];
    for pair in steps.chunks(2) {
        assert_eq!(pair.len(), 2, "whole: {texts:?}");
        assert_eq!(pair[0].trim_end_matches('a'), pair[1].trim_end_matches('b'));
    }
}
