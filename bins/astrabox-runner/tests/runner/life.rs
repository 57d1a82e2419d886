use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use astrabox_runner_core::protocol::egress::take_listener;
use astrabox_runner_core::protocol::launch::{
    Base, FailureKind, HostReport, LaunchSpec, Limits, Report, SPEC_FORMAT, Volume,
};
use astrabox_runner_core::protocol::{
    AttachEvent, BoxState, ExitReason, OutputStream, ProcessState, RunnerErrorKind,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Box, PATIENCE, PROGRAM, launch, shell, until, wait_ended};

/// A process, its setsid'ed child and a child that ignores signals.
const FAMILY: &str =
    "(setsid sleep 1000 &); (trap '' TERM INT HUP; sleep 1000) & echo ready; sleep 1000";

async fn family(sandbox: &Box) -> Vec<u32> {
    sandbox.spawn(shell("engine", FAMILY)).await;
    until("the family", || async {
        let engine = sandbox.client.process("engine").await.unwrap().unwrap();
        engine.stdout.next_offset > 0 && sandbox.processes().len() >= 5
    })
    .await;
    sandbox.processes()
}

fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[tokio::test]
async fn a_killed_runner_leaves_no_process_and_tells_what_it_knew() {
    for sandbox in [Box::new().await, Box::rootless(|_| {}).await] {
        let processes = family(&sandbox).await;
        sandbox.kill_runner();
        wait_ended(&processes);
        let broken = sandbox.client.status().await.unwrap_err();
        assert_eq!(broken.kind(), RunnerErrorKind::Unavailable);

        let runner = sandbox.state.read_runner().unwrap().unwrap();
        assert_eq!(
            (runner.process.clone(), runner.generation),
            (sandbox.started.process.clone(), 1)
        );
        assert!(!runner.process.is_alive().unwrap());
        let records = sandbox.state.read_processes().unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(
            (records[0].state, &records[0].exit),
            (ProcessState::Running, &None)
        );
        let output = sandbox
            .state
            .read_output("engine", OutputStream::Stdout, 0, 100)
            .unwrap();
        assert_eq!(output, b"ready\n");
    }
}

#[tokio::test]
async fn a_later_runner_says_that_the_earlier_ones_processes_ended_with_it() {
    let mut sandbox = Box::new().await;
    family(&sandbox).await;
    sandbox.run("finished", "echo done; exit 4").await;
    sandbox.kill_runner();
    assert!(matches!(sandbox.clean(), Report::Ok(_)));
    let Report::Ok(started) = sandbox.launch_again() else {
        panic!("a second launch")
    };
    assert_eq!(started.generation, 2);
    sandbox.started = started;
    sandbox.client = sandbox.connect().await;
    assert_eq!(sandbox.client.info().generation, 2);
    let (out, _, exit) = sandbox.collect("engine", 0, 0).await;
    assert_eq!(
        (out.as_str(), exit.reason),
        ("ready\n", ExitReason::RunnerRestarted)
    );
    let (out, _, exit) = sandbox.collect("finished", 0, 0).await;
    assert_eq!((out.as_str(), exit.reason), ("done\n", ExitReason::Exited));
    let again = sandbox.client.spawn(shell("engine", FAMILY)).await.unwrap();
    assert_eq!(
        again.state,
        ProcessState::Ended,
        "asked again, it is not started again"
    );
    let (out, _, _) = sandbox.run("engine-2", "echo new").await;
    assert_eq!(out, "new\n");
}

#[tokio::test]
async fn a_state_directory_has_one_runner() {
    let sandbox = Box::new().await;
    let Report::Failed(failure) = sandbox.launch_again() else {
        panic!("a second runner")
    };
    assert_eq!(failure.kind, FailureKind::Busy);
    let Report::Failed(failure) = sandbox.clean() else {
        panic!("cleaning under a runner")
    };
    assert_eq!(failure.kind, FailureKind::Busy);
    let (out, _, _) = sandbox.run("x", "echo unharmed").await;
    assert_eq!(out, "unharmed\n");
}

