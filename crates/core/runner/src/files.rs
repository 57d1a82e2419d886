//! The files of the box, seen through its root and touched with the rights of its user.
//!
//! The box may change its tree while a call looks at it. So no path is ever checked and then used: the
//! kernel resolves each one inside the box's root (`openat2`, `RESOLVE_IN_ROOT`), and everything after that
//! goes through the descriptor it gave. The calls are made while the box's
//! [`FileAccess`](crate::isolation::FileAccess) is held, so they have the rights of its user.

mod list;
mod read;
mod remove;
mod write;

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use astrabox_runner_protocol::{FileInfo, FileKind, RunnerError, RunnerErrorKind};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxFlags, fchmod, fstat,
    mkdirat, openat2, readlinkat, renameat_with, statx,
};
use rustix::io::Errno;

/// Where callers may write, and nothing else.
const WRITABLE: [&str; 3] = ["/workspace", "/home/agent", "/tmp"];

/// The longest path, bytes (`PATH_MAX` of limits.h, without the closing zero).
const MAX_PATH: usize = 4095;

/// How often a lookup is begun anew when the box renames directories under it.
const LOOKUP_ATTEMPTS: usize = 16;

type Result<T> = std::result::Result<T, RunnerError>;

/// What holds for the files of one box, whoever looks at them.
#[derive(Debug, Clone)]
pub(crate) struct FilePolicy {
    /// The mounts behind [`WRITABLE`], so that a link from there cannot make anything else writable. `None`
    /// only in tests, whose root is one mount.
    mounts: Option<[u64; WRITABLE.len()]>,
    /// The longest file, bytes.
    file_bytes: u64,
}

/// The files of one box, for the length of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files<'a> {
    root: BorrowedFd<'a>,
    policy: &'a FilePolicy,
}

/// A path that may be written: its directory, open, and its last component.
struct Place {
    directory: OwnedFd,
    name: String,
}

impl FilePolicy {
    /// Finds the writable mounts below `root`. Files get `file_bytes` at the most.
    pub(crate) fn new(root: BorrowedFd<'_>, file_bytes: u64) -> Result<Self> {
        let unchecked = Self {
            mounts: None,
            file_bytes,
        };
        let files = Files::new(root, &unchecked);
        let root_mount = mount_of(root, "open")?;
        let mut mounts = [0; WRITABLE.len()];
        for (mount, path) in mounts.iter_mut().zip(WRITABLE) {
            let directory = files.open("open", path, OFlags::PATH | OFlags::DIRECTORY)?;
            *mount = mount_of(directory.as_fd(), "open")?;
            if *mount == root_mount {
                let text = format!("{path} is not a mount of its own");
                return Err(RunnerError::new(RunnerErrorKind::Internal, "open", text));
            }
        }
        Ok(Self {
            mounts: Some(mounts),
            file_bytes,
        })
    }
}

impl<'a> Files<'a> {
    /// The files below `root`.
    pub(crate) fn new(root: BorrowedFd<'a>, policy: &'a FilePolicy) -> Self {
        Self { root, policy }
    }

    /// What `path` names; with `no_follow` a link itself.
    pub(crate) fn stat(&self, path: &str, no_follow: bool) -> Result<FileInfo> {
        const OPERATION: &str = "stat";
        let flag = if no_follow {
            OFlags::NOFOLLOW
        } else {
            OFlags::empty()
        };
        let file = self.open(OPERATION, path, OFlags::PATH | flag)?;
        let stat = fstat(&file).map_err(|errno| failed(OPERATION, path, errno))?;
        Ok(info(last_component(path), &stat, || {
            readlinkat(&file, "", Vec::new())
        }))
    }

    /// Makes a directory.
    pub(crate) fn make_dir(&self, path: &str, mode: u32, parents: bool) -> Result<()> {
        let mode = if mode == 0 { 0o755 } else { mode & 0o777 };
        if parents {
            self.make_parents(path)?;
            if WRITABLE.contains(&path) {
                return Ok(());
            }
        }
        self.make_one_dir(path, mode, parents)
    }

    /// Makes the directories above `path` that are missing.
    fn make_parents(&self, path: &str) -> Result<()> {
        check_path("make_dir", path)?;
        let below = WRITABLE
            .iter()
            .find(|root| is_below(path, root))
            .map_or(0, |root| root.len());
        for (index, _) in path.match_indices('/').filter(|(index, _)| *index > below) {
            self.make_one_dir(&path[..index], 0o755, true)?;
        }
        Ok(())
    }

    fn make_one_dir(&self, path: &str, mode: u32, existing_will_do: bool) -> Result<()> {
        const OPERATION: &str = "make_dir";
        let place = self.place(OPERATION, path)?;
        match mkdirat(&place.directory, &place.name, Mode::from(0o700)) {
            Err(Errno::EXIST) if existing_will_do => {
                // Whatever is there must lead to a directory.
                self.open(OPERATION, path, OFlags::PATH | OFlags::DIRECTORY)
                    .map(drop)
            }
            Err(errno) => Err(failed(OPERATION, path, errno)),
            Ok(()) => {
                // The umask must not decide the mode.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                open_at(place.directory.as_fd(), &place.name, flags)
                    .and_then(|directory| fchmod(&directory, Mode::from(mode)))
                    .map_err(|errno| failed(OPERATION, path, errno))
            }
        }
    }

