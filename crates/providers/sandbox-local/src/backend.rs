//! The provider.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astrabox_runner_protocol::BoxState;
use astrabox_sandbox::egress::EgressPolicy;
use astrabox_sandbox::{
    Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, EgressGate, Error, ErrorKind,
    Posture, Probe, ProviderContext, Result, Sandbox, SandboxInfo, SandboxProvider,
    SandboxProviderFactory, Snapshot, read_config,
};
use astrabox_types::{AssignmentId, PermissionLevel, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::LocalConfig;
use crate::error::{gone, host, runner};
use crate::folder::private_dirs;
use crate::launch::RunnerProgram;
use crate::leftovers::runner_lives;
use crate::pool::Pool;
use crate::snapshot;
use crate::telling;
use crate::uids::Uids;
use crate::volumes::Volumes;
use crate::workload::LocalWorkload;

/// How long a look at a runner may take.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// The checks of this host that a volume of hard size takes.
const HARD_DISK_CHECKS: [&str; 2] = ["loop_devices", "mkfs_ext4"];

/// Sandboxes made by runners on this host.
pub struct Local {
    pub(crate) config: LocalConfig,
    pub(crate) program: RunnerProgram,
    pub(crate) root_id: String,
    pub(crate) sandboxes: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) volumes: Volumes,
    /// Only root can give each sandbox a user of its own.
    pub(crate) uids: Option<Uids>,
    pub(crate) gate: Arc<dyn EgressGate>,
    /// The connections to runners.
    pub(crate) connected: Mutex<HashMap<SandboxId, Arc<LocalWorkload>>>,
    snapshots: PathBuf,
    hard_disk_limit: bool,
    /// What goes on when the caller that asked for it has gone.
    tasks: Mutex<JoinSet<()>>,
}

#[async_trait]
impl SandboxProviderFactory for Local {
    const NAME: &'static str = "local";
    const SUMMARY: &'static str =
        "sandboxes on this host, made of Linux namespaces, nothing to install";

    async fn build(
        config: serde_json::Value,
        context: ProviderContext,
    ) -> Result<Arc<dyn SandboxProvider>> {
        let config: LocalConfig = read_config(config)?;
        config.check()?;
        let program = RunnerProgram::find(config.runner.clone())?;
        let host_report = program.probe().await?;
        let has = |name: &str| {
            let mut checks = host_report.checks.iter();
            checks.any(|check| check.name == name && check.ok)
        };
        let sandboxes = context.state_dir.join("sandboxes");
        let volumes = context.state_dir.join("volumes");
        for folder in [&sandboxes, &volumes, &context.run_dir, &context.cache_dir] {
            private_dirs(folder)
                .map_err(|error| host("configure", "a folder of the provider", error))?;
        }
        let uids = Uids::new(config.first_uid, config.uids);
        let templates = context.cache_dir.join("volumes");
        let fresh = context.state_dir.join("fresh-volumes");
        let pool = Pool::new(&fresh, templates.clone(), config.fresh_volumes)?;
        Ok(Arc::new(Self {
            uids: (!host_report.rootless).then_some(uids),
            hard_disk_limit: !host_report.rootless && HARD_DISK_CHECKS.into_iter().all(has),
            volumes: Volumes::new(volumes, templates, pool),
            snapshots: context.state_dir.join("snapshots"),
            config,
            program,
            root_id: context.root_id,
            sandboxes,
            run_dir: context.run_dir,
            gate: context.gate,
            connected: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }
}

impl Local {
    /// Does `work` to its end, also when the caller stops waiting for it.
    async fn to_the_end<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (told, answer) = oneshot::channel();
        {
            let mut tasks = self
                .tasks
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                // Whoever does not wait any more does not want the answer.
                let _ = told.send(work.await);
            });
        }
        answer.await.unwrap_or_else(|_| {
            let text = "it was given up because the provider ended";
            Err(Error::new(ErrorKind::Internal, operation, text))
        })
    }
}

