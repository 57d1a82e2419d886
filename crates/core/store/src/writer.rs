//! The one task that writes: waiting jobs share a transaction, each in its own savepoint.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqlSafeStr, SqliteConnection};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::{Error, Result};

/// Jobs that may wait; more make their callers wait.
const QUEUE: usize = 1024;
/// Jobs that share one commit at the most, so that the first does not wait too long.
const GROUP: usize = 256;

type Reply = Box<dyn FnOnce(std::result::Result<(), Arc<sqlx::Error>>) + Send>;
type Work = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, (End, Reply)> + Send>;

/// One write.
struct Job {
    /// Whether what it did can be undone alone.
    savepoint: bool,
    work: Work,
}

/// How a write ended.
enum End {
    /// It is done.
    Done,
    /// It failed and changed nothing, or what it changed is to be undone.
    Failed,
    /// It failed half-way, and cannot be undone alone.
    Broken,
}

/// A handle to the writer task.
#[derive(Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Job>,
    task: Arc<Mutex<Option<Task>>>,
    #[cfg(feature = "fault-points")]
    pub(crate) fault: Option<crate::FaultPoint>,
    #[cfg(feature = "fault-points")]
    words: crate::Words,
}

/// The writer's task and how it is told to end.
struct Task {
    stop: oneshot::Sender<()>,
    tasks: JoinSet<()>,
}

/// How every connection is opened.
pub(crate) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10))
        .disable_statement_logging()
}

impl Writer {
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        let mut connection = options(path).create_if_missing(true).connect().await?;
        migrations().run(&mut connection).await?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(run(connection, queue, stopped));
        Ok(Self {
            jobs,
            task: Arc::new(Mutex::new(Some(Task { stop, tasks }))),
            #[cfg(feature = "fault-points")]
            fault: None,
            #[cfg(feature = "fault-points")]
            words: Vec::new(),
        })
    }

    /// This writer, whose fault points are told what is written.
    #[cfg(feature = "fault-points")]
    pub(crate) fn told(&self, words: crate::Words) -> Self {
        Self {
            words,
            ..self.clone()
        }
    }

    /// Runs `work` in a transaction and returns when it is on disk. An error of `work` undoes its changes only.
    #[cfg(feature = "fault-points")]
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        let Some(fault) = &self.fault else {
            return self.write_now(work).await;
        };
        fault(crate::Moment::BeforeWrite, self.words.clone()).await;
        let done = self.write_now(work).await;
        fault(crate::Moment::AfterWrite, self.words.clone()).await;
        done
    }

    /// Runs `work` in a transaction and returns when it is on disk. An error of `work` undoes its changes only.
    #[cfg(not(feature = "fault-points"))]
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        self.write_now(work).await
    }

    /// As `write`, for work that changes nothing when it fails with `OwnerChanged` or `NotFound`; any other error of it
    /// undoes the whole group.
    #[cfg(feature = "fault-points")]
    pub(crate) async fn write_short<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        let Some(fault) = &self.fault else {
            return self.send(false, work).await;
        };
        fault(crate::Moment::BeforeWrite, self.words.clone()).await;
        let done = self.send(false, work).await;
        fault(crate::Moment::AfterWrite, self.words.clone()).await;
        done
    }

    /// As `write`, for work that changes nothing when it fails with `OwnerChanged` or `NotFound`; any other error of it
    /// undoes the whole group.
    #[cfg(not(feature = "fault-points"))]
    pub(crate) async fn write_short<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        self.send(false, work).await
    }

    async fn write_now<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        self.send(true, work).await
    }

    async fn send<T, F>(&self, savepoint: bool, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T>> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let work: Work = Box::new(move |connection| {
            Box::pin(async move {
                let result = work(connection).await;
                let end = match &result {
                    Ok(_) => End::Done,
                    Err(Error::OwnerChanged | Error::NotFound) => End::Failed,
                    Err(_) if savepoint => End::Failed,
                    Err(_) => End::Broken,
                };
                let reply: Reply = Box::new(move |committed| {
                    let result =
                        result.and_then(|value| committed.map_err(Error::Commit).map(|()| value));
                    // The caller may have gone; the write holds all the same.
                    let _ = sender.send(result);
                });
                (end, reply)
            })
        });
        let job = Job { savepoint, work };
        self.jobs.send(job).await.map_err(|_| Error::Closed)?;
        receiver.await.map_err(|_| Error::Closed)?
    }

    /// Ends the task after everything that was sent before is written.
    pub(crate) async fn close(&self) {
        if let Some(Task { stop, mut tasks }) = self.task.lock().await.take() {
            let _ = stop.send(());
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "the store's writer failed");
                }
            }
        }
    }
}

