//! How a box begins, stands still and ends.

use std::fs;
use std::time::Duration;

use astrabox_runner_core::isolation::{IsolatedBox, Volume, destroy_leftovers, probe_host};

use crate::host::{
    Plan, TestBox, cgroups_of, eventually, is_loop_bound, network_namespaces, processes_of, watch,
};
use crate::protocol::Ask;
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_destroyed_box_leaves_nothing",
        Needs::Root,
        destroy_is_complete,
    ),
    ("fifty_boxes_leave_nothing", Needs::Root, fifty_boxes),
    (
        "a_killed_runner_leaves_no_process",
        Needs::Root,
        killed_runner,
    ),
    (
        "a_frozen_box_of_a_killed_runner_is_destroyed",
        Needs::Root,
        killed_runner_frozen,
    ),
    ("a_frozen_box_stands_still_and_goes_on", Needs::Root, freeze),
    (
        "everything_but_the_first_process_can_be_killed",
        Needs::Root,
        kill_all,
    ),
    (
        "a_signal_reaches_a_process_and_its_group",
        Needs::Root,
        signals,
    ),
    (
        "a_box_that_cannot_be_made_leaves_nothing",
        Needs::Root,
        failed_creation,
    ),
    (
        "one_specification_is_one_box",
        Needs::Root,
        same_specification,
    ),
    (
        "a_process_with_threads_makes_no_box",
        Needs::Rootless,
        many_threads,
    ),
    (
        "the_host_can_be_probed_without_a_trace",
        Needs::Rootless,
        probe_leaves_nothing,
    ),
];

fn volume_path(made: &TestBox) -> std::path::PathBuf {
    made.plan.spec.volume.path().to_owned()
}

/// Nothing of a box is on the host but its volume.
fn assert_gone(plan: &Plan) {
    let spec = &plan.spec;
    assert_eq!(processes_of(spec.host_uid), Default::default());
    assert_eq!(
        cgroups_of(&spec.sandbox_id),
        Vec::<std::path::PathBuf>::new()
    );
    assert!(
        !is_loop_bound(spec.volume.path()),
        "the volume is still bound"
    );
    let left = fs::read_dir(&spec.run_dir).expect("is there").count();
    assert_eq!(left, 0, "files in the run directory");
}

fn destroy_is_complete() {
    let mut made = Plan::root().start();
    made.start(&["sh", "-c", "setsid sleep 60 & exec sleep 60"]);
    // Pid and start time name the first process.
    let stat = fs::read_to_string(format!("/proc/{}/stat", made.init_pid)).expect("reads");
    let started = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(19));
    assert_eq!(started, Some(made.init_start_time.to_string().as_str()));
    assert!(is_loop_bound(&volume_path(&made)));
    assert!(!cgroups_of(&made.plan.spec.sandbox_id).is_empty());
    let plan = made.destroy();
    assert_gone(&plan);
    // Nothing left to do is no error.
    destroy_leftovers(&plan.spec).expect("does nothing");
}

fn fifty_boxes() {
    let mounts = || {
        fs::read_to_string("/proc/self/mountinfo")
            .expect("reads")
            .lines()
            .count()
    };
    let before = mounts();
    let mut namespaces = Vec::new();
    let mut fds = Vec::new();
    let mut plan = Plan::root();
    for number in 0..50 {
        let mut made = plan.start();
        assert_eq!(
            made.shell(&format!("echo {number} > /workspace/f; cat /workspace/f")),
            number.to_string()
        );
        namespaces.push(made.shell("readlink /proc/self/ns/net"));
        fds.push(made.driver_fds());
        plan = made.destroy();
        assert_gone(&plan);
    }
    assert_eq!(mounts(), before);
    assert!(fds.iter().all(|count| *count == fds[0]), "{fds:?}");
    eventually("the end of the network namespaces", || {
        let alive = network_namespaces();
        namespaces.iter().all(|own| !alive.contains(own))
    });
}

