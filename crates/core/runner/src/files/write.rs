//! Writing a file that appears whole or not at all.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use astrabox_runner_protocol::{FileInfo, RunnerError, RunnerErrorKind, WriteFileOptions};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fchmod, fstat, fsync, openat, readlinkat, renameat_with,
    unlinkat,
};
use rustix::io::{Errno, write};

use super::{Files, Place, Result, failed, info};

/// What the names of unfinished files begin with.
const UNFINISHED: &str = ".astrabox-unfinished-";

/// A file that is being written. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Writing {
    directory: OwnedFd,
    name: String,
    path: String,
    unfinished: Option<String>,
    file: OwnedFd,
    options: WriteFileOptions,
    /// How many bytes it may still get.
    left: u64,
}

impl Files<'_> {
    /// Begins to write `path`.
    pub(crate) fn write(&self, path: &str, options: WriteFileOptions) -> Result<Writing> {
        const OPERATION: &str = "write_file";
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        if options.create_parents {
            self.make_parents(path)?;
        }
        let Place { directory, name } = self.place(OPERATION, path)?;
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        loop {
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let unfinished = format!("{UNFINISHED}{}-{count}", std::process::id());
            match openat(&directory, &unfinished, flags, Mode::from(0o600)) {
                // Left by a runner that was killed; the box may have made it, too.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(OPERATION, path, errno)),
                Ok(file) => {
                    return Ok(Writing {
                        directory,
                        name,
                        path: path.to_owned(),
                        unfinished: Some(unfinished),
                        file,
                        options,
                        left: self.policy.file_bytes,
                    });
                }
            }
        }
    }
}

impl Writing {
    /// Appends `data`.
    pub(crate) fn append(&mut self, mut data: &[u8]) -> Result<()> {
        if data.len() as u64 > self.left {
            let text = format!("{}: longer than one file may be", self.path);
            return Err(RunnerError::new(
                RunnerErrorKind::DiskFull,
                "write_file",
                text,
            ));
        }
        self.left -= data.len() as u64;
        while !data.is_empty() {
            match write(&self.file, data) {
                Ok(count) => data = &data[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(())
    }

    /// Gives the file its name. Needs the same rights as beginning did.
    pub(crate) fn finish(mut self) -> Result<FileInfo> {
        let mode = if self.options.mode == 0 {
            0o644
        } else {
            self.options.mode & 0o777
        };
        self.settle(mode).map_err(|errno| self.failed(errno))?;
        self.unfinished = None;
        let stat = fstat(&self.file).map_err(|errno| self.failed(errno))?;
        Ok(info(&self.name, &stat, || {
            readlinkat(&self.file, "", Vec::new())
        }))
    }

    fn settle(&self, mode: u32) -> rustix::io::Result<()> {
        fchmod(&self.file, Mode::from(mode))?;
        if self.options.sync {
            fsync(&self.file)?;
        }
        let flags = if self.options.exclusive {
            RenameFlags::NOREPLACE
        } else {
            RenameFlags::empty()
        };
        if let Some(unfinished) = &self.unfinished {
            renameat_with(
                &self.directory,
                unfinished,
                &self.directory,
                &self.name,
                flags,
            )?;
        }
        if self.options.sync {
            // The descriptor at hand is for lookups only; one for reading can be synced.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            fsync(openat(&self.directory, ".", flags, Mode::empty())?)?;
        }
        Ok(())
    }

    fn failed(&self, errno: Errno) -> RunnerError {
        failed("write_file", &self.path, errno)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // Nothing can be done about a failure; the name says what it is. With more rights than the box's
            // user this still removes one name, in a directory that user may write.
            let _ = unlinkat(&self.directory, unfinished, AtFlags::empty());
        }
    }
}
