//! SB14: what ends or holds a process that takes too much. These cases run real programs in a shell.

use astrabox_sandbox::{ExitReason, LimitState, Posture, Sandbox};
use astrabox_types::ResourceLimits;

use super::{Probe, SandboxBench};
use crate::case::{check, check_eq};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        a_memory_hog_is_ended_and_named [SB14 SB10],
        a_fork_bomb_is_held_and_named [SB14 SB10],
        a_disk_filler_is_held [SB14 SB10],
        a_spinning_program_is_held_to_its_share [SB14 SB10],
    ]
}

/// A sandbox with these limits, and what it says that it keeps.
async fn limited(
    bench: &SandboxBench,
    change: impl FnOnce(&mut ResourceLimits),
) -> Result<(Sandbox, Posture), Stop> {
    let mut spec = bench.spec();
    change(&mut spec.limits);
    // The shell is looked for before anything is made.
    bench.process(&Probe::Script(String::new()))?;
    let sandbox = bench.create_with(spec).await?;
    let posture = bench.provider().security_posture(sandbox.id).await;
    Ok((sandbox, posture.doing("security posture")?))
}

fn unless_kept(limit: LimitState, what: &str) -> Checked {
    match limit {
        LimitState::None => Err(Stop::skipped(format!(
            "the posture says that {what} is not limited here"
        ))),
        LimitState::Hard | LimitState::Soft => Ok(()),
    }
}

/// The sandbox works on after a process in it was ended.
async fn works_on(bench: &SandboxBench, sandbox: &Sandbox) -> Checked {
    let done = bench
        .run(&*sandbox.workload, &Probe::say("still here"))
        .await?;
    check_eq!(done.stdout, "still here", "what a later process prints");
    Ok(())
}

async fn a_memory_hog_is_ended_and_named(bench: &SandboxBench) -> Checked {
    let (sandbox, posture) = limited(bench, |limits| limits.memory_bytes = 64 << 20).await?;
    unless_kept(posture.memory, "memory")?;
    // It fills a buffer of a gigabyte.
    let hog = "exec dd if=/dev/zero of=/dev/null bs=1000000000 count=1";
    let hog = Probe::Script(hog.to_owned());
    let done = bench.run(&*sandbox.workload, &hog).await?;
    check_eq!(done.exit.reason, ExitReason::MemoryLimit, "the reason");
    works_on(bench, &sandbox).await
}

async fn a_fork_bomb_is_held_and_named(bench: &SandboxBench) -> Checked {
    const LIMIT: usize = 24;
    let (sandbox, posture) = limited(bench, |limits| limits.pids = LIMIT as u32).await?;
    unless_kept(posture.pids, "the number of processes")?;
    // It ends by itself when a fork is refused, or is ended; a shell that tries again is stopped by its own count.
    let bomb = "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); echo $i; done; exit 0";
    let done = bench
        .run(&*sandbox.workload, &Probe::Script(bomb.to_owned()))
        .await?;
    let started = done.stdout.lines().count();
    check!(
        started <= LIMIT,
        "{started} processes were started, the limit is {LIMIT}"
    );
    check_eq!(done.exit.reason, ExitReason::PidsLimit, "the reason");
    Ok(())
}

async fn a_disk_filler_is_held(bench: &SandboxBench) -> Checked {
    const LIMIT: u64 = 24 << 20;
    let (sandbox, posture) = limited(bench, |limits| limits.disk_bytes = LIMIT).await?;
    unless_kept(posture.disk, "the disk")?;
    let hard = bench.provider().capabilities().hard_disk_limit;
    check_eq!(
        posture.disk == LimitState::Hard,
        hard,
        "a hard limit as declared"
    );
    let filler = "exec dd if=/dev/zero of=/workspace/big bs=65536 count=4096 2>/dev/null";
    let done = bench
        .run(&*sandbox.workload, &Probe::Script(filler.to_owned()))
        .await?;
    // Where the kernel says that there is no room, the program ends by its own choice.
    let told = done.exit.reason == ExitReason::Exited && done.exit.code != Some(0) && hard;
    check!(
        told || done.exit.reason == ExitReason::DiskLimit,
        "256 MiB went into a disk of {LIMIT} bytes: {:?}",
        done.exit
    );
    let big = super::bench::path("/workspace/big");
    if let Ok(info) = sandbox.workload.stat(&big).await {
        let most = if hard { LIMIT } else { 4 * LIMIT };
        check!(info.size <= most, "the file has {} bytes", info.size);
    }
    sandbox
        .workload
        .remove(&big)
        .await
        .doing("remove the file")?;
    works_on(bench, &sandbox).await
}

async fn a_spinning_program_is_held_to_its_share(bench: &SandboxBench) -> Checked {
    let (sandbox, posture) = limited(bench, |limits| limits.cpu_millis = 200).await?;
    unless_kept(posture.cpu, "processor time")?;
    let spin = "read before rest < /proc/uptime; \
                (while :; do :; done) & spinner=$!; sleep 2; \
                read line < /proc/$spinner/stat; read after rest < /proc/uptime; \
                kill -9 $spinner; echo \"$before $after\"; echo \"${line##*) }\"";
    let told = bench.script(&*sandbox.workload, spin).await?;
    let (used, elapsed) = seconds(&told)
        .ok_or_else(|| Stop::failed(format!("the program's account is odd: {told}")))?;
    // A fifth of a processor, with room for the length of one accounting period and for rounding.
    let most = elapsed * 0.2 * 1.5 + 0.15;
    let held = used <= most;
    check!(
        held,
        "it used {used:.2} s in {elapsed:.2} s with a fifth of a processor"
    );
    Ok(())
}

/// Processor time used and time passed, of the two lines `uptime uptime` and the rest of a stat line.
fn seconds(told: &str) -> Option<(f64, f64)> {
    let mut lines = told.lines();
    let mut uptimes = lines.next()?.split_whitespace();
    let before: f64 = uptimes.next()?.parse().ok()?;
    let after: f64 = uptimes.next()?.parse().ok()?;
    // Behind the name come state, ppid and so on; fields 14 and 15 of the whole line count hundredths of a second.
    let fields: Vec<&str> = lines.next()?.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some((ticks / 100.0, after - before))
}

#[cfg(test)]
mod tests {
    #[test]
    fn processor_time_is_read_from_the_right_fields() {
        let told = "10.50 12.50\nS 1 1 1 0 -1 4194304 89 0 0 0 30 12 0 0 20 0 1 0 5 6 7\n";
        assert_eq!(super::seconds(told), Some((0.42, 2.0)));
        assert_eq!(super::seconds("10.50\n"), None);
    }
}
