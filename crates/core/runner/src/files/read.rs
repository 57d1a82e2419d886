//! Reading a file piece by piece.

use std::os::fd::OwnedFd;

use astrabox_runner_protocol::{CHUNK_BYTES, FileInfo, FileKind, RunnerError, RunnerErrorKind};
use bytes::Bytes;
use rustix::fs::{OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, readlinkat};
use rustix::io::{Errno, pread};

use super::{Files, Result, failed, info, last_component};

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    file: OwnedFd,
    path: String,
    offset: u64,
    left: u64,
}

impl Files<'_> {
    /// Opens a regular file to read at most `limit` bytes from `offset` on; to the end when 0.
    pub(crate) fn read(self, path: &str, offset: u64, limit: u64) -> Result<(FileInfo, Reading)> {
        const OPERATION: &str = "read_file";
        let file = self.open(OPERATION, path, OFlags::RDONLY)?;
        let failed = |errno| failed(OPERATION, path, errno);
        let stat = fstat(&file).map_err(failed)?;
        let info = info(last_component(path), &stat, || {
            readlinkat(&file, "", Vec::new())
        });
        if info.kind != FileKind::File {
            let text = format!("{path} is not a regular file");
            return Err(RunnerError::new(
                RunnerErrorKind::WrongFileKind,
                OPERATION,
                text,
            ));
        }
        // Its files are no content but windows on processes, and some are opened with the runner's rights.
        if fstatfs(&file).map_err(failed)?.f_type == PROC_SUPER_MAGIC {
            let text = format!("{path} is not a stored file");
            return Err(RunnerError::new(
                RunnerErrorKind::PathDenied,
                OPERATION,
                text,
            ));
        }
        let left = if limit == 0 { u64::MAX } else { limit };
        Ok((
            info,
            Reading {
                file,
                path: path.to_owned(),
                offset,
                left,
            },
        ))
    }
}

impl Reading {
    /// The next bytes; empty at the end.
    pub(crate) fn next(&mut self) -> Result<Bytes> {
        let wanted = usize::try_from(self.left)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        let mut chunk = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            match pread(&self.file, &mut chunk[filled..], self.offset) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                    self.left -= count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("read_file", &self.path, errno)),
            }
        }
        chunk.truncate(filled);
        Ok(chunk.into())
    }
}
