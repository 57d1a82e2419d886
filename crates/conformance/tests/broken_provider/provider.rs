//! The provider in memory with one fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_conformance::sandbox::{MemoryFixture, Probe, ProviderFixture};
use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{
    Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, EgressGate, EgressListener,
    EgressWorkload, Error, ErrorKind, Posture, Probe as Seen, Result, Sandbox, SandboxInfo,
    SandboxProvider, Snapshot,
};
use astrabox_types::{AssignmentId, PermissionLevel, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;

use super::faults::Fault;
use super::workload::{BrokenWorkload, Links};

/// The fixture of a provider with one fault.
pub(crate) struct BrokenFixture {
    inner: MemoryFixture,
    fault: Fault,
    shared: Arc<Shared>,
}

/// What all providers of one fixture know, whichever their root.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Every sandbox that was asked for, with its provider.
    made: BTreeMap<SandboxId, (SandboxInfo, Arc<dyn SandboxProvider>)>,
    destroyed: Vec<SandboxId>,
    opened: Vec<SandboxId>,
    links: Links,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BrokenFixture {
    /// A provider that is right but for this.
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            inner: MemoryFixture::new(),
            fault,
            shared: Arc::default(),
        }
    }
}

#[async_trait]
impl ProviderFixture for BrokenFixture {
    fn name(&self) -> String {
        format!("{:?}", self.fault)
    }

    async fn provider(
        &self,
        root: &str,
        gate: Arc<dyn EgressGate>,
    ) -> Result<Arc<dyn SandboxProvider>> {
        let gate = Arc::new(BrokenGate {
            inner: gate,
            fault: self.fault,
            shared: Arc::clone(&self.shared),
        });
        Ok(Arc::new(BrokenProvider {
            inner: self.inner.provider(root, gate).await?,
            fault: self.fault,
            shared: Arc::clone(&self.shared),
        }))
    }

    fn command(&self, probe: &Probe) -> Option<Vec<String>> {
        self.inner.command(probe)
    }

    async fn cut_off(&self, root: &str, id: SandboxId) -> bool {
        self.inner.cut_off(root, id).await
    }

    async fn mend(&self, root: &str, id: SandboxId) {
        self.inner.mend(root, id).await;
    }
}

/// The gate as a provider with a fault uses it.
struct BrokenGate {
    inner: Arc<dyn EgressGate>,
    fault: Fault,
    shared: Arc<Shared>,
}

#[async_trait]
impl EgressGate for BrokenGate {
    async fn open(
        &self,
        workload: EgressWorkload,
        mut policy: EgressPolicy,
        listener: EgressListener,
    ) -> Result<()> {
        let again = {
            let mut state = self.shared.state();
            let again = state.opened.contains(&workload.sandbox_id);
            state.opened.push(workload.sandbox_id);
            again
        };
        match self.fault {
            Fault::GateIsNotOpenedAgain if again => return Ok(()),
            Fault::PolicyIsWidened => policy.unrestricted = true,
            _ => {}
        }
        self.inner.open(workload, policy, listener).await
    }

    async fn update(&self, sandbox_id: SandboxId, policy: EgressPolicy) -> Result<()> {
        self.inner.update(sandbox_id, policy).await
    }

    async fn close(&self, sandbox_id: SandboxId) -> Result<()> {
        if self.fault == Fault::GateIsNotClosed {
            return Ok(());
        }
        self.inner.close(sandbox_id).await
    }
}

struct BrokenProvider {
    inner: Arc<dyn SandboxProvider>,
    fault: Fault,
    shared: Arc<Shared>,
}

impl BrokenProvider {
    fn wrap(&self, sandbox: Sandbox) -> Sandbox {
        let links = self.shared.state().links.clone();
        let workload = BrokenWorkload::new(sandbox.workload, self.fault, links);
        Sandbox {
            id: sandbox.id,
            workload: Arc::new(workload),
        }
    }

    /// What would be listed of a sandbox.
    fn remember(&self, spec: &CreateSpec) {
        let info = SandboxInfo {
            id: spec.sandbox_id,
            claim: Claim {
                session_id: spec.session_id,
                assignment_id: spec.assignment_id.clone(),
                volume_id: spec.volume_id,
            },
            state: astrabox_sandbox::SandboxState::Unknown,
            created_at: Timestamp::now(),
            image: None,
            labels: BTreeMap::new(),
        };
        let owner = Arc::clone(&self.inner);
        self.shared
            .state()
            .made
            .insert(spec.sandbox_id, (info, owner));
    }

    /// The remembered sandboxes that the right provider does not list.
    fn ghosts(&self, listed: &[SandboxInfo]) -> Vec<SandboxInfo> {
        let state = self.shared.state();
        let ghosts = state.made.values().filter(|(info, owner)| {
            let destroyed = state.destroyed.contains(&info.id);
            let wanted = match self.fault {
                Fault::GhostIsListed => destroyed && Arc::ptr_eq(owner, &self.inner),
                _ => !destroyed,
            };
            wanted && listed.iter().all(|one| one.id != info.id)
        });
        ghosts.map(|(info, _)| info.clone()).collect()
    }

