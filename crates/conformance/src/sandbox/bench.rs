//! What the cases of a provider work on: one root, and the sandboxes that a case made.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use astrabox_egress::{EgressPolicy, HostPattern};
use astrabox_sandbox::{
    BoxPath, CreateSpec, DestroyProof, EgressGate, Error, ExitStatus, ProcessName, Sandbox,
    SandboxProvider, SpawnSpec, Stdio, WORKSPACE, Workload,
};
use astrabox_types::{
    AssignmentId, PermissionLevel, ResourceLimits, SandboxId, SessionId, VolumeId,
};
use async_trait::async_trait;

use super::reading::{PATIENCE, Reading};
use super::{Probe, ProviderFixture};
use crate::doubles::RecordingGate;
use crate::{Bench, Doing as _, Stop};

/// The variable by which a case finds its processes on the host.
pub(super) const TOKEN: &str = "ASTRABOX_CONFORMANCE_TOKEN";

/// One provider over one root of its own.
#[derive(Clone)]
pub struct SandboxBench {
    shared: Arc<Shared>,
    made: Arc<Mutex<Vec<Made>>>,
    /// Unique among all cases of all runs on this host.
    token: String,
}

struct Shared {
    fixture: Arc<dyn ProviderFixture>,
    provider: Arc<dyn SandboxProvider>,
    gate: RecordingGate,
    root: String,
    names: AtomicU32,
}

struct Made {
    provider: Arc<dyn SandboxProvider>,
    id: SandboxId,
    volume: VolumeId,
}

/// A process that ended.
pub(super) struct Finished {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) exit: ExitStatus,
}

/// A short text that no other run has.
fn unique() -> String {
    // The last digits of a version 7 uuid are its random ones.
    let id = SandboxId::new().uuid().simple().to_string();
    id[id.len() - 10..].to_owned()
}

