//! Listing a directory in batches.

use std::os::fd::{AsFd as _, OwnedFd};

use astrabox_runner_protocol::{FileInfo, FileKind};
use rustix::fs::{AtFlags, Dir, OFlags, readlinkat, statat};
use rustix::io::Errno;

use super::{Files, Result, failed, info};

/// How many entries one batch has.
const BATCH: usize = 256;

/// A directory that is being listed.
#[derive(Debug)]
pub(crate) struct Listing {
    directory: OwnedFd,
    entries: Dir,
    path: String,
}

impl Files<'_> {
    /// Opens a directory to list it.
    pub(crate) fn list(&self, path: &str) -> Result<Listing> {
        const OPERATION: &str = "list_files";
        let directory = self.open(OPERATION, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let entries = Dir::read_from(&directory).map_err(|errno| failed(OPERATION, path, errno))?;
        Ok(Listing {
            directory,
            entries,
            path: path.to_owned(),
        })
    }
}

impl Listing {
    /// The next entries; empty at the end. Needs the same rights as opening it did.
    pub(crate) fn next(&mut self) -> Result<Vec<FileInfo>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some(entry) = self.entries.read() else {
                break;
            };
            let entry = entry.map_err(|errno| failed("list_files", &self.path, errno))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let directory = self.directory.as_fd();
            let text = name.to_string_lossy();
            match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    batch.push(info(&text, &stat, || {
                        readlinkat(directory, name, Vec::new())
                    }));
                }
                // Removed since it was listed.
                Err(Errno::NOENT) => {}
                // A directory that may be listed but not searched.
                Err(Errno::ACCESS) => batch.push(unknown(&text)),
                Err(errno) => return Err(failed("list_files", &self.path, errno)),
            }
        }
        Ok(batch)
    }
}

fn unknown(name: &str) -> FileInfo {
    FileInfo {
        name: name.to_owned(),
        kind: FileKind::Other,
        size: 0,
        mode: 0,
        modified_ms: 0,
        link_target: None,
    }
}
