//! The directories of a role: who may have them, the lock, the socket.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::process::geteuid;

use super::RoleError;
use super::user::Identity;

/// The control socket.
pub(crate) const SOCKET: &str = "egress.sock";

/// Where a launched role writes what it has to say.
pub(crate) const LOG_FILE: &str = "egress.log";

/// Locked for as long as a role has the place.
const LOCK: &str = "egress.lock";

/// The longest path of a unix socket (unix(7): 108 bytes with the final zero).
const MAX_SOCKET_PATH: usize = 107;

/// A run directory that is this role's.
pub(super) struct Place {
    directory: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Place {
    /// Takes the place, or says that another role has it.
    pub(super) fn take(path: &Path) -> Result<Self, RoleError> {
        let directory = open_private(path, "run")?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::openat(&directory, LOCK, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| RoleError::io("open the role's lock")(error.into()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(RoleError::AlreadyRunning),
            Err(error) => return Err(RoleError::io("take the role's lock")(error.into())),
        }
        Ok(Self {
            directory,
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Makes the control socket. What a role that is gone left behind makes way; the lock says that it is gone.
    pub(super) fn listen(&self) -> Result<UnixListener, RoleError> {
        let path = self.path.join(SOCKET);
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(RoleError::PathTooLong);
        }
        let make = || -> io::Result<UnixListener> {
            match rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            let listener = UnixListener::bind(&path)?;
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::chmodat(&self.directory, SOCKET, mode, AtFlags::empty())?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        make().map_err(RoleError::io("make the control socket"))
    }

    /// Whether the directory was removed; nobody can reach the role then.
    pub(super) fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Removes the socket. A role that gave up the right to do so leaves it to the next one.
    pub(super) fn leave(&self) {
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
    }
}

/// The directory of the audit log, given to the role's user.
pub(super) fn audit_dir(path: &Path, identity: Option<Identity>) -> Result<OwnedFd, RoleError> {
    let directory = open_directory(path, "audit")?;
    if let Some(identity) = identity {
        let (uid, gid) = (identity.uid, identity.gid);
        rustix::fs::fchown(&directory, Some(uid), Some(gid))
            .map_err(|error| RoleError::io("give the audit directory to its user")(error.into()))?;
    }
    let owner = identity.map_or(geteuid(), |identity| identity.uid);
    check_private(&directory, owner.as_raw(), "audit")?;
    Ok(directory)
}

/// The directory of the authority's key, which stays with the user that starts the role.
pub(super) fn authority_dir(path: &Path) -> Result<OwnedFd, RoleError> {
    open_private(path, "authority")
}

fn open_private(path: &Path, what: &'static str) -> Result<OwnedFd, RoleError> {
    let directory = open_directory(path, what)?;
    check_private(&directory, geteuid().as_raw(), what)?;
    Ok(directory)
}

fn open_directory(path: &Path, what: &'static str) -> Result<OwnedFd, RoleError> {
    let open = || -> io::Result<OwnedFd> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)?;
        Ok(File::open(path)?.into())
    };
    open().map_err(|source| RoleError::Io {
        what: match what {
            "run" => "open the run directory",
            "authority" => "open the authority's directory",
            _ => "open the audit directory",
        },
        source,
    })
}

fn check_private(directory: impl AsFd, owner: u32, what: &'static str) -> Result<(), RoleError> {
    let stat = rustix::fs::fstat(directory)
        .map_err(|error| RoleError::io("look at a directory")(error.into()))?;
    let others_write = stat.st_mode & 0o022 != 0;
    if stat.st_uid != owner || others_write {
        return Err(RoleError::Exposed { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_place_is_for_one_role_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/on/the/way");
        let place = Place::take(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        let listener = place.listen().unwrap();
        let socket = path.join(SOCKET);
        assert_eq!(socket.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Place::take(&path), Err(RoleError::AlreadyRunning)));
        drop((place, listener));
        // The socket that is left over is not in the way.
        assert!(socket.exists());
        let place = Place::take(&path).unwrap();
        place.listen().unwrap();
        place.leave();
        assert!(!socket.exists());
        assert!(!place.is_removed());
        std::fs::remove_dir_all(&path).unwrap();
        assert!(place.is_removed());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o770, 0o1777] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), permissions).unwrap();
            let taken = Place::take(folder.path());
            assert!(matches!(taken, Err(RoleError::Exposed { .. })), "{mode:o}");
            let audit = audit_dir(folder.path(), None);
            assert!(matches!(audit, Err(RoleError::Exposed { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::take(&folder.path().join("x".repeat(100))).unwrap();
        assert!(matches!(place.listen(), Err(RoleError::PathTooLong)));
    }
}
