//! Version 2: one directory, with the controllers that were handed down to it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::discover::OwnV2;
use super::{Counters, Enforced, Limits, make_dirs, read, read_keyed, read_number, until, write};

const VERSION: u32 = 2;
const CPU_PERIOD_USEC: u64 = 100_000;
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

#[derive(Debug)]
pub(super) struct V2 {
    pub(super) dir: PathBuf,
    homes: Vec<PathBuf>,
    suffix: PathBuf,
    /// Those of [`WANTED`] that the box's group has.
    controllers: Vec<&'static str>,
}

impl OwnV2 {
    /// Where boxes can be: in the runner's own group, else beside it.
    ///
    /// A group with processes in it cannot hand controllers down. A service manager that puts the
    /// server into a subgroup of what it delegates (systemd: `Delegate=yes`, `DelegateSubgroup=`)
    /// leaves room beside it.
    pub(super) fn homes(&self) -> Vec<PathBuf> {
        let beside = self.dir.parent().filter(|_| self.dir != self.mount);
        std::iter::once(self.dir.clone())
            .chain(beside.map(Path::to_owned))
            .collect()
    }
}

impl V2 {
    pub(super) fn new(own: &OwnV2, suffix: &Path) -> Self {
        let homes = own.homes();
        Self {
            dir: own.dir.join(suffix),
            homes,
            suffix: suffix.to_owned(),
            controllers: Vec::new(),
        }
    }

    pub(super) fn create(&mut self, limits: &Limits) -> io::Result<()> {
        // The first home that hands all controllers down, else the first that can be used at all.
        let offers: Vec<_> = self
            .homes
            .iter()
            .map(|home| (home.clone(), handed_down(home)))
            .collect();
        let best = offers
            .iter()
            .enumerate()
            .max_by_key(|(index, (_, offer))| (offer.len(), std::cmp::Reverse(*index)));
        let Some((_, (home, offer))) = best else {
            return Ok(());
        };
        self.dir = home.join(&self.suffix);
        make_dirs(&self.dir)?;
        let root = self.dir.parent().unwrap_or(home);
        self.controllers = offer
            .iter()
            .copied()
            .filter(|name| enable(root, name))
            .collect();
        for controller in &self.controllers {
            limit(&self.dir, controller, limits)?;
        }
        Ok(())
    }

    fn by(&self, controller: &str) -> Option<&Path> {
        self.controllers
            .contains(&controller)
            .then_some(self.dir.as_path())
    }

    pub(super) fn enforced(&self) -> Enforced {
        let by = |controller| self.by(controller).map(|_| VERSION);
        Enforced {
            memory: by("memory"),
            pids: by("pids"),
            cpu: by("cpu"),
            freeze: self.can_freeze().then_some(VERSION),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let memory = self.by("memory");
        let pids = self.by("pids");
        Counters {
            memory: memory.and_then(|dir| read_number(dir, "memory.current")),
            memory_peak: memory.and_then(|dir| read_number(dir, "memory.peak")),
            oom_kills: memory.and_then(|dir| read_keyed(dir, "memory.events", "oom_kill")),
            pids: pids.and_then(|dir| read_number(dir, "pids.current")),
            pids_denied: pids.and_then(|dir| read_keyed(dir, "pids.events", "max")),
            // Every group counts its CPU time, with or without the controller.
            cpu_usec: read_keyed(&self.dir, "cpu.stat", "usage_usec"),
        }
    }

    pub(super) fn can_freeze(&self) -> bool {
        self.dir.join("cgroup.freeze").exists()
    }

    /// False if the processes did not stop in time; they are let go again.
    pub(super) fn freeze(&self, deadline: Duration) -> io::Result<bool> {
        write(&self.dir, "cgroup.freeze", 1)?;
        let frozen = until(deadline, || {
            (read_keyed(&self.dir, "cgroup.events", "frozen") == Some(1)).then_some(())
        });
        if frozen.is_none() {
            self.thaw()?;
        }
        Ok(frozen.is_some())
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        if self.can_freeze() {
            write(&self.dir, "cgroup.freeze", 0)
        } else {
            Ok(())
        }
    }
}

/// Those wanted controllers that a group hands down to its children, having been asked to.
fn handed_down(dir: &Path) -> Vec<&'static str> {
    let lists = |file, name: &str| {
        read(dir, file).is_some_and(|text| text.split_whitespace().any(|word| word == name))
    };
    let offered = |name: &&&'static str| lists("cgroup.controllers", name) && enable(dir, name);
    WANTED.iter().filter(offered).copied().collect()
}

fn enable(dir: &Path, controller: &str) -> bool {
    let on = || {
        read(dir, "cgroup.subtree_control")
            .is_some_and(|text| text.split_whitespace().any(|word| word == controller))
    };
    on() || (write(dir, "cgroup.subtree_control", format_args!("+{controller}")).is_ok() && on())
}

pub(super) fn limit(dir: &Path, controller: &str, limits: &Limits) -> io::Result<()> {
    match controller {
        "memory" => {
            write(dir, "memory.max", limits.memory_bytes)?;
            // One greedy program dies, not the whole box: its parent is told and can go on.
            write(dir, "memory.oom.group", 0)?;
            match write(dir, "memory.swap.max", 0) {
                // A kernel without swap has no such file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            }
        }
        // The box's first process is ours.
        "pids" => write(dir, "pids.max", u64::from(limits.pids) + 1),
        _ => {
            let quota = u64::from(limits.cpu_millis) * CPU_PERIOD_USEC / 1000;
            write(dir, "cpu.max", format_args!("{quota} {CPU_PERIOD_USEC}"))
        }
    }
}
