//! The box's first process: starts what the runner asks for, reaps everything, reports.
//!
//! It is the runner's own code, forked and never replaced, so nothing of it is in the box's files. It
//! has the box's user and no capability; nobody inside can kill it (it is process 1 of its namespace
//! and handles no signal), look into it (not dumpable) or lower its limits (the filter). It ends when
//! the runner does, and with it every process of the box.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};

use super::channel::{Channel, Received};
use super::error::{SetupError, SetupStep};
use super::setup::{self, Plan};
use super::sys::{self, Exec, ExecStage};
use super::wire::{FromInit, MAX_PAYLOAD, Payload, SpawnStage, ToInit};

/// Runs the first process in a fork of the runner. Never returns, not even by a panic.
pub(super) fn run(plan: &Plan<'_>, channel: &Channel) -> ! {
    struct ExitAtEnd;
    impl Drop for ExitAtEnd {
        fn drop(&mut self) {
            sys::exit_now(1);
        }
    }
    let _exit = ExitAtEnd;
    let signals = match start(plan, channel) {
        Ok(signals) => signals,
        Err(error) => {
            let message = FromInit::SetupFailed {
                errno: error.errno,
                step: error.step,
            };
            // Nobody to tell is as good a reason to end as having told.
            let _ = channel.send(&message.encode(), &[]);
            sys::exit_now(1);
        }
    };
    Init {
        channel,
        signals,
        children: HashMap::new(),
    }
    .serve();
    sys::exit_now(0)
}

fn start(plan: &Plan<'_>, channel: &Channel) -> Result<OwnedFd, SetupError> {
    // Above all the runner's end of the channel: as long as it is open here, its end is not seen.
    let entry = plan
        .entry
        .tasks
        .iter()
        .chain(&plan.entry.unified)
        .map(AsFd::as_fd);
    sys::close_all_but(&entry.chain([channel.as_fd()]).collect::<Vec<_>>());
    let signals = sys::take_signals().setup("take over the signals")?;
    // They are the runner's, and spawned processes get their own.
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.setup("open /dev/null")?;
    sys::replace_stdio(null.as_fd()).setup("close the standard streams")?;
    drop(null);
    let finished = setup::run(plan, channel)?;
    let ready = FromInit::Ready {
        facts: finished.facts.clone(),
    };
    channel
        .send(
            &ready.encode(),
            &[finished.listener.as_fd(), finished.root.as_fd()],
        )
        .setup("report to the runner")?;
    drop(finished);
    setup::expect(channel, &ToInit::Go)?;
    // The plan's descriptors, which are never dropped, because this process never returns to its owner.
    sys::close_all_but(&[channel.as_fd(), signals.as_fd()]);
    Ok(signals)
}

struct Init<'a> {
    channel: &'a Channel,
    signals: OwnedFd,
    /// The processes that were asked for and have not been reaped, by pid.
    children: HashMap<i32, u64>,
}

impl Init<'_> {
    /// Until the runner is gone.
    fn serve(&mut self) {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None) {
                if error == rustix::io::Errno::INTR {
                    continue;
                }
                return;
            }
            let (asked, signalled) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if signalled && !self.reap() {
                return;
            }
            if asked && !self.answer() {
                return;
            }
        }
    }

    /// Reports the ends of those that were asked for and silently buries the rest.
    fn reap(&mut self) -> bool {
        let mut record = [0; 128];
        // One signal can stand for many children, so its number says nothing.
        while rustix::io::read(&self.signals, &mut record).is_ok_and(|length| length > 0) {}
        while let Some(ended) = sys::reap() {
            let Some(tag) = self.children.remove(&ended.pid) else {
                continue;
            };
            let sys::Ended {
                pid,
                signaled,
                value,
            } = ended;
            let exited = FromInit::Exited {
                tag,
                pid,
                signaled,
                value,
            };
            if !self.tell(&exited) {
                return false;
            }
        }
        true
    }

    fn answer(&mut self) -> bool {
        let (bytes, fds) = match self.channel.receive() {
            Ok(Received::Message(bytes, fds)) => (bytes, fds),
            Ok(Received::Nothing) => return true,
            Ok(Received::End) | Err(_) => return false,
        };
        match ToInit::decode(&bytes) {
            Some(ToInit::Spawn { tag }) => self.spawn(tag, &fds),
            Some(ToInit::Signal { pid, signal, group }) => {
                // Still unreaped, so the number cannot have passed to another process.
                if self.children.contains_key(&pid) {
                    let _ = sys::kill(if group { -pid } else { pid }, signal);
                }
                true
            }
            Some(ToInit::SignalAll { signal }) => {
                // Atomic against forks, and never reaches process 1, which is the caller.
                let _ = sys::kill(-1, signal);
                true
            }
            Some(ToInit::Volume | ToInit::Go) | None => false,
        }
    }

    fn spawn(&mut self, tag: u64, fds: &[OwnedFd]) -> bool {
        let answer = match start_process(fds) {
            Ok(pid) => {
                self.children.insert(pid, tag);
                FromInit::Started { tag, pid }
            }
            Err((stage, errno)) => FromInit::SpawnFailed { tag, errno, stage },
        };
        self.tell(&answer)
    }

    fn tell(&self, message: &FromInit) -> bool {
        self.channel.send(&message.encode(), &[]).is_ok()
    }
}

