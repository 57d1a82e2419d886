//! SB9: two servers on one host never touch each other's sandboxes.

use astrabox_sandbox::Probe as Seen;

use super::{Probe, SandboxBench};
use crate::case::{check, check_eq};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        another_root_does_not_see_a_sandbox [SB9],
        another_root_cannot_end_a_sandbox [SB9],
        another_root_may_use_the_same_assignment [SB1 SB9],
    ]
}

async fn another_root_does_not_see_a_sandbox(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    bench.create_with(spec.clone()).await?;
    let other = bench.elsewhere().await?;
    check_eq!(
        other.list().await.doing("list")?,
        [],
        "the other root's list"
    );
    let found = other.find_sandbox_by_assignment(&spec.assignment_id).await;
    check_eq!(found.doing("find")?, None, "what the other root finds");
    let claim = other.claim_of(spec.sandbox_id).await.doing("claim of")?;
    check_eq!(claim, None, "the claim that the other root sees");
    check!(
        !matches!(other.probe(spec.sandbox_id).await, Seen::Ok),
        "the other root's probe reaches it"
    );
    let connected = other.connect(spec.sandbox_id).await;
    check!(connected.is_err(), "another root connects to it");
    Ok(())
}

async fn another_root_cannot_end_a_sandbox(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    let other = bench.elsewhere().await?;
    other.destroy(spec.sandbox_id).await.doing("destroy")?;
    // It must not be an error, and it must do nothing.
    let _ = other.confirm_destroyed(spec.sandbox_id).await;
    other
        .delete_volume(spec.volume_id)
        .await
        .doing("delete the volume of another root")?;
    let done = bench.run(&*sandbox.workload, &Probe::say("alive")).await?;
    check_eq!(done.stdout, "alive", "what the sandbox prints afterwards");
    check!(
        matches!(bench.provider().probe(sandbox.id).await, Seen::Ok),
        "another root ended it"
    );
    Ok(())
}

async fn another_root_may_use_the_same_assignment(bench: &SandboxBench) -> Checked {
    let (one, mut twin) = (bench.spec(), bench.spec());
    twin.assignment_id = one.assignment_id.clone();
    bench.create_with(one.clone()).await?;
    let other = bench.elsewhere().await?;
    bench.create_by(&other, twin.clone()).await?;
    for (provider, spec) in [(bench.provider(), &one), (&other, &twin)] {
        let found = provider
            .find_sandbox_by_assignment(&spec.assignment_id)
            .await;
        check_eq!(found.doing("find")?, Some(spec.sandbox_id), "what is found");
        let ids: Vec<_> = provider.list().await.doing("list")?;
        check!(
            ids.iter()
                .all(|info| info.claim.assignment_id != one.assignment_id
                    || info.id == spec.sandbox_id),
            "a root lists the other's sandbox"
        );
    }
    Ok(())
}
