//! The runner's own log: one file with a cap, and the one before it.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::process::now_ms;

/// A log. What cannot be written is dropped: the log must never stop the runner.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    length: u64,
}

impl Log {
    /// Goes on with the log at `path`; begun anew at `limit` bytes.
    pub(crate) fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let file = append_to(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            limit,
            inner: Mutex::new(Inner { file, length }),
        })
    }

    /// The file, for a standard error that must go somewhere.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .try_clone()
    }

    /// Writes one line, with the time, milliseconds since the Unix epoch.
    pub(crate) fn line(&self, text: impl Display) {
        let text = format!("{} {text}", now_ms()).replace('\n', "\\n") + "\n";
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.length + text.len() as u64 > self.limit {
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            if fs::rename(&self.path, before).is_ok()
                && let Ok(file) = append_to(&self.path)
            {
                *inner = Inner { file, length: 0 };
            } else {
                return;
            }
        }
        if inner.file.write_all(text.as_bytes()).is_ok() {
            inner.length += text.len() as u64;
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_never_grows_beyond_twice_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runner.log");
        let log = Log::open(&path, 1000).unwrap();
        for number in 0..200 {
            log.line(format_args!("line {number}\nsecond half"));
        }
        let before = dir.path().join("runner.log.1");
        for path in [&path, &before] {
            let length = path.metadata().unwrap().len();
            assert!((1..=1000).contains(&length), "{length}");
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("line 199\\nsecond half\n"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
