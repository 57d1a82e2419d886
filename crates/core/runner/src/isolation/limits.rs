//! What a box uses, and whether it uses more than it may where the kernel does not keep it from that.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstatfs, openat, statat};

use super::posture::{Posture, Strength};
use super::spec::{BoxSpec, Limits};
use super::volume::PARTS;

/// What a box uses. A value is absent where nothing on this host measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Memory in use, bytes.
    pub memory_bytes: Option<u64>,
    /// The most memory that was in use, bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// CPU time used, microseconds.
    pub cpu_usec: Option<u64>,
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// Forks refused.
    pub pids_denied: u64,
    /// Bytes in use on the volume; for a directory, when last looked at.
    pub disk_used_bytes: Option<u64>,
    /// Bytes that the volume may hold.
    pub disk_limit_bytes: Option<u64>,
}

/// A limit that the box exceeds, where only looking finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBreach {
    /// Its processes and its files in memory.
    Memory {
        /// In use, bytes.
        used: u64,
        /// Allowed, bytes.
        limit: u64,
    },
    /// Its volume.
    Disk {
        /// In use, bytes.
        used: u64,
        /// Allowed, bytes.
        limit: u64,
    },
}

/// Looks at the limits that the kernel does not keep.
#[derive(Debug)]
pub(super) struct Watch {
    limits: Limits,
    memory: bool,
    disk: bool,
    disk_used: Option<u64>,
    next_disk: Instant,
}

/// Adding up a directory's files costs time: this often at most, and for this part of the time.
const DISK_INTERVAL: Duration = Duration::from_secs(2);
const DISK_SHARE: u32 = 20;

impl Watch {
    pub(super) fn new(spec: &BoxSpec, posture: &Posture) -> Self {
        let soft = |strength| strength == Strength::Soft;
        Self {
            limits: spec.limits,
            memory: soft(posture.memory.strength),
            disk: soft(posture.disk.strength),
            disk_used: None,
            next_disk: Instant::now(),
        }
    }

    pub(super) fn look(&mut self, first: i32, root: BorrowedFd<'_>) -> Option<LimitBreach> {
        if self.memory {
            let (used, limit) = (use_of_tree(first, root).memory, self.limits.memory_bytes);
            if used > limit {
                return Some(LimitBreach::Memory { used, limit });
            }
        }
        let (used, limit) = (self.disk_used(root)?, self.limits.disk_bytes);
        (used > limit).then_some(LimitBreach::Disk { used, limit })
    }

    /// The volume's size if it is soft, not always as of now.
    fn disk_used(&mut self, root: BorrowedFd<'_>) -> Option<u64> {
        let now = Instant::now();
        if self.disk && now >= self.next_disk {
            let parts = PARTS.iter().filter_map(|(_, place)| {
                let dir = openat(root, *place, DIR, Mode::empty()).ok()?;
                Some(size_of_tree(dir))
            });
            self.disk_used = Some(parts.sum());
            self.next_disk = Instant::now() + DISK_INTERVAL.max(now.elapsed() * DISK_SHARE);
        }
        self.disk_used
    }

    /// Bytes used and allowed on the volume.
    pub(super) fn disk(&mut self, root: BorrowedFd<'_>) -> (Option<u64>, Option<u64>) {
        if self.disk {
            return (self.disk_used(root), Some(self.limits.disk_bytes));
        }
        let place = PARTS[0].1;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = openat(root, place, flags, Mode::empty()).and_then(|dir| fstatfs(&dir));
        let Ok(found) = found else {
            return (None, None);
        };
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_bsize as u64);
        (
            Some(bytes(found.f_blocks - found.f_bfree)),
            Some(bytes(found.f_blocks)),
        )
    }
}

/// What a process and all its descendants use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TreeUse {
    /// Their private memory and the files in the box's memory, bytes.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) pids: u64,
}

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Looks at a process and all its descendants, where no group counts them.
///
/// Every process of a box descends from its first one: whoever loses its parent gets that one.
pub(super) fn use_of_tree(first: i32, root: BorrowedFd<'_>) -> TreeUse {
    let scratch = openat(root, "tmp", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .and_then(|tmp| fstatfs(&tmp))
        .map_or(0, |found| {
            (found.f_blocks - found.f_bfree) * found.f_bsize as u64
        });
    let mut all = vec![first];
    let mut at = 0;
    let mut found = TreeUse {
        memory: scratch,
        pids: 0,
    };
    while let Some(pid) = all.get(at).copied() {
        at += 1;
        found.memory += private_memory(pid);
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks {
            found.pids += 1;
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
    }
    found
}

/// What a process does not share with a file, bytes.
fn private_memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    (kib("RssAnon:").unwrap_or(0) + kib("VmSwap:").unwrap_or(0)) * 1024
}

/// What the files below a directory occupy, bytes. Follows no link and leaves no file system.
fn size_of_tree(dir: OwnedFd) -> u64 {
    let mut total = 0;
    let mut open = vec![dir];
    while let Some(dir) = open.pop() {
        let Ok(entries) = Dir::read_from(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(found) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            total += found.st_blocks as u64 * 512;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory
                && let Ok(below) = openat(dir.as_fd(), name, DIR, Mode::empty())
            {
                open.push(below);
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tree_is_as_large_as_its_files_and_not_as_what_they_link_to() {
        let temp = tempfile::TempDir::new().expect("makes a directory");
        let below = temp.path().join("a/b");
        fs::create_dir_all(&below).expect("makes directories");
        fs::write(below.join("data"), vec![7; 3 << 20]).expect("writes");
        symlink("/usr", temp.path().join("usr")).expect("links");
        symlink(temp.path(), below.join("up")).expect("links");
        let size = size_of_tree(File::open(temp.path()).expect("opens").into());
        assert!((3 << 20..4 << 20).contains(&size), "{size}");
    }

    #[test]
    fn memory_is_that_of_the_process_and_its_files() {
        let ballast = vec![1u8; 8 << 20];
        let root = File::open("/").expect("opens");
        let pid = std::process::id() as i32;
        assert!(use_of_tree(pid, root.as_fd()).memory > ballast.len() as u64);
        assert!(private_memory(pid) > ballast.len() as u64);
        assert_eq!(private_memory(i32::MAX), 0);
    }
}
