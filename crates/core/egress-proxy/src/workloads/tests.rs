use std::io;
use std::net::IpAddr;
use std::net::TcpListener;

use astrabox_egress::{DenyReason, Destination};
use astrabox_types::SessionId;
use async_trait::async_trait;

use super::*;
use crate::audit::AuditWriter;
use crate::resolve::{Candidates, Resolver};
use crate::tls::Interception;

struct Nobody;

#[async_trait]
impl Resolver for Nobody {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

const GRACE: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

struct Stand {
    workloads: Workloads,
    _folder: tempfile::TempDir,
}

fn stand() -> Stand {
    let folder = tempfile::tempdir().unwrap();
    let directory = std::fs::File::open(folder.path()).unwrap();
    let (audit, _) = AuditWriter::start(directory.into()).unwrap();
    let authority = std::fs::File::open(folder.path()).unwrap().into();
    let interception = Interception::load(&authority).unwrap();
    let services = Services::new(
        EgressConfig::default(),
        Arc::new(Nobody),
        audit,
        interception,
    );
    Stand {
        workloads: Workloads::new(services),
        _folder: folder,
    }
}

fn policy(allowed: &[&str]) -> EgressPolicy {
    EgressPolicy {
        unrestricted: false,
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

impl Stand {
    async fn open(&self, instance: &str, sandbox_id: SandboxId) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let workload = EgressWorkload {
            sandbox_id,
            session_id: SessionId::new(),
        };
        self.workloads
            .open(
                instance,
                workload,
                policy(&["a.test"]),
                None,
                listener.into(),
            )
            .await
            .unwrap();
    }

    fn workload(&self, sandbox_id: SandboxId) -> Arc<Workload> {
        Arc::clone(&self.workloads.inner().held[&sandbox_id].workload)
    }

    fn state(&self) -> WorkloadState {
        self.workloads.list()[0].state
    }
}

fn destination(text: &str) -> Destination {
    Destination::tunnel(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn ep8_an_orphan_keeps_its_policy_for_the_grace_and_no_longer() {
    let stand = stand();
    let id = SandboxId::new();
    stand.workloads.arrive("server");
    stand.open("server", id).await;
    tokio::time::advance(GRACE * 2).await;
    stand.workloads.expire().await;
    assert_eq!(stand.state(), WorkloadState::Active);
    assert_eq!(stand.workloads.next_deadline(), None);

    stand.workloads.leave("server");
    assert_eq!(stand.state(), WorkloadState::Orphaned);
    let deadline = stand.workloads.next_deadline().unwrap();
    assert_eq!(deadline - Instant::now(), GRACE);
    tokio::time::advance(GRACE - SECOND).await;
    stand.workloads.expire().await;
    let workload = stand.workload(id);
    let admission = workload.admit(&destination("a.test:443")).unwrap();

    tokio::time::advance(SECOND).await;
    let expire = stand.workloads.expire();
    let holder = async {
        let why = admission.revoked().await;
        // `expire` waits for this.
        drop(admission);
        why
    };
    let ((), why) = tokio::join!(expire, holder);
    assert_eq!(why, crate::workload::Revoked::Expired);
    assert_eq!(stand.state(), WorkloadState::Expired);
    let denied = workload.admit(&destination("a.test:443"));
    assert_eq!(denied.err(), Some(DenyReason::NoPlan));
    assert!(!stand.workloads.is_over(), "it still answers for a sandbox");

    stand.workloads.arrive("another");
    assert_eq!(stand.state(), WorkloadState::Expired);
    stand.open("another", id).await;
    assert_eq!(stand.state(), WorkloadState::Active);
    assert!(workload.admit(&destination("a.test:443")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn only_the_own_server_ends_the_orphanage() {
    let stand = stand();
    stand.workloads.arrive("server");
    stand.workloads.arrive("server");
    stand.open("server", SandboxId::new()).await;
    stand.workloads.leave("server");
    assert_eq!(
        stand.state(),
        WorkloadState::Active,
        "one connection is left"
    );
    stand.workloads.leave("server");
    stand.workloads.arrive("observer");
    assert_eq!(stand.state(), WorkloadState::Orphaned);
    stand.workloads.arrive("server");
    assert_eq!(stand.state(), WorkloadState::Active);
}

#[tokio::test(start_paused = true)]
async fn a_role_with_nothing_to_do_is_over_after_the_grace() {
    let stand = stand();
    let id = SandboxId::new();
    tokio::time::advance(GRACE - SECOND).await;
    assert!(!stand.workloads.is_over());
    stand.workloads.arrive("server");
    tokio::time::advance(GRACE * 2).await;
    assert!(!stand.workloads.is_over(), "a server is there");
    stand.open("server", id).await;
    stand.workloads.leave("server");
    tokio::time::advance(GRACE * 2).await;
    assert!(!stand.workloads.is_over(), "a sandbox is there");
    stand.workloads.close(id).await;
    tokio::time::advance(GRACE - SECOND).await;
    assert!(!stand.workloads.is_over());
    tokio::time::advance(SECOND).await;
    assert!(stand.workloads.is_over());
}

#[tokio::test]
async fn a_drained_role_is_over_with_its_last_sandbox() {
    let stand = stand();
    let id = SandboxId::new();
    stand.workloads.arrive("server");
    stand.open("server", id).await;
    stand.workloads.drain();
    assert!(!stand.workloads.is_over());
    stand.workloads.close(id).await;
    assert!(stand.workloads.is_over());
    // A sandbox that comes in time takes it back.
    stand.open("server", id).await;
    stand.workloads.close(id).await;
    assert!(!stand.workloads.is_over());
}

#[tokio::test]
async fn gt3_an_update_revokes_what_it_denies_and_nothing_else() {
    let stand = stand();
    let id = SandboxId::new();
    stand.workloads.arrive("server");
    stand.open("server", id).await;
    let workload = stand.workload(id);
    let (a, b) = (destination("a.test:443"), destination("b.test:443"));
    assert!(workload.admit(&b).is_err());
    let admission = workload.admit(&a).unwrap();
    let both = policy(&["a.test", "b.test"]);
    stand.workloads.update("server", id, both).await.unwrap();
    let other = workload.admit(&b).unwrap();

    let update = stand.workloads.update("server", id, policy(&["b.test"]));
    let mut update = std::pin::pin!(update);
    let early = tokio::time::timeout(Duration::ZERO, &mut update).await;
    assert!(early.is_err(), "it returned over an open connection");
    let why = admission.revoked().await;
    assert!(workload.admit(&a).is_err());
    drop(admission);
    update.await.unwrap();
    assert_eq!(why, crate::workload::Revoked::PolicyChanged);
    let still = tokio::time::timeout(Duration::ZERO, other.revoked()).await;
    assert!(still.is_err(), "b.test is allowed by both");

    let unknown = stand
        .workloads
        .update("server", SandboxId::new(), policy(&[]));
    assert_eq!(unknown.await, Err(CommandError::NotOpen));
}

#[tokio::test]
async fn other_settings_revoke_the_addresses_that_they_do_not_allow() {
    let stand = stand();
    let id = SandboxId::new();
    stand.workloads.arrive("server");
    stand.open("server", id).await;
    let workload = stand.workload(id);
    let pinned = |address: &str, stated| {
        let admission = workload.admit(&destination("a.test:443")).unwrap();
        admission.pin(&Candidates {
            addresses: vec![address.parse().unwrap()],
            stated,
        });
        admission
    };
    let public = pinned("1.1.1.1:443", false);
    let private = pinned("10.0.0.1:443", false);
    let stated = pinned("10.0.0.2:443", true);
    let moved = pinned("10.0.0.3:443", true);
    let mut settings = EgressConfig::default();
    settings.static_hosts.insert("a.test", "10.0.0.2").unwrap();
    let holder = async {
        private.revoked().await;
        drop(private);
        moved.revoked().await;
        drop(moved);
    };
    let (configured, ()) = tokio::join!(stand.workloads.configure(settings, ""), holder);
    configured.unwrap();
    for kept in [public, stated] {
        let revoked = tokio::time::timeout(Duration::ZERO, kept.revoked()).await;
        assert!(revoked.is_err());
    }
}