/// The tables, in the order in which they came.
const MIGRATIONS: [(i64, &str, &str); 2] = [
    (1, "begin", include_str!("../migrations/0001_begin.sql")),
    (2, "vaults", include_str!("../migrations/0002_vaults.sql")),
];

fn migrations() -> Migrator {
    let migrations = MIGRATIONS.into_iter().map(|(version, name, sql)| {
        let kind = MigrationType::Simple;
        Migration::new(
            version,
            Cow::Borrowed(name),
            kind,
            sql.into_sql_str(),
            false,
        )
    });
    Migrator::with_migrations(migrations.collect())
}

async fn run(
    mut connection: SqliteConnection,
    mut queue: mpsc::Receiver<Job>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut stopping = false;
    loop {
        let job = tokio::select! {
            biased;
            job = queue.recv() => job,
            _ = &mut stopped, if !stopping => {
                stopping = true;
                queue.close();
                continue;
            }
        };
        let Some(job) = job else { break };
        write_group(&mut connection, job, &mut queue).await;
    }
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "closing the database failed");
    }
}

async fn write_group(
    connection: &mut SqliteConnection,
    first: Job,
    queue: &mut mpsc::Receiver<Job>,
) {
    let mut replies = Vec::new();
    let outcome = match execute(connection, "BEGIN IMMEDIATE").await {
        Ok(()) => {
            let mut next = Some(first);
            let mut failed = None;
            while let Some(job) = next {
                let done = match job.savepoint {
                    true => in_savepoint(connection, job.work).await,
                    false => without_savepoint(connection, job.work).await,
                };
                match done {
                    Ok(reply) => replies.push(reply),
                    Err((error, reply)) => {
                        replies.extend(reply);
                        failed = Some(error);
                        break;
                    }
                }
                next = if replies.len() < GROUP {
                    queue.try_recv().ok()
                } else {
                    None
                };
            }
            match failed {
                None => execute(connection, "COMMIT").await,
                Some(error) => Err(error),
            }
        }
        // The job did not run; dropping it tells its caller that the store is closed.
        Err(error) => Err(error),
    };
    if let Err(error) = &outcome {
        tracing::error!(%error, "a group of writes failed");
        // After a failed commit there may be no transaction left to undo.
        let _ = execute(connection, "ROLLBACK").await;
    }
    let outcome = outcome.map_err(Arc::new);
    for reply in replies {
        reply(outcome.clone());
    }
}

async fn without_savepoint(
    connection: &mut SqliteConnection,
    work: Work,
) -> std::result::Result<Reply, (sqlx::Error, Option<Reply>)> {
    let (end, reply) = work(connection).await;
    match end {
        End::Done | End::Failed => Ok(reply),
        // Its caller is told its own error; the others that theirs was not written.
        End::Broken => {
            let error = sqlx::Error::Protocol("a step of this group failed half-way".to_owned());
            Err((error, Some(reply)))
        }
    }
}

async fn in_savepoint(
    connection: &mut SqliteConnection,
    work: Work,
) -> std::result::Result<Reply, (sqlx::Error, Option<Reply>)> {
    execute(connection, "SAVEPOINT job")
        .await
        .map_err(|error| (error, None))?;
    let (end, reply) = work(connection).await;
    let undo = !matches!(end, End::Done);
    let end = async {
        if undo {
            execute(connection, "ROLLBACK TO job").await?;
        }
        execute(connection, "RELEASE job").await
    };
    match end.await {
        Ok(()) => Ok(reply),
        Err(error) => Err((error, Some(reply))),
    }
}

async fn execute(
    connection: &mut SqliteConnection,
    sql: &'static str,
) -> std::result::Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await.map(drop)
}
