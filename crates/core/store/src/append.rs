//! The short way of most steps, which only add events and move the session: one round trip to the database.

use astrabox_types::{JournalEvent, Json, SessionId, SessionState, Timestamp};
use futures::TryStreamExt as _;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqliteConnection};

use crate::row::{json, text};
use crate::session::{SessionCommit, apply, own, push_patch};
use crate::{Error, Result};

/// The most events of a step that goes the short way: each number of them is a statement of its own in the cache.
const MOST: usize = 16;

/// Whether a step only adds events and moves the session.
pub(crate) fn is_short(commit: &SessionCommit) -> bool {
    commit.events.len() <= MOST
        && commit.inputs.is_empty()
        && commit.interactions.is_empty()
        && commit.native_state.is_none()
        && commit.answer.is_none()
        && !matches!(commit.session.state, Some((SessionState::Deleted, _)))
}

/// Makes a short step. When it fails with `OwnerChanged` or `NotFound`, nothing is written.
///
/// Its statements go to the database together. The first counts the events and holds the epoch; each other one adds an
/// event behind it, under the same condition.
pub(crate) async fn append(
    connection: &mut SqliteConnection,
    id: SessionId,
    commit: SessionCommit,
) -> Result<Vec<JournalEvent>> {
    let session = id.to_string();
    let epoch = i64::try_from(commit.epoch).map_err(|_| Error::OwnerChanged)?;
    let at = Timestamp::now();
    let count = i64::try_from(commit.events.len()).unwrap_or(i64::MAX);
    let mut seqs = {
        let mut query = statements(&session, epoch, at, count, &commit)?;
        let mut rows = query.build().fetch(&mut *connection);
        let mut seqs = Vec::with_capacity(commit.events.len() + 1);
        while let Some(row) = rows.try_next().await? {
            seqs.push(row.try_get::<i64, _>(0)?);
        }
        seqs.into_iter()
    };
    let Some(last) = seqs.next() else {
        own(connection, &session, commit.epoch).await?;
        return Err(Error::OwnerChanged);
    };
    if seqs.len() < commit.events.len() {
        // An event is there already, as after a crash: the others close up.
        undo(connection, &session, last - count).await?;
        return apply(connection, id, commit).await;
    }
    let events = commit.events.into_iter().zip(seqs);
    events
        .map(|(event, seq)| {
            Ok(JournalEvent {
                id: event.id,
                session_id: id,
                seq: u64::try_from(seq).map_err(|_| Error::Corrupt { what: "seq" })?,
                turn_id: event.turn_id,
                child_run: event.child_run,
                at,
                payload: event.payload,
                native: event.native,
            })
        })
        .collect()
}

fn statements(
    session: &str,
    epoch: i64,
    at: Timestamp,
    count: i64,
    commit: &SessionCommit,
) -> Result<QueryBuilder<Sqlite>> {
    let mut query = QueryBuilder::<Sqlite>::new("UPDATE sessions SET last_seq = last_seq + ");
    query.push_bind(count);
    push_patch(&mut query, at, &commit.session, &commit.runtime);
    let hold = |query: &mut QueryBuilder<Sqlite>| {
        query.push(" WHERE id = ").push_bind(session.to_owned());
        query.push(" AND epoch = ").push_bind(epoch);
    };
    hold(&mut query);
    query.push(" RETURNING last_seq");
    for (at_event, event) in (1..).zip(&commit.events) {
        query.push(
            "; INSERT INTO events (session_id, seq, id, turn_id, child_run, at, payload, native) \
             SELECT id, last_seq - ",
        );
        query.push_bind(count - at_event);
        for bound in [
            Some(event.id.to_string()),
            event.turn_id.map(|turn| turn.to_string()),
            event.child_run.as_ref().map(|run| run.0.clone()),
            Some(text(at)),
            Some(json("event", &event.payload)?),
            event.native.as_ref().map(Json::text).map(str::to_owned),
        ] {
            query.push(", ").push_bind(bound);
        }
        query.push(" FROM sessions");
        hold(&mut query);
        query.push(" ON CONFLICT (session_id, id) DO NOTHING RETURNING seq");
    }
    Ok(query)
}

/// Takes the events of a short step back.
async fn undo(connection: &mut SqliteConnection, session: &str, last: i64) -> Result<()> {
    sqlx::query("DELETE FROM events WHERE session_id = ? AND seq > ?")
        .bind(session)
        .bind(last)
        .execute(&mut *connection)
        .await?;
    sqlx::query("UPDATE sessions SET last_seq = ? WHERE id = ?")
        .bind(last)
        .bind(session)
        .execute(&mut *connection)
        .await?;
    Ok(())
}
