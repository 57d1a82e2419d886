//! SB1 to SB6: making, finding, reaching, probing and ending sandboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use astrabox_sandbox::{
    Claim, DestroyProof, ErrorKind, ExitReason, ImageRef, Probe as Seen, SandboxProvider,
    SandboxState,
};
use astrabox_types::{AssignmentId, SandboxId};

use super::reading::Reading;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        a_created_sandbox_runs_and_is_described [SB2 SB9],
        a_create_that_fails_leaves_nothing [SB2],
        a_sandbox_is_found_by_its_assignment [SB1],
        a_restarted_server_finds_a_sandbox_by_its_assignment [SB1 SB3],
        an_assignment_that_nothing_carries_finds_nothing [SB1],
        two_sandboxes_of_one_assignment_are_an_error [SB1],
        a_restarted_server_reaches_a_running_process [SB3 SB11],
        connecting_to_what_is_not_there_is_not_found [SB3],
        a_living_sandbox_answers_a_probe [SB4],
        a_destroyed_sandbox_is_not_found_by_a_probe [SB4],
        doubt_is_not_a_verdict [SB4],
        a_living_sandbox_is_not_confirmed_destroyed [SB5],
        destroying_is_confirmed_and_may_be_repeated [SB5],
        destroying_what_was_never_made_is_no_error [SB5],
        a_restarted_server_destroys_a_sandbox [SB3 SB5],
        a_destroyed_sandbox_is_in_no_answer [SB6],
        a_reader_learns_of_the_end_of_its_sandbox [SB6 SB14],
    ]
}

async fn a_created_sandbox_runs_and_is_described(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    check_eq!(sandbox.id, spec.sandbox_id, "the id of the sandbox");
    let done = bench.run(&*sandbox.workload, &Probe::say("hello")).await?;
    check_eq!(done.stdout, "hello", "what a program inside prints");
    let claim = Claim {
        session_id: spec.session_id,
        assignment_id: spec.assignment_id.clone(),
        volume_id: spec.volume_id,
    };
    let info = provider.describe(spec.sandbox_id).await.doing("describe")?;
    check_eq!(info.id, spec.sandbox_id, "the described id");
    check_eq!(info.claim, claim, "the described claim");
    check_eq!(info.state, SandboxState::Running, "the described state");
    check_eq!(info.image, spec.image.map(|image| image.name), "the image");
    check_eq!(info.labels, spec.labels, "the labels");
    let at_rest = provider.claim_of(spec.sandbox_id).await.doing("claim of")?;
    check_eq!(at_rest, Some(claim), "the claim at rest");
    let listed = provider.list().await.doing("list")?;
    let same: Vec<_> = listed.iter().filter(|one| one.id == info.id).collect();
    check_eq!(same, [&info], "the listed sandboxes of this id");
    provider
        .diagnostics(spec.sandbox_id)
        .await
        .doing("diagnostics")?;
    Ok(())
}

async fn a_create_that_fails_leaves_nothing(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let mut spec = bench.spec();
    spec.image = Some(ImageRef {
        name: "missing:0".to_owned(),
        root: PathBuf::from("/nonexistent/astrabox-conformance"),
    });
    bench.remember(provider, &spec);
    let made = provider.create_sandbox(spec.clone()).await;
    refused(
        made,
        &[ErrorKind::ImageMissing],
        "a create without its image",
    )?;
    let found = provider
        .find_sandbox_by_assignment(&spec.assignment_id)
        .await
        .doing("find")?;
    check_eq!(found, None, "what carries the assignment");
    let listed = provider.list().await.doing("list")?;
    check!(
        listed.iter().all(|one| one.id != spec.sandbox_id),
        "the sandbox that was not made is listed"
    );
    // The volume is free and the assignment is not used up.
    spec.image = bench.fixture().image();
    spec.sandbox_id = SandboxId::new();
    bench.create_with(spec).await.doing("try again")?;
    Ok(())
}

async fn a_sandbox_is_found_by_its_assignment(bench: &SandboxBench) -> Checked {
    let (one, other) = (bench.spec(), bench.spec());
    bench.create_with(one.clone()).await?;
    bench.create_with(other.clone()).await?;
    for spec in [one, other] {
        found_by(
            &**bench.provider(),
            &spec.assignment_id,
            Some(spec.sandbox_id),
        )
        .await?;
    }
    Ok(())
}

