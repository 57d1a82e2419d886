//! Looks whether this host can hold boxes, by trying: for the doctor.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Access, CWD, access};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};

use super::cgroup::Hierarchies;
use super::create::NAMESPACES;
use super::spec::am_root;
use super::sys::Forked;
use super::{image, mounts, sys, userns};

/// What a host can do for boxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// Whether boxes would be made without root.
    pub rootless: bool,
    /// What was looked at.
    pub checks: Vec<HostCheck>,
}

/// One thing that a host needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCheck {
    /// A short name, stable.
    pub name: String,
    /// Whether it is there.
    pub ok: bool,
    /// Whether no box can be made without it; otherwise boxes are only weaker, as their posture says.
    pub required: bool,
    /// What was found.
    pub detail: String,
    /// What to do if it is not there; empty if it is.
    pub remedy: String,
}

impl HostReport {
    /// Whether boxes can be made at all.
    pub fn usable(&self) -> bool {
        self.checks.iter().all(|check| check.ok || !check.required)
    }
}

/// Looks at this host, as the user who calls. Leaves nothing behind.
pub fn probe_host() -> HostReport {
    let rootless = !am_root();
    let mut checks = vec![host_base(), namespaces(), seccomp(), no_new_root_mounts()];
    checks.extend(cgroups());
    if !rootless {
        checks.extend([idmapped_mounts(), loop_devices(), mkfs()]);
    }
    HostReport { rootless, checks }
}

fn check(name: &str, required: bool, found: Result<String, String>, remedy: &str) -> HostCheck {
    let ok = found.is_ok();
    let detail = found.unwrap_or_else(|problem| problem);
    let remedy = if ok { String::new() } else { remedy.to_owned() };
    HostCheck {
        name: name.to_owned(),
        ok,
        required,
        detail,
        remedy,
    }
}

fn host_base() -> HostCheck {
    let found = match ["/usr/bin/sh", "/bin/sh"]
        .iter()
        .find(|shell| Path::new(shell).exists())
    {
        Some(_) => Ok("/usr has a shell".to_owned()),
        None => Err("/usr has no shell".to_owned()),
    };
    check(
        "host_base",
        false,
        found,
        "use a base directory with a root tree of its own",
    )
}

fn namespaces() -> HostCheck {
    let found = try_namespaces()
        .map(|()| "all namespaces can be made".to_owned())
        .map_err(|error| format!("namespaces cannot be made: {error}"));
    check(
        "namespaces",
        true,
        found,
        "allow them: sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0; in a container, allow clone and mount",
    )
}

/// Makes a set of namespaces and does in it what needs its rights: some hosts give the first without
/// the second.
fn try_namespaces() -> io::Result<()> {
    let user = if am_root() { 0 } else { libc::CLONE_NEWUSER };
    let pidfd = match sys::fork_into(NAMESPACES | user, None)? {
        Forked::Child => {
            // Nothing is allocated here, because the caller may have other threads.
            let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
            let result = mount_change("/", private).map_err(|error| error.raw_os_error());
            sys::exit_now(result.err().unwrap_or(0))
        }
        Forked::Parent(_, pidfd) => pidfd,
    };
    let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?;
    match ended.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

fn seccomp() -> HostCheck {
    let found = if sys::has_seccomp_action(libc::SECCOMP_RET_ERRNO) {
        Ok("filters are available".to_owned())
    } else {
        Err("the kernel has no system call filters".to_owned())
    };
    check(
        "seccomp",
        true,
        found,
        "use a kernel with CONFIG_SECCOMP_FILTER",
    )
}

fn no_new_root_mounts() -> HostCheck {
    // The calls that boxes are made of: mount_setattr is the newest, from 5.12.
    let attributes = MountAttrFlags::empty();
    let error = sys::mount_setattr(CWD, c"/proc/self", attributes, None, false).err();
    let missing = error.is_some_and(|error| error.raw_os_error() == Some(libc::ENOSYS));
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let found = if missing {
        Err(format!("kernel {release} has no mount_setattr"))
    } else {
        Ok(format!("kernel {release}"))
    };
    check("kernel", true, found, "use a kernel of 5.12 or newer")
}

fn cgroups() -> Vec<HostCheck> {
    const REMEDY: &str = "give the server a cgroup of its own (systemd: Delegate=yes, \
                          DelegateSubgroup=server), or run it as root";
    let hierarchies = Hierarchies::discover();
    let offered = hierarchies
        .as_ref()
        .map(Hierarchies::offered)
        .unwrap_or_default();
    let one = |name: &str, controller: &str| {
        let found = match offered.iter().find(|(offered, _)| *offered == controller) {
            Some((_, version)) => Ok(format!("cgroup v{version}, writable")),
            None => Err("no writable cgroup has this controller".to_owned()),
        };
        check(name, false, found, REMEDY)
    };
    vec![
        one("cgroup_memory", "memory"),
        one("cgroup_pids", "pids"),
        one("cgroup_cpu", "cpu"),
        one("cgroup_freezer", "freezer"),
    ]
}

fn idmapped_mounts() -> HostCheck {
    let attempt = || -> io::Result<()> {
        let namespace = userns::create(1_900_000_000)?;
        let view = mounts::view_of_host("/usr", MountAttrFlags::empty(), false)?;
        let attributes = MountAttrFlags::empty();
        sys::mount_setattr(
            view.as_fd(),
            c"",
            attributes,
            Some(namespace.as_fd()),
            false,
        )
    };
    let found = attempt()
        .map(|()| "the file system of /usr can shift users".to_owned())
        .map_err(|error| format!("the file system of /usr cannot shift users: {error}"));
    check(
        "idmapped_mounts",
        false,
        found,
        "keep volumes on ext4, xfs or btrfs, as images are",
    )
}

/// Whether a loop device can be had.
pub(super) fn loop_devices() -> HostCheck {
    let writable = |path: &str| access(path, Access::READ_OK | Access::WRITE_OK).is_ok();
    let found = if !writable("/dev/loop-control") {
        Err("/dev/loop-control cannot be used".to_owned())
    } else if !fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\text4\n")) {
        Err("the kernel has no ext4".to_owned())
    } else {
        Ok("loop devices and ext4".to_owned())
    };
    check(
        "loop_devices",
        false,
        found,
        "give the server /dev/loop-control and /dev/loop*",
    )
}

fn mkfs() -> HostCheck {
    let found = if image::mkfs_available() {
        Ok("mkfs.ext4 is there".to_owned())
    } else {
        Err("there is no mkfs.ext4".to_owned())
    };
    check("mkfs_ext4", false, found, "install e2fsprogs")
}
