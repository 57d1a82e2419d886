//! What a box may use, and what happens when it wants more.

use std::time::{Duration, Instant};

use crate::host::{Plan, TestBox, VOLUME_BYTES, eventually, watch};
use crate::protocol::Ask;
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_fork_bomb_is_held_and_the_box_stays_usable",
        Needs::Root,
        fork_bomb,
    ),
    ("a_memory_hog_is_killed_and_named", Needs::Root, memory_hog),
    ("files_in_memory_count_as_memory", Needs::Root, memory_files),
    ("a_full_volume_says_so", Needs::Root, disk_filler),
    ("no_file_grows_beyond_its_limit", Needs::Root, file_size),
    ("a_busy_box_gets_its_share_of_cpu", Needs::Root, cpu_spinner),
    ("a_crash_leaves_no_core", Needs::Root, no_core),
];

fn fork_bomb() {
    let mut made = Plan::root().start();
    assert_fork_bomb(&mut made);
    let stats = made.stats();
    assert!(stats.pids_denied > 0, "{stats:?}");
    assert!(stats.pids.is_some_and(|pids| pids <= 65), "{stats:?}");
    made.ask(&Ask::KillAll);
    eventually("the end of the bomb", || made.stats().pids == Some(1));
    assert_eq!(made.shell("echo alive"), "alive");
}

/// Forks until it is refused, then as a real bomb.
pub(crate) fn assert_fork_bomb(made: &mut TestBox) {
    let count = "my $n = 0; while (1) { my $p = fork; last unless defined $p; \
                 if (!$p) { sleep 100; exit } $n++ } print $n; kill 9, -getpgrp";
    let ended = made.run(&["perl", "-e", &format!("$| = 1; {count}")]);
    let forks: u32 = ended.stdout.parse().expect("a number");
    assert!((10..64).contains(&forks), "{forks} forks");
    let (_, pid) = made.start(&["perl", "-e", "fork while 1"]);
    assert!(pid > 1);
    eventually("that it is full", || {
        made.stats().pids.is_some_and(|pids| pids >= 60)
    });
}

fn memory_hog() {
    let mut made = Plan::root().start();
    let hog = "my $x = 'x' x (64 << 20); my $y = 'y' x (512 << 20); print length $y";
    let ended = made.run(&["perl", "-e", hog]);
    assert_eq!(
        (ended.signal, ended.memory_limit),
        (Some(libc::SIGKILL), true),
        "{ended:?}"
    );
    assert_eq!(made.stats().oom_kills, 1);
    // The box goes on, and what is killed by somebody else is not blamed on memory.
    assert_eq!(made.shell("echo alive"), "alive");
    let (tag, pid) = made.start(&["sleep", "60"]);
    made.ask(&Ask::Signal {
        pid,
        signal: libc::SIGKILL,
        group: true,
    });
    let ended = made.wait(tag);
    assert_eq!(
        (ended.signal, ended.memory_limit),
        (Some(libc::SIGKILL), false)
    );
}

fn memory_files() {
    let mut made = Plan::root()
        .with(|spec| spec.limits.file_bytes = 1 << 30)
        .start();
    // Half of the 128 MiB may be files.
    let ended = made.run(&["dd", "if=/dev/zero", "of=/tmp/big", "bs=1M", "count=100"]);
    assert!(ended.stderr.contains("No space left"), "{ended:?}");
    let memory = made.stats().memory.expect("is counted");
    assert!((60 << 20..128 << 20).contains(&memory), "{memory}");
    made.shell("rm /tmp/big");
    let memory = made.stats().memory.expect("is counted");
    assert!(memory < 60 << 20, "{memory}");
}

fn disk_filler() {
    let mut made = Plan::root().start();
    let ended = made.run(&[
        "dd",
        "if=/dev/zero",
        "of=/workspace/big",
        "bs=1M",
        "count=100",
    ]);
    assert!(ended.stderr.contains("No space left"), "{ended:?}");
    let stats = made.stats();
    let (used, limit) = (
        stats.disk_used.expect("known"),
        stats.disk_limit.expect("known"),
    );
    assert!(limit <= VOLUME_BYTES && used > limit * 9 / 10, "{stats:?}");
    made.shell("rm /workspace/big && echo fits > /workspace/f");
}

fn file_size() {
    let mut made = Plan::root()
        .with(|spec| spec.limits.file_bytes = 1 << 20)
        .start();
    let ended = made.run(&[
        "dd",
        "if=/dev/zero",
        "of=/workspace/f",
        "bs=64k",
        "count=100",
    ]);
    assert_eq!(ended.signal, Some(libc::SIGXFSZ), "{ended:?}");
    assert_eq!(made.shell("stat -c %s /workspace/f"), (1 << 20).to_string());
}

fn cpu_spinner() {
    let mut made = Plan::root()
        .with(|spec| spec.limits.cpu_millis = 200)
        .start();
    for _ in 0..2 {
        made.start(&["perl", "-e", "1 while 1"]);
    }
    let before = made.stats().cpu_usec.expect("is counted");
    let start = Instant::now();
    watch(Duration::from_secs(2));
    let used = made.stats().cpu_usec.expect("is counted") - before;
    let share = used as f64 / start.elapsed().as_micros() as f64;
    // A fifth of one CPU; a period of 100 ms may end in between.
    assert!((0.05..0.30).contains(&share), "{share}");
    made.ask(&Ask::KillAll);
}

fn no_core() {
    let mut made = Plan::root().start();
    let ended = made.run(&["perl", "-e", "kill 11, $$; sleep 5"]);
    assert_eq!(ended.signal, Some(libc::SIGSEGV), "{ended:?}");
    assert_eq!(made.shell("ls -A /workspace"), "");
}