#[tokio::test]
async fn shutdown_answers_tells_readers_the_end_and_leaves_nothing() {
    let sandbox = Box::new().await;
    let processes = family(&sandbox).await;
    let mut attachment = sandbox.client.attach("engine", 0, 0).await.unwrap();
    sandbox.client.shutdown().await.unwrap();
    assert!(processes.iter().all(|pid| is_gone(*pid)));
    let mut events = Vec::new();
    while let Some(event) = attachment.next().await {
        events.push(event.unwrap());
    }
    let Some(AttachEvent::Exited(exit)) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!((exit.reason, exit.stdout_end), (ExitReason::BoxDied, 6));
    wait_ended(&[sandbox.started.process.pid]);
    let left: Vec<_> = std::fs::read_dir(&sandbox.spec.run_dir)
        .unwrap()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(sandbox.spec.run_dir.to_str().unwrap()));
    let record = &sandbox.state.read_processes().unwrap()[0];
    assert_eq!(record.exit.as_ref(), Some(exit));
}

#[tokio::test]
async fn cleaning_can_be_repeated_whatever_is_left() {
    let sandbox = Box::new().await;
    family(&sandbox).await;
    sandbox.kill_runner();
    for missing in [
        None,
        Some(&sandbox.spec.run_dir),
        Some(&sandbox.spec.state_dir),
    ] {
        if let Some(directory) = missing {
            std::fs::remove_dir_all(directory).unwrap();
        }
        let cleaned = sandbox.clean();
        assert!(matches!(cleaned, Report::Ok(_)), "{cleaned:?}");
    }
}

#[tokio::test]
async fn a_terminated_runner_destroys_its_box_in_order() {
    let sandbox = Box::new().await;
    let processes = family(&sandbox).await;
    let pid = i32::try_from(sandbox.started.process.pid).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    wait_ended(&[sandbox.started.process.pid]);
    assert!(processes.iter().all(|pid| is_gone(*pid)));
    let record = &sandbox.state.read_processes().unwrap()[0];
    assert_eq!(record.exit.as_ref().unwrap().reason, ExitReason::BoxDied);
}

#[tokio::test]
async fn a_box_that_dies_by_itself_ends_its_processes_and_is_gone_for_good() {
    let sandbox = Box::new().await;
    let processes = family(&sandbox).await;
    let first = i32::try_from(processes[0]).unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let (out, _, exit) = sandbox.collect("engine", 0, 0).await;
    assert_eq!(
        (out.as_str(), exit.reason, exit.status),
        ("ready\n", ExitReason::BoxDied, None)
    );
    let status = sandbox.client.status().await.unwrap();
    assert_eq!(status.state, BoxState::Gone(ExitReason::BoxDied));
    let refused = sandbox
        .client
        .spawn(shell("other", "true"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), RunnerErrorKind::BoxGone);
    let refused = sandbox.client.stat("/workspace", false).await.unwrap_err();
    assert_eq!(refused.kind(), RunnerErrorKind::BoxGone);
    sandbox.client.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_runner_belongs_to_nobody_and_keeps_nothing_of_its_launcher() {
    let sandbox = Box::new().await;
    let pid = sandbox.started.process.pid;
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap();
    // Read from the process table, and not by `getsid`: of a session that was begun outside this
    // process id namespace the kernel gives no number, only 0, and two of them are not one.
    let parent_and_session = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        (fields[1].to_owned(), fields[3].to_owned())
    };
    let (parent, session) = parent_and_session(pid);
    assert_ne!(parent, std::process::id().to_string());
    assert_ne!(session, parent_and_session(std::process::id()).1);
    assert!(read("environ").is_empty());
    let arguments = String::from_utf8(read("cmdline")).unwrap();
    assert!(
        arguments.ends_with("spec.json\0"),
        "only a path: {arguments:?}"
    );
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .count();
    assert_eq!(threads, 1);
    for name in ["runner.sock", "egress.sock"] {
        let mode = sandbox
            .spec
            .run_dir
            .join(name)
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn the_egress_listener_is_the_boxs_and_can_be_asked_for_again() {
    let sandbox = Box::new().await;
    for round in ["first", "second"] {
        let socket = sandbox.spec.egress_socket();
        let listener = take_listener(&socket, Duration::from_secs(5))
            .await
            .unwrap();
        let listener = std::net::TcpListener::from(listener);
        listener.set_nonblocking(false).unwrap();
        let answer = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            connection.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            connection.write_all(b"from outside\n").unwrap();
            byte
        });
        let script = "exec 3<>/dev/tcp/127.0.0.1/3128; printf q >&3; cat <&3";
        let mut command = shell(round, script);
        command.argv[0] = "/bin/bash".into();
        sandbox.spawn(command).await;
        let (out, err, _) = sandbox.collect(round, 0, 0).await;
        assert_eq!((out.as_str(), err.as_str()), ("from outside\n", ""));
        assert_eq!(answer.join().unwrap(), *b"q");
    }
}

