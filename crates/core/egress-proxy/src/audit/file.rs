//! A log file that is renamed away when it has grown, in a directory held by its descriptor.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// The newest part of the audit log, in JSON lines; older parts end in `.1` to `.4`.
pub const AUDIT_FILE: &str = "audit.jsonl";

/// When a part is full, in bytes.
const PART: u64 = 16 * 1024 * 1024;

/// How many full parts are kept.
const KEPT: usize = 4;

/// The log. The directory is held open, so that it can be written after its parents became unreachable.
pub(super) struct RotatingFile {
    directory: OwnedFd,
    file: File,
    length: u64,
    part: u64,
    failing: bool,
}

impl RotatingFile {
    pub(super) fn open(directory: OwnedFd) -> io::Result<Self> {
        Self::with_part(directory, PART)
    }

    fn with_part(directory: OwnedFd, part: u64) -> io::Result<Self> {
        let file = match open_part(&directory) {
            Ok(file) => file,
            // A part that another user wrote: the directory is ours, so it makes way.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                rotate(&directory)?;
                open_part(&directory)?
            }
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        Ok(Self {
            directory,
            file,
            length,
            part,
            failing: false,
        })
    }

    /// Appends whole lines. A disk that fails costs lines, which is said once, and stops nobody.
    pub(super) fn write(&mut self, lines: &[u8]) {
        match self.try_write(lines) {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(%error, "the audit log cannot be written; decisions go unrecorded");
            }
            Err(_) => {}
        }
    }

    fn try_write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + lines.len() as u64 > self.part {
            rotate(&self.directory)?;
            self.file = open_part(&self.directory)?;
            self.length = 0;
        }
        self.file.write_all(lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }
}

fn open_part(directory: &OwnedFd) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(directory, AUDIT_FILE, flags, mode)?;
    Ok(file.into())
}

fn rotate(directory: &OwnedFd) -> io::Result<()> {
    let name = |number: usize| match number {
        0 => AUDIT_FILE.to_owned(),
        number => format!("{AUDIT_FILE}.{number}"),
    };
    for number in (0..KEPT).rev() {
        match rustix::fs::renameat(directory, name(number), directory, name(number + 1)) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_part_is_renamed_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let directory = File::open(folder.path()).unwrap();
            RotatingFile::with_part(directory.into(), 10).unwrap()
        };
        let mut log = open();
        for number in 0..8 {
            log.write(format!("line {number}\n").as_bytes());
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        assert_eq!(read("audit.jsonl").unwrap(), "line 7\n");
        assert_eq!(read("audit.jsonl.1").unwrap(), "line 6\n");
        assert_eq!(read("audit.jsonl.4").unwrap(), "line 3\n");
        assert!(read("audit.jsonl.5").is_err());

        // What a role wrote before counts for the one that comes after it.
        let mut log = open();
        log.write(b"line 8\n");
        assert_eq!(read("audit.jsonl.1").unwrap(), "line 7\n");
    }
}
