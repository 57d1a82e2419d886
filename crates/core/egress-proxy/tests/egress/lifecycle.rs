//! Opening, changing and closing sandboxes while they are in use; servers that come and go.

use std::net::TcpListener;
use std::time::Duration;

use astrabox_egress_proxy::{EgressGateClient, GateOptions, WorkloadState, inspect_role};
use astrabox_sandbox::{EgressGate, EgressWorkload, ErrorKind};
use astrabox_types::SandboxId;
use tokio::net::TcpStream;

use crate::support::client::{Client, ask, connect_to, get, tunnel};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, Sandbox, Stand, hosts, policy, until};

async fn stand_with_echo() -> (Upstream, Stand) {
    let upstream = Upstream::echo().await;
    let names = [("a.test", upstream.address), ("b.test", upstream.address)];
    let stand = Stand::start(hosts(&names)).await;
    (upstream, stand)
}

async fn works(client: &mut Client) -> bool {
    client.send("ping").await;
    client.take(4).await.is_ok_and(|echo| echo == b"ping")
}

#[tokio::test]
async fn gt3_an_update_closes_what_it_denies_before_it_returns() {
    let (_upstream, stand) = stand_with_echo().await;
    let sandbox = stand.sandbox(&["a.test", "b.test"]).await;
    let mut a = tunnel(sandbox.proxy, "a.test:443").await;
    let mut b = tunnel(sandbox.proxy, "b.test:443").await;
    let mut waiting = Client::connect(sandbox.proxy).await;
    waiting.send(get("a.test", "/never-answered")).await;
    until("three requests", async || {
        stand.gate.list().await.unwrap()[0].counts.allowed == 3
    })
    .await;
    stand
        .gate
        .update(sandbox.id, policy(&["b.test"]))
        .await
        .unwrap();
    // A place is given back a moment after the sockets it was for.
    until("one open connection", async || {
        stand.gate.list().await.unwrap()[0].counts.open == 1
    })
    .await;
    assert!(a.is_closed().await);
    assert!(waiting.is_closed().await);
    assert!(works(&mut b).await);
    let denied = ask(sandbox.proxy, connect_to("a.test:443")).await;
    assert_eq!(denied.reason(), Some("host_not_allowed"));

    stand
        .gate
        .update(sandbox.id, policy(&["a.test"]))
        .await
        .unwrap();
    assert!(b.is_closed().await);
    assert!(works(&mut tunnel(sandbox.proxy, "a.test:443").await).await);
    let unknown = stand.gate.update(SandboxId::new(), policy(&[])).await;
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn gt4_after_close_nothing_is_open() {
    let (_upstream, stand) = stand_with_echo().await;
    let sandbox = stand.sandbox(&["a.test"]).await;
    let other = stand.sandbox(&["a.test"]).await;
    let mut used = tunnel(sandbox.proxy, "a.test:443").await;
    let mut unused = Client::connect(sandbox.proxy).await;
    let mut begun = Client::connect(sandbox.proxy).await;
    begun.send("CONNECT a.te").await;
    let mut others = tunnel(other.proxy, "a.test:443").await;
    stand.gate.close(sandbox.id).await.unwrap();
    for client in [&mut used, &mut unused, &mut begun] {
        assert!(client.is_closed().await);
    }
    assert!(
        TcpStream::connect(sandbox.proxy).await.is_err(),
        "the listener is still held"
    );
    assert!(works(&mut others).await);
    assert_eq!(stand.gate.list().await.unwrap().len(), 1);
    // What is not open is closed.
    stand.gate.close(sandbox.id).await.unwrap();
    stand.gate.close(SandboxId::new()).await.unwrap();
}

#[tokio::test]
async fn gt2_opening_again_replaces_listener_and_policy_and_keeps_what_is_allowed() {
    let (_upstream, stand) = stand_with_echo().await;
    let sandbox = stand.sandbox(&["a.test", "b.test"]).await;
    let mut a = tunnel(sandbox.proxy, "a.test:443").await;
    let mut b = tunnel(sandbox.proxy, "b.test:443").await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let again = Sandbox {
        proxy: listener.local_addr().unwrap(),
        ..sandbox
    };
    stand.open(&again, policy(&["b.test"]), listener).await;
    assert!(a.is_closed().await);
    assert!(works(&mut b).await, "an open stream outlives the adoption");
    assert!(TcpStream::connect(sandbox.proxy).await.is_err());
    assert!(works(&mut tunnel(again.proxy, "b.test:443").await).await);
    assert_eq!(stand.gate.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_listener_is_refused() {
    let (_upstream, stand) = stand_with_echo().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let workload = EgressWorkload {
        sandbox_id: SandboxId::new(),
        session_id: astrabox_types::SessionId::new(),
    };
    let opened = stand.gate.open(workload, policy(&[]), stream.into()).await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(stand.gate.list().await.unwrap().is_empty());
}

/// A gate of another run of the server.
async fn another_gate(stand: &Stand) -> EgressGateClient {
    EgressGateClient::connect(GateOptions::new(stand.config.clone(), None))
        .await
        .unwrap()
}

#[tokio::test]
async fn ep8_a_dead_servers_sandboxes_go_on_for_the_grace_and_come_back_with_the_next() {
    let upstream = Upstream::echo().await;
    let mut config = hosts(&[("a.test", upstream.address)]);
    config.orphan_grace = Duration::from_secs(2);
    let mut stand = Stand::start(config).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let copy = listener.try_clone().unwrap();
    let sandbox = Sandbox {
        id: SandboxId::new(),
        session: astrabox_types::SessionId::new(),
        proxy: listener.local_addr().unwrap(),
    };
    stand.open(&sandbox, policy(&["a.test"]), listener).await;
    let mut open = tunnel(sandbox.proxy, "a.test:443").await;

    // One that looks on does not take the server's place.
    let look = async || {
        let role = inspect_role(&stand.config, PATIENCE).await.unwrap();
        role.unwrap().1[0].state
    };
    assert_eq!(look().await, WorkloadState::Active);
    stand.gate.disconnect().await;
    until("an orphan", async || {
        look().await == WorkloadState::Orphaned
    })
    .await;
    assert!(works(&mut open).await);
    assert!(works(&mut tunnel(sandbox.proxy, "a.test:443").await).await);
    until("the end of the grace", async || {
        look().await == WorkloadState::Expired
    })
    .await;
    assert!(open.is_closed().await);
    for request in [connect_to("a.test:443"), get("a.test", "/")] {
        let denied = ask(sandbox.proxy, request).await;
        assert_eq!((denied.status, denied.reason()), (403, Some("no_plan")));
    }

    stand.gate = another_gate(&stand).await;
    stand.open(&sandbox, policy(&["a.test"]), copy).await;
    assert!(works(&mut tunnel(sandbox.proxy, "a.test:443").await).await);
    assert_eq!(
        stand.gate.list().await.unwrap()[0].state,
        WorkloadState::Active
    );
}

#[tokio::test]
async fn a_server_that_comes_back_in_time_takes_its_sandboxes_over() {
    let (_upstream, mut stand) = stand_with_echo().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let copy = listener.try_clone().unwrap();
    let sandbox = Sandbox {
        id: SandboxId::new(),
        session: astrabox_types::SessionId::new(),
        proxy: listener.local_addr().unwrap(),
    };
    stand.open(&sandbox, policy(&["a.test"]), listener).await;
    let mut open = tunnel(sandbox.proxy, "a.test:443").await;
    stand.gate.disconnect().await;
    stand.gate = another_gate(&stand).await;
    assert_eq!(
        stand.gate.list().await.unwrap()[0].state,
        WorkloadState::Orphaned
    );
    stand.open(&sandbox, policy(&["a.test"]), copy).await;
    assert_eq!(
        stand.gate.list().await.unwrap()[0].state,
        WorkloadState::Active
    );
    assert!(works(&mut open).await);
}

#[tokio::test]
async fn a_lost_role_is_found_again_with_everything_that_was_open() {
    let (_upstream, stand) = stand_with_echo().await;
    let sandbox = stand.sandbox(&["a.test"]).await;
    stand
        .gate
        .update(sandbox.id, policy(&["b.test"]))
        .await
        .unwrap();
    let mut open = tunnel(sandbox.proxy, "b.test:443").await;
    let stand = stand.restart_role().await;
    assert!(open.is_closed().await);
    // Nobody calls the gate: it notices by itself.
    assert!(works(&mut tunnel(sandbox.proxy, "b.test:443").await).await);
    let denied = ask(sandbox.proxy, connect_to("a.test:443")).await;
    assert_eq!(denied.reason(), Some("host_not_allowed"));
    stand
        .gate
        .update(sandbox.id, policy(&["a.test"]))
        .await
        .unwrap();
    assert!(works(&mut tunnel(sandbox.proxy, "a.test:443").await).await);
}

#[tokio::test]
async fn a_gate_without_a_role_says_so_and_what_is_closed_stays_closed() {
    let (_upstream, stand) = stand_with_echo().await;
    let sandbox = stand.sandbox(&["a.test"]).await;
    stand.gate.shutdown_role().await.unwrap();
    assert!(TcpStream::connect(sandbox.proxy).await.is_err());
    stand.gate.close(sandbox.id).await.unwrap();
    stand.gate.drain().await.unwrap();
    assert!(stand.gate.list().await.unwrap().is_empty());
    assert_eq!(inspect_role(&stand.config, PATIENCE).await.unwrap(), None);
    let update = stand.gate.update(sandbox.id, policy(&[])).await;
    let error = update.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Detached);
    assert!(error.is_retryable());
    stand.gate.disconnect().await;
    assert_eq!(
        stand.gate.drain().await.unwrap_err().kind(),
        ErrorKind::Detached
    );
}

#[tokio::test]
async fn a_changed_setting_reaches_a_running_role() {
    let (upstream, mut stand) = stand_with_echo().await;
    let sandbox = stand.sandbox(&["a.test", "b.test"]).await;
    let mut a = tunnel(sandbox.proxy, "a.test:443").await;
    let mut b = tunnel(sandbox.proxy, "b.test:443").await;
    stand.config.egress = hosts(&[("a.test", upstream.address)]);
    let next = another_gate(&stand).await;
    assert!(b.is_closed().await);
    assert!(works(&mut a).await);
    let unresolved = ask(sandbox.proxy, connect_to("b.test:443")).await;
    assert_eq!(unresolved.reason(), Some("unresolved"));
    next.disconnect().await;
}
