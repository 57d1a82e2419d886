//! SB8 and SB10: a declared capability works, an undeclared one is refused, and the posture is true.

use std::time::Duration;

use astrabox_sandbox::{ErrorKind, SandboxState};
use astrabox_types::{PermissionLevel, Timestamp};

use super::bench::policy;
use super::reading::Reading;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::doubles::GateCall;
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        capabilities_are_the_same_at_every_look [SB8],
        a_paused_sandbox_stands_still_and_goes_on [SB8],
        a_paused_sandbox_can_be_destroyed [SB5 SB8],
        a_snapshot_seals_the_volume_of_a_running_sandbox [SB8],
        a_sandbox_can_be_renewed [SB8],
        a_changed_egress_policy_reaches_the_gate [SB8 SB16],
        every_declared_permission_level_can_be_had_and_no_other [SB8 SB10],
    ]
}

async fn capabilities_are_the_same_at_every_look(bench: &SandboxBench) -> Checked {
    let first = bench.provider().capabilities();
    check!(
        first.permission_levels.contains(&PermissionLevel::Default),
        "the level `default` is not declared"
    );
    check_eq!(bench.provider().capabilities(), first, "a second look");
    let restarted = bench.restarted().await?;
    check_eq!(restarted.capabilities(), first, "a look after a restart");
    Ok(())
}

async fn a_paused_sandbox_stands_still_and_goes_on(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    if !provider.capabilities().pause {
        refused(
            provider.pause(sandbox.id).await,
            &[ErrorKind::Unsupported],
            "an undeclared pause",
        )?;
        refused(
            provider.resume(sandbox.id).await,
            &[ErrorKind::Unsupported],
            "an undeclared resume",
        )?;
        return Ok(());
    }
    let process = bench.start(&*sandbox.workload, &Probe::Tick).await?;
    let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    reading.until(|bytes| bytes.len() > 20).await?;
    provider.pause(sandbox.id).await.doing("pause")?;
    reading
        .until_silent(Duration::from_millis(500))
        .await
        .doing("after the pause")?;
    let info = provider.describe(sandbox.id).await.doing("describe")?;
    check_eq!(
        info.state,
        SandboxState::Paused,
        "the state of a paused one"
    );
    let held = reading.stdout().len();
    provider.resume(sandbox.id).await.doing("resume")?;
    reading
        .until(|bytes| bytes.len() > held + 20)
        .await
        .doing("after the resume")?;
    let info = provider.describe(sandbox.id).await.doing("describe")?;
    check_eq!(info.state, SandboxState::Running, "the state afterwards");
    let counts: Vec<u64> = reading
        .text()
        .lines()
        .map_while(|l| l.parse().ok())
        .collect();
    check!(
        counts.iter().copied().eq(1..=counts.len() as u64),
        "the program lost its memory over the pause: {counts:?}"
    );
    Ok(())
}

async fn a_paused_sandbox_can_be_destroyed(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    bench.start(&*sandbox.workload, &Probe::Wait).await?;
    if provider.capabilities().pause {
        provider.pause(sandbox.id).await.doing("pause")?;
    }
    bench.destroy(&**provider, sandbox.id).await
}

async fn a_snapshot_seals_the_volume_of_a_running_sandbox(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    let sealed = provider.snapshot(sandbox.id).await;
    if !provider.capabilities().snapshot {
        refused(sealed, &[ErrorKind::Unsupported], "an undeclared snapshot")?;
        return Ok(());
    }
    let snapshot = sealed.doing("snapshot")?;
    check!(!snapshot.name.is_empty(), "the snapshot has no name");
    check!(snapshot.bytes > 0, "the snapshot is empty");
    let done = bench.run(&*sandbox.workload, &Probe::say("on")).await?;
    check_eq!(done.stdout, "on", "what the sandbox prints afterwards");
    Ok(())
}

async fn a_sandbox_can_be_renewed(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    let until = Timestamp::now()
        .checked_add(Duration::from_secs(3600))
        .doing("an hour from now")?;
    let renewed = provider.renew(sandbox.id, until).await;
    if provider.capabilities().renew {
        renewed.doing("renew")
    } else {
        refused(renewed, &[ErrorKind::Unsupported], "an undeclared renewal").map(|_| ())
    }
}

async fn a_changed_egress_policy_reaches_the_gate(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    let changed = policy("other.conformance.test");
    let updated = provider.update_egress(sandbox.id, changed.clone()).await;
    let calls = bench.gate().calls(sandbox.id);
    if !provider.capabilities().update_egress {
        refused(updated, &[ErrorKind::Unsupported], "an undeclared change")?;
        check!(
            !calls
                .iter()
                .any(|call| matches!(call, GateCall::Update(..))),
            "an undeclared change reached the gate"
        );
        return Ok(());
    }
    updated.doing("update egress")?;
    // The gate may be told by `update`, or by a new `open`: both replace the policy.
    let told = calls.last().is_some_and(|call| match call {
        GateCall::Update(_, policy) | GateCall::Open(_, policy) => *policy == changed,
        GateCall::Close(_) => false,
    });
    check!(told, "the gate was not told of the change: {calls:?}");
    // A server that restarts does not bring the old policy back.
    let restarted = bench.restarted().await?;
    restarted.connect(sandbox.id).await.doing("connect")?;
    let last = bench
        .gate()
        .calls(sandbox.id)
        .into_iter()
        .rev()
        .find_map(|call| match call {
            GateCall::Open(_, policy) | GateCall::Update(_, policy) => Some(policy),
            GateCall::Close(_) => None,
        });
    check_eq!(last, Some(changed), "the policy after a restart");
    Ok(())
}

async fn every_declared_permission_level_can_be_had_and_no_other(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let declared = provider.capabilities().permission_levels;
    for level in [PermissionLevel::Default, PermissionLevel::Advanced] {
        let mut spec = bench.spec();
        spec.permission_level = level;
        if !declared.contains(&level) {
            bench.remember(provider, &spec);
            let made = provider.create_sandbox(spec).await;
            refused(made, &[ErrorKind::Unsupported], "an undeclared level")?;
            continue;
        }
        let sandbox = bench.create_with(spec).await?;
        let posture = provider.security_posture(sandbox.id).await;
        let posture = posture.doing("security posture")?;
        check_eq!(posture.permission_level, level, "the level in the posture");
        check!(
            !posture.technology.is_empty(),
            "the posture names no technology"
        );
    }
    Ok(())
}
