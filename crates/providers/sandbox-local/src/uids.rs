//! A host user id of its own for each living sandbox, claimed for the whole host.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use astrabox_sandbox::{Error, ErrorKind, Result};

use crate::error::host;
use crate::folder::private_dirs;

/// Where root's servers of this host meet: emptied by a reboot, as sandboxes are.
const MEETING_PLACE: &str = "/run/astrabox-uids";

/// The host's user ids for sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct Uids {
    place: PathBuf,
    first: u32,
    count: u32,
    /// Where the next search begins.
    next: Arc<AtomicU32>,
}

impl Uids {
    pub(crate) fn new(first: u32, count: u32) -> Self {
        Self {
            place: PathBuf::from(MEETING_PLACE),
            first,
            count,
            next: Arc::default(),
        }
    }

    /// Claims an id for the sandbox whose record is at `owner`. A claim holds as long as that record exists or a
    /// process of this host has the id, so one whose server was removed from the disk becomes free again.
    pub(crate) fn claim(&self, owner: &Path) -> Result<u32> {
        self.claimed(owner)
            .map_err(|error| host("create", "claiming a user id", error))?
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::NoCapacity,
                    "create",
                    "every user id for sandboxes is in use on this host",
                )
            })
    }

    fn claimed(&self, owner: &Path) -> io::Result<Option<u32>> {
        let _lock = self.lock()?;
        // After the last one: those before it are probably in use.
        let begin = self.next.load(Ordering::Relaxed).min(self.count);
        for offset in (begin..self.count).chain(0..begin) {
            let uid = self.first + offset;
            let path = self.place.join(uid.to_string());
            if is_free(&path, uid)? {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&path)?;
                // Nothing that it tells of outlives the host's power supply, so it need not either.
                file.write_all(owner.as_os_str().as_encoded_bytes())?;
                self.next.store(offset + 1, Ordering::Relaxed);
                return Ok(Some(uid));
            }
        }
        Ok(None)
    }

    /// Gives an id back, if it is still this owner's.
    pub(crate) fn release(&self, uid: u32, owner: &Path) -> Result<()> {
        let released = || -> io::Result<()> {
            let _lock = self.lock()?;
            let path = self.place.join(uid.to_string());
            match fs::read(&path) {
                Ok(text) if text == owner.as_os_str().as_encoded_bytes() => fs::remove_file(&path),
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            }
        };
        released().map_err(|error| host("destroy", "giving a user id back", error))
    }

    fn lock(&self) -> io::Result<File> {
        private_dirs(&self.place)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.place.join("lock"))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

fn is_free(path: &Path, uid: u32) -> io::Result<bool> {
    match fs::read(path) {
        Ok(owner) => {
            Ok(!PathBuf::from(OsString::from_vec(owner)).try_exists()? && !has_process(uid)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a process of this host runs as this user.
fn has_process(uid: u32) -> io::Result<bool> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // Processes come and go meanwhile. The owner of the entry would not do: that of a process that hides its
        // memory is root (proc(5)).
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let mut ids = line.unwrap_or_default().split_whitespace();
        if ids.any(|id| id.parse() == Ok(uid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(place: &Path, count: u32) -> Uids {
        Uids {
            place: place.join("uids"),
            // No sandbox of this host has these.
            first: 1_990_000_000,
            count,
            next: Arc::default(),
        }
    }

    #[test]
    fn an_id_is_claimed_once_and_given_back_by_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        for owner in [&one, &two] {
            fs::write(owner, "").expect("a record");
        }
        let uids = uids(folder.path(), 2);
        let first = uids.claim(&one).expect("there are two");
        let second = uids.claim(&two).expect("there are two");
        assert_ne!(first, second);
        assert_eq!(
            uids.claim(&one).expect_err("there are two").kind(),
            ErrorKind::NoCapacity
        );
        uids.release(first, &two).expect("it is not his");
        assert!(uids.claim(&one).is_err());
        uids.release(first, &one).expect("it is his");
        assert_eq!(uids.claim(&one).expect("one is free"), first);
    }

    #[test]
    fn a_claim_whose_record_is_gone_is_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = folder.path().join("one");
        fs::write(&owner, "").expect("a record");
        let uids = uids(folder.path(), 1);
        let uid = uids.claim(&owner).expect("there is one");
        fs::remove_file(&owner).expect("the record goes");
        let other = folder.path().join("two");
        fs::write(&other, "").expect("a record");
        assert_eq!(uids.claim(&other).expect("it is free again"), uid);
    }

    #[test]
    fn an_id_that_a_process_has_is_not_free() {
        let own = rustix::process::getuid().as_raw();
        assert!(has_process(own).expect("the host has processes"));
        assert!(!has_process(1_999_999_999).expect("the host has processes"));
    }
}
