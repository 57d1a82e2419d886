//! What the tests stand on: a role in this process, sandboxes, recording upstreams, a resolver with given answers.

pub(crate) mod client;
pub(crate) mod credentials;
pub(crate) mod secure;
pub(crate) mod upstream;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use astrabox_egress::EgressPolicy;
use astrabox_egress_proxy::{
    AUDIT_FILE, AuditEvent, EgressConfig, EgressGateClient, EgressRole, GateOptions, Resolver,
    RoleConfig, RoleExit, StaticHosts,
};
use astrabox_sandbox::{EgressGate, EgressWorkload};
use astrabox_types::{SandboxId, SessionId};
use async_trait::async_trait;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A short answer that leaves the connection open.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Waits for what must come.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for: {what}"),
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Waits until a count that has begun does not grow any more, and gives it.
pub(crate) async fn still(what: &str, count: impl Fn() -> usize) -> usize {
    let mut last = 0;
    let mut since = Instant::now();
    until(what, async || {
        let now = count();
        if now != last {
            last = now;
            since = Instant::now();
        }
        now > 0 && since.elapsed() > Duration::from_millis(200)
    })
    .await;
    last
}

/// Answers to look-ups, given ahead; the last answer to a name stays.
#[derive(Default)]
pub(crate) struct Answers {
    given: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Answers {
    pub(crate) fn give(&self, name: &str, answer: &[&str]) {
        let answer = answer.iter().map(|text| text.parse().unwrap()).collect();
        let mut given = self.given.lock().unwrap();
        given.entry(name.to_owned()).or_default().push_back(answer);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Resolver for Answers {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut given = self.given.lock().unwrap();
        let Some(answers) = given.get_mut(name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        Ok(if answers.len() > 1 {
            answers.pop_front().unwrap()
        } else {
            answers[0].clone()
        })
    }
}

/// A role in this process and a gate to it.
pub(crate) struct Stand {
    pub(crate) folder: TempDir,
    pub(crate) config: RoleConfig,
    pub(crate) answers: Arc<Answers>,
    pub(crate) gate: EgressGateClient,
    role: RunningRole,
}

pub(crate) struct RunningRole {
    shutdown: CancellationToken,
    task: JoinSet<RoleExit>,
}

impl RunningRole {
    pub(crate) fn start(config: RoleConfig, answers: Arc<Answers>) -> Self {
        let role = EgressRole::build_embedded(config, answers).unwrap();
        let shutdown = CancellationToken::new();
        let mut task = JoinSet::new();
        let token = shutdown.clone();
        task.spawn(async move { role.run(token).await.unwrap() });
        Self { shutdown, task }
    }

    pub(crate) async fn stop(mut self) -> RoleExit {
        self.shutdown.cancel();
        soon("the end of the role", self.task.join_next())
            .await
            .unwrap()
            .unwrap()
    }
}

/// A sandbox as the network sees it: an address of the proxy.
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) session: SessionId,
    pub(crate) proxy: SocketAddr,
}

pub(crate) fn policy(allowed: &[&str]) -> EgressPolicy {
    EgressPolicy {
        unrestricted: false,
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

/// Settings under which the names are reached at the given addresses.
pub(crate) fn hosts(hosts: &[(&str, SocketAddr)]) -> EgressConfig {
    let mut static_hosts = StaticHosts::default();
    for (name, address) in hosts {
        static_hosts.insert(name, &address.to_string()).unwrap();
    }
    EgressConfig {
        static_hosts,
        ..EgressConfig::default()
    }
}

impl Stand {
    pub(crate) async fn start(egress: EgressConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = RoleConfig {
            run_dir: folder.path().join("run"),
            audit_dir: folder.path().join("audit"),
            authority_dir: folder.path().join("authority"),
            egress,
        };
        let answers = Arc::new(Answers::default());
        let role = RunningRole::start(config.clone(), Arc::clone(&answers));
        let gate = EgressGateClient::connect(GateOptions::new(config.clone(), None))
            .await
            .unwrap();
        Self {
            folder,
            config,
            answers,
            gate,
            role,
        }
    }

    pub(crate) async fn sandbox(&self, allowed: &[&str]) -> Sandbox {
        self.sandbox_with(policy(allowed)).await
    }

    pub(crate) async fn sandbox_with(&self, policy: EgressPolicy) -> Sandbox {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sandbox = Sandbox {
            id: SandboxId::new(),
            session: SessionId::new(),
            proxy: listener.local_addr().unwrap(),
        };
        self.open(&sandbox, policy, listener).await;
        sandbox
    }

    pub(crate) async fn open(
        &self,
        sandbox: &Sandbox,
        policy: EgressPolicy,
        listener: TcpListener,
    ) {
        let workload = EgressWorkload {
            sandbox_id: sandbox.id,
            session_id: sandbox.session,
        };
        self.gate
            .open(workload, policy, listener.into())
            .await
            .unwrap();
    }

    /// Replaces the role by another in its place; the gate is left to notice.
    pub(crate) async fn restart_role(self) -> Self {
        self.role.stop().await;
        let role = RunningRole::start(self.config.clone(), Arc::clone(&self.answers));
        Self { role, ..self }
    }

    /// Ends the role and gives what it has written down.
    pub(crate) async fn finish(self) -> Vec<AuditEvent> {
        let lines = self.finish_raw().await;
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Ends the role and gives its audit log as it is.
    pub(crate) async fn finish_raw(self) -> String {
        self.finish_with_files().await.0
    }

    /// Ends the role and gives its audit log, and the folder with all of its files.
    pub(crate) async fn finish_with_files(self) -> (String, TempDir) {
        self.gate.disconnect().await;
        assert_eq!(self.role.stop().await, RoleExit::Shutdown);
        let log = std::fs::read_to_string(self.config.audit_dir.join(AUDIT_FILE)).unwrap();
        (log, self.folder)
    }
}
