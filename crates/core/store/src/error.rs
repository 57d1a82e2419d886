//! Why the store refused or failed.

/// A result of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The idempotency key was used with another request.
    #[error("the idempotency key was used with another request")]
    KeyReused,
    /// The writer's epoch is not the session's.
    #[error("the session has another owner")]
    OwnerChanged,
    /// Something with this unique name exists.
    #[error("it exists already")]
    Exists,
    /// The row is not there.
    #[error("it does not exist")]
    NotFound,
    /// The stored version is another one.
    #[error("the stored version is {stored}")]
    VersionConflict {
        /// The stored version.
        stored: u32,
    },
    /// Another row points to it.
    #[error("it is in use")]
    InUse,
    /// It is archived.
    #[error("it is archived")]
    Archived,
    /// It holds as much as it may.
    #[error("it is full")]
    Full,
    /// Somebody wrote it since it was read.
    #[error("it was changed at the same time")]
    Changed,
    /// A vault that is named does not exist.
    #[error("a vault does not exist")]
    NoVault,
    /// A page token of another list.
    #[error("the page token was not made for this list")]
    ForeignToken,
    /// A stored value cannot be read.
    #[error("a stored {what} cannot be read")]
    Corrupt {
        /// What it is.
        what: &'static str,
    },
    /// It was closed.
    #[error("the store is closed")]
    Closed,
    /// The group's commit failed.
    #[error("the commit failed")]
    Commit(#[source] std::sync::Arc<sqlx::Error>),
    /// The database failed.
    #[error("the database failed")]
    Database(#[source] sqlx::Error),
    /// The tables could not be brought up to date.
    #[error(
        "the database's tables could not be brought up to date; was it written by a newer version?"
    )]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolClosed => Self::Closed,
            error => Self::Database(error),
        }
    }
}

impl Error {
    /// Whether the database refused a second row of the same unique name.
    pub(crate) fn or_exists(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) if database.is_unique_violation() => Self::Exists,
            _ => error.into(),
        }
    }
}
