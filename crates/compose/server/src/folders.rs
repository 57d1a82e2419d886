//! The server's own folders: private, and one server's at a time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::Error;

const LOCK: &str = "server.lock";

/// Makes a folder of mode 0700, or checks that the one that is there is private enough: its owner is this user, and
/// nobody else can write.
///
/// # Errors
/// `Exposed`, or what the system says.
pub(crate) fn private(setting: &'static str, folder: &Path) -> Result<(), Error> {
    let what = || format!("make the folder of {setting}, {}", folder.display());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(Error::io(what()))?;
    let found = fs::metadata(folder).map_err(Error::io(what()))?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::Exposed {
        setting,
        folder: folder.to_owned(),
    })
}

/// Takes a folder for this server, for as long as the answer lives.
///
/// # Errors
/// `InUse` when another server has it.
pub(crate) fn lock(setting: &'static str, folder: &Path) -> Result<File, Error> {
    let what = || format!("lock {setting}, {}", folder.display());
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK))
        .map_err(Error::io(what()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse {
            setting,
            folder: folder.to_owned(),
        }),
        Err(error) => Err(Error::io(what())(io::Error::from(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_new_folder_is_private_and_an_open_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = folder.path().join("a/b");
        private("state_dir", &made).expect("it is made");
        for path in [&made, &folder.path().join("a")] {
            let mode = fs::metadata(path).expect("it is there").mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        fs::set_permissions(&made, fs::Permissions::from_mode(0o770)).expect("it is ours");
        assert!(matches!(
            private("state_dir", &made),
            Err(Error::Exposed { .. })
        ));
    }

    #[test]
    fn a_folder_is_one_servers_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let held = lock("state_dir", folder.path()).expect("it is free");
        assert!(matches!(
            lock("state_dir", folder.path()),
            Err(Error::InUse { .. })
        ));
        drop(held);
        lock("state_dir", folder.path()).expect("it is free again");
    }
}
