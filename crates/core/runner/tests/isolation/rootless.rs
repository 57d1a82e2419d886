//! The same boxes made by an ordinary user, and what is different about them.

use astrabox_runner_core::isolation::{PermissionLevel, Strength, destroy_leftovers};

use crate::confinement::{
    assert_advanced, assert_calls, assert_network, assert_unprivileged, look_around, posture_of,
    see_own_processes, table_over_own_base,
};
use crate::files::assert_read_only;
use crate::host::{Delegated, Plan, am_root, cgroups_of, eventually, owner_of, skipped, watch};
use crate::limits::assert_fork_bomb;
use crate::protocol::{Answer, Ask};
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    (
        "rootless_boxes_hide_the_host",
        Needs::Rootless,
        hide_the_host,
    ),
    (
        "rootless_calls_that_reach_out_fail",
        Needs::Rootless,
        calls_fail,
    ),
    (
        "rootless_advanced_boxes_allow_nothing_beyond",
        Needs::Rootless,
        advanced_level,
    ),
    (
        "rootless_base_and_image_cannot_be_written",
        Needs::Rootless,
        base_is_read_only,
    ),
    (
        "rootless_bases_can_be_trees_of_their_own",
        Needs::Rootless,
        own_base,
    ),
    (
        "rootless_boxes_are_their_makers_user",
        Needs::Rootless,
        own_user,
    ),
    (
        "rootless_networks_are_a_loopback_with_one_listener",
        Needs::Rootless,
        loopback_only,
    ),
    ("rootless_fork_bombs_are_held", Needs::Rootless, fork_bomb),
    ("rootless_memory_is_looked_at", Needs::Rootless, memory),
    ("rootless_disk_is_looked_at", Needs::Rootless, disk),
    (
        "rootless_boxes_stand_still_and_go_on",
        Needs::Rootless,
        freeze,
    ),
    (
        "rootless_boxes_use_a_cgroup_of_their_makers_user",
        Needs::Rootless,
        delegated_group,
    ),
    (
        "rootless_runners_leave_no_process",
        Needs::Rootless,
        killed_runner,
    ),
];

fn hide_the_host() {
    let mut made = Plan::rootless().start();
    look_around(&mut made);
    see_own_processes(&mut made);
}

fn calls_fail() {
    assert_calls(&mut Plan::rootless().start());
}

fn advanced_level() {
    let mut made = Plan::rootless()
        .with(|spec| spec.level = PermissionLevel::Advanced)
        .start();
    assert_advanced(&mut made);
}

fn base_is_read_only() {
    assert_read_only(&mut Plan::rootless().start());
}

fn own_base() {
    table_over_own_base(Plan::rootless());
}

fn own_user() {
    let mut made = Plan::rootless().start();
    let owner = made.host_owner;
    assert_unprivileged(&mut made, owner.0);
    made.ask(&Ask::Put {
        path: "/workspace/put".into(),
        content: "put".into(),
    });
    assert_eq!(made.shell("stat -c %u /workspace/put"), "1000");
    let file = made.plan.spec.volume.path().join("workspace/put");
    assert_eq!(owner_of(&file), owner);
    let found = posture_of(&mut made);
    assert!(found.rootless && found.no_new_privileges && found.no_capabilities && found.seccomp);
    assert_eq!(found.disk.strength, Strength::Soft);
    assert!(!found.notes.is_empty());
}

fn loopback_only() {
    assert_network(&mut Plan::rootless().start());
}

fn fork_bomb() {
    let mut made = Plan::rootless().start();
    assert_eq!(posture_of(&mut made).pids.strength, Strength::Hard);
    assert_fork_bomb(&mut made);
    made.ask(&Ask::KillAll);
    eventually("the end of the bomb", || made.stats().pids == Some(1));
    assert_eq!(made.shell("echo alive"), "alive");
}

fn breach(answer: Answer) -> Option<String> {
    match answer {
        Answer::Breach(breach) => breach,
        other => panic!("unexpected {other:?}"),
    }
}

fn memory() {
    let mut made = Plan::rootless().start();
    if posture_of(&mut made).memory.strength == Strength::Hard {
        skipped(
            "rootless_memory_is_looked_at",
            "a cgroup of this user keeps the limit",
        );
        return;
    }
    assert_eq!(breach(made.ask(&Ask::PollLimits)), None);
    made.start(&["perl", "-e", "my $x = 'x' x (200 << 20); sleep 60"]);
    eventually("that it is noticed", || {
        breach(made.ask(&Ask::PollLimits)).is_some_and(|breach| breach.starts_with("Memory"))
    });
    made.ask(&Ask::KillAll);
    eventually("that it is over", || {
        breach(made.ask(&Ask::PollLimits)).is_none()
    });
    // Files in memory count too.
    made.shell("dd if=/dev/zero of=/tmp/big bs=1M count=50 2>/dev/null");
    assert!(made.stats().memory.is_some_and(|memory| memory > 50 << 20));
}

