//! The machine that was measured on.

use std::fmt;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// What of a machine decides how fast it is.
#[derive(Debug)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    memory_bytes: u64,
    kernel: String,
    filesystem: String,
    load: String,
}

impl Machine {
    pub(crate) fn look() -> Result<Self> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |file: &str, name: &str| {
            let line = file.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
        };
        let memory = field(&text("/proc/meminfo"), "MemTotal");
        let memory = memory
            .as_deref()
            .and_then(|size| size.split(' ').next()?.parse::<u64>().ok());
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field(&text("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| "unknown".to_owned()),
            memory_bytes: memory.context("the size of the memory")? * 1024,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            filesystem: filesystem_of(&std::env::temp_dir(), &text("/proc/self/mountinfo")),
            load: load(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "cpu": self.cpu,
            "memory_bytes": self.memory_bytes,
            "kernel": self.kernel,
            "filesystem": self.filesystem,
            "load_at_begin": self.load,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "machine: {} cores ({}), {:.1} GiB, Linux {}, {} below the temporary folder, load {}",
            self.cores,
            self.cpu,
            self.memory_bytes as f64 / (1 << 30) as f64,
            self.kernel,
            self.filesystem,
            self.load
        )
    }
}

/// The load averages of 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The kind of file system that a folder is on, by `/proc/self/mountinfo` (proc(5)): the last mount at the longest
/// path above it.
fn filesystem_of(folder: &std::path::Path, mounts: &str) -> String {
    let mut best = (0, "unknown".to_owned());
    for line in mounts.lines() {
        let (before, after) = line.split_once(" - ").unwrap_or((line, ""));
        let (Some(point), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else {
            continue;
        };
        if folder.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), kind.to_owned());
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_tells_the_file_system() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/vda rw\n23 22 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n\
                      24 22 0:6 / /tmpfs rw - xfs /dev/vdb rw\n";
        for (folder, kind) in [("/tmp/x", "tmpfs"), ("/var/tmp", "ext4"), ("/tmpfs", "xfs")] {
            assert_eq!(filesystem_of(folder.as_ref(), mounts), kind, "{folder}");
        }
    }
}