fn killed_runner() {
    let mut made = Plan::root().start();
    made.start(&[
        "sh",
        "-c",
        "setsid sleep 60 & setsid setsid sleep 60 & exec sleep 60",
    ]);
    let uid = made.plan.spec.host_uid;
    eventually("four processes and the first", || {
        processes_of(uid).len() >= 4
    });
    made.kill_driver();
    eventually("the end of the box", || processes_of(uid).is_empty());
    let plan = made.leave();
    destroy_leftovers(&plan.spec).expect("removes the rest");
    assert_gone(&plan);
    destroy_leftovers(&plan.spec).expect("does nothing");
    // The volume is as good as new.
    let mut again = plan.start();
    assert_eq!(again.shell("echo alive"), "alive");
}

fn killed_runner_frozen() {
    let mut made = Plan::root().start();
    made.start(&["perl", "-e", "1 while 1"]);
    made.ask(&Ask::Freeze);
    made.kill_driver();
    let plan = made.leave();
    destroy_leftovers(&plan.spec).expect("removes the box");
    assert_gone(&plan);
    // As an older freezer would have left it, where even SIGKILL has to wait.
    let mut made = plan.start();
    made.start(&["perl", "-e", "1 while 1"]);
    let freezer = cgroups_of(&made.plan.spec.sandbox_id)
        .into_iter()
        .find(|dir| dir.join("freezer.state").exists());
    if let Some(freezer) = freezer {
        fs::write(freezer.join("freezer.state"), "FROZEN").expect("freezes");
    }
    made.kill_driver();
    let plan = made.leave();
    destroy_leftovers(&plan.spec).expect("removes the box");
    assert_gone(&plan);
}

fn freeze() {
    let mut made = Plan::root().start();
    let count = "my $n = 0; while (1) { open my $f, '>', '/tmp/n.new'; print $f $n++; close $f; \
                 rename '/tmp/n.new', '/tmp/n' }";
    made.start(&["perl", "-e", count]);
    let uid = made.plan.spec.host_uid;
    let ticks = || -> u64 { processes_of(uid).into_iter().map(cpu_ticks).sum() };
    eventually("that it counts", || ticks() > 2);
    made.ask(&Ask::Freeze);
    made.ask(&Ask::Freeze);
    let frozen = ticks();
    watch(Duration::from_millis(300));
    assert_eq!(ticks(), frozen, "it goes on while frozen");
    made.ask(&Ask::Thaw);
    eventually("that it goes on", || ticks() > frozen + 2);
    // Frozen boxes can be destroyed.
    made.ask(&Ask::Freeze);
    let plan = made.destroy();
    assert_gone(&plan);
}

fn cpu_ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

fn kill_all() {
    let mut made = Plan::root().start();
    let uid = made.plan.spec.host_uid;
    for frozen in [false, true] {
        let (tag, _) = made.start(&["sh", "-c", "trap '' TERM; setsid sleep 60 & sleep 60"]);
        eventually("all processes", || processes_of(uid).len() == 4);
        if frozen {
            made.ask(&Ask::Freeze);
        }
        made.ask(&Ask::KillAll);
        let ended = made.wait(tag);
        assert_eq!(
            (ended.signal, ended.memory_limit),
            (Some(libc::SIGKILL), false)
        );
        eventually("only the first", || processes_of(uid).len() == 1);
        assert_eq!(made.shell("echo alive"), "alive");
    }
}

fn signals() {
    let mut made = Plan::root().start();
    let uid = made.plan.spec.host_uid;
    let (tag, pid) = made.start(&[
        "sh",
        "-c",
        "trap 'echo asked; exit 3' TERM; sleep 60 & wait",
    ]);
    eventually("both processes", || processes_of(uid).len() == 3);
    made.ask(&Ask::Signal {
        pid,
        signal: libc::SIGTERM,
        group: false,
    });
    let ended = made.wait(tag);
    assert_eq!((ended.code, ended.stdout.trim()), (Some(3), "asked"));
    // The child of that shell was not meant.
    assert_eq!(processes_of(uid).len(), 2);
    let (tag, pid) = made.start(&["sh", "-c", "sleep 60 & sleep 60"]);
    eventually("the new processes", || processes_of(uid).len() == 5);
    made.ask(&Ask::Signal {
        pid,
        signal: libc::SIGKILL,
        group: true,
    });
    assert_eq!(made.wait(tag).signal, Some(libc::SIGKILL));
    eventually("the end of the group", || processes_of(uid).len() == 2);
    // A process that is gone, the first one, and no signal at all.
    made.ask(&Ask::Signal {
        pid,
        signal: libc::SIGKILL,
        group: true,
    });
    assert!(
        made.try_ask(&Ask::Signal {
            pid: 1,
            signal: libc::SIGKILL,
            group: false
        })
        .is_err()
    );
    assert!(
        made.try_ask(&Ask::Signal {
            pid,
            signal: 0,
            group: false
        })
        .is_err()
    );
    assert_eq!(made.shell("echo alive"), "alive");
}

