//! Mutating calls with an idempotency key: the first answer is kept and given again.

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Row, SqliteConnection};

use crate::row::now;
use crate::{Error, Result, Store};

/// How long answers are kept, days; far longer than any client retries.
const KEPT_DAYS: i64 = 30;

/// A caller's key for one operation, with a digest of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Who calls; keys of different callers never meet.
    pub actor: String,
    /// The operation.
    pub operation: &'static str,
    /// The caller's key.
    pub key: String,
    /// A digest of the request.
    pub digest: String,
}

impl Store {
    /// Runs `work` once for this key; a repeated call gets the first answer without running it.
    pub(crate) async fn keyed<T, F>(&self, key: Option<Key>, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        self.writer
            .write(move |connection| {
                Box::pin(async move {
                    let Some(key) = key else {
                        return work(connection).await;
                    };
                    if let Some(answer) = answer_of(connection, &key).await? {
                        return serde_json::from_str(&answer)
                            .map_err(|_| Error::Corrupt { what: "answer" });
                    }
                    let value = work(connection).await?;
                    let answer = serde_json::to_string(&value)
                        .map_err(|_| Error::Corrupt { what: "answer" })?;
                    remember(connection, &key, &answer).await?;
                    Ok(value)
                })
            })
            .await
    }

    /// The answer of an earlier call with this key.
    ///
    /// # Errors
    /// `KeyReused` when the key was used with another request.
    pub async fn answer_of<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        let mut connection = self.readers.acquire().await?;
        match answer_of(&mut connection, key).await? {
            None => Ok(None),
            Some(answer) => serde_json::from_str(&answer)
                .map(Some)
                .map_err(|_| Error::Corrupt { what: "answer" }),
        }
    }

    /// Keeps the answer of a call that changed something else than the database.
    ///
    /// # Errors
    /// `KeyReused` when the key was used with another request.
    pub async fn keep_answer<T>(&self, key: Option<Key>, answer: T) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.keyed(key, move |_| Box::pin(async move { Ok(answer) }))
            .await
    }

    pub(crate) async fn forget_old_keys(&self) -> Result<()> {
        self.writer
            .write(|connection| {
                Box::pin(async move {
                    let since = jiff_days_ago(KEPT_DAYS);
                    sqlx::query("DELETE FROM idempotency WHERE created_at < ?")
                        .bind(since)
                        .execute(connection)
                        .await?;
                    Ok(())
                })
            })
            .await
    }
}

fn jiff_days_ago(days: i64) -> String {
    let now = astrabox_types::Timestamp::now();
    let before = astrabox_types::Timestamp::from_second(now.as_second() - days * 86_400);
    crate::row::text(before.unwrap_or(now))
}

async fn answer_of(connection: &mut SqliteConnection, key: &Key) -> Result<Option<String>> {
    let row = sqlx::query(
        "SELECT digest, answer FROM idempotency WHERE actor = ? AND operation = ? AND key = ?",
    )
    .bind(&key.actor)
    .bind(key.operation)
    .bind(&key.key)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if row.try_get::<String, _>("digest")? != key.digest {
        return Err(Error::KeyReused);
    }
    Ok(Some(row.try_get("answer")?))
}

pub(crate) async fn remember(
    connection: &mut SqliteConnection,
    key: &Key,
    answer: &str,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO idempotency (actor, operation, key, digest, answer, created_at) VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(&key.actor)
    .bind(key.operation)
    .bind(&key.key)
    .bind(&key.digest)
    .bind(answer)
    .bind(now())
    .execute(connection)
    .await
    .map_err(|error| match Error::or_exists(error) {
        // Another session's call used it a moment ago.
        Error::Exists => Error::KeyReused,
        error => error,
    })?;
    Ok(())
}
