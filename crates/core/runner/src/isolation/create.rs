//! Makes a box: the runner's side of it.
//!
//! The first process builds the root while the runner, on another CPU, mounts the volume. Whatever
//! fails, [`Life`] takes down what was made until then.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::cgroup::{BoxCgroup, Hierarchies};
use super::channel::{Channel, Received};
use super::destroy::{self, Record};
use super::error::{SetupError, Step};
use super::life::{Life, wait_readable};
use super::setup::Plan;
use super::spec::{BoxSpec, am_root};
use super::sys::{self, Forked};
use super::wire::{FromInit, ToInit};
use super::{IsolatedBox, IsolationError, init, limits, posture::Posture, seccomp, userns, volume};

const DEADLINE: Duration = Duration::from_secs(20);

pub(super) const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Whose the box's processes and files are on the host.
#[derive(Clone, Copy)]
struct Maker {
    rootless: bool,
    owner: (u32, u32),
}

impl Maker {
    fn of(spec: &BoxSpec) -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        if am_root() {
            Self {
                rootless: false,
                owner: (spec.host_uid, spec.host_uid),
            }
        } else {
            Self {
                rootless: true,
                owner: (uid.as_raw(), gid.as_raw()),
            }
        }
    }
}

pub(super) fn create(spec: &BoxSpec) -> Result<IsolatedBox, IsolationError> {
    spec.validate()?;
    single_threaded()?;
    let maker = Maker::of(spec);
    let hierarchies = Hierarchies::discover().step("find the cgroups")?;
    // Written before anything is made, so that what a killed runner leaves can be found.
    let record = Record::of(spec, &hierarchies);
    record.claim(&spec.run_dir)?;
    let cgroup = BoxCgroup::create(&hierarchies, &spec.cgroup_suffix(), &spec.limits)
        .inspect_err(|_| destroy::forget(&spec.run_dir))?;
    let mut life = Life::new(spec, cgroup);
    let (channel, ready, hard_disk) = start(&mut life, maker)?;
    record.with_first(life.first_pid()).update(&spec.run_dir)?;
    let start_time = destroy::start_time(life.first_pid()).unwrap_or(0);
    let enforced = life.cgroup.enforced();
    let posture = Posture::found(
        spec,
        maker.rootless,
        maker.owner,
        enforced,
        hard_disk,
        &ready.facts,
    );
    channel
        .send(&ToInit::Go.encode(), &[])
        .map_err(|_| IsolationError::InitGone)?;
    Ok(IsolatedBox {
        watch: limits::Watch::new(spec, &posture),
        owner: maker.owner,
        rootless: maker.rootless,
        start_time,
        channel,
        root: ready.root,
        listener: Some(ready.listener),
        posture,
        frozen: false,
        oom_seen: 0,
        killed: Default::default(),
        gone: false,
        life,
    })
}

/// The first process goes on as a fork of this one, and a fork has but the thread that made it.
fn single_threaded() -> Result<(), IsolationError> {
    let threads = fs::read_dir("/proc/self/task")
        .step("count the threads")?
        .count();
    if threads == 1 {
        return Ok(());
    }
    let reason = "a box has to be made by a process with a single thread";
    Err(IsolationError::InvalidRequest { reason })
}

struct Ready {
    facts: String,
    listener: OwnedFd,
    root: OwnedFd,
}

/// Starts the first process and waits until the box stands; says whether its volume's limit is hard.
fn start(life: &mut Life, maker: Maker) -> Result<(Channel, Ready, bool), IsolationError> {
    let (channel, theirs) = Channel::pair().step("make a channel")?;
    let spec = life.spec.clone();
    if maker.rootless {
        volume::prepare_own(&spec.volume)?;
    }
    let plan = Plan {
        spec: &spec,
        rootless: maker.rootless,
        owner: maker.owner,
        entry: life.cgroup.entry()?,
        filter: seccomp::program(spec.level),
        pids_by_rlimit: life.cgroup.enforced().pids.is_none(),
    };
    let user = if maker.rootless {
        libc::CLONE_NEWUSER
    } else {
        0
    };
    let unified = plan.entry.unified.as_ref().map(AsFd::as_fd);
    match sys::fork_into(NAMESPACES | user, unified).map_err(no_namespaces)? {
        Forked::Child => init::run(&plan, &theirs),
        Forked::Parent(pid, pidfd) => life.begin(pid, pidfd),
    }
    drop(theirs);
    let hard_disk = !maker.rootless && hand_over_volume(life, &channel)?;
    let ready = await_ready(&channel)?;
    Ok((channel, ready, hard_disk))
}

/// As root: mounts the volume, and sends it with the user namespace that it is shifted to.
fn hand_over_volume(life: &mut Life, channel: &Channel) -> Result<bool, IsolationError> {
    let spec = &life.spec;
    let namespace = userns::create(spec.host_uid).step("make a user namespace")?;
    let mounted = volume::mount(&spec.volume, namespace.as_fd(), spec.host_uid)?;
    life.volume_taken = true;
    let fds = [mounted.mount.as_fd(), namespace.as_fd()];
    let sent = channel.send(&ToInit::Volume.encode(), &fds);
    // If it is gone already it has said why, which is worth more than a broken pipe.
    if sent.is_err() && !wait_readable(channel.as_fd(), Duration::ZERO).step("wait for the box")? {
        return Err(IsolationError::InitGone);
    }
    Ok(mounted.hard_limit)
}

fn no_namespaces(error: std::io::Error) -> IsolationError {
    let refused = [libc::EPERM, libc::ENOSPC, libc::EUSERS, libc::EINVAL];
    if error
        .raw_os_error()
        .is_some_and(|errno| refused.contains(&errno))
    {
        return IsolationError::Unavailable {
            what: "a set of namespaces",
            remedy: "allow user namespaces (sysctl user.max_user_namespaces, \
                     kernel.apparmor_restrict_unprivileged_userns), or run as root",
        };
    }
    IsolationError::System {
        step: "make the box's namespaces",
        source: error,
    }
}

fn await_ready(channel: &Channel) -> Result<Ready, IsolationError> {
    if !wait_readable(channel.as_fd(), DEADLINE).step("wait for the box")? {
        let seconds = DEADLINE.as_secs();
        return Err(IsolationError::Deadline {
            what: "the box's set-up",
            seconds,
        });
    }
    let Received::Message(bytes, fds) = channel.receive().step("hear from the new box")? else {
        return Err(IsolationError::InitGone);
    };
    let mut fds = fds.into_iter();
    match (FromInit::decode(&bytes), fds.next(), fds.next()) {
        (Some(FromInit::Ready { facts }), Some(listener), Some(root)) => Ok(Ready {
            facts,
            listener,
            root,
        }),
        (Some(FromInit::SetupFailed { errno, step }), ..) => Err(SetupError { step, errno }.into()),
        _ => Err(IsolationError::InitGone),
    }
}