    /// Renames a file or directory.
    pub(crate) fn rename(&self, from: &str, to: &str, exclusive: bool) -> Result<()> {
        const OPERATION: &str = "rename";
        let old = self.place(OPERATION, from)?;
        let new = self.place(OPERATION, to)?;
        let flags = if exclusive {
            RenameFlags::NOREPLACE
        } else {
            RenameFlags::empty()
        };
        match renameat_with(&old.directory, &old.name, &new.directory, &new.name, flags) {
            Ok(()) => Ok(()),
            Err(Errno::XDEV) => Err(RunnerError::new(
                RunnerErrorKind::Unsupported,
                OPERATION,
                format!(
                    "{from} and {to} are on different mounts; write a copy and remove the old one"
                ),
            )),
            Err(errno) => Err(failed(OPERATION, from, errno)),
        }
    }

    /// Opens an existing `path` inside the root.
    fn open(&self, operation: &'static str, path: &str, flags: OFlags) -> Result<OwnedFd> {
        check_path(operation, path)?;
        open_at(self.root, path, flags).map_err(|errno| failed(operation, path, errno))
    }

    /// Opens the directory in which the last component of `path` may be made, replaced or removed.
    fn place(&self, operation: &'static str, path: &str) -> Result<Place> {
        check_path(operation, path)?;
        if !WRITABLE.iter().any(|root| is_below(path, root)) {
            return Err(denied(operation, path));
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = self.open(operation, parent, flags)?;
        if let Some(mounts) = &self.policy.mounts
            && !mounts.contains(&mount_of(directory.as_fd(), operation)?)
        {
            return Err(denied(operation, path));
        }
        Ok(Place {
            directory,
            name: name.to_owned(),
        })
    }
}

/// Opens an existing path inside `base`, which is the root or a directory that was opened in it.
fn open_at(base: BorrowedFd<'_>, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    // A pipe or a terminal in the box must neither block the runner nor become its own. Looking alone takes no
    // such flags (openat2(2)).
    let looking = flags.contains(OFlags::PATH);
    let careful = if looking {
        OFlags::empty()
    } else {
        OFlags::NOCTTY | OFlags::NONBLOCK
    };
    let flags = flags | OFlags::CLOEXEC | careful;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match openat2(base, path, flags, Mode::empty(), resolve) {
            // The tree was renamed while a `..` in a link was followed (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) if attempts < LOOKUP_ATTEMPTS => {}
            result => return result,
        }
    }
}

/// Whether `path` lies below the directory `root`, by its text.
fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn last_component(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// An absolute path without empty, `.` or `..` components.
fn check_path(operation: &'static str, path: &str) -> Result<()> {
    let rest = path.strip_prefix('/').filter(|_| path.len() <= MAX_PATH);
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    match rest {
        Some(rest) if rest.is_empty() || rest.split('/').all(plain) => Ok(()),
        _ => Err(RunnerError::new(
            RunnerErrorKind::InvalidArgument,
            operation,
            "a path is absolute, at most 4095 bytes, without empty parts, `.`, `..` and NUL",
        )),
    }
}

fn mount_of(file: BorrowedFd<'_>, operation: &'static str) -> Result<u64> {
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
        .map(|status| status.stx_mnt_id)
        .map_err(|errno| failed(operation, "the directory", errno))
}

/// As callers see it. `target` reads a symbolic link.
fn info<E>(
    name: &str,
    stat: &Stat,
    target: impl FnOnce() -> std::result::Result<std::ffi::CString, E>,
) -> FileInfo {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let link_target = (kind == FileKind::Symlink).then(|| {
        target()
            .map(|text| text.to_string_lossy().into_owned())
            .unwrap_or_default()
    });
    let millis = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
    FileInfo {
        name: name.to_owned(),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_ms: stat.st_mtime.saturating_mul(1000).saturating_add(millis),
        link_target,
    }
}

fn denied(operation: &'static str, path: &str) -> RunnerError {
    let text = format!("{path}: only {} can be written", WRITABLE.join(", "));
    RunnerError::new(RunnerErrorKind::PathDenied, operation, text)
}

/// The kernel's answer as the protocol says it. `path` is one inside the box.
fn failed(operation: &'static str, path: impl Display, errno: Errno) -> RunnerError {
    let kind = match errno {
        Errno::NOENT => RunnerErrorKind::NotFound,
        Errno::EXIST => RunnerErrorKind::FileExists,
        Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY | Errno::NXIO => {
            RunnerErrorKind::WrongFileKind
        }
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::XDEV | Errno::LOOP | Errno::BUSY => {
            RunnerErrorKind::PathDenied
        }
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => RunnerErrorKind::DiskFull,
        Errno::NAMETOOLONG | Errno::INVAL => RunnerErrorKind::InvalidArgument,
        _ => RunnerErrorKind::Internal,
    };
    let answer = std::io::Error::from(errno);
    RunnerError::new(kind, operation, format!("{path}: {answer}"))
}

#[cfg(test)]
mod tests;
