//! Files that were there before.

use astrabox_store::{Error, Store};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::support::{Place, key, says, step, texts};

async fn execute(place: &Place, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(place.path());
    let mut connection = options.connect().await.expect("a connection");
    sqlx::query(sql)
        .execute(&mut connection)
        .await
        .expect("executed");
    connection.close().await.expect("closed");
}

#[tokio::test]
async fn everything_is_there_after_a_reopening() {
    let mut place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let mut commit = step(epoch, vec![says("before")]);
    commit.answer = key("k", "a").map(|key| (key, "7".to_owned()));
    place.store.commit(id, commit).await.expect("committed");
    let row = place.store.session(id).await.expect("there");
    place.reopen().await;
    assert_eq!(place.store.session(id).await.expect("there"), row);
    assert_eq!(texts(&place.store, id).await, ["before"]);
    let answer = place
        .store
        .answer_of::<u32>(&key("k", "a").expect("a key"))
        .await;
    assert_eq!(answer.expect("read"), Some(7));
    place
        .store
        .commit(id, step(epoch, vec![says("after")]))
        .await
        .expect("the epoch holds");
    assert_eq!(texts(&place.store, id).await, ["before", "after"]);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_left_as_it_is() {
    let place = Place::new().await;
    let id = place.session().await;
    place.store.close().await;
    execute(
        &place,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (99, 'later', 1, x'00', 0)",
    )
    .await;
    let before = std::fs::read(place.path()).expect("the file");
    let refused = Store::open(&place.path()).await;
    let error = refused.err().expect("it is refused");
    assert!(matches!(error, Error::Migrate(_)), "{error:?}");
    assert!(error.to_string().contains("newer version"), "{error}");
    assert_eq!(std::fs::read(place.path()).expect("the file"), before);
    execute(&place, "DELETE FROM _sqlx_migrations WHERE version = 99").await;
    let store = Store::open(&place.path()).await.expect("it opens");
    store.session(id).await.expect("it is there");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    std::fs::write(
        &path,
        "a text that is long enough to be looked at as a header, but is none",
    )
    .expect("written");
    assert!(Store::open(&path).await.is_err());
    assert!(Store::open(&dir.path().join("none/db")).await.is_err());
}

#[tokio::test]
async fn old_keys_are_forgotten_and_young_ones_are_not() {
    let mut place = Place::new().await;
    let (id, epoch) = place.owned().await;
    for name in ["old", "young"] {
        let mut commit = step(epoch, vec![]);
        commit.answer = key(name, "a").map(|key| (key, "7".to_owned()));
        place.store.commit(id, commit).await.expect("committed");
    }
    place.store.close().await;
    let sql =
        "UPDATE idempotency SET created_at = '2020-01-01T00:00:00.000000000Z' WHERE key = 'old'";
    execute(&place, sql).await;
    place.reopen().await;
    for (name, expected) in [("old", None), ("young", Some(7))] {
        let answer = place
            .store
            .answer_of::<u32>(&key(name, "a").expect("a key"))
            .await;
        assert_eq!(answer.expect("read"), expected, "{name}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_read_is_an_error_and_not_a_guess() {
    let place = Place::new().await;
    let id = place.session().await;
    execute(&place, "UPDATE sessions SET state = 'DREAMING'").await;
    let read = place.store.session(id).await;
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
    execute(
        &place,
        "UPDATE events SET payload = '{\"unknown.event\":{}}'",
    )
    .await;
    let read = place.store.events(id, 0, 10).await;
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
}

#[tokio::test]
async fn two_stores_over_one_file_see_each_others_writes() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let other = Store::open(&place.path()).await.expect("it opens");
    place
        .store
        .commit(id, step(epoch, vec![says("one")]))
        .await
        .expect("committed");
    assert_eq!(texts(&other, id).await, ["one"]);
    let taken = other.claim(id).await.expect("claimed");
    other
        .commit(id, step(taken, vec![says("two")]))
        .await
        .expect("committed");
    let refused = place
        .store
        .commit(id, step(epoch, vec![says("stale")]))
        .await;
    assert!(matches!(refused, Err(Error::OwnerChanged)), "{refused:?}");
    assert_eq!(texts(&place.store, id).await, ["one", "two"]);
    other.close().await;
}
