//! Makes a box: the runner's side of it.
//!
//! The first process builds the root while the runner, on another CPU, mounts the volume. Whatever
//! fails, what was made until then is unmade in the reverse order by the guards it is held in.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::cgroup::{BoxCgroup, Hierarchies};
use super::channel::{Channel, Received};
use super::destroy::{self, Record};
use super::error::Step;
use super::setup::Plan;
use super::spec::{BoxSpec, am_root};
use super::sys::{self, Forked};
use super::wire::{FromInit, ToInit};
use super::{IsolatedBox, IsolationError, init, limits, posture, seccomp, userns, volume};

const DEADLINE: Duration = Duration::from_secs(20);

const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// The first process, killed and reaped if the box does not come about.
pub(super) struct FirstProcess {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    reaped: bool,
}

impl FirstProcess {
    /// Kills the first process, and by that every other one of the box.
    pub(super) fn kill(&self) -> Result<(), IsolationError> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).step("kill the box"),
        }
    }

    /// Kills the box's every process and waits for the end of the last.
    pub(super) fn end(&mut self, deadline: Duration) -> Result<(), IsolationError> {
        if self.reaped {
            return Ok(());
        }
        self.kill()?;
        if !wait_readable(self.pidfd.as_fd(), Instant::now() + deadline)? {
            return Err(IsolationError::Deadline {
                what: "the box's end",
                seconds: deadline.as_secs(),
            });
        }
        // It has ended, so this does not wait; it can fail only if somebody else has reaped it.
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        self.reaped = true;
        Ok(())
    }
}

impl Drop for FirstProcess {
    fn drop(&mut self) {
        // Nobody is left to tell; the cgroup and the death signal are the next lines of defence.
        let _ = self.end(Duration::from_secs(5));
    }
}

/// A group that is removed if the box does not come about.
struct GroupGuard(Option<BoxCgroup>);

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            let _ = group.thaw();
            let _ = group.remove();
        }
    }
}

pub(super) fn create(spec: &BoxSpec) -> Result<IsolatedBox, IsolationError> {
    spec.validate()?;
    let rootless = !am_root();
    let owner = if rootless {
        (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        )
    } else {
        (spec.host_uid, spec.host_uid)
    };
    let hierarchies = Hierarchies::discover().step("find the cgroups")?;
    // Written before anything is made, so that what a killed runner leaves can be found.
    Record::of(spec, &hierarchies).write(&spec.run_dir)?;
    let group = BoxCgroup::create(&hierarchies, &spec.cgroup_suffix(), &spec.limits)?;
    let mut group = GroupGuard(Some(group));
    let made = group
        .0
        .as_ref()
        .map(|cgroup| start(spec, cgroup, rootless, owner));
    let Some((mut first, channel, ready, hard_disk)) = made.transpose()? else {
        return Err(IsolationError::InitGone);
    };
    // From here on the box owns the group.
    let Some(cgroup) = group.0.take() else {
        return Err(IsolationError::InitGone);
    };
    let start_time = destroy::start_time(first.pid).unwrap_or(0);
    let enforced = cgroup.enforced();
    let posture = posture::Posture::found(spec, rootless, owner, enforced, hard_disk, &ready.facts);
    if let Err(error) = channel.send(&ToInit::Go.encode(), &[]) {
        first.end(DEADLINE)?;
        cgroup.remove()?;
        return Err(error).step("start the box");
    }
    Ok(IsolatedBox {
        watch: limits::Watch::new(spec, &posture),
        spec: spec.clone(),
        owner,
        rootless,
        first,
        start_time,
        channel,
        cgroup,
        root: ready.root,
        listener: Some(ready.listener),
        posture,
        frozen: false,
        oom_seen: 0,
        killed: Default::default(),
        gone: false,
    })
}

struct Ready {
    facts: String,
    listener: OwnedFd,
    root: OwnedFd,
}

type Started = (FirstProcess, Channel, Ready, bool);

fn start(
    spec: &BoxSpec,
    cgroup: &BoxCgroup,
    rootless: bool,
    owner: (u32, u32),
) -> Result<Started, IsolationError> {
    let (channel, theirs) = Channel::pair().step("make a channel")?;
    let entry = cgroup.entry()?;
    if rootless {
        volume::prepare_own(&spec.volume)?;
    }
    let namespaces = if rootless {
        NAMESPACES | libc::CLONE_NEWUSER
    } else {
        NAMESPACES
    };
    let pids_by_rlimit = cgroup.enforced().pids.is_none();
    let filter = seccomp::program(spec.level);
    let plan = Plan {
        spec,
        rootless,
        owner,
        entry,
        filter,
        pids_by_rlimit,
    };
    let unified = plan.entry.unified.as_ref().map(AsFd::as_fd);
    let first = match sys::fork_into(namespaces, unified).map_err(no_namespaces)? {
        Forked::Child => init::run(&plan, &theirs),
        Forked::Parent(pid, pidfd) => FirstProcess {
            pid,
            pidfd,
            reaped: false,
        },
    };
    drop(theirs);
    let mut hard_disk = false;
    if !rootless {
        let namespace = userns::create(spec.host_uid).step("make a user namespace")?;
        let mounted = volume::mount(&spec.volume, namespace.as_fd(), spec.host_uid)?;
        hard_disk = mounted.hard_limit;
        let sent = channel.send(
            &ToInit::Volume.encode(),
            &[mounted.mount.as_fd(), namespace.as_fd()],
        );
        // If it is gone already it has said why, which is worth more than a broken pipe.
        if sent.is_err() && !readable_now(&channel) {
            return Err(IsolationError::InitGone);
        }
    }
    let ready = await_ready(&channel)?;
    Ok((first, channel, ready, hard_disk))
}

fn no_namespaces(error: std::io::Error) -> IsolationError {
    let refused = [libc::EPERM, libc::ENOSPC, libc::EUSERS, libc::EINVAL];
    if error
        .raw_os_error()
        .is_some_and(|errno| refused.contains(&errno))
    {
        return IsolationError::Unavailable {
            what: "a set of namespaces",
            remedy: "allow unprivileged user namespaces (sysctl user.max_user_namespaces, \
                     kernel.apparmor_restrict_unprivileged_userns), or run as root",
        };
    }
    IsolationError::System {
        step: "make the box's namespaces",
        source: error,
    }
}

fn readable_now(channel: &Channel) -> bool {
    wait_readable(channel.as_fd(), Instant::now()).unwrap_or(false)
}

fn await_ready(channel: &Channel) -> Result<Ready, IsolationError> {
    if !wait_readable(channel.as_fd(), Instant::now() + DEADLINE)? {
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
        (Some(FromInit::SetupFailed { errno, step }), ..) => {
            Err(super::error::SetupError { step, errno }.into())
        }
        _ => Err(IsolationError::InitGone),
    }
}

/// Whether a descriptor can be read before the deadline.
pub(super) fn wait_readable(
    fd: std::os::fd::BorrowedFd<'_>,
    deadline: Instant,
) -> Result<bool, IsolationError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).step("wait for the box"),
        }
    }
}