async fn found_by(
    provider: &dyn SandboxProvider,
    assignment: &AssignmentId,
    wanted: Option<SandboxId>,
) -> Checked {
    let found = provider
        .find_sandbox_by_assignment(assignment)
        .await
        .doing("find")?;
    check_eq!(found, wanted, "what carries {assignment}");
    Ok(())
}

async fn a_restarted_server_finds_a_sandbox_by_its_assignment(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    bench.create_with(spec.clone()).await?;
    let restarted = bench.restarted().await?;
    found_by(&*restarted, &spec.assignment_id, Some(spec.sandbox_id)).await
}

async fn an_assignment_that_nothing_carries_finds_nothing(bench: &SandboxBench) -> Checked {
    bench.create().await?;
    let assignment = bench.spec().assignment_id;
    found_by(&**bench.provider(), &assignment, None).await
}

async fn two_sandboxes_of_one_assignment_are_an_error(bench: &SandboxBench) -> Checked {
    let (one, mut other) = (bench.spec(), bench.spec());
    other.assignment_id = one.assignment_id.clone();
    bench.create_with(one.clone()).await?;
    bench.remember(bench.provider(), &other);
    // A provider may refuse the second one at once, or make it and refuse to choose.
    if let Err(error) = bench.provider().create_sandbox(other).await {
        let kinds = [ErrorKind::AssignmentAmbiguous, ErrorKind::AlreadyExists];
        check!(
            kinds.contains(&error.kind()),
            "the second create failed with {error}, expected {kinds:?}"
        );
        return found_by(
            &**bench.provider(),
            &one.assignment_id,
            Some(one.sandbox_id),
        )
        .await;
    }
    let found = bench
        .provider()
        .find_sandbox_by_assignment(&one.assignment_id)
        .await;
    let kinds = [ErrorKind::AssignmentAmbiguous];
    refused(found, &kinds, "finding one of two").map(|_| ())
}

async fn a_restarted_server_reaches_a_running_process(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let process = bench.start(&*sandbox.workload, &Probe::Copy).await?;
    let next = sandbox
        .workload
        .write_stdin(&process, 0, "before\n".into())
        .await
        .doing("write")?;
    let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    reading.until(|bytes| bytes == b"before\n").await?;
    drop((reading, sandbox.workload));

    let restarted = bench.restarted().await?;
    let sandbox = restarted.connect(sandbox.id).await.doing("connect")?;
    sandbox
        .workload
        .write_stdin(&process, next, "after\n".into())
        .await
        .doing("write after the restart")?;
    let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    reading.until(|bytes| bytes == b"before\nafter\n").await
}

async fn connecting_to_what_is_not_there_is_not_found(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let never = provider.connect(SandboxId::new()).await;
    refused(never, &[ErrorKind::NotFound], "connecting to no sandbox")?;
    let sandbox = bench.create().await?;
    bench.destroy(&**provider, sandbox.id).await?;
    let gone = provider.connect(sandbox.id).await;
    refused(
        gone,
        &[ErrorKind::NotFound],
        "connecting to a destroyed sandbox",
    )?;
    Ok(())
}

async fn probe_says(
    provider: &dyn SandboxProvider,
    id: SandboxId,
    when: &str,
    wanted: &str,
) -> Checked {
    let said = match provider.probe(id).await {
        Seen::Ok => "Ok".to_owned(),
        Seen::NotFound => "NotFound".to_owned(),
        Seen::ProbeFailed(_) => "ProbeFailed".to_owned(),
    };
    check_eq!(said, wanted, "the probe of a sandbox {when}");
    Ok(())
}

async fn a_living_sandbox_answers_a_probe(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    probe_says(&**bench.provider(), sandbox.id, "that runs", "Ok").await?;
    let restarted = bench.restarted().await?;
    probe_says(&*restarted, sandbox.id, "after a restart", "Ok").await
}

async fn a_destroyed_sandbox_is_not_found_by_a_probe(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    bench.destroy(&**provider, sandbox.id).await?;
    probe_says(&**provider, sandbox.id, "that was destroyed", "NotFound").await
}

