//! The durable state: the only crate that speaks SQL.
//!
//! Invariant: nothing is acknowledged before it is on disk; one writer task owns every write.
//!
//! SQLite in WAL mode with `synchronous = FULL`. Writes that wait at the same time share one commit.

mod append;
mod error;
#[cfg(feature = "fault-points")]
mod fault;
mod keyed;
mod page;
mod read;
mod resources;
mod row;
mod session;
mod vault_read;
mod vaults;
mod writer;

use std::path::Path;

use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

pub use error::{Error, Result};
#[cfg(feature = "fault-points")]
pub use fault::{FaultPoint, Moment, Words};
pub use keyed::Key;
pub use page::{Page, PageToken};
pub use resources::{EnvironmentWrite, NewSession};
pub use row::{InputRow, InputState, InteractionRow, SessionFilter, SessionRow};
pub use session::{
    InputChange, InteractionChange, NativeFile, NewEvent, RuntimePatch, SessionCommit, SessionPatch,
};
pub use vaults::{CredentialRow, CredentialWrite, VaultPatch};

use writer::Writer;

/// The open store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: Writer,
    readers: SqlitePool,
}

/// Connections that read at the same time.
const READERS: u32 = 4;

impl Store {
    /// Opens the database file, makes it when it does not exist, and brings its tables up to date.
    ///
    /// # Errors
    /// When the file cannot be opened or was written by a newer version.
    pub async fn open(path: &Path) -> Result<Self> {
        let writer = Writer::open(path).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(writer::options(path).read_only(true))
            .await?;
        let store = Self { writer, readers };
        store.forget_old_keys().await?;
        Ok(store)
    }

    /// Calls `point` before and after each write of this handle and of its clones.
    #[cfg(feature = "fault-points")]
    #[must_use]
    pub fn with_fault_point(mut self, point: FaultPoint) -> Self {
        self.writer.fault = Some(point);
        self
    }

    /// Ends the writer after everything that waits is written, and closes the file.
    pub async fn close(&self) {
        self.writer.close().await;
        self.readers.close().await;
    }
}
