//! SB10 and SB17: what a program inside can see and do, looked at from inside and from outside.

use std::time::Duration;

use astrabox_sandbox::Sandbox;

use super::bench::wait_until;
use super::host::{own_uid, processes_with, status_of, value_of};
use super::reading::PATIENCE;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        no_process_of_the_host_is_visible[SB17],
        no_process_of_another_sandbox_is_visible[SB17],
        a_process_of_the_host_cannot_be_signalled[SB17],
        no_file_of_the_host_is_readable[SB17],
        no_path_of_the_host_is_in_the_mount_table[SB17],
        the_base_is_read_only_for_programs[SB17],
        programs_cannot_make_namespaces_or_mounts[SB17],
        the_posture_is_what_a_process_has[SB10],
    ]
}

/// Fails over to a skip where the sandboxes are not processes of this host.
fn on_this_host(bench: &SandboxBench) -> Result<(), Stop> {
    if bench.fixture().host().is_none() {
        return Err(Stop::skipped(
            "its sandboxes are not processes of this host",
        ));
    }
    Ok(())
}

/// A waiting process in a new sandbox, and its pid on the host.
async fn seen_from_outside(bench: &SandboxBench) -> Result<(Sandbox, u32), Stop> {
    on_this_host(bench)?;
    let sandbox = bench.create().await?;
    bench.start(&*sandbox.workload, &Probe::Wait).await?;
    wait_until(Duration::from_secs(5), || async {
        Ok(!processes_with(bench.token()).is_empty())
    })
    .await
    .doing("the process does not show on the host")?;
    let pid = processes_with(bench.token())[0];
    Ok((sandbox, pid))
}

/// Every process that a program inside sees, with its command line.
const LIST_PROCESSES: &str = "for p in /proc/[0-9]*; do \
     [ -r $p/cmdline ] && echo \"${p#/proc/} $(tr '\\0' ' ' < $p/cmdline 2>/dev/null)\"; done";

async fn no_process_of_the_host_is_visible(bench: &SandboxBench) -> Checked {
    on_this_host(bench)?;
    let sandbox = bench.create().await?;
    let told = bench.script(&*sandbox.workload, LIST_PROCESSES).await?;
    let lines: Vec<_> = told.lines().collect();
    // Its own shell, that shell's helpers, and whatever holds the box together.
    check!(
        (1..=6).contains(&lines.len()),
        "a new sandbox shows {} processes: {lines:?}",
        lines.len()
    );
    let own = std::env::args().next().unwrap_or_default();
    check!(
        !own.is_empty() && !told.contains(&own),
        "the process that made the sandbox is visible"
    );
    Ok(())
}

async fn no_process_of_another_sandbox_is_visible(bench: &SandboxBench) -> Checked {
    let (one, other) = (bench.create().await?, bench.create().await?);
    bench.script(&*one.workload, "exit 0").await?;
    let marker = Probe::Script("exec sleep 98765".to_owned());
    bench.start(&*one.workload, &marker).await?;
    wait_until(PATIENCE, || async {
        let told = bench.script(&*one.workload, LIST_PROCESSES).await?;
        Ok(told.contains("98765"))
    })
    .await
    .doing("the marked process does not run")?;
    let told = bench.script(&*other.workload, LIST_PROCESSES).await?;
    check!(
        !told.contains("98765"),
        "a process of another sandbox is visible"
    );
    Ok(())
}

async fn a_process_of_the_host_cannot_be_signalled(bench: &SandboxBench) -> Checked {
    on_this_host(bench)?;
    let sandbox = bench.create().await?;
    // Signal 0 only asks; were it allowed, others would be.
    let own = std::process::id();
    let script = format!(
        "for p in {own} {}; do kill -0 $p 2>/dev/null && echo reached $p; done; exit 0",
        std::os::unix::process::parent_id()
    );
    let told = bench.script(&*sandbox.workload, &script).await?;
    check_eq!(told, "", "what could be signalled");
    Ok(())
}

async fn no_file_of_the_host_is_readable(bench: &SandboxBench) -> Checked {
    on_this_host(bench)?;
    let directory = tempfile::tempdir().doing("a directory on the host")?;
    let file = directory.path().join("treasure");
    std::fs::write(&file, "of the host")?;
    let sandbox = bench.create().await?;
    let mut candidates = vec![file, std::env::current_dir()?];
    candidates.extend(std::env::current_exe().ok());
    candidates.extend(std::env::var_os("HOME").map(std::path::PathBuf::from));
    candidates.extend(
        bench
            .fixture()
            .host()
            .into_iter()
            .flat_map(|host| host.directories),
    );
    for path in candidates {
        let text = path.to_string_lossy();
        // These are inside as well, as the sandbox's own.
        if ["/", "/tmp", "/workspace", "/home/agent"].contains(&&*text) {
            continue;
        }
        let script = format!("[ -e '{text}' ] && echo there; exit 0");
        let told = bench.script(&*sandbox.workload, &script).await?;
        check_eq!(told, "", "whether a path of the host is there");
    }
    for (what, script) in [
        ("/etc/shadow", "cat /etc/shadow 2>/dev/null; exit 0"),
        ("the host's /root", "ls -A /root 2>/dev/null; exit 0"),
        ("/usr/local", "ls -A /usr/local 2>/dev/null; exit 0"),
    ] {
        let told = bench.script(&*sandbox.workload, script).await?;
        check_eq!(told, "", "what {what} gives");
    }
    Ok(())
}

