//! What the box's first process does to become one: everything between fork and its first request.
//!
//! The order matters. Groups first, so that the box pays for its own file systems. Mounts and listener
//! while still privileged, and as root while still in the host's user namespace, so that nobody inside
//! can ever undo them. The user namespace, the capabilities and the filter last.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, Uid, chownat, mkdirat, mknodat, open, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Signal, chdir, fchdir, getrlimit, pivot_root,
    set_dumpable_behavior, set_parent_process_death_signal, setrlimit, umask,
};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, clear_ambient_capability_set,
    move_into_link_name_space, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::base::{self, Root, Sources};
use super::cgroup::Entry;
use super::channel::{Channel, Received};
use super::error::{SetupError, SetupStep};
use super::mounts::{self, DATA, PROGRAMS};
use super::spec::{BOX_ID, BoxSpec};
use super::wire::ToInit;
use super::{net, sys, userns, volume};

/// No process gets more descriptors than this, whatever the runner was given.
const MOST_FDS: u64 = 65_536;

/// What the first process needs, copied into it by the fork.
pub(super) struct Plan<'a> {
    pub(super) spec: &'a BoxSpec,
    pub(super) rootless: bool,
    /// The host's ids of the box's user.
    pub(super) owner: (u32, u32),
    pub(super) entry: Entry,
    pub(super) filter: Vec<libc::sock_filter>,
    /// Whether the kernel counts the box's processes otherwise, or a resource limit has to.
    pub(super) pids_by_rlimit: bool,
}

/// A finished box, seen from its first process.
pub(super) struct Finished {
    pub(super) listener: OwnedFd,
    pub(super) root: OwnedFd,
    /// What the kernel says about this process, for the posture.
    pub(super) facts: String,
}

/// Becomes the box's first process.
pub(super) fn run(plan: &Plan<'_>, channel: &Channel) -> Result<Finished, SetupError> {
    sys::rename_process(c"astrabox-init");
    enter_cgroups(&plan.entry)?;
    if plan.rootless {
        userns::map_own(plan.owner.0, plan.owner.1)?;
    }
    umask(Mode::from_raw_mode(0o022));
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )
    .setup("detach from the host's mounts")?;
    let spec = plan.spec;
    let sources = Sources::open(&spec.base, spec.image.as_deref())?;
    let own_volume = own_volume(plan)?;
    let root = base::build(&sources, &spec.hostname, &spec.run_dir)?;
    mount_system(plan, &root)?;
    let namespace = mount_volume(own_volume, &root, channel)?;
    let hidden = root.paths_hidden && !shows_volume(plan);
    pivot(root)?;
    sethostname(spec.hostname.as_bytes()).setup("set the host name")?;
    let listener = net::open(spec.egress_port)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open("/", flags, Mode::empty()).setup("open the root")?;
    drop_privileges(plan, namespace)?;
    sys::install_seccomp(&plan.filter).setup("install the system call filter")?;
    let facts = facts(hidden)?;
    Ok(Finished {
        listener,
        root,
        facts,
    })
}

fn shows_volume(plan: &Plan<'_>) -> bool {
    matches!(plan.spec.volume, super::Volume::Directory { .. })
}

fn enter_cgroups(entry: &Entry) -> Result<(), SetupError> {
    for tasks in &entry.tasks {
        // `tasks` moves this one thread, which is all there is. `cgroup.procs` would have to stop
        // every fork on the host for a moment, at 15 ms when cold.
        rustix::io::write(tasks, b"0").setup("enter the box's cgroups")?;
    }
    sys::unshare_cgroup().setup("make a cgroup namespace")
}

/// Mounts what every base needs: processes, devices, and a scratch file system in memory.
fn mount_system(plan: &Plan<'_>, root: &Root) -> Result<(), SetupError> {
    let dir = root.dir.as_fd();
    let noexec = DATA | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = mounts::filesystem("proc", &[("source", "proc")], noexec).setup("mount /proc")?;
    mounts::attach(&proc, dir, "proc").setup("attach /proc")?;

    // Half of the memory, which it counts against: a full /tmp must not leave nothing to run in.
    let size = (plan.spec.limits.memory_bytes / 2).to_string();
    let options = [
        ("source", "tmpfs"),
        ("size", size.as_str()),
        ("mode", "0755"),
    ];
    let scratch = mounts::filesystem("tmpfs", &options, DATA).setup("mount the scratch space")?;
    let parts = [
        ("tmp", 0o1777, "tmp"),
        ("run", 0o755, "run"),
        ("shm", 0o1777, "dev/shm"),
    ];
    for (part, mode, _) in parts {
        mkdirat(&scratch, part, Mode::empty()).setup("make the scratch directories")?;
        rustix::fs::chmodat(
            &scratch,
            part,
            Mode::from_raw_mode(mode),
            rustix::fs::AtFlags::empty(),
        )
        .setup("make the scratch directories")?;
    }
    if !plan.rootless {
        let (uid, gid) = (Uid::from_raw(plan.owner.0), Gid::from_raw(plan.owner.1));
        chownat(
            &scratch,
            "run",
            Some(uid),
            Some(gid),
            rustix::fs::AtFlags::empty(),
        )
        .setup("give /run to the box's user")?;
    }
    mount_devices(plan, root)?;
    let places = parts.map(|(part, _, place)| (part, place));
    attach_parts(&scratch, root, &places).setup("attach the scratch space")
}