fn disk() {
    let mut made = Plan::rootless().start();
    assert_eq!(breach(made.ask(&Ask::PollLimits)), None);
    made.shell("dd if=/dev/zero of=/workspace/big bs=1M count=80 2>/dev/null");
    eventually("that it is noticed", || {
        breach(made.ask(&Ask::PollLimits)).is_some_and(|breach| breach.starts_with("Disk"))
    });
    let ended = made.run(&[
        "dd",
        "if=/dev/zero",
        "of=/workspace/big2",
        "bs=1M",
        "count=100",
    ]);
    assert_eq!(ended.signal, Some(libc::SIGXFSZ), "{ended:?}");
}

fn freeze() {
    let mut made = Plan::rootless().start();
    if !am_root() {
        skipped(
            "rootless_boxes_stand_still_and_go_on",
            "only root can look in from outside",
        );
        return;
    }
    let (tag, _) = made.start(&["sh", "-c", "while :; do echo x >> /tmp/n; done"]);
    let file = format!("/proc/{}/root/tmp/n", made.init_pid);
    let length = || std::fs::metadata(&file).map_or(0, |found| found.len());
    eventually("that it counts", || length() > 2);
    made.ask(&Ask::Freeze);
    // The signal is sent by the first process, a moment after it was asked to.
    eventually("that it stands still", || {
        let before = length();
        watch(std::time::Duration::from_millis(100));
        length() == before
    });
    let before = length();
    made.ask(&Ask::Thaw);
    eventually("that it goes on", || length() > before);
    made.ask(&Ask::Freeze);
    made.ask(&Ask::KillAll);
    assert_eq!(made.wait(tag).signal, Some(libc::SIGKILL));
    assert_eq!(made.shell("echo alive"), "alive");
}

fn delegated_group() {
    let Some(group) = am_root().then(Delegated::make).flatten() else {
        skipped(
            "rootless_boxes_use_a_cgroup_of_their_makers_user",
            "needs root and a unified hierarchy, to give a group away",
        );
        return;
    };
    let mut plan = Plan::rootless();
    plan.group = Some(group.dir().to_owned());
    let mut made = plan.start();
    let found = posture_of(&mut made);
    assert!(
        found.rootless && found.freeze.strength == Strength::Hard,
        "{found:?}"
    );
    let (tag, _) = made.start(&["sh", "-c", "while :; do echo x >> /tmp/n; done"]);
    let length =
        |pid| std::fs::metadata(format!("/proc/{pid}/root/tmp/n")).map_or(0, |found| found.len());
    let pid = made.init_pid;
    eventually("that it counts", || length(pid) > 2);
    made.ask(&Ask::Freeze);
    let frozen = length(pid);
    watch(std::time::Duration::from_millis(100));
    assert_eq!(length(pid), frozen);
    made.ask(&Ask::KillAll);
    assert_eq!(made.wait(tag).signal, Some(libc::SIGKILL));
    assert_eq!(made.shell("cat /proc/self/cgroup | grep ^0::"), "0::/");
    // Frozen and without its runner it is still found and ended.
    made.start(&["sleep", "60"]);
    made.ask(&Ask::Freeze);
    made.kill_driver();
    let plan = made.leave();
    destroy_leftovers(&plan.spec).expect("ends it");
    assert!(!std::path::Path::new(&format!("/proc/{pid}/root/tmp")).exists());
    assert_eq!(
        cgroups_of(&plan.spec.sandbox_id),
        Vec::<std::path::PathBuf>::new()
    );
}

fn killed_runner() {
    let mut made = Plan::rootless().start();
    made.start(&["sh", "-c", "setsid sleep 60 & exec sleep 60"]);
    let first = format!("/proc/{}", made.init_pid);
    let network = made.shell("readlink /proc/self/ns/net");
    made.kill_driver();
    eventually("the end of the first process", || {
        !std::path::Path::new(&first).exists()
    });
    eventually("the end of the rest", || {
        !crate::host::network_namespaces().contains(&network)
    });
    let plan = made.leave();
    destroy_leftovers(&plan.spec).expect("does the rest");
}
