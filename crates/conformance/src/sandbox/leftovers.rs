//! SB6: what is left on the host after the end of a sandbox. Only where the sandboxes are on this host.

use std::time::Duration;

use astrabox_sandbox::CreateSpec;

use super::bench::wait_until;
use super::host::{Traces, open_descriptors, processes_with};
use super::{HostView, Probe, SandboxBench};
use crate::case::check;
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

/// How many sandboxes come and go in the case that counts.
const CYCLES: usize = 50;
/// How long the last traces of a sandbox may stay after the proof of its end.
const SETTLE: Duration = Duration::from_secs(10);

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        a_destroyed_sandbox_leaves_nothing_on_the_host [SB6],
        a_paused_sandbox_leaves_nothing_when_it_is_destroyed [SB6],
        processes_that_hide_end_with_their_sandbox [SB6],
        a_failed_create_leaves_nothing_on_the_host [SB2 SB6],
        fifty_sandboxes_leave_the_host_as_it_was [SB6],
    ]
}

fn view(bench: &SandboxBench) -> Result<HostView, Stop> {
    bench
        .fixture()
        .host()
        .ok_or_else(|| Stop::skipped("its sandboxes are not on this host"))
}

/// The names under which a sandbox may show on the host.
fn marks(spec: &CreateSpec) -> Vec<String> {
    let id = spec.sandbox_id.uuid().simple().to_string();
    vec![spec.sandbox_id.uuid().to_string(), id]
}

/// Nothing with the sandbox's name and no process of the case is left.
async fn nothing_left(bench: &SandboxBench, view: &HostView, spec: &CreateSpec) -> Checked {
    let marks = marks(spec);
    let gone = wait_until(SETTLE, || async {
        Ok(processes_with(bench.token()).is_empty() && Traces::of_marks(view, &marks).is_empty())
    });
    if gone.await.is_ok() {
        return Ok(());
    }
    Err(Stop::failed(format!(
        "left on the host: processes {:?}, {:?}",
        processes_with(bench.token()),
        Traces::of_marks(view, &marks)
    )))
}

/// A waiting process must show, or the case would look for the wrong thing.
async fn shows(bench: &SandboxBench) -> Checked {
    wait_until(SETTLE, || async {
        Ok(!processes_with(bench.token()).is_empty())
    })
    .await
    .doing("the process does not show on the host")
}

async fn a_destroyed_sandbox_leaves_nothing_on_the_host(bench: &SandboxBench) -> Checked {
    let view = view(bench)?;
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    bench.start(&*sandbox.workload, &Probe::Wait).await?;
    shows(bench).await?;
    bench.destroy(&**bench.provider(), sandbox.id).await?;
    nothing_left(bench, &view, &spec).await
}

async fn a_paused_sandbox_leaves_nothing_when_it_is_destroyed(bench: &SandboxBench) -> Checked {
    let view = view(bench)?;
    if !bench.provider().capabilities().pause {
        return Err(Stop::skipped("the provider declares no pause"));
    }
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    bench.start(&*sandbox.workload, &Probe::Tick).await?;
    shows(bench).await?;
    bench.provider().pause(sandbox.id).await.doing("pause")?;
    bench.destroy(&**bench.provider(), sandbox.id).await?;
    nothing_left(bench, &view, &spec).await
}

async fn processes_that_hide_end_with_their_sandbox(bench: &SandboxBench) -> Checked {
    let view = view(bench)?;
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    // A session of its own, two generations of orphans, every signal that can be ignored.
    let hide = "trap '' HUP INT TERM; \
                (setsid sh -c 'trap \"\" HUP INT TERM; sleep 90001 & sleep 90002 & wait' &) & \
                sleep 90003";
    let probe = Probe::Script(hide.to_owned());
    bench.start(&*sandbox.workload, &probe).await?;
    wait_until(SETTLE, || async {
        Ok(processes_with(bench.token()).len() >= 4)
    })
    .await
    .doing("the processes do not show on the host")?;
    bench.destroy(&**bench.provider(), sandbox.id).await?;
    nothing_left(bench, &view, &spec).await
}

async fn a_failed_create_leaves_nothing_on_the_host(bench: &SandboxBench) -> Checked {
    let view = view(bench)?;
    let mut spec = bench.spec();
    spec.image = Some(astrabox_sandbox::ImageRef {
        name: "missing:0".to_owned(),
        root: "/nonexistent/astrabox-conformance".into(),
    });
    bench.remember(bench.provider(), &spec);
    let made = bench.provider().create_sandbox(spec.clone()).await;
    check!(made.is_err(), "a sandbox was made without its image");
    nothing_left(bench, &view, &spec).await
}

async fn fifty_sandboxes_leave_the_host_as_it_was(bench: &SandboxBench) -> Checked {
    let view = view(bench)?;
    // What a provider makes once and keeps, as a pool, is there before the counting begins.
    for _ in 0..3 {
        cycle(bench).await?;
    }
    let before = count(bench, &view);
    for number in 1..=CYCLES {
        cycle(bench).await.doing(format!("sandbox {number}"))?;
    }
    let same = wait_until(SETTLE, || async {
        Ok(count(bench, &view).is_within(&before))
    });
    if same.await.is_ok() {
        return Ok(());
    }
    Err(Stop::failed(format!(
        "after {CYCLES} sandboxes there are {:?}, before {before:?}",
        count(bench, &view)
    )))
}

async fn cycle(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    let provider = bench.provider();
    let sandbox = bench.create_with(spec.clone()).await?;
    let done = bench.run(&*sandbox.workload, &Probe::say("x")).await?;
    check!(done.stdout == "x", "the sandbox does not work");
    bench.destroy(&**provider, sandbox.id).await?;
    let deleted = provider.delete_volume(spec.volume_id).await;
    deleted.doing("delete the volume")
}

/// What there is of each kind.
#[derive(Debug, Clone)]
struct Count([(&'static str, usize); 6]);

impl Count {
    /// Whether nothing is more than it was.
    fn is_within(&self, before: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&before.0);
        pairs.all(|((_, now), (_, then))| now <= then)
    }
}

fn count(bench: &SandboxBench, view: &HostView) -> Count {
    let [a, b, c, d, e] = Traces::of_provider(view, bench.root()).counts();
    Count([a, b, c, d, e, ("open descriptors", open_descriptors())])
}