#[async_trait]
impl SandboxProvider for Local {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            snapshot: true,
            renew: false,
            update_egress: true,
            permission_levels: vec![PermissionLevel::Default, PermissionLevel::Advanced],
            hard_disk_limit: self.hard_disk_limit,
        }
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        let mut found = Vec::new();
        for record in self.records()? {
            if record.claim.assignment_id != *assignment {
                continue;
            }
            if self.is_over(&record)? {
                // What has died, or was never made whole, carries nothing out any more.
                self.destroy(record.id).await?;
            } else {
                found.push(record.id);
            }
        }
        if found.len() > 1 {
            return Err(Error::new(
                ErrorKind::AssignmentAmbiguous,
                "find",
                "destroy all but one of the sandboxes",
            ));
        }
        Ok(found.pop())
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        let id = spec.sandbox_id;
        let workload = self.create(spec).await?;
        Ok(Sandbox { id, workload })
    }

    async fn connect(&self, id: SandboxId) -> Result<Sandbox> {
        // Always made anew, because the gate may have lost the listener.
        self.forget(id);
        let workload = self.reach("connect", id).await?;
        let status = workload.client().status().await;
        match status.map_err(|error| runner("connect", error))?.state {
            BoxState::Gone(_) => Err(gone("connect")),
            BoxState::Running | BoxState::Frozen => Ok(Sandbox { id, workload }),
        }
    }

    async fn probe(&self, id: SandboxId) -> Probe {
        let look = async {
            let workload = self.reach("probe", id).await?;
            let status = workload.client().status().await;
            match status.map_err(|error| runner("probe", error))?.state {
                BoxState::Gone(_) => Err(gone("probe")),
                BoxState::Running | BoxState::Frozen => Ok(()),
            }
        };
        match tokio::time::timeout(LOOK, look).await {
            Ok(Ok(())) => Probe::Ok,
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Probe::NotFound,
            Ok(Err(error)) => Probe::ProbeFailed(error),
            Err(_) => Probe::ProbeFailed(Error::new(
                ErrorKind::DeadlineExceeded,
                "probe",
                "the runner did not answer",
            )),
        }
    }

    async fn pause(&self, id: SandboxId) -> Result<()> {
        let workload = self.reach("pause", id).await?;
        let frozen = workload.client().freeze().await;
        frozen.map_err(|error| runner("pause", error))
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        let workload = self.reach("resume", id).await?;
        let thawed = workload.client().thaw().await;
        thawed.map_err(|error| runner("resume", error))
    }

    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot> {
        let workload = self.reach("snapshot", id).await?;
        let client = workload.client().clone();
        let place = self.snapshots.clone();
        // A caller that stops waiting must not leave the sandbox frozen.
        self.to_the_end("snapshot", async move {
            let failed = |error| runner("snapshot", error);
            let status = client.status().await.map_err(failed)?;
            let paused = status.state == BoxState::Frozen;
            if !paused {
                client.freeze().await.map_err(failed)?;
            }
            let sealed = snapshot::seal(&client, &place, id).await;
            if !paused {
                client.thaw().await.map_err(failed)?;
            }
            sealed
        })
        .await
    }

    async fn renew(&self, _id: SandboxId, _until: Timestamp) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "renew",
            "local sandboxes do not expire by themselves",
        ))
    }

    async fn update_egress(&self, id: SandboxId, policy: EgressPolicy) -> Result<()> {
        let mut record = self.record("update egress", id)?;
        record.egress = policy.clone();
        // Written first: whoever opens the gate again after a crash opens it with this.
        self.folder(id).write(&record)?;
        self.reach("update egress", id).await?;
        self.gate.update(id, policy).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        self.remove(id).await
    }

    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof> {
        let folder = self.folder(id);
        let io = |error| host("confirm destroyed", "looking for what is left", error);
        let files = folder.exists().map_err(io)?;
        // Independent of what was written down.
        let process = runner_lives(&folder.spec_path()).map_err(io)?;
        Ok(if files || process {
            DestroyProof::StillThere
        } else {
            DestroyProof::Gone
        })
    }

    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>> {
        Ok(self.folder(id).read()?.map(|record| record.claim))
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        let looks = self.records()?.into_iter().map(|record| async {
            let state = self.state(&record).await;
            telling::info(record, state)
        });
        Ok(futures::future::join_all(looks).await)
    }

    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo> {
        let record = self.record("describe", id)?;
        let state = self.state(&record).await;
        Ok(telling::info(record, state))
    }

    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics> {
        let record = self.record("diagnostics", id)?;
        let state = self.state(&record).await;
        let status = match self.reach("diagnostics", id).await {
            Ok(workload) => workload.client().status().await.ok(),
            Err(_) => None,
        };
        Ok(telling::diagnostics(
            &self.folder(id),
            &record,
            state,
            status,
        ))
    }

    async fn security_posture(&self, id: SandboxId) -> Result<Posture> {
        let workload = self.reach("security posture", id).await?;
        let posture = workload.client().posture().await;
        let posture = posture.map_err(|error| runner("security posture", error))?;
        Ok(telling::posture(posture))
    }

    async fn delete_volume(&self, volume: VolumeId) -> Result<()> {
        self.volumes.delete(volume, |id| self.folder(id).may_live())
    }
}
