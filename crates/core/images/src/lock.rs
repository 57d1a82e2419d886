//! File locks: held while the file is open, gone with the process that held them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How often a lock that somebody else holds is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Opens a lock file, which is made when it is not there and never removed.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Takes a lock for oneself alone, if nobody has it.
pub(crate) fn try_exclusive(file: &File) -> io::Result<bool> {
    taken(file.try_lock())
}

/// Takes a lock together with others who share it, if nobody has it alone.
pub(crate) fn try_shared(file: &File) -> io::Result<bool> {
    taken(file.try_lock_shared())
}

/// Takes a lock for oneself alone; `false` when it was not to be had within the limit.
pub(crate) async fn exclusive(file: &File, within: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + within;
    loop {
        if try_exclusive(file)? {
            return Ok(true);
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(false);
        }
        // The kernel's own wait for a lock can be neither cancelled nor limited.
        sleep_until(deadline.min(now + RETRY)).await;
    }
}

fn taken(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
