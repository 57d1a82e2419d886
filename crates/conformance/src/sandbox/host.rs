//! What of a sandbox shows on a Linux host, seen from outside.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::HostView;
use super::bench::TOKEN;

/// The processes on this host whose environment holds this token, by pid.
pub(super) fn processes_with(token: &str) -> Vec<u32> {
    let wanted = format!("{TOKEN}={token}");
    let holds = |environ: &[u8]| {
        environ
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    };
    pids()
        .filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| holds(&text)))
        .collect()
}

/// The value of a line of `/proc/PID/status`.
pub(super) fn status_of(pid: u32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    value_of(&text, key).map(str::to_owned)
}

/// The value of a line `key: value`.
pub(super) fn value_of<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == key).then_some(value.trim())
    })
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Everything on the host that belongs to a provider over certain directories, or that bears certain marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Traces {
    /// Processes that name a directory or a mark in their command line, or whose group has a mark in its name.
    pub(super) processes: BTreeSet<String>,
    /// Mounts that name a directory or a mark.
    pub(super) mounts: BTreeSet<String>,
    /// Loop devices over a file in a directory.
    pub(super) loops: BTreeSet<String>,
    /// Control groups with a mark in their path.
    pub(super) cgroups: BTreeSet<String>,
    /// Files and directories whose names have a mark.
    pub(super) files: BTreeSet<String>,
}

impl Traces {
    /// Looks for everything that bears one of the marks.
    pub(super) fn of_marks(view: &HostView, marks: &[String]) -> Self {
        let marked = |text: &str| marks.iter().any(|mark| text.contains(mark));
        Self {
            processes: processes(&marked),
            mounts: mounts(&marked),
            loops: loops(&marked),
            cgroups: cgroups(&marked),
            files: files(&view.directories, &marked),
        }
    }

    /// Looks for everything in the provider's directories, and control groups that bear its root's name.
    pub(super) fn of_provider(view: &HostView, root: &str) -> Self {
        let directories: Vec<_> = view
            .directories
            .iter()
            .map(|directory| directory.to_string_lossy().into_owned())
            .collect();
        let ours = |text: &str| directories.iter().any(|directory| text.contains(directory));
        Self {
            processes: processes(&ours),
            mounts: mounts(&ours),
            loops: loops(&ours),
            cgroups: cgroups(&|text| text.contains(root)),
            files: files(&view.directories, &|_| true),
        }
    }

    /// How many of each kind there are.
    pub(super) fn counts(&self) -> [(&'static str, usize); 5] {
        [
            ("processes", self.processes.len()),
            ("mounts", self.mounts.len()),
            ("loop devices", self.loops.len()),
            ("control groups", self.cgroups.len()),
            ("files", self.files.len()),
        ]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts().iter().all(|(_, count)| *count == 0)
    }
}

fn processes(wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let own = std::process::id();
    pids()
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            (wanted(&line) || wanted(&group)).then(|| format!("{pid} {line}"))
        })
        .collect()
}

fn mounts(wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.lines().filter(|line| wanted(line));
    lines.map(str::to_owned).collect()
}

fn loops(wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            wanted(&file).then(|| file.trim().to_owned())
        })
        .collect()
}

fn cgroups(wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if wanted(&path.to_string_lossy()) {
                found.insert(path.to_string_lossy().into_owned());
            }
            open.push(path);
        }
    }
    found
}

fn files(directories: &[PathBuf], wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = directories.to_vec();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if wanted(&entry.file_name().to_string_lossy()) {
                found.insert(entry.path().to_string_lossy().into_owned());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

/// How many descriptors this process has open.
pub(super) fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The user that this process runs as.
pub(crate) fn own_uid() -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(Path::new("/proc/self"))
        .ok()
        .map(|own| own.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_in_the_names_of_files() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("box-77ab")).expect("it is new");
        fs::write(directory.path().join("other"), "").expect("it is new");
        let view = HostView {
            directories: vec![directory.path().to_owned()],
        };
        let traces = Traces::of_marks(&view, &["77ab".to_owned()]);
        assert_eq!(traces.files.len(), 1, "{traces:?}");
        assert_eq!(Traces::of_provider(&view, "no-such-root").files.len(), 2);
        assert!(Traces::of_marks(&view, &["78ab".to_owned()]).is_empty());
    }

    #[test]
    fn a_status_line_is_found_by_its_whole_key() {
        let text = "Name:\tsh\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(value_of(text, "Seccomp"), Some("2"));
        assert_eq!(value_of(text, "Sec"), None);
        assert!(own_uid().is_some());
        assert!(open_descriptors() > 2);
    }
}