async fn no_path_of_the_host_is_in_the_mount_table(bench: &SandboxBench) -> Checked {
    let Some(host) = bench.fixture().host() else {
        return Err(Stop::skipped(
            "its sandboxes are not processes of this host",
        ));
    };
    let sandbox = bench.create().await?;
    let posture = bench.provider().security_posture(sandbox.id).await;
    if posture.doing("security posture")?.rootless {
        return Err(Stop::skipped(
            "rootless, a bound directory shows its path on the host",
        ));
    }
    let table = bench
        .script(&*sandbox.workload, "cat /proc/self/mountinfo")
        .await?;
    for directory in host.directories {
        let text = directory.to_string_lossy().into_owned();
        check!(
            !table.contains(&text),
            "the mount table names a directory of the provider:\n{table}"
        );
    }
    Ok(())
}

async fn the_base_is_read_only_for_programs(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    for place in [
        "/usr/x",
        "/etc/x",
        "/x",
        "/bin/x",
        "/opt/astrabox/image/x",
        "/proc/x",
        "/sys/x",
    ] {
        let script = format!("(echo x > {place}) 2>/dev/null && echo written; exit 0");
        let told = bench.script(&*sandbox.workload, &script).await?;
        check_eq!(told, "", "writing {place}");
    }
    for place in ["/workspace/x", "/home/agent/x", "/tmp/x"] {
        let script = format!("echo x > {place} && cat {place}");
        let told = bench.script(&*sandbox.workload, &script).await?;
        check_eq!(told, "x\n", "writing {place}");
    }
    Ok(())
}

async fn programs_cannot_make_namespaces_or_mounts(bench: &SandboxBench) -> Checked {
    on_this_host(bench)?;
    let sandbox = bench.create().await?;
    for attempt in [
        "unshare --user true",
        "unshare --mount true",
        "unshare --net true",
        "unshare --user --map-root-user mount -t tmpfs none /tmp",
        "mount -t tmpfs none /tmp",
        "nsenter --target 1 --mount true",
        "nsenter --target 1 --net true",
        "chroot / true",
        "mknod /tmp/device b 7 0",
    ] {
        let program = attempt.split(' ').next().unwrap_or_default();
        let script = format!(
            "command -v {program} >/dev/null || {{ echo missing; exit 0; }}; \
             {attempt} 2>/dev/null && echo done; exit 0"
        );
        let told = bench.script(&*sandbox.workload, &script).await?;
        check!(told != "done\n", "`{attempt}` succeeded inside");
    }
    Ok(())
}

async fn the_posture_is_what_a_process_has(bench: &SandboxBench) -> Checked {
    let (sandbox, pid) = seen_from_outside(bench).await?;
    let posture = bench.provider().security_posture(sandbox.id).await;
    let posture = posture.doing("security posture")?;
    let status = bench
        .script(&*sandbox.workload, "cat /proc/self/status")
        .await?;
    let value = |key: &str| value_of(&status, key).unwrap_or_default();
    check_eq!(
        value("NoNewPrivs") == "1",
        posture.no_new_privileges,
        "no new privileges"
    );
    check_eq!(
        value("Seccomp") == "2",
        posture.seccomp,
        "a system call filter"
    );
    let none = "0000000000000000";
    let bounded = [value("CapEff"), value("CapPrm"), value("CapBnd")] == [none; 3];
    check_eq!(
        bounded,
        posture.capabilities.is_empty(),
        "capabilities as stated ({:?})",
        posture.capabilities
    );
    let uid = status_of(pid, "Uid").and_then(|line| line.split_whitespace().next()?.parse().ok());
    check_eq!(uid, Some(posture.host_uid), "the user on the host");
    if posture.rootless {
        check_eq!(own_uid(), Some(posture.host_uid), "the user, rootless");
    } else {
        check!(posture.host_uid != 0, "its processes are root on the host");
        check!(
            Some(posture.host_uid) != own_uid(),
            "its processes are the user of the server"
        );
    }
    Ok(())
}
