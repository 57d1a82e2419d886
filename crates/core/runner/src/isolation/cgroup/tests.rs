use std::fs;

use tempfile::TempDir;

use super::discover::{OwnV1, OwnV2};
use super::*;

const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    pids: 10,
    cpu_millis: 1500,
    disk_bytes: 1 << 30,
    file_bytes: 1 << 30,
};

/// Ordinary files stand for the control files, which the kernel would make with the directory.
fn control_files(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).expect("makes a directory");
    for (file, content) in files {
        fs::write(dir.join(file), content).expect("writes a control file");
    }
}

fn content(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

const V2_FILES: &[(&str, &str)] = &[
    ("memory.max", ""),
    ("memory.oom.group", ""),
    ("memory.swap.max", ""),
    ("pids.max", ""),
    ("cpu.max", ""),
    ("cgroup.freeze", "0"),
    ("memory.current", "4096\n"),
    ("memory.peak", "8192\n"),
    (
        "memory.events",
        "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
    ),
    ("pids.current", "5\n"),
    ("pids.events", "max 7\n"),
    ("cpu.stat", "usage_usec 12\nuser_usec 1\n"),
];

/// A v2 group whose controllers are on already; the box's directory is there, as `make_dirs` finds it.
fn v2(temp: &TempDir, subtree: &str) -> (V2, io::Result<()>) {
    let own = temp.path().join("own");
    let hand_down = [
        ("cgroup.controllers", "cpu memory pids io"),
        ("cgroup.subtree_control", subtree),
    ];
    control_files(&own, &hand_down);
    control_files(
        &own.join("astrabox-r"),
        &[("cgroup.subtree_control", "memory pids cpu")],
    );
    let own = OwnV2 {
        dir: own.clone(),
        mount: own,
    };
    let mut v2 = V2::new(&own, Path::new("astrabox-r/b"));
    let result = v2.create(&LIMITS);
    (v2, result)
}

#[test]
fn a_unified_group_gets_its_limits_once_the_kernel_has_made_its_files() {
    let temp = TempDir::new().expect("makes a directory");
    // A plain directory gets no control files by itself: the first limit finds none and says so.
    let (group, result) = v2(&temp, "memory pids cpu");
    assert_eq!(
        result.map_err(|error| error.kind()),
        Err(io::ErrorKind::NotFound)
    );
    assert!(group.dir.ends_with("own/astrabox-r/b"));
    control_files(&group.dir, V2_FILES);
    for (controller, file, expected) in [
        ("memory", "memory.max", "67108864"),
        ("memory", "memory.swap.max", "0"),
        ("memory", "memory.oom.group", "0"),
        ("pids", "pids.max", "11"),
        ("cpu", "cpu.max", "150000 100000"),
    ] {
        v2::limit(&group.dir, controller, &LIMITS).expect("sets the limit");
        assert_eq!(content(&group.dir, file), expected, "{file}");
    }
}

#[test]
fn a_unified_group_counts_and_freezes() {
    let temp = TempDir::new().expect("makes a directory");
    let (group, _) = v2(&temp, "memory pids cpu");
    control_files(&group.dir, V2_FILES);
    let expected = Counters {
        memory: Some(4096),
        memory_peak: Some(8192),
        pids: Some(5),
        cpu_usec: Some(12),
        oom_kills: Some(2),
        pids_denied: Some(7),
    };
    assert_eq!(group.counters(), expected);
    let all = Enforced {
        memory: Some(2),
        pids: Some(2),
        cpu: Some(2),
        freeze: Some(2),
    };
    assert_eq!(group.enforced(), all);
    control_files(&group.dir, &[("cgroup.events", "populated 1\nfrozen 1\n")]);
    assert!(group.freeze(Duration::from_millis(50)).expect("freezes"));
    assert_eq!(content(&group.dir, "cgroup.freeze"), "1");
    group.thaw().expect("thaws");
    assert_eq!(content(&group.dir, "cgroup.freeze"), "0");
    control_files(&group.dir, &[("cgroup.events", "populated 1\nfrozen 0\n")]);
    assert!(!group.freeze(Duration::from_millis(5)).expect("tries"));
    assert_eq!(content(&group.dir, "cgroup.freeze"), "0", "let go again");
}

#[test]
fn boxes_go_beside_a_group_that_cannot_hand_down() {
    let temp = TempDir::new().expect("makes a directory");
    let service = temp.path().join("service");
    control_files(
        &service,
        &[
            ("cgroup.controllers", "memory pids cpu"),
            ("cgroup.subtree_control", "memory pids cpu"),
        ],
    );
    // No such file as subtree_control to write to: as refused as the kernel's EBUSY.
    control_files(
        &service.join("server"),
        &[("cgroup.controllers", "memory pids cpu")],
    );
    control_files(
        &service.join("astrabox-r"),
        &[("cgroup.subtree_control", "memory pids cpu")],
    );
    let own = OwnV2 {
        dir: service.join("server"),
        mount: temp.path().to_owned(),
    };
    let mut group = V2::new(&own, Path::new("astrabox-r/b"));
    let _ = group.create(&LIMITS);
    assert!(
        group.dir.ends_with("service/astrabox-r/b"),
        "{:?}",
        group.dir
    );
    // With nothing to hand down anywhere, the own group still freezes and kills.
    let hybrid = OwnV2 {
        dir: temp.path().join("own"),
        mount: temp.path().join("own"),
    };
    control_files(
        &hybrid.dir,
        &[("cgroup.controllers", ""), ("cgroup.subtree_control", "")],
    );
    let mut group = V2::new(&hybrid, Path::new("astrabox-r/b"));
    group.create(&LIMITS).expect("needs no controller");
    assert_eq!(group.enforced(), Enforced::default());
}

#[test]
fn version_one_counts_in_its_own_units() {
    let temp = TempDir::new().expect("makes a directory");
    let (one, two) = (temp.path().join("cpu,cpuacct"), temp.path().join("memory"));
    let own = [
        OwnV1 {
            dir: one.clone(),
            controllers: vec!["cpu", "cpuacct"],
        },
        OwnV1 {
            dir: two.clone(),
            controllers: vec!["memory"],
        },
    ];
    let group = V1::new(&own, Path::new("astrabox-r/b"));
    control_files(&one.join("astrabox-r/b"), &[("cpuacct.usage", "5000000\n")]);
    control_files(
        &two.join("astrabox-r/b"),
        &[
            ("memory.usage_in_bytes", "1\n"),
            ("memory.max_usage_in_bytes", "2\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
            ),
        ],
    );
    let expected = Counters {
        memory: Some(1),
        memory_peak: Some(2),
        oom_kills: Some(4),
        cpu_usec: Some(5000),
        ..Counters::default()
    };
    assert_eq!(group.counters(), expected);
    let enforced = Enforced {
        memory: Some(1),
        cpu: Some(1),
        ..Enforced::default()
    };
    assert_eq!(group.enforced(), enforced);
}

#[test]
fn a_group_is_made_while_its_root_is_being_removed() {
    let temp = TempDir::new().expect("makes a directory");
    let root = temp.path().join("astrabox-r");
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let dir = root.join(name);
            scope.spawn(move || {
                for _ in 0..200 {
                    make_dirs(&dir).expect("makes the group");
                    remove_dir(&dir).expect("removes the group");
                }
            });
        }
    });
    assert!(!root.exists());
}