fn failed_creation() {
    type Break = fn(&mut astrabox_runner_core::isolation::BoxSpec);
    let cases: &[(&str, Break)] = &[
        ("open the image", |spec| {
            spec.image = Some("/nowhere".into())
        }),
        ("open the base", |spec| {
            spec.base = astrabox_runner_core::isolation::Base::Dir("/nowhere".into());
        }),
        ("open the volume's image", |spec| {
            spec.volume = Volume::LoopImage {
                path: "/nowhere".into(),
            };
        }),
        ("mount the volume", |spec| {
            let path = spec.run_dir.with_file_name("garbage");
            fs::write(&path, vec![1; 1 << 20]).expect("writes");
            spec.volume = Volume::LoopImage { path };
        }),
        ("host_uid", |spec| spec.host_uid = 0),
        ("hostname", |spec| spec.hostname = "no/name".into()),
    ];
    for (step, breaks) in cases {
        let Err(failed) = Plan::root().with(breaks).try_start() else {
            panic!("a box in spite of: {step}");
        };
        let (error, plan) = *failed;
        assert!(error.contains(step), "{step}: {error}");
        assert!(
            !error.contains("/nowhere") && !error.contains("garbage"),
            "{error}"
        );
        if plan.spec.host_uid != 0 {
            assert_eq!(processes_of(plan.spec.host_uid), Default::default());
        }
        eventually("no cgroup", || cgroups_of(&plan.spec.sandbox_id).is_empty());
        let left = fs::read_dir(&plan.spec.run_dir).expect("is there").count();
        assert_eq!(left, 0, "{step} left files");
        eventually("no loop device", || !is_loop_bound(plan.spec.volume.path()));
    }
}

fn same_specification() {
    let mut first = Plan::root().start();
    let (same_id, same_place) = (
        first.plan.spec.sandbox_id.clone(),
        first.plan.spec.run_dir.clone(),
    );
    let twins = [
        Plan::root().with(|spec| spec.sandbox_id = same_id),
        Plan::root().with(|spec| spec.run_dir = same_place),
    ];
    for twin in twins {
        let Err(failed) = twin.try_start() else {
            panic!("one box twice")
        };
        assert!(failed.0.contains("already"), "{}", failed.0);
    }
    assert_eq!(first.shell("echo alive"), "alive");
    // What a killed runner leaves is in the way, too, until it is removed.
    first.kill_driver();
    let plan = first.leave();
    let Err(failed) = plan.try_start() else {
        panic!("a box over the rest of another")
    };
    let (error, plan) = *failed;
    assert!(error.contains("already"), "{error}");
    destroy_leftovers(&plan.spec).expect("removes the rest");
    let plan = plan.start().destroy();
    assert_gone(&plan);
}

fn many_threads() {
    // This test program has several.
    let plan = Plan::rootless();
    let refused = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                IsolatedBox::create(&plan.spec)
                    .err()
                    .map(|error| error.to_string())
            })
            .join()
    });
    let error = refused.expect("ends").expect("is refused");
    assert!(error.contains("single thread"), "{error}");
    assert_eq!(
        cgroups_of(&plan.spec.sandbox_id),
        Vec::<std::path::PathBuf>::new()
    );
}

fn probe_leaves_nothing() {
    let report = probe_host();
    assert!(report.usable(), "{report:?}");
    for check in &report.checks {
        assert_eq!(check.ok, check.remedy.is_empty(), "{check:?}");
        assert!(!check.detail.is_empty(), "{check:?}");
    }
    let children = fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    assert!(children.is_ok());
}
