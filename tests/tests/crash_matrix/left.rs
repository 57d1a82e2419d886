//! What may not be left of a server after it has ended in order.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::processes::{command_line, pids};

/// How long processes that were told to end may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Fails when a process, mount, loop device or sandbox of the server in this folder is left.
pub(crate) async fn nothing_of(folder: &Path) -> Result<()> {
    let until = Instant::now() + WITHIN;
    loop {
        let left = all_of(folder);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("left behind: {left:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn all_of(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let processes = pids().into_iter().filter_map(|pid| {
        let line = command_line(pid).join(" ");
        line.contains(&name)
            .then(|| format!("process {pid}: {line}"))
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts
        .lines()
        .filter(|line| line.contains(&name))
        .map(|line| format!("mount {line}"))
        .collect::<Vec<_>>();
    let loops = entries(Path::new("/sys/block"))
        .into_iter()
        .filter_map(|device| {
            let backing = std::fs::read_to_string(device.join("loop/backing_file")).ok()?;
            backing
                .contains(&name)
                .then(|| format!("loop device over {}", backing.trim()))
        });
    let sandboxes = [
        "state/sandbox/local/sandboxes",
        "state/sandbox/local/volumes",
        "run/local",
    ]
    .into_iter()
    .flat_map(|place| entries(&folder.join(place)))
    .map(|path| format!("file {}", path.display()));
    processes
        .chain(mounts)
        .chain(loops)
        .chain(sandboxes)
        .collect()
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}