impl SandboxBench {
    /// Builds the provider over a new root.
    pub(super) async fn over(fixture: Arc<dyn ProviderFixture>) -> Result<Self, Error> {
        let root = format!("conf-{}", unique());
        let gate = RecordingGate::new();
        let provider = fixture.provider(&root, Arc::new(gate.clone())).await?;
        let shared = Shared {
            fixture,
            provider,
            gate,
            root,
            names: AtomicU32::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
            made: Arc::default(),
            token: unique(),
        })
    }

    pub(super) fn fixture(&self) -> &dyn ProviderFixture {
        &*self.shared.fixture
    }

    pub(super) fn provider(&self) -> &Arc<dyn SandboxProvider> {
        &self.shared.provider
    }

    pub(super) fn gate(&self) -> &RecordingGate {
        &self.shared.gate
    }

    pub(super) fn root(&self) -> &str {
        &self.shared.root
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The provider as the server has it after a restart.
    pub(super) async fn restarted(&self) -> Result<Arc<dyn SandboxProvider>, Stop> {
        let gate: Arc<dyn EgressGate> = Arc::new(self.gate().clone());
        self.fixture()
            .provider(self.root(), gate)
            .await
            .doing("build the provider a second time")
    }

    /// The provider of another server on the same host.
    pub(super) async fn elsewhere(&self) -> Result<Arc<dyn SandboxProvider>, Stop> {
        let root = format!("conf-{}", unique());
        let gate: Arc<dyn EgressGate> = Arc::new(RecordingGate::new());
        self.fixture()
            .provider(&root, gate)
            .await
            .doing("build the provider over another root")
    }

    /// A new sandbox's wishes: small, with one host allowed.
    pub(super) fn spec(&self) -> CreateSpec {
        let assignment = format!("assignment-{}", unique());
        CreateSpec {
            sandbox_id: SandboxId::new(),
            session_id: SessionId::new(),
            assignment_id: AssignmentId::new(assignment).expect("it is short and plain"),
            volume_id: VolumeId::new(),
            image: self.fixture().image(),
            limits: ResourceLimits {
                memory_bytes: 256 << 20,
                pids: 64,
                cpu_millis: 1000,
                disk_bytes: 64 << 20,
                wall_seconds: 0,
            },
            permission_level: PermissionLevel::Default,
            egress: policy("api.conformance.test"),
            labels: BTreeMap::from([("made-by".to_owned(), "conformance".to_owned())]),
        }
    }

    /// A running sandbox.
    pub(super) async fn create(&self) -> Result<Sandbox, Stop> {
        self.create_with(self.spec()).await
    }

    /// A running sandbox of these wishes.
    pub(super) async fn create_with(&self, spec: CreateSpec) -> Result<Sandbox, Stop> {
        self.create_by(self.provider(), spec).await
    }

    /// A running sandbox of this provider.
    pub(super) async fn create_by(
        &self,
        provider: &Arc<dyn SandboxProvider>,
        spec: CreateSpec,
    ) -> Result<Sandbox, Stop> {
        self.remember(provider, &spec);
        provider
            .create_sandbox(spec)
            .await
            .doing("create a sandbox")
    }

    /// Destroys what comes of these wishes at the end of the case.
    pub(super) fn remember(&self, provider: &Arc<dyn SandboxProvider>, spec: &CreateSpec) {
        let made = Made {
            provider: Arc::clone(provider),
            id: spec.sandbox_id,
            volume: spec.volume_id,
        };
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(made);
    }

    /// Destroys a sandbox and waits for the proof.
    pub(super) async fn destroy(
        &self,
        provider: &dyn SandboxProvider,
        id: SandboxId,
    ) -> Result<(), Stop> {
        provider.destroy(id).await.doing("destroy")?;
        let proven = wait_until(PATIENCE, || async {
            let proof = provider.confirm_destroyed(id).await;
            Ok(proof.doing("confirm")? == DestroyProof::Gone)
        });
        proven
            .await
            .doing("the end of the sandbox was not confirmed")
    }

    /// A process to start, with a name that no other has.
    pub(super) fn process(&self, probe: &Probe) -> Result<SpawnSpec, Stop> {
        let argv = self.fixture().command(probe).ok_or_else(|| {
            Stop::skipped("the fixture has no shell inside its sandboxes to run this with")
        })?;
        let count = self.shared.names.fetch_add(1, Ordering::Relaxed);
        let env = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
            ("HOME", astrabox_sandbox::HOME),
            (TOKEN, &self.token),
        ];
        Ok(SpawnSpec {
            name: ProcessName::new(format!("probe-{count}"))?,
            argv,
            env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            cwd: BoxPath::new(WORKSPACE)?,
            stdin: Stdio::Piped,
            wall_limit: None,
        })
    }

    /// Starts a probe.
    pub(super) async fn start(
        &self,
        workload: &dyn Workload,
        probe: &Probe,
    ) -> Result<ProcessName, Stop> {
        let spec = self.process(probe)?;
        let name = spec.name.clone();
        workload.spawn(spec).await.doing("spawn")?;
        Ok(name)
    }

    /// Runs a probe to its end.
    pub(super) async fn run(
        &self,
        workload: &dyn Workload,
        probe: &Probe,
    ) -> Result<Finished, Stop> {
        self.run_spec(workload, self.process(probe)?).await
    }

    /// Runs a process to its end.
    pub(super) async fn run_spec(
        &self,
        workload: &dyn Workload,
        spec: SpawnSpec,
    ) -> Result<Finished, Stop> {
        let name = spec.name.clone();
        workload.spawn(spec).await.doing("spawn")?;
        let mut reading = Reading::at(workload, &name, 0, 0).await?;
        let exit = reading.until_end().await?;
        Ok(Finished {
            stdout: reading.text(),
            stderr: String::from_utf8_lossy(reading.stderr()).into_owned(),
            exit,
        })
    }

    /// What a shell script prints; it must exit with 0.
    pub(super) async fn script(
        &self,
        workload: &dyn Workload,
        script: &str,
    ) -> Result<String, Stop> {
        let done = self
            .run(workload, &Probe::Script(script.to_owned()))
            .await?;
        if done.exit.code == Some(0) {
            return Ok(done.stdout);
        }
        Err(Stop::failed(format!(
            "`{script}` ended with {:?}: {}{}",
            done.exit, done.stdout, done.stderr
        )))
    }
}

#[async_trait]
impl Bench for SandboxBench {
    async fn begin(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            made: Arc::default(),
            token: unique(),
        }
    }

    async fn end(&self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        for one in made {
            // Whether this works is for the cases of SB5, SB6 and SB7 to check.
            let _ = self.destroy(&*one.provider, one.id).await;
            let _ = one.provider.delete_volume(one.volume).await;
        }
    }
}

/// A policy that allows one host.
pub(super) fn policy(host: &str) -> EgressPolicy {
    let pattern: HostPattern = host.parse().expect("it is a host");
    EgressPolicy {
        unrestricted: false,
        allowed: vec![pattern.into()],
    }
}

/// A path inside a sandbox.
pub(super) fn path(text: &str) -> BoxPath {
    BoxPath::new(text).expect("it is absolute and plain")
}

/// Asks again and again until the answer is yes.
pub(super) async fn wait_until<F, A>(patience: Duration, mut ask: F) -> Result<(), Stop>
where
    F: FnMut() -> A,
    A: Future<Output = Result<bool, Stop>>,
{
    let asking = async {
        while !ask().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    match tokio::time::timeout(patience, asking).await {
        Ok(done) => done,
        Err(_) => Err(Stop::failed(format!("not within {} s", patience.as_secs()))),
    }
}