/// The devices that programs expect, and no other.
fn mount_devices(plan: &Plan<'_>, root: &Root) -> Result<(), SetupError> {
    const DEVICES: [(&str, u32, u32); 6] = [
        ("null", 1, 3),
        ("zero", 1, 5),
        ("full", 1, 7),
        ("random", 1, 8),
        ("urandom", 1, 9),
        ("tty", 5, 0),
    ];
    const LINKS: [(&str, &str); 5] = [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ];
    let no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [
        ("source", "tmpfs"),
        ("size", "64k"),
        ("nr_inodes", "64"),
        ("mode", "0755"),
    ];
    let dev = mounts::filesystem("tmpfs", &options, no_exec).setup("mount /dev")?;
    for dir in ["pts", "shm"] {
        mkdirat(&dev, dir, Mode::from_raw_mode(0o755)).setup("make the directories of /dev")?;
    }
    for (target, name) in LINKS {
        symlinkat(target, &dev, name).setup("make the links of /dev")?;
    }
    mounts::attach(&dev, root.dir.as_fd(), "dev").setup("attach /dev")?;
    for (name, major, minor) in DEVICES {
        make_device(&dev, name, rustix::fs::makedev(major, minor), plan.rootless)
            .setup("make the devices")?;
    }
    let options = [("source", "devpts"), ("ptmxmode", "0666"), ("mode", "0620")];
    let pts = mounts::filesystem("devpts", &options, no_exec).setup("mount /dev/pts")?;
    mounts::attach(&pts, dev.as_fd(), "pts").setup("attach /dev/pts")?;
    let read_only = no_exec | MountAttrFlags::MOUNT_ATTR_RDONLY;
    sys::mount_setattr(dev.as_fd(), c"", read_only, None, false).setup("seal /dev")
}

