//! A sandbox provider in memory.

use std::sync::Arc;

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{
    Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, EgressGate, Error, ErrorKind,
    LimitState, Posture, Probe, Result, Sandbox, SandboxInfo, SandboxProvider, SandboxState,
    Snapshot,
};
use astrabox_types::{AssignmentId, PermissionLevel, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;

use super::world::MemoryBox;
use super::{MemoryWorld, Programs};

/// A provider whose sandboxes are data and whose programs are closures. It isolates nothing and says so.
pub struct MemoryProvider {
    world: MemoryWorld,
    root: String,
    gate: Arc<dyn EgressGate>,
    programs: Programs,
    capabilities: Capabilities,
}

impl MemoryProvider {
    /// A provider over one root of a host; a second one over the same root is the server after a restart.
    #[must_use]
    pub fn new(
        world: &MemoryWorld,
        root: &str,
        gate: Arc<dyn EgressGate>,
        programs: Programs,
    ) -> Self {
        Self {
            world: world.clone(),
            root: root.to_owned(),
            gate,
            programs,
            capabilities: Self::all(),
        }
    }

    /// Everything that it can do, which is what it declares.
    #[must_use]
    pub fn all() -> Capabilities {
        Capabilities {
            pause: true,
            snapshot: true,
            renew: true,
            update_egress: true,
            permission_levels: vec![PermissionLevel::Default, PermissionLevel::Advanced],
            hard_disk_limit: false,
        }
    }

    /// Declares only these, and refuses the rest.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    fn declared(&self, declared: bool, operation: &'static str) -> Result<()> {
        if declared {
            return Ok(());
        }
        let text = "the provider does not declare it";
        Err(Error::new(ErrorKind::Unsupported, operation, text))
    }

    fn with<T>(
        &self,
        operation: &'static str,
        id: SandboxId,
        look: impl FnOnce(&mut MemoryBox) -> Result<T>,
    ) -> Result<T> {
        self.world
            .with(&self.root, |root| look(root.get(operation, id)?))
    }

    async fn open_gate(
        &self,
        way: Result<(
            astrabox_sandbox::EgressWorkload,
            EgressPolicy,
            std::os::fd::OwnedFd,
        )>,
    ) -> Result<()> {
        let (workload, policy, listener) = way?;
        self.gate.open(workload, policy, listener).await
    }
}

#[async_trait]
impl SandboxProvider for MemoryProvider {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        let found: Vec<SandboxId> = self.world.with(&self.root, |root| {
            let carries = |one: &&MemoryBox| one.claim.assignment_id == *assignment;
            root.boxes
                .values()
                .filter(carries)
                .map(|one| one.info.id)
                .collect()
        });
        match found.as_slice() {
            [] => Ok(None),
            [id] => Ok(Some(*id)),
            _ => Err(Error::new(
                ErrorKind::AssignmentAmbiguous,
                "find sandbox",
                format!("{} sandboxes carry {assignment}", found.len()),
            )),
        }
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        let levels = &self.capabilities.permission_levels;
        self.declared(levels.contains(&spec.permission_level), "create sandbox")?;
        let id = spec.sandbox_id;
        let programs = Arc::clone(&self.programs);
        let (workload, way) = self.world.with(&self.root, |root| {
            let made = root.make(spec, programs)?;
            Ok::<_, Error>((made.workload.clone(), made.way_out()))
        })?;
        if let Err(error) = self.open_gate(way).await {
            self.world.with(&self.root, |root| root.end(id));
            return Err(error);
        }
        let workload = Arc::new(workload);
        Ok(Sandbox { id, workload })
    }

    async fn connect(&self, id: SandboxId) -> Result<Sandbox> {
        let (workload, way) = self.with("connect", id, |one| {
            Ok((one.workload.clone(), one.way_out()))
        })?;
        self.open_gate(way).await?;
        let workload = Arc::new(workload);
        Ok(Sandbox { id, workload })
    }

    async fn probe(&self, id: SandboxId) -> Probe {
        match self.with("probe", id, |_| Ok(())) {
            Ok(()) => Probe::Ok,
            Err(error) if error.kind() == ErrorKind::NotFound => Probe::NotFound,
            Err(error) => Probe::ProbeFailed(error),
        }
    }

    async fn pause(&self, id: SandboxId) -> Result<()> {
        self.declared(self.capabilities.pause, "pause")?;
        self.with("pause", id, |one| {
            one.workload.pause(true);
            one.info.state = SandboxState::Paused;
            Ok(())
        })
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.declared(self.capabilities.pause, "resume")?;
        self.with("resume", id, |one| {
            one.workload.pause(false);
            one.info.state = SandboxState::Running;
            Ok(())
        })
    }

    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot> {
        self.declared(self.capabilities.snapshot, "snapshot")?;
        self.with("snapshot", id, |one| {
            Ok(Snapshot {
                name: format!("snapshot-{}", one.claim.volume_id),
                bytes: 1,
                at: Timestamp::now(),
            })
        })
    }

    async fn renew(&self, id: SandboxId, _until: Timestamp) -> Result<()> {
        self.declared(self.capabilities.renew, "renew")?;
        self.with("renew", id, |_| Ok(()))
    }

    async fn update_egress(&self, id: SandboxId, policy: EgressPolicy) -> Result<()> {
        self.declared(self.capabilities.update_egress, "update egress")?;
        self.with("update egress", id, |one| {
            one.policy = policy.clone();
            Ok(())
        })?;
        self.gate.update(id, policy).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        self.world.with(&self.root, |root| root.end(id));
        self.gate.close(id).await
    }

    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof> {
        let there = self
            .world
            .with(&self.root, |root| root.boxes.contains_key(&id));
        Ok(if there {
            DestroyProof::StillThere
        } else {
            DestroyProof::Gone
        })
    }

    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>> {
        Ok(self.world.with(&self.root, |root| {
            root.boxes.get(&id).map(|one| one.claim.clone())
        }))
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        Ok(self.world.with(&self.root, |root| {
            root.boxes.values().map(|one| one.info.clone()).collect()
        }))
    }

    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo> {
        self.with("describe", id, |one| Ok(one.info.clone()))
    }

    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics> {
        self.with("diagnostics", id, |one| {
            let processes = one.workload.running_processes().len();
            Ok(Diagnostics {
                summary: format!("in memory, {processes} processes run"),
                log: String::new(),
            })
        })
    }

    async fn security_posture(&self, id: SandboxId) -> Result<Posture> {
        self.with("security posture", id, |one| {
            let memory = format!("no limit of {} bytes is kept", one.limits.memory_bytes);
            Ok(Posture {
                technology: "memory".to_owned(),
                host_uid: 0,
                rootless: true,
                permission_level: one.level,
                seccomp: false,
                no_new_privileges: false,
                capabilities: Vec::new(),
                loopback_only: false,
                memory: LimitState::None,
                pids: LimitState::None,
                cpu: LimitState::None,
                disk: LimitState::None,
                notes: vec!["isolates nothing".to_owned(), memory],
            })
        })
    }

    async fn delete_volume(&self, volume: VolumeId) -> Result<()> {
        self.world
            .with(&self.root, |root| root.delete_volume(volume))
    }
}
