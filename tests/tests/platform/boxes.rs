//! A provider and a workload with fault points, on a wire that can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{
    BoxPath, Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, Error, ErrorKind,
    FileInfo, OutputStream, Posture, Probe, ProcessName, ProcessStatus, Result, Sandbox,
    SandboxInfo, SandboxProvider, Signal, SignalScope, Snapshot, SpawnSpec, Workload, WriteOptions,
};
use astrabox_types::{AssignmentId, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;

use crate::fault::Faults;
use crate::wire::{Log, Wire, detached};

/// A provider with fault points. Its programs run in the runtime of the test, not in the server's.
pub(crate) struct FaultyProvider {
    pub(crate) inner: Arc<dyn SandboxProvider>,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    pub(crate) wire: Wire,
    pub(crate) stuck: Arc<AtomicBool>,
    pub(crate) programs: Handle,
}

impl FaultyProvider {
    fn wrap(&self, sandbox: Sandbox) -> Sandbox {
        let workload = FaultyWorkload {
            id: sandbox.id,
            inner: sandbox.workload,
            faults: self.faults.clone(),
            log: self.log.clone(),
            wire: self.wire.clone(),
            programs: self.programs.clone(),
        };
        Sandbox {
            id: sandbox.id,
            workload: Arc::new(workload),
        }
    }
}

#[async_trait]
impl SandboxProvider for FaultyProvider {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        self.inner.find_sandbox_by_assignment(assignment).await
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        self.faults.pass("before create").await;
        let made = self.inner.create_sandbox(spec).await;
        self.faults.pass("after create").await;
        made.map(|sandbox| self.wrap(sandbox))
    }

    async fn connect(&self, id: SandboxId) -> Result<Sandbox> {
        self.faults.pass("before connect").await;
        self.wire.check("connect")?;
        self.inner
            .connect(id)
            .await
            .map(|sandbox| self.wrap(sandbox))
    }

    async fn probe(&self, id: SandboxId) -> Probe {
        if let Err(error) = self.wire.check("probe") {
            return Probe::ProbeFailed(error);
        }
        self.inner.probe(id).await
    }

    async fn pause(&self, id: SandboxId) -> Result<()> {
        self.inner.pause(id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.inner.resume(id).await
    }

    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot> {
        self.inner.snapshot(id).await
    }

    async fn renew(&self, id: SandboxId, until: Timestamp) -> Result<()> {
        self.inner.renew(id, until).await
    }

    async fn update_egress(&self, id: SandboxId, policy: EgressPolicy) -> Result<()> {
        self.inner.update_egress(id, policy).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        self.faults.pass("before destroy").await;
        if self.stuck.load(Ordering::Relaxed) {
            return Err(detached("destroy"));
        }
        let done = self.inner.destroy(id).await;
        self.faults.pass("after destroy").await;
        done
    }

    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof> {
        self.inner.confirm_destroyed(id).await
    }

    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>> {
        self.inner.claim_of(id).await
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.inner.list().await
    }

    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo> {
        self.inner.describe(id).await
    }

    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics> {
        self.inner.diagnostics(id).await
    }

    async fn security_posture(&self, id: SandboxId) -> Result<Posture> {
        self.inner.security_posture(id).await
    }

    async fn delete_volume(&self, volume: VolumeId) -> Result<()> {
        self.faults.pass("before delete volume").await;
        self.inner.delete_volume(volume).await
    }
}

struct FaultyWorkload {
    id: SandboxId,
    inner: Arc<dyn Workload>,
    faults: Faults,
    log: Log,
    wire: Wire,
    programs: Handle,
}

#[async_trait]
impl Workload for FaultyWorkload {
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus> {
        self.faults.pass("before spawn").await;
        let name = spec.name.clone();
        let inner = Arc::clone(&self.inner);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(async move { inner.spawn(spec).await }, &self.programs);
        let joined = tasks.join_next().await.expect("there is one task");
        let spawned =
            joined.map_err(|error| Error::new(ErrorKind::Internal, "spawn", error.to_string()))?;
        if spawned.is_ok() {
            self.log.started(self.id, name);
        }
        self.faults.pass("after spawn").await;
        spawned
    }

    async fn attach(
        &self,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<OutputStream> {
        self.faults.pass("before attach").await;
        self.wire.check("attach")?;
        let stream = self.inner.attach(process, stdout, stderr).await?;
        Ok(self.wire.carry(stream))
    }

    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        self.faults.pass("before stdin").await;
        self.wire.check("write stdin")?;
        let written = self.inner.write_stdin(process, offset, bytes.clone()).await;
        if written.is_ok() {
            self.log.note(self.id, process, offset, &bytes);
        }
        self.faults.pass("after stdin").await;
        written
    }

    async fn close_stdin(&self, process: &ProcessName) -> Result<()> {
        self.faults.pass("before close stdin").await;
        self.inner.close_stdin(process).await
    }

    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        self.faults.pass("before acknowledge").await;
        self.wire.check("acknowledge")?;
        let done = self.inner.acknowledge(process, stdout, stderr).await;
        self.faults.pass("after acknowledge").await;
        done
    }

    async fn signal(
        &self,
        process: &ProcessName,
        signal: Signal,
        scope: SignalScope,
    ) -> Result<()> {
        self.faults.pass("before signal").await;
        self.inner.signal(process, signal, scope).await
    }

    async fn status(&self, process: &ProcessName) -> Result<Option<ProcessStatus>> {
        self.wire.check("status")?;
        self.inner.status(process).await
    }

    async fn read_file(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes> {
        self.inner.read_file(path, offset, limit).await
    }

    async fn write_file(
        &self,
        path: &BoxPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        self.inner.write_file(path, content, options).await
    }

    async fn list_files(&self, path: &BoxPath) -> Result<Vec<FileInfo>> {
        self.wire.check("list files")?;
        self.inner.list_files(path).await
    }

    async fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        self.inner.stat(path).await
    }

    async fn make_dir(&self, path: &BoxPath) -> Result<()> {
        self.inner.make_dir(path).await
    }

    async fn remove(&self, path: &BoxPath) -> Result<()> {
        self.inner.remove(path).await
    }

    async fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()> {
        self.inner.rename(from, to).await
    }
}