fn make_device(dev: &OwnedFd, name: &str, number: u64, rootless: bool) -> std::io::Result<()> {
    let mode = Mode::from_raw_mode(0o666);
    let made = if rootless {
        Err(Errno::PERM)
    } else {
        mknodat(
            dev,
            name,
            rustix::fs::FileType::CharacterDevice,
            mode,
            number,
        )
    };
    match made {
        Ok(()) => Ok(rustix::fs::chmodat(
            dev,
            name,
            mode,
            rustix::fs::AtFlags::empty(),
        )?),
        // Without the right to make devices, the host's own one is shown.
        Err(Errno::PERM) => {
            mknodat(dev, name, rustix::fs::FileType::RegularFile, mode, 0)?;
            let no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            let host = Path::new("/dev").join(name);
            let view = mounts::view_of_host(host, no_exec, false)?;
            Ok(mounts::attach(&view, dev.as_fd(), name)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// The volume's mount where no privilege is needed for it, made before anything covers its path.
fn own_volume(plan: &Plan<'_>) -> Result<Option<OwnedFd>, SetupError> {
    if !plan.rootless {
        return Ok(None);
    }
    let path = plan.spec.volume.path();
    mounts::view_of_host(path, DATA, false)
        .map(Some)
        .setup("view the volume")
}

/// Attaches the volume; if it comes from the runner, returns the user namespace that came with it.
fn mount_volume(
    own: Option<OwnedFd>,
    root: &Root,
    channel: &Channel,
) -> Result<Option<OwnedFd>, SetupError> {
    let (mount, namespace) = match own {
        Some(mount) => (mount, None),
        None => {
            let mut fds = expect(channel, &ToInit::Volume)?.into_iter();
            let (Some(mount), Some(namespace)) = (fds.next(), fds.next()) else {
                return Err(Errno::BADF).setup("receive the volume");
            };
            (mount, Some(namespace))
        }
    };
    attach_parts(&mount, root, &volume::PARTS).setup("attach the volume")?;
    Ok(namespace)
}

/// Attaches directories of a mount at places below the root, and not the mount itself.
fn attach_parts(mount: &OwnedFd, root: &Root, parts: &[(&str, &str)]) -> std::io::Result<()> {
    let dir = root.dir.as_fd();
    let view = |(part, _): &(&str, &str)| mounts::view(mount.as_fd(), part, DATA, false);
    let views = || parts.iter().map(view).collect::<std::io::Result<Vec<_>>>();
    let views = match views() {
        Ok(views) => views,
        // Kernels before 6.15 give no view of a mount that is attached nowhere, so it passes through
        // the first place. Taking it away again costs a wait for all CPUs.
        Err(_) => {
            let passing = parts[0].1;
            mounts::attach(mount, dir, passing)?;
            let views = views();
            fchdir(&root.dir)?;
            unmount(passing, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            views?
        }
    };
    for (view, (_, place)) in views.iter().zip(parts) {
        mounts::attach(view, dir, place)?;
    }
    Ok(())
}

fn pivot(root: Root) -> Result<(), SetupError> {
    fchdir(&root.dir).setup("enter the root")?;
    pivot_root(".", ".").setup("change the root")?;
    unmount(".", UnmountFlags::DETACH).setup("detach the host's mounts")?;
    chdir("/").setup("enter the root")?;
    sys::mount_setattr(rustix::fs::CWD, c"/", PROGRAMS, None, false).setup("seal the root")
}

fn drop_privileges(plan: &Plan<'_>, namespace: Option<OwnedFd>) -> Result<(), SetupError> {
    sys::join_new_keyring();
    if let Some(namespace) = namespace {
        set_thread_groups(&[]).setup("drop the groups")?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))
            .setup("enter the user namespace")?;
    }
    sys::drop_bounding_set().setup("drop the bounding set")?;
    let (gid, uid) = (Gid::from_raw(BOX_ID), Uid::from_raw(BOX_ID));
    set_thread_res_gid(gid, gid, gid).setup("become the box's group")?;
    set_thread_res_uid(uid, uid, uid).setup("become the box's user")?;
    clear_ambient_capability_set().setup("drop the capabilities")?;
    let none = CapabilitySet::empty();
    let nothing = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, nothing).setup("drop the capabilities")?;
    set_no_new_privs(true).setup("refuse new privileges")?;
    limit_resources(plan)?;
    // Nobody inside may look into this process, which has the box's user. Changing the user cleared
    // the death signal, so it comes last; whoever died before is noticed by the closed channel.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).setup("hide the first process")?;
    set_parent_process_death_signal(Some(Signal::KILL)).setup("bind to the runner's life")
}

fn limit_resources(plan: &Plan<'_>) -> Result<(), SetupError> {
    let set = |resource, most: u64| {
        // Above the limit that the runner was given there is nothing to be had.
        let most = getrlimit(resource)
            .maximum
            .map_or(most, |given| given.min(most));
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )
        .setup("set the resource limits")
    };
    // One byte holds no core file. Zero would mean the same for files, but the kernel would still feed
    // a core to a handler on the host, if the host has one; one byte is its own mark for "do not".
    set(Resource::Core, 1)?;
    set(Resource::Nofile, MOST_FDS)?;
    // Nobody in the box comes before the host's own processes.
    set(Resource::Rtprio, 0)?;
    set(Resource::Nice, 0)?;
    set(Resource::Fsize, plan.spec.limits.file_bytes)?;
    if plan.pids_by_rlimit {
        set(Resource::Nproc, u64::from(plan.spec.limits.pids) + 1)?;
    }
    Ok(())
}

/// What is true of this process, in lines that [`posture`](super::posture) reads.
fn facts(paths_hidden: bool) -> Result<String, SetupError> {
    let status = fs::read_to_string("/proc/self/status").setup("read the process's status")?;
    let wanted = ["NoNewPrivs:", "Seccomp:", "CapBnd:", "CapPrm:"];
    let mut facts: String = status
        .lines()
        .filter(|line| wanted.iter().any(|key| line.starts_with(key)))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
        .collect();
    for name in super::posture::NAMESPACES {
        if let Ok(link) = fs::read_link(format!("/proc/self/ns/{name}")) {
            facts += &format!("ns {}\n", link.to_string_lossy());
        }
    }
    facts += if paths_hidden {
        "paths hidden\n"
    } else {
        "paths shown\n"
    };
    Ok(facts)
}

/// Waits for one particular message and returns its descriptors.
pub(super) fn expect(channel: &Channel, message: &ToInit) -> Result<Vec<OwnedFd>, SetupError> {
    match channel.receive().setup("hear from the runner")? {
        Received::Message(bytes, fds) if ToInit::decode(&bytes).as_ref() == Some(message) => {
            Ok(fds)
        }
        Received::Message(..) => Err(Errno::BADMSG).setup("hear from the runner"),
        Received::End | Received::Nothing => Err(Errno::PIPE).setup("hear from the runner"),
    }
}