fn start_process(fds: &[OwnedFd]) -> Result<i32, (SpawnStage, i32)> {
    let bad_request = (SpawnStage::Request, libc::EBADMSG);
    let [payload, stdin, stdout, stderr] = fds else {
        return Err(bad_request);
    };
    let payload = read_payload(payload.as_fd()).ok_or(bad_request)?;
    let c_strings = |strings: Vec<OsString>| {
        strings
            .into_iter()
            .map(|text| CString::new(text.into_vec()))
            .collect::<Result<Vec<_>, _>>()
    };
    let path = payload
        .env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value);
    let candidates = candidates(&payload.argv[0], path.map(OsString::as_os_str));
    let candidates = c_strings(candidates).map_err(|_| bad_request)?;
    let env = payload.env.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let env = c_strings(env.collect()).map_err(|_| bad_request)?;
    let argv = c_strings(payload.argv).map_err(|_| bad_request)?;
    let cwd = CString::new(payload.cwd.into_os_string().into_vec()).map_err(|_| bad_request)?;
    let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let exec = Exec {
        candidates: &candidates,
        argv: &argv,
        env: &env,
        cwd: &cwd,
        stdio,
    };
    sys::execute(&exec).map_err(|(stage, errno)| {
        let stage = match stage {
            ExecStage::Fork => SpawnStage::Fork,
            ExecStage::Directory => SpawnStage::Directory,
            ExecStage::Exec => SpawnStage::Exec,
        };
        (stage, errno)
    })
}

fn read_payload(file: BorrowedFd<'_>) -> Option<Payload> {
    let length = usize::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    if length > MAX_PAYLOAD {
        return None;
    }
    let mut bytes = vec![0; length];
    let mut at = 0;
    while at < length {
        match rustix::io::pread(file, &mut bytes[at..], at as u64).ok()? {
            0 => return None,
            read => at += read,
        }
    }
    Payload::decode(&bytes).filter(|payload| !payload.argv.is_empty())
}

/// Where a program can be, as execvp looks for it, in the environment that it is to have.
fn candidates(program: &OsStr, path: Option<&OsStr>) -> Vec<OsString> {
    const DEFAULT_PATH: &str = "/usr/bin:/bin";
    if program.as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes();
    path.split(|byte| *byte == b':')
        .map(|dir| {
            let mut full = if dir.is_empty() {
                b".".to_vec()
            } else {
                dir.to_vec()
            };
            full.push(b'/');
            full.extend_from_slice(program.as_bytes());
            OsString::from_vec(full)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_as_execvp_does() {
        let cases: &[(&str, Option<&str>, &[&str])] = &[
            ("/bin/sh", Some("/x"), &["/bin/sh"]),
            ("./run", Some("/x"), &["./run"]),
            ("sh", Some("/a:/b"), &["/a/sh", "/b/sh"]),
            ("sh", Some(":/b"), &["./sh", "/b/sh"]),
            ("sh", None, &["/usr/bin/sh", "/bin/sh"]),
        ];
        for (program, path, expected) in cases {
            let found = candidates(OsStr::new(program), path.map(OsStr::new));
            assert_eq!(found, *expected, "{program} {path:?}");
        }
    }
}