async fn doubt_is_not_a_verdict(bench: &SandboxBench) -> Checked {
    let (provider, fixture) = (bench.provider(), bench.fixture());
    let sandbox = bench.create().await?;
    if !fixture.cut_off(bench.root(), sandbox.id).await {
        return Err(Stop::skipped(
            "the fixture has no way to make a sandbox unreachable",
        ));
    }
    let doubtful = probe_says(&**provider, sandbox.id, "that is cut off", "ProbeFailed").await;
    let restarted = bench.restarted().await?;
    let again = probe_says(&*restarted, sandbox.id, "that is cut off", "ProbeFailed").await;
    fixture.mend(bench.root(), sandbox.id).await;
    doubtful.and(again)?;
    probe_says(&**provider, sandbox.id, "that is back", "Ok").await
}

async fn a_living_sandbox_is_not_confirmed_destroyed(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    for _ in 0..3 {
        let proof = provider.confirm_destroyed(sandbox.id).await;
        if let Ok(proof) = proof {
            check_eq!(proof, DestroyProof::StillThere, "the proof of a living one");
        }
    }
    let done = bench.run(&*sandbox.workload, &Probe::say("here")).await?;
    check_eq!(done.stdout, "here", "what it still prints");
    Ok(())
}

async fn destroying_is_confirmed_and_may_be_repeated(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let sandbox = bench.create().await?;
    for time in ["once", "a second time"] {
        bench.destroy(&**provider, sandbox.id).await.doing(time)?;
    }
    let proof = provider.confirm_destroyed(sandbox.id).await;
    check_eq!(
        proof.doing("confirm")?,
        DestroyProof::Gone,
        "the proof again"
    );
    Ok(())
}

async fn destroying_what_was_never_made_is_no_error(bench: &SandboxBench) -> Checked {
    bench
        .provider()
        .destroy(SandboxId::new())
        .await
        .doing("destroy no sandbox")
}

async fn a_restarted_server_destroys_a_sandbox(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    bench.start(&*sandbox.workload, &Probe::Wait).await?;
    let restarted = bench.restarted().await?;
    bench.destroy(&*restarted, sandbox.id).await?;
    let late = sandbox.workload.spawn(bench.process(&Probe::Wait)?).await;
    check!(late.is_err(), "a process started in a destroyed sandbox");
    Ok(())
}

async fn a_destroyed_sandbox_is_in_no_answer(bench: &SandboxBench) -> Checked {
    let provider = bench.provider();
    let spec = bench.spec();
    bench.create_with(spec.clone()).await?;
    bench.destroy(&**provider, spec.sandbox_id).await?;
    found_by(&**provider, &spec.assignment_id, None).await?;
    let listed = provider.list().await.doing("list")?;
    check!(
        listed.iter().all(|one| one.id != spec.sandbox_id),
        "a destroyed sandbox is listed"
    );
    let claim = provider.claim_of(spec.sandbox_id).await.doing("claim of")?;
    check_eq!(claim, None, "the claim of a destroyed sandbox");
    let described = provider.describe(spec.sandbox_id).await;
    refused(
        described,
        &[ErrorKind::NotFound],
        "describing a destroyed sandbox",
    )?;
    let mut labels = BTreeMap::new();
    labels.insert("again".to_owned(), "yes".to_owned());
    // A new decision for the same session finds nothing in its way.
    let again = astrabox_sandbox::CreateSpec {
        sandbox_id: SandboxId::new(),
        labels,
        ..spec
    };
    bench.create_with(again).await.doing("make the next one")?;
    Ok(())
}

async fn a_reader_learns_of_the_end_of_its_sandbox(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let process = bench.start(&*sandbox.workload, &Probe::Wait).await?;
    let mut reading = Reading::at(&*sandbox.workload, &process, 0, 0).await?;
    bench.destroy(&**bench.provider(), sandbox.id).await?;
    // The connection may break before the exit is told; what it must not do is last.
    match reading.until_end().await {
        Ok(exit) => check_eq!(exit.reason, ExitReason::SandboxDied, "the exit's reason"),
        Err(Stop::Failed(text)) => check!(
            !text.contains("did not end"),
            "a reader of a destroyed sandbox still waits"
        ),
        Err(skipped) => return Err(skipped),
    }
    let late = sandbox.workload.spawn(bench.process(&Probe::Wait)?).await;
    check!(late.is_err(), "a process started in a destroyed sandbox");
    Ok(())
}
