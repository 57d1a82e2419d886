//! Bytes with offsets, on disk until they are acknowledged.
//!
//! Files are written without waiting for the disk: the spool has to outlive the runner's callers, not the
//! kernel, because the box does not outlive the kernel either.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use astrabox_runner_protocol::{CHUNK_BYTES, RunnerErrorKind, state};
use bytes::Bytes;

/// A spool is at most this many files and one.
const SEGMENTS: u64 = 8;

/// A last segment shorter than this stays when it is acknowledged, so that short lines, each acknowledged
/// at once, do not make and remove a file each.
const KEEP_BYTES: u64 = 256 << 10;

/// A row of bytes from `lowest` to `next`, of which `capacity` at the most are held.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    capacity: u64,
    segments: VecDeque<Segment>,
    lowest: u64,
    next: u64,
    /// What was appended last and where, if it is short: what a reader that keeps up wants.
    tail: (u64, Bytes),
}

#[derive(Debug)]
struct Segment {
    start: u64,
    length: u64,
    file: File,
    path: PathBuf,
}

impl Spool {
    /// An empty spool. The directory is made with the first byte.
    pub(crate) fn new(directory: PathBuf, capacity: u64) -> Self {
        Self {
            directory,
            capacity,
            segments: VecDeque::new(),
            lowest: 0,
            next: 0,
            tail: (0, Bytes::new()),
        }
    }

    /// What an earlier runner left, to be read and acknowledged but not to be appended to.
    pub(crate) fn restore(directory: PathBuf) -> io::Result<Self> {
        let mut spool = Self::new(directory, 0);
        for found in state::segments(&spool.directory)? {
            spool.segments.push_back(Segment {
                start: found.start,
                length: found.length,
                file: File::open(&found.path)?,
                path: found.path,
            });
        }
        if let (Some(first), Some(last)) = (spool.segments.front(), spool.segments.back()) {
            (spool.lowest, spool.next) = (first.start, last.start + last.length);
        }
        spool.tail.0 = spool.next;
        Ok(spool)
    }

    /// The lowest offset that can be read.
    pub(crate) fn lowest(&self) -> u64 {
        self.lowest
    }

    /// The offset of the next byte.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// How many bytes it holds at the most.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many bytes can be appended now.
    pub(crate) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.next - self.lowest)
    }

    /// Appends all of `data`, or nothing and gives the error. The caller looks after the room.
    pub(crate) fn append(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let longest = (self.capacity / SEGMENTS).max(CHUNK_BYTES as u64);
        if self
            .segments
            .back()
            .is_none_or(|last| last.length >= longest)
        {
            let segment = self.new_segment()?;
            self.segments.push_back(segment);
        }
        if let Some(last) = self.segments.back_mut() {
            last.file.write_all_at(&data, last.length)?;
            last.length += data.len() as u64;
        }
        let start = self.next;
        self.next += data.len() as u64;
        self.tail = if data.len() <= CHUNK_BYTES {
            (start, data)
        } else {
            (self.next, Bytes::new())
        };
        Ok(())
    }

    /// At most `limit` bytes from `offset` on, at least one unless `offset` is the next one.
    pub(crate) fn read(&self, offset: u64, limit: usize) -> Result<Bytes, SpoolError> {
        self.check(offset)?;
        if offset >= self.tail.0 {
            let from = usize::try_from(offset - self.tail.0).unwrap_or(usize::MAX);
            let to = self.tail.1.len().min(from.saturating_add(limit));
            return Ok(self.tail.1.slice(from.min(to)..to));
        }
        let after = self
            .segments
            .partition_point(|segment| segment.start <= offset);
        let Some(segment) = after
            .checked_sub(1)
            .and_then(|index| self.segments.get(index))
        else {
            return Err(SpoolError::Io(io::ErrorKind::NotFound.into()));
        };
        let within = offset - segment.start;
        let left = usize::try_from(segment.length - within).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(limit)];
        segment
            .file
            .read_exact_at(&mut bytes, within)
            .map_err(SpoolError::Io)?;
        Ok(bytes.into())
    }

    /// Refuses an offset that was freed or does not exist yet.
    pub(crate) fn check(&self, offset: u64) -> Result<(), SpoolError> {
        let (lowest, next) = (self.lowest, self.next);
        if offset < lowest {
            return Err(SpoolError::Freed { lowest, next });
        }
        if offset > next {
            return Err(SpoolError::Ahead { lowest, next });
        }
        Ok(())
    }

    /// Gives up everything below `offset`.
    pub(crate) fn free(&mut self, offset: u64) -> Result<(), SpoolError> {
        if offset <= self.lowest {
            return Ok(());
        }
        self.check(offset)?;
        self.lowest = offset;
        while let Some(first) = self.segments.front() {
            if first.start + first.length > offset {
                break;
            }
            if self.segments.len() == 1 {
                // The last name stays in any case: it says where the row goes on.
                if first.length < KEEP_BYTES {
                    break;
                }
                let Ok(segment) = self.new_segment() else {
                    break;
                };
                self.segments.push_back(segment);
                continue;
            }
            // The disk space comes back when the file is closed, which the pop does. A name that cannot be
            // removed now goes with the directory.
            let _ = fs::remove_file(&first.path);
            self.segments.pop_front();
        }
        Ok(())
    }

    fn new_segment(&self) -> io::Result<Segment> {
        let path = self.directory.join(state::segment_name(self.next));
        let file = match create(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory)?;
                create(&path)?
            }
            file => file?,
        };
        Ok(Segment {
            start: self.next,
            length: 0,
            file,
            path,
        })
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Why a spool does not have what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// It was freed.
    #[error("bytes below offset {lowest} were freed")]
    Freed {
        /// The lowest offset that can be read.
        lowest: u64,
        /// The offset of the next byte.
        next: u64,
    },
    /// It does not exist yet.
    #[error("there are no bytes from offset {next} on yet")]
    Ahead {
        /// The lowest offset that can be read.
        lowest: u64,
        /// The offset of the next byte.
        next: u64,
    },
    /// The spool was dropped with the record of its process.
    #[error("the record was dropped")]
    Dropped,
    /// The disk.
    #[error("the spool: {0}")]
    Io(io::Error),
}

impl SpoolError {
    /// As the protocol says it.
    pub(crate) fn kind(&self) -> RunnerErrorKind {
        match *self {
            Self::Freed { lowest, next } => RunnerErrorKind::OffsetFreed { lowest, next },
            Self::Ahead { lowest, next } => RunnerErrorKind::OffsetAhead { lowest, next },
            Self::Dropped => RunnerErrorKind::NotFound,
            Self::Io(_) => RunnerErrorKind::Internal,
        }
    }
}

#[cfg(test)]
mod tests;