    async fn empty(&self, sandbox: &Sandbox) -> Result<()> {
        for root in ["/workspace", "/home/agent"] {
            let root = astrabox_sandbox::BoxPath::new(root).expect("it is a path");
            for file in sandbox.workload.list_files(&root).await? {
                let path = root.join(&file.name).expect("it was listed");
                sandbox.workload.remove(&path).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl SandboxProvider for BrokenProvider {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.pause &= self.fault != Fault::UndeclaredPauseWorks;
        capabilities
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        let found = self.inner.find_sandbox_by_assignment(assignment).await;
        match (self.fault, found) {
            (Fault::FindForgets, _) => Ok(None),
            (Fault::FindChooses, Err(error)) if error.kind() == ErrorKind::AssignmentAmbiguous => {
                let listed = self.inner.list().await?;
                let mut carrying = listed
                    .iter()
                    .filter(|one| one.claim.assignment_id == *assignment);
                Ok(carrying.next().map(|one| one.id))
            }
            (_, found) => found,
        }
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        let mut created = self.inner.create_sandbox(spec.clone()).await;
        let failed = created.is_err();
        if self.fault == Fault::VolumeIsSwapped
            && created
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::WrongState)
        {
            let volume_id = VolumeId::new();
            created = self
                .inner
                .create_sandbox(CreateSpec {
                    volume_id,
                    ..spec.clone()
                })
                .await;
        }
        if failed == (self.fault == Fault::FailedCreateStays) {
            self.remember(&spec);
        }
        let sandbox = created?;
        if self.fault == Fault::VolumeForgets {
            self.empty(&sandbox).await?;
        }
        Ok(self.wrap(sandbox))
    }

    async fn connect(&self, id: SandboxId) -> Result<Sandbox> {
        match self.inner.connect(id).await {
            Err(_) if self.fault == Fault::ConnectMumbles => {
                Err(Error::new(ErrorKind::Internal, "connect", "it went wrong"))
            }
            connected => connected.map(|sandbox| self.wrap(sandbox)),
        }
    }

    async fn probe(&self, id: SandboxId) -> Seen {
        match (self.fault, self.inner.probe(id).await) {
            (Fault::ProbeGuesses, Seen::ProbeFailed(_)) => Seen::NotFound,
            (Fault::ProbeIsNeverSure, Seen::NotFound) => {
                Seen::ProbeFailed(Error::new(ErrorKind::Detached, "probe", "who knows"))
            }
            (_, seen) => seen,
        }
    }

    async fn pause(&self, id: SandboxId) -> Result<()> {
        if matches!(
            self.fault,
            Fault::PauseIsIgnored | Fault::UndeclaredPauseWorks
        ) {
            return Ok(());
        }
        self.inner.pause(id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.inner.resume(id).await
    }

    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot> {
        let mut snapshot = self.inner.snapshot(id).await?;
        if self.fault == Fault::SnapshotIsEmpty {
            snapshot.bytes = 0;
        }
        Ok(snapshot)
    }

    async fn renew(&self, id: SandboxId, until: Timestamp) -> Result<()> {
        self.inner.renew(id, until).await
    }

    async fn update_egress(&self, id: SandboxId, policy: EgressPolicy) -> Result<()> {
        if self.fault == Fault::UpdateIsDropped {
            return Ok(());
        }
        self.inner.update_egress(id, policy).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        let (again, owner) = {
            let mut state = self.shared.state();
            let again = state.destroyed.contains(&id);
            state.destroyed.push(id);
            let owner = state.made.get(&id).map(|(_, owner)| Arc::clone(owner));
            (again, owner)
        };
        match (self.fault, owner) {
            (Fault::DestroyOnlyOnce, _) if again => {
                Err(Error::new(ErrorKind::NotFound, "destroy", "it is gone"))
            }
            (Fault::EveryRootDestroys, Some(owner)) => owner.destroy(id).await,
            _ => self.inner.destroy(id).await,
        }
    }

    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof> {
        if self.fault == Fault::ConfirmBelieves {
            return Ok(DestroyProof::Gone);
        }
        self.inner.confirm_destroyed(id).await
    }

    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>> {
        let claim = self.inner.claim_of(id).await?;
        let state = self.shared.state();
        match state.made.get(&id) {
            Some((info, _))
                if self.fault == Fault::GhostHasAClaim && state.destroyed.contains(&id) =>
            {
                Ok(Some(info.claim.clone()))
            }
            _ => Ok(claim),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        let mut listed = self.inner.list().await?;
        if matches!(
            self.fault,
            Fault::EveryRootIsListed | Fault::GhostIsListed | Fault::FailedCreateStays
        ) {
            listed.extend(self.ghosts(&listed));
        }
        Ok(listed)
    }

    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo> {
        self.inner.describe(id).await
    }

    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics> {
        self.inner.diagnostics(id).await
    }

    async fn security_posture(&self, id: SandboxId) -> Result<Posture> {
        let mut posture = self.inner.security_posture(id).await?;
        if self.fault == Fault::PostureIsGuessed {
            posture.permission_level = PermissionLevel::Default;
        }
        Ok(posture)
    }

    async fn delete_volume(&self, volume: VolumeId) -> Result<()> {
        match self.fault {
            Fault::VolumeIsNotDeleted => {
                let listed = self.inner.list().await?;
                if listed.iter().all(|one| one.claim.volume_id != volume) {
                    return Ok(());
                }
                self.inner.delete_volume(volume).await
            }
            Fault::VolumeInUseIsDeleted => {
                // It is not, but nobody is told.
                let _ = self.inner.delete_volume(volume).await;
                Ok(())
            }
            _ => self.inner.delete_volume(volume).await,
        }
    }
}
