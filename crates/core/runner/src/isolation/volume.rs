//! The one place where a box can keep anything: an ext4 image of fixed size, or a directory.
//!
//! Inside either, `workspace` and `home` become `/workspace` and `/home/agent`. On disk everything
//! belongs to [`BOX_ID`]; the mount shifts that to the box's host uid, so a volume moves between boxes
//! without a single chown.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid, chownat, flock, mkdirat, open, openat,
};
use rustix::io::Errno;

use super::error::Step;
use super::mounts::{self, DATA};
use super::retry::until;
use super::spec::{BOX_ID, Volume};
use super::{IsolationError, sys};

/// The parts of a volume and where a box has them.
pub(super) const PARTS: [(&str, &str); 2] = [("workspace", "workspace"), ("home", "home/agent")];

const LOOP_REMEDY: &str =
    "give the server /dev/loop-control and /dev/loop*, or use a directory volume";
const BUSY_DEADLINE: Duration = Duration::from_secs(3);

/// A volume's mount, attached nowhere yet.
#[derive(Debug)]
pub(super) struct MountedVolume {
    pub(super) mount: OwnedFd,
    /// Whether the file system itself ends at the limit.
    pub(super) hard_limit: bool,
}

/// Mounts a volume as root, its files shifted to the user namespace's host uid.
pub(super) fn mount(
    volume: &Volume,
    namespace: BorrowedFd<'_>,
    host_uid: u32,
) -> Result<MountedVolume, IsolationError> {
    match volume {
        Volume::LoopImage { path } => {
            let mount = mount_image(path)?;
            make_parts(mount.as_fd(), Some(BOX_ID)).step("make the volume's directories")?;
            sys::mount_setattr(mount.as_fd(), c"", DATA, Some(namespace), false)
                .step("shift the volume's user")?;
            Ok(MountedVolume {
                mount,
                hard_limit: true,
            })
        }
        Volume::Directory { path } => {
            let mount =
                mounts::view_of_host(path, DATA, false).step("view the volume's directory")?;
            make_parts(mount.as_fd(), Some(BOX_ID)).step("make the volume's directories")?;
            match sys::mount_setattr(mount.as_fd(), c"", DATA, Some(namespace), false) {
                Ok(()) => {}
                // A file system that cannot shift users: its files have to change hands.
                Err(_) => give(path, host_uid).step("give the volume to the box's user")?,
            }
            Ok(MountedVolume {
                mount,
                hard_limit: false,
            })
        }
    }
}

/// Makes the volume's parts as an ordinary user, to whom they then belong.
pub(super) fn prepare_own(volume: &Volume) -> Result<(), IsolationError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(volume.path(), flags, Mode::empty()).step("open the volume's directory")?;
    make_parts(dir.as_fd(), None).step("make the volume's directories")
}

fn make_parts(dir: BorrowedFd<'_>, owner: Option<u32>) -> Result<(), Errno> {
    for (part, _) in PARTS {
        match mkdirat(dir, part, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                if let Some(id) = owner {
                    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
                    chownat(dir, part, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
            }
            Err(Errno::EXIST) => {
                // Only a directory is ever mounted into a box, wherever the volume has been.
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(dir, part, flags, Mode::empty())?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Changes the owner of a whole tree, following no link.
fn give(path: &Path, id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give(&entry.path(), id)?;
        } else {
            chownat(
                CWD,
                entry.path(),
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
    }
    Ok(())
}

fn mount_image(path: &Path) -> Result<OwnedFd, IsolationError> {
    let image = lock_image(path)?;
    let (device, name) = attach_loop(image.as_fd())?;
    let options = [
        ("source", name.as_str()),
        ("errors", "remount-ro"),
        // Freed blocks go back to the host; nothing writes inode tables that nobody uses.
        ("discard", ""),
        ("noinit_itable", ""),
    ];
    let mount = mounts::filesystem("ext4", &options, DATA).step("mount the volume");
    // From here on the mount alone holds the device, and the device the file and its lock.
    drop(device);
    mount
}

/// Opens an image so that no second box can.
///
/// The loop device keeps the open file, and so the lock, until the last box that uses it is gone,
/// even if the runner is killed.
fn lock_image(path: &Path) -> Result<OwnedFd, IsolationError> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let image = open(path, flags, Mode::empty()).step("open the volume's image")?;
    // A box that has just ended lets go within moments.
    let locked = until(BUSY_DEADLINE, || {
        match flock(&image, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => None,
            other => Some(other),
        }
    });
    locked
        .ok_or(IsolationError::VolumeBusy)?
        .step("lock the volume's image")?;
    Ok(image)
}

/// Binds a free loop device; others may be looking for one at the same time.
fn attach_loop(image: BorrowedFd<'_>) -> Result<(OwnedFd, String), IsolationError> {
    const ATTEMPTS: usize = 1000;
    let unavailable = || IsolationError::Unavailable {
        what: "a loop device",
        remedy: LOOP_REMEDY,
    };
    let open_rw = |path: &str| open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let control = open_rw("/dev/loop-control").map_err(|_| unavailable())?;
    for _ in 0..ATTEMPTS {
        let number = sys::loop_get_free(control.as_fd()).map_err(|_| unavailable())?;
        let name = format!("/dev/loop{number}");
        let device = match open_rw(&name) {
            Ok(device) => device,
            // Taken and given back between the two calls.
            Err(Errno::NXIO | Errno::BUSY) => continue,
            Err(_) => return Err(unavailable()),
        };
        match sys::loop_configure(device.as_fd(), image) {
            Ok(()) => return Ok((device, name)),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error).step("bind a loop device"),
        }
    }
    Err(unavailable())
}

/// Lets go of every loop device that still holds an image. There is one at most, and only if a box's
/// end was cut short.
pub(super) fn release_image(path: &Path) -> Result<(), IsolationError> {
    let released = until(BUSY_DEADLINE, || match bound_device(path) {
        None => Some(Ok(())),
        Some(device) => {
            let cleared = sys::loop_clear(device.as_fd()).or_else(ignore_gone);
            cleared.err().map(Err)
        }
    });
    released
        .ok_or(IsolationError::VolumeBusy)?
        .step("release the volume")
}

/// Waits until no loop device holds an image any more.
pub(super) fn wait_released(path: &Path) -> Result<(), IsolationError> {
    until(BUSY_DEADLINE, || bound_device(path).is_none().then_some(()))
        .ok_or(IsolationError::VolumeBusy)
}

fn ignore_gone(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ENXIO) {
        Ok(())
    } else {
        Err(error)
    }
}

/// The loop device bound to exactly this file, if any. Opens no other box's device.
fn bound_device(path: &Path) -> Option<OwnedFd> {
    let (image, name) = (fs::metadata(path).ok()?, path.file_name()?);
    fs::read_dir("/sys/block")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            // A first look by name; what counts is the file itself.
            if Path::new(backing.trim_end()).file_name() != Some(name) {
                return None;
            }
            let device = File::open(Path::new("/dev").join(entry.file_name())).ok()?;
            let file = sys::loop_backing(device.as_fd()).ok()?;
            (file == (image.dev(), image.ino())).then(|| device.into())
        })
}
