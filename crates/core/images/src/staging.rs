//! Folders of builds that are not finished.
//!
//! Each holds an open, locked file. The lock goes with the process that builds, so what nobody has locked is
//! left over and removed by the next who opens the cache. The package client inherits the locked file as its
//! standard input: as long as it runs, whatever became of the builder, its folder stays.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::lock;

const GUARD: &str = "guard.lock";
const HELD: &str = "held.lock";

/// One build's folder, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Staging {
    dir: PathBuf,
    held: File,
}

impl Staging {
    /// Makes a folder in `parent`.
    pub(crate) fn create(parent: &Path) -> io::Result<Self> {
        // Between making the folder and locking it, a sweep must not see it.
        let guard = lock::open(&parent.join(GUARD))?;
        guard.lock_shared()?;
        let dir = tempfile::Builder::new()
            .prefix("build-")
            .tempdir_in(parent)?;
        let held = lock::open(&dir.path().join(HELD))?;
        held.lock()?;
        let dir = dir.keep();
        Ok(Self { dir, held })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes a folder in it, readable by its owner alone.
    pub(crate) fn subdir(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.dir.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// The locked file, which is empty, as the standard input of a child.
    pub(crate) fn stdin(&self) -> io::Result<File> {
        self.held.try_clone()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next who opens the cache.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes the folders in `parent` that nobody holds; tells how many.
pub(crate) fn sweep(parent: &Path) -> io::Result<usize> {
    let guard = lock::open(&parent.join(GUARD))?;
    if !lock::try_exclusive(&guard)? {
        // Somebody makes a folder or sweeps just now; the next opening comes.
        return Ok(0);
    }
    let mut removed = 0;
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && is_left_over(&entry.path())? {
            fs::remove_dir_all(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn is_left_over(dir: &Path) -> io::Result<bool> {
    match File::open(dir.join(HELD)) {
        Ok(held) => lock::try_exclusive(&held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::mem::{self, ManuallyDrop};

    use super::{Staging, sweep};

    #[test]
    fn a_held_folder_stays_and_a_left_over_one_goes() {
        let parent = tempfile::tempdir().unwrap();
        let staging = Staging::create(parent.path()).unwrap();
        let left = parent.path().join("build-left");
        fs::create_dir_all(left.join("node_modules/x")).unwrap();
        assert_eq!(sweep(parent.path()).unwrap(), 1);
        assert!(!left.exists());
        assert!(staging.path().is_dir());
        let path = staging.path().to_owned();
        drop(staging);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_whose_client_still_runs_stays() {
        let parent = tempfile::tempdir().unwrap();
        let staging = Staging::create(parent.path()).unwrap();
        let client = staging.stdin().unwrap();
        let path = staging.path().to_owned();
        // As when the builder is killed: nothing is removed, only its files are closed.
        let mut staging = ManuallyDrop::new(staging);
        drop(mem::replace(
            &mut staging.held,
            File::open("/dev/null").unwrap(),
        ));
        assert_eq!(sweep(parent.path()).unwrap(), 0);
        assert!(path.exists());
        drop(client);
        assert_eq!(sweep(parent.path()).unwrap(), 1);
    }
}
