//! Ending a program together with everything that it started and that still hangs below it.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Kills `pid` and its descendants as the process table shows them now, parents first, so that
/// none can start another while we go down.
pub(crate) fn kill_tree(pid: u32) {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (child, parent) in processes() {
        children.entry(parent).or_default().push(child);
    }
    let mut queue = vec![pid];
    while let Some(next) = queue.pop() {
        queue.extend(children.remove(&next).unwrap_or_default());
        if let Some(target) = i32::try_from(next).ok().and_then(Pid::from_raw) {
            // It may have ended by itself: nothing to do then.
            let _ = kill_process(target, Signal::KILL);
        }
    }
}

/// Every process with its parent; empty where there is no `/proc`.
fn processes() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, parent(&stat)?))
        })
        .collect()
}

/// The parent in a `/proc/<pid>/stat` line. The name before it is in parentheses and may itself
/// hold spaces and parentheses.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parent;

    #[test]
    fn the_parent_is_found_behind_any_process_name() {
        let cases = [
            ("12 (cat) S 7 12 12", Some(7)),
            ("12 (a b) c) R 9 1 1", Some(9)),
            ("12 (cat", None),
        ];
        for (stat, expected) in cases {
            assert_eq!(parent(stat), expected, "{stat}");
        }
    }
}
