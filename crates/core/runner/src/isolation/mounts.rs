//! Mounts as values: made detached, given their attributes, then attached.
//!
//! A mount made this way is never for a moment visible with weaker attributes than it is to have.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::sys;

/// For what a box may write and run, but not use to gain anything.
pub(super) const DATA: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// For programs.
pub(super) const PROGRAMS: MountAttrFlags = DATA.union(MountAttrFlags::MOUNT_ATTR_RDONLY);

/// For what is only read.
pub(super) const READ_ONLY: MountAttrFlags = PROGRAMS.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// A new file system of a kind. An option without value is a flag.
pub(super) fn filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A second view of a directory or file and, if recursive, of all that is mounted below it.
pub(super) fn view(
    dir: BorrowedFd<'_>,
    path: impl AsRef<Path>,
    attributes: MountAttrFlags,
    recursive: bool,
) -> std::io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = open_tree(dir, path.as_ref(), flags)?;
    sys::mount_setattr(tree.as_fd(), c"", attributes, None, recursive)?;
    Ok(tree)
}

/// As [`view`], by a path of the host.
pub(super) fn view_of_host(
    path: impl AsRef<Path>,
    attributes: MountAttrFlags,
    recursive: bool,
) -> std::io::Result<OwnedFd> {
    view(CWD, path, attributes, recursive)
}

/// One read-only tree of several, the first on top.
///
/// The layers are named by descriptor, so the mount table shows no path of theirs. Needs two or more.
pub(super) fn stack(
    layers: &[BorrowedFd<'_>],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let names: Vec<_> = layers
        .iter()
        .map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd()))
        .collect();
    let options = [
        ("source", "overlay"),
        ("lowerdir", &names.join(":")),
        ("redirect_dir", "nofollow"),
    ];
    filesystem("overlay", &options, attributes)
}

/// Puts a detached mount at a path below a directory.
pub(super) fn attach(
    mount: &OwnedFd,
    dir: BorrowedFd<'_>,
    path: impl AsRef<Path>,
) -> Result<(), Errno> {
    move_mount(
        mount.as_fd(),
        "",
        dir,
        path.as_ref(),
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}
