//! Version 1: one directory per hierarchy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::discover::OwnV1;
use super::{Counters, Enforced, Limits, make_dirs, read, read_keyed, read_number, until, write};

const VERSION: u32 = 1;
const CPU_PERIOD_USEC: u64 = 100_000;

#[derive(Debug)]
pub(super) struct V1(Vec<Group>);

#[derive(Debug)]
struct Group {
    dir: PathBuf,
    controllers: Vec<&'static str>,
}

impl V1 {
    pub(super) fn new(own: &[OwnV1], suffix: &Path) -> Self {
        let group = |own: &OwnV1| Group {
            dir: own.dir.join(suffix),
            controllers: own.controllers.clone(),
        };
        Self(own.iter().map(group).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|group| group.dir.as_path())
    }

    pub(super) fn create(&self, limits: &Limits) -> io::Result<()> {
        for Group { dir, controllers } in &self.0 {
            make_dirs(dir)?;
            for controller in controllers {
                limit(dir, controller, limits)?;
            }
        }
        Ok(())
    }

    fn dir_of(&self, controller: &str) -> Option<&Path> {
        self.0
            .iter()
            .find(|group| group.controllers.contains(&controller))
            .map(|group| group.dir.as_path())
    }

    pub(super) fn enforced(&self) -> Enforced {
        let by = |controller| self.dir_of(controller).map(|_| VERSION);
        Enforced {
            memory: by("memory"),
            pids: by("pids"),
            cpu: by("cpu"),
            freeze: by("freezer"),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let memory = self.dir_of("memory");
        let pids = self.dir_of("pids");
        Counters {
            memory: memory.and_then(|dir| read_number(dir, "memory.usage_in_bytes")),
            memory_peak: memory.and_then(|dir| read_number(dir, "memory.max_usage_in_bytes")),
            oom_kills: memory.and_then(|dir| read_keyed(dir, "memory.oom_control", "oom_kill")),
            pids: pids.and_then(|dir| read_number(dir, "pids.current")),
            pids_denied: pids.and_then(|dir| read_keyed(dir, "pids.events", "max")),
            cpu_usec: self
                .dir_of("cpuacct")
                .and_then(|dir| read_number(dir, "cpuacct.usage"))
                .map(|nanoseconds| nanoseconds / 1000),
        }
    }

    pub(super) fn can_freeze(&self) -> bool {
        self.dir_of("freezer").is_some()
    }

    /// False if the processes did not stop in time; they are let go again.
    pub(super) fn freeze(&self, deadline: Duration) -> io::Result<bool> {
        let Some(dir) = self.dir_of("freezer") else {
            return Ok(false);
        };
        // Written again while it lasts: a process born in between is caught by the next write.
        let frozen = until(deadline, || match write(dir, "freezer.state", "FROZEN") {
            Ok(()) => {
                let state = read(dir, "freezer.state")?;
                (state.trim() == "FROZEN").then_some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        });
        if frozen.is_none() {
            self.thaw()?;
        }
        frozen.transpose().map(|frozen| frozen.is_some())
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        self.dir_of("freezer")
            .map_or(Ok(()), |dir| write(dir, "freezer.state", "THAWED"))
    }
}

fn limit(dir: &Path, controller: &str, limits: &Limits) -> io::Result<()> {
    match controller {
        "memory" => {
            write(dir, "memory.limit_in_bytes", limits.memory_bytes)?;
            // Kernels can be built without swap accounting; then swappiness has to do.
            match write(dir, "memory.memsw.limit_in_bytes", limits.memory_bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    write(dir, "memory.swappiness", 0)
                }
                other => other,
            }
        }
        // The box's first process is ours.
        "pids" => write(dir, "pids.max", u64::from(limits.pids) + 1),
        "cpu" => {
            write(dir, "cpu.cfs_period_us", CPU_PERIOD_USEC)?;
            write(
                dir,
                "cpu.cfs_quota_us",
                u64::from(limits.cpu_millis) * CPU_PERIOD_USEC / 1000,
            )
        }
        _ => Ok(()),
    }
}
