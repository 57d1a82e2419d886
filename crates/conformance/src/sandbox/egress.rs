//! SB16: the only way out is the gate.

use astrabox_sandbox::{EgressWorkload, Sandbox};
use tokio::io::AsyncReadExt as _;

use super::{Probe, SandboxBench};
use crate::case::{check, check_eq};
use crate::doubles::{GateCall, RecordingGate};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        the_gate_is_opened_with_the_policy_given [SB16],
        the_gate_answers_inside_the_sandbox [SB16],
        two_sandboxes_meet_the_gate_apart [SB16],
        a_restarted_server_opens_the_gate_again [SB16 SB3],
        destroying_closes_the_gate [SB16 SB6],
        a_listener_of_the_host_is_not_reached [SB16],
        there_is_no_network_but_the_loopback [SB16],
    ]
}

/// What a program inside hears from the gate.
async fn heard(bench: &SandboxBench, sandbox: &Sandbox) -> Result<String, Stop> {
    let done = bench.run(&*sandbox.workload, &Probe::Egress).await?;
    check!(
        done.exit.code != Some(127),
        "the sandbox has no /bin/bash to connect with"
    );
    check_eq!(done.exit.code, Some(0), "asking the gate ({})", done.stderr);
    Ok(done.stdout.trim().to_owned())
}

async fn the_gate_is_opened_with_the_policy_given(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    let workload = EgressWorkload {
        sandbox_id: spec.sandbox_id,
        session_id: spec.session_id,
    };
    let wanted = [GateCall::Open(workload, spec.egress)];
    check_eq!(
        bench.gate().calls(sandbox.id),
        wanted,
        "what the gate was asked"
    );
    Ok(())
}

async fn the_gate_answers_inside_the_sandbox(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    for _ in 0..3 {
        let line = heard(bench, &sandbox).await?;
        check_eq!(line, RecordingGate::answer(sandbox.id), "the gate's answer");
    }
    Ok(())
}

async fn two_sandboxes_meet_the_gate_apart(bench: &SandboxBench) -> Checked {
    let (one, other) = (bench.create().await?, bench.create().await?);
    for sandbox in [&one, &other, &one] {
        let line = heard(bench, sandbox).await?;
        check_eq!(line, RecordingGate::answer(sandbox.id), "the gate's answer");
    }
    Ok(())
}

async fn a_restarted_server_opens_the_gate_again(bench: &SandboxBench) -> Checked {
    let spec = bench.spec();
    let sandbox = bench.create_with(spec.clone()).await?;
    let before = bench.gate().calls(sandbox.id).len();
    let restarted = bench.restarted().await?;
    let sandbox = restarted.connect(sandbox.id).await.doing("connect")?;
    let since: Vec<_> = bench.gate().calls(sandbox.id).split_off(before);
    let opened = since.iter().any(|call| match call {
        GateCall::Open(workload, policy) => {
            workload.session_id == spec.session_id && *policy == spec.egress
        }
        GateCall::Update(..) | GateCall::Close(_) => false,
    });
    check!(opened, "the gate was not opened again: {since:?}");
    let line = heard(bench, &sandbox).await?;
    check_eq!(line, RecordingGate::answer(sandbox.id), "the gate's answer");
    Ok(())
}

async fn destroying_closes_the_gate(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    bench.destroy(&**bench.provider(), sandbox.id).await?;
    let calls = bench.gate().calls(sandbox.id);
    check!(
        matches!(calls.last(), Some(GateCall::Close(_))),
        "the last that the gate was asked is {:?}",
        calls.last()
    );
    Ok(())
}

async fn a_listener_of_the_host_is_not_reached(bench: &SandboxBench) -> Checked {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let script = format!("exec /bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null");
    let sandbox = bench.create().await?;
    let asking = async {
        let done = bench
            .run(&*sandbox.workload, &Probe::Script(script))
            .await?;
        check!(
            !matches!(done.exit.code, Some(0 | 127)),
            "a program inside reached a port of the host, or /bin/bash is missing: {:?}",
            done.exit
        );
        Ok::<_, Stop>(())
    };
    let reached = async {
        let accepted = listener.accept().await;
        let mut byte = [0];
        if let Ok((mut stream, _)) = accepted {
            // It stays open until the other end goes, so that the other end sees a connection.
            let _ = stream.read(&mut byte).await;
        }
        Err::<(), Stop>(Stop::failed("the host's listener got a connection"))
    };
    tokio::select! {
        biased;
        asked = asking => asked,
        reached = reached => reached,
    }
}

async fn there_is_no_network_but_the_loopback(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let table = bench
        .script(&*sandbox.workload, "cat /proc/net/dev")
        .await?;
    let names: Vec<_> = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .collect();
    let carrying: Vec<_> = names.iter().filter(|name| **name != "lo").collect();
    check!(
        names.contains(&"lo") && carrying.is_empty(),
        "the sandbox has the interfaces {names:?}"
    );
    let routes = bench
        .script(&*sandbox.workload, "cat /proc/net/route")
        .await?;
    check_eq!(
        routes.lines().skip(1).count(),
        0,
        "routes out of the sandbox"
    );
    let posture = bench.provider().security_posture(sandbox.id).await;
    check!(
        posture.doing("security posture")?.loopback_only,
        "the posture says that there is more than the loopback"
    );
    Ok(())
}
