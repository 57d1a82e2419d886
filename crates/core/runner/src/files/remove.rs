//! Removing a file or a tree, a few entries at a time.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{Files, Place, Result, failed};

/// How many entries are removed before others get their turn.
const STRIDE: usize = 256;

/// How deep a tree is walked. A deeper directory is first moved up to the top of the tree that goes away,
/// so that no depth exhausts descriptors.
const DEPTH: usize = 32;

/// How often a directory that fills while it is emptied is read again.
const REREADS: usize = 64;

/// A tree that is being removed.
#[derive(Debug)]
pub(crate) struct Removal {
    place: OwnedFd,
    name: CString,
    path: String,
    levels: Vec<Level>,
    moved: usize,
    rereads: usize,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    entries: Dir,
    /// Its name in the directory above.
    name: CString,
}

impl Files<'_> {
    /// Removes a file or an empty directory at once; with `recursive` gives what is left to do for a directory
    /// with something in it.
    pub(crate) fn remove(&self, path: &str, recursive: bool) -> Result<Option<Removal>> {
        const OPERATION: &str = "remove";
        let Place { directory, name } = self.place(OPERATION, path)?;
        let failed = |errno| failed(OPERATION, path, errno);
        let removed = match unlinkat(&directory, &name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(&directory, &name, AtFlags::REMOVEDIR),
            result => result,
        };
        match removed {
            Ok(()) => Ok(None),
            Err(Errno::NOTEMPTY) if recursive => {
                let name = CString::new(name).map_err(|_| failed(Errno::INVAL))?;
                let top = open_level(&directory, name.clone()).map_err(failed)?;
                Ok(Some(Removal {
                    place: directory,
                    name,
                    path: path.to_owned(),
                    levels: vec![top],
                    moved: 0,
                    rereads: 0,
                }))
            }
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn open_level(parent: &OwnedFd, name: CString) -> rustix::io::Result<Level> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, &name, flags, Mode::empty())?;
    let entries = Dir::read_from(&directory)?;
    Ok(Level {
        directory,
        entries,
        name,
    })
}

impl Removal {
    /// Removes some entries; gives whether everything is gone. Needs the same rights as beginning did.
    pub(crate) fn step(&mut self) -> Result<bool> {
        for _ in 0..STRIDE {
            if self
                .remove_one()
                .map_err(|errno| failed("remove", &self.path, errno))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes one entry; gives whether it was the last.
    fn remove_one(&mut self) -> rustix::io::Result<bool> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(true);
        };
        let Some(entry) = level.entries.read() else {
            return self.leave_level();
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(false);
        }
        match unlinkat(&level.directory, name, AtFlags::empty()) {
            // Gone already: the box is at work in the same tree.
            Ok(()) | Err(Errno::NOENT) => Ok(false),
            Err(Errno::ISDIR | Errno::PERM) => {
                let name = name.to_owned();
                self.enter(name).map(|()| false)
            }
            Err(errno) => Err(errno),
        }
    }

    fn enter(&mut self, name: CString) -> rustix::io::Result<()> {
        let deep = self.levels.len() >= DEPTH;
        let (Some(top), Some(level)) = (self.levels.first(), self.levels.last()) else {
            return Ok(());
        };
        if deep {
            self.moved += 1;
            let lifted = format!(".astrabox-removed-{}", self.moved);
            // The top level is read again until it is empty, so it finds what was moved there.
            return match renameat(&level.directory, &name, &top.directory, lifted) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            };
        }
        match open_level(&level.directory, name) {
            Ok(level) => self.levels.push(level),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Removes the directory of the last level, which was read to its end.
    fn leave_level(&mut self) -> rustix::io::Result<bool> {
        let above = self
            .levels
            .len()
            .checked_sub(2)
            .and_then(|index| self.levels.get(index));
        let parent = above.map_or(self.place.as_fd(), |level| level.directory.as_fd());
        let name = self.levels.last().map_or(&self.name, |level| &level.name);
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {
                self.levels.pop();
                Ok(self.levels.is_empty())
            }
            Err(Errno::NOTEMPTY) if self.rereads < REREADS + self.moved => {
                self.rereads += 1;
                if let Some(level) = self.levels.last_mut() {
                    level.entries.rewind();
                }
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }
}