#[test]
fn a_launch_that_cannot_be_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["run", "state", "volume"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let spec = LaunchSpec {
        format: SPEC_FORMAT,
        sandbox_id: "sbx".into(),
        root_id: "root".into(),
        run_dir: path("run"),
        state_dir: path("state"),
        base: Base::Host,
        image: None,
        volume: Volume::Directory {
            path: path("volume"),
        },
        host_uid: 1_969_999_999,
        limits: Limits {
            memory_bytes: 64 << 20,
            pids: 16,
            cpu_millis: 1000,
            disk_bytes: 8 << 20,
            file_bytes: 8 << 20,
        },
        level: Default::default(),
        hostname: "box".into(),
        egress_port: 3128,
        spool_bytes: 1 << 20,
        stdin_bytes: 1 << 20,
        max_processes: 8,
        log_bytes: 1 << 16,
    };
    type Break<'a> = &'a dyn Fn(&mut LaunchSpec);
    let cases: [(Break<'_>, FailureKind); 6] = [
        (&|spec| spec.host_uid = 0, FailureKind::InvalidSpec),
        (
            &|spec| spec.run_dir = "run".into(),
            FailureKind::InvalidSpec,
        ),
        (
            &|spec| spec.run_dir = path(&"x".repeat(120)),
            FailureKind::InvalidSpec,
        ),
        (
            &|spec| spec.run_dir = path("missing"),
            FailureKind::NotFound,
        ),
        (
            &|spec| spec.state_dir = path("missing"),
            FailureKind::NotFound,
        ),
        (
            &|spec| {
                spec.volume = Volume::Directory {
                    path: path("missing"),
                }
            },
            FailureKind::NotFound,
        ),
    ];
    for (number, (breaks, kind)) in cases.into_iter().enumerate() {
        if number == 0 && !crate::support::am_root() {
            continue;
        }
        let mut broken = spec.clone();
        breaks(&mut broken);
        let file = path(&format!("spec-{number}.json"));
        broken.write(&file).unwrap();
        let Report::Failed(failure) = launch(&file, None) else {
            panic!("case {number}")
        };
        assert_eq!(failure.kind, kind, "case {number}: {failure:?}");
        let text = failure.message;
        assert!(
            !text.contains(dir.path().to_str().unwrap()),
            "no host path: {text}"
        );
    }
    let Report::Failed(failure) = launch(&path("no-spec.json"), None) else {
        panic!("no spec")
    };
    assert_eq!(failure.kind, FailureKind::NotFound);
}

#[test]
fn the_host_is_told_about_and_usable_here() {
    let output = std::process::Command::new(PROGRAM)
        .arg("probe")
        .output()
        .unwrap();
    let Report::Ok(report) = serde_json::from_slice::<Report<HostReport>>(&output.stdout).unwrap()
    else {
        panic!("a report");
    };
    assert!(report.usable(), "{report:?}");
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.ok || !check.remedy.is_empty())
    );
    let output = std::process::Command::new(PROGRAM)
        .arg("nonsense")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("usage"));
}
