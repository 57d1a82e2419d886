use std::time::{Duration, Instant};

use astrabox_runner_core::protocol::{
    BoxState, Enforcement, ExitReason, RunnerErrorKind, SignalTarget, SpawnCommand,
};

use crate::support::{Box, shell, until};

#[tokio::test]
async fn wall_time_ends_the_whole_group_and_says_so() {
    let sandbox = Box::new().await;
    let script = "trap '' TERM; sleep 1000 & echo started; wait; sleep 1000";
    let command = SpawnCommand {
        wall_limit_ms: 300,
        ..shell("slow", script)
    };
    let began = Instant::now();
    sandbox.spawn(command).await;
    let (out, _, exit) = sandbox.collect("slow", 0, 0).await;
    assert_eq!(
        (out.as_str(), exit.reason),
        ("started\n", ExitReason::WallTime)
    );
    assert!(began.elapsed() >= Duration::from_millis(300));
    until("the group's end", || async {
        sandbox.processes().len() == 1
    })
    .await;
    let quick = SpawnCommand {
        wall_limit_ms: 60_000,
        ..shell("quick", "true")
    };
    sandbox.spawn(quick).await;
    let (_, _, exit) = sandbox.collect("quick", 0, 0).await;
    assert_eq!(exit.reason, ExitReason::Exited);
}

#[tokio::test]
async fn wall_time_stands_still_while_the_box_is_frozen() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    let command = SpawnCommand {
        wall_limit_ms: 1500,
        ..shell("slow", "sleep 1000")
    };
    sandbox.spawn(command).await;
    client.freeze().await.unwrap();
    client.freeze().await.unwrap();
    assert_eq!(client.status().await.unwrap().state, BoxState::Frozen);
    let refused = client.spawn(shell("other", "true")).await.unwrap_err();
    assert_eq!(refused.kind(), RunnerErrorKind::BoxFrozen);
    // Longer than the limit: that nothing happens shows only when time passes.
    let until = Instant::now() + Duration::from_millis(2000);
    while Instant::now() < until {
        let info = client.process("slow").await.unwrap().unwrap();
        assert_eq!(info.exit, None, "frozen time does not count");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.thaw().await.unwrap();
    client.thaw().await.unwrap();
    let (_, _, exit) = sandbox.collect("slow", 0, 0).await;
    assert_eq!(exit.reason, ExitReason::WallTime);
}

const HOG: &str = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done";

#[tokio::test]
async fn a_memory_hog_ends_with_the_limit_as_its_reason_and_the_box_goes_on() {
    let sandbox = Box::with(|spec| spec.limits.memory_bytes = 64 << 20).await;
    let (_, _, exit) = sandbox.run("hog", HOG).await;
    assert_eq!(exit.reason, ExitReason::MemoryLimit);
    // A shell that outlives its child tells the same story.
    let (_, _, exit) = sandbox
        .run("parent", &format!("(echo; {HOG}); exit $?"))
        .await;
    assert_eq!(exit.reason, ExitReason::MemoryLimit);
    let (_, _, exit) = sandbox
        .run("child", "cat /dev/zero | tail -c 1000000000")
        .await;
    assert_eq!(exit.reason, ExitReason::MemoryLimit);
    let (out, _, _) = sandbox.run("after", "echo usable").await;
    assert_eq!(out, "usable\n");
}

#[tokio::test]
async fn a_long_file_ends_its_writer_with_the_disk_as_the_reason() {
    let sandbox = Box::new().await;
    let script = "exec dd if=/dev/zero of=f bs=65536 count=1000 2>/dev/null";
    let (_, _, exit) = sandbox.run("writer", script).await;
    assert_eq!(exit.reason, ExitReason::DiskLimit);
}

#[tokio::test]
async fn a_fork_bomb_is_held_and_counted() {
    let sandbox = Box::with(|spec| spec.limits.pids = 16).await;
    let script = "i=0; while [ $i -lt 40 ]; do sleep 30 & i=$((i+1)); done; wait";
    let (_, err, exit) = sandbox.run("bomb", script).await;
    assert!(
        err.contains("ork"),
        "the shell says that it cannot fork: {err}"
    );
    let posture = sandbox.client.posture().await.unwrap();
    assert_eq!(posture.pids.enforcement, Enforcement::Hard);
    if posture.cgroup_version > 0 {
        assert!(exit.forks_refused > 0);
        assert!(sandbox.client.stats().await.unwrap().forks_refused > 0);
    }
}

#[tokio::test]
async fn a_disk_filler_gets_no_space_or_is_ended() {
    let sandbox = Box::with(|spec| spec.limits.disk_bytes = 16 << 20).await;
    let script = "i=0; while head -c 4000000 /dev/zero > f$i; do i=$((i+1)); sleep 0.05; done";
    let (_, err, exit) = sandbox.run("filler", script).await;
    match sandbox.client.posture().await.unwrap().disk.enforcement {
        Enforcement::Hard => assert!(err.contains("No space"), "{err}"),
        _ => assert_eq!(exit.reason, ExitReason::DiskLimit),
    }
    let stats = sandbox.client.stats().await.unwrap();
    assert!(
        stats.disk_used_bytes.is_some() && stats.disk_total_bytes.is_some(),
        "{stats:?}"
    );
}

#[tokio::test]
async fn without_root_soft_limits_end_what_exceeds_them() {
    let change = |spec: &mut astrabox_runner_core::protocol::launch::LaunchSpec| {
        spec.limits.memory_bytes = 48 << 20;
        spec.limits.disk_bytes = 8 << 20;
    };
    let sandbox = Box::rootless(change).await;
    let posture = sandbox.client.posture().await.unwrap();
    assert!(posture.rootless && !posture.notes.is_empty());
    assert_eq!(posture.disk.enforcement, Enforcement::Soft);
    if posture.memory.enforcement == Enforcement::Soft {
        let (_, _, exit) = sandbox.run("hog", HOG).await;
        assert_eq!(exit.reason, ExitReason::MemoryLimit);
    }
    let bomb = "i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; wait";
    let (_, _, exit) = sandbox.run("bomb", bomb).await;
    assert_eq!(exit.reason, ExitReason::PidsLimit);
    sandbox.client.signal(SignalTarget::Box, 9).await.unwrap();
    let (_, _, exit) = sandbox
        .run("filler", "head -c 12000000 /dev/zero > f; sleep 100")
        .await;
    assert_eq!(exit.reason, ExitReason::DiskLimit);
    sandbox.client.remove("/workspace/f", false).await.unwrap();
    let (out, _, _) = sandbox.run("after", "echo usable; id -u").await;
    assert_eq!(out, "usable\n1000\n");
}
