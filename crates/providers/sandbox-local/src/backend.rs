//! The provider.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_runner_protocol::egress::take_listener;
use astrabox_runner_protocol::launch::{Base, LaunchSpec, Limits, SPEC_FORMAT};
use astrabox_runner_protocol::{BoxState, ConnectOptions, Enforcement, RunnerClient};
use astrabox_sandbox::egress::EgressPolicy;
use astrabox_sandbox::{
    Capabilities, Claim, CreateSpec, DestroyProof, Diagnostics, EGRESS_PROXY_PORT, EgressGate,
    EgressWorkload, Error, ErrorKind, LimitState, Posture, Probe, ProviderContext, Result, Sandbox,
    SandboxInfo, SandboxProvider, SandboxProviderFactory, SandboxState, Snapshot, read_config,
};
use astrabox_types::{AssignmentId, PermissionLevel, SandboxId, Timestamp, VolumeId};
use async_trait::async_trait;

use crate::config::LocalConfig;
use crate::error::{host, runner};
use crate::folder::{Folder, Record, private_dirs};
use crate::launch::RunnerProgram;
use crate::leftovers::runner_lives;
use crate::snapshot;
use crate::uids::Uids;
use crate::volumes::Volumes;
use crate::workload::{LocalWorkload, gone};

/// How long a look at a runner may take.
const LOOK: Duration = Duration::from_secs(5);
/// How much of a runner's log diagnostics show, bytes.
const LOG_TAIL: usize = 16 << 10;
/// Bytes of standard input that the runner keeps for comparison and that may wait for a program.
const STDIN_BYTES: u64 = 32 << 20;
const MAX_PROCESSES: u32 = 1024;
const LOG_BYTES: u64 = 1 << 20;

/// Sandboxes made by runners on this host.
pub struct Local {
    config: LocalConfig,
    program: RunnerProgram,
    root_id: String,
    sandboxes: PathBuf,
    run_dir: PathBuf,
    snapshots: PathBuf,
    volumes: Volumes,
    uids: Option<Uids>,
    gate: Arc<dyn EgressGate>,
    /// Connections to runners, and which listeners this process has given to the gate.
    connected: Mutex<HashMap<SandboxId, Arc<LocalWorkload>>>,
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
        let program = RunnerProgram::find(config.runner.clone())?;
        let sandboxes = context.state_dir.join("sandboxes");
        let volumes = context.state_dir.join("volumes");
        for folder in [&sandboxes, &volumes, &context.run_dir, &context.cache_dir] {
            private_dirs(folder)
                .map_err(|error| host("configure", "a folder of the provider", error))?;
        }
        let root = rustix::process::geteuid().is_root();
        Ok(Arc::new(Self {
            uids: root.then(|| Uids::new(config.first_uid, config.uids)),
            volumes: Volumes::new(volumes, context.cache_dir.join("volumes")),
            snapshots: context.state_dir.join("snapshots"),
            config,
            program,
            root_id: context.root_id,
            sandboxes,
            run_dir: context.run_dir,
            gate: context.gate,
            connected: Mutex::default(),
        }))
    }
}

impl Local {
    fn folder(&self, id: SandboxId) -> Folder {
        Folder::of(&self.sandboxes, &self.run_dir, id)
    }

    fn connected(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<LocalWorkload>>> {
        self.connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Every record of this root.
    fn records(&self) -> Result<Vec<Record>> {
        let io = |error| host("list", "the provider's folder", error);
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.sandboxes).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            records.extend(self.folder(id).read()?);
        }
        records.sort_by_key(|record| record.id);
        Ok(records)
    }

    fn record(&self, operation: &'static str, id: SandboxId) -> Result<Record> {
        self.folder(id).read()?.ok_or_else(|| gone(operation))
    }

    /// Whether the runner of a sandbox is there; an error says that one cannot tell.
    fn runner_is_alive(&self, id: SandboxId) -> io::Result<bool> {
        match self.folder(id).runner()? {
            Some(runner) => runner.is_alive(),
            None => Ok(false),
        }
    }

    /// A runner that is there and answers.
    async fn reach(&self, operation: &'static str, id: SandboxId) -> Result<Arc<LocalWorkload>> {
        let record = self.record(operation, id)?;
        if !record.complete || matches!(self.runner_is_alive(id), Ok(false)) {
            return Err(gone(operation));
        }
        let known = self.connected().get(&id).cloned();
        if let Some(workload) = known {
            return Ok(workload);
        }
        let workload = self.open(&record).await?;
        self.connected().insert(id, Arc::clone(&workload));
        Ok(workload)
    }

    /// Connects to a runner and gives its listener to the gate.
    async fn open(&self, record: &Record) -> Result<Arc<LocalWorkload>> {
        let spec = self
            .folder(record.id)
            .spec()
            .ok_or_else(|| gone("connect"))?;
        let client = RunnerClient::connect(ConnectOptions::new(spec.runner_socket())).await;
        let client = client.map_err(|error| runner("connect", error))?;
        if client.info().sandbox_id != record.id.to_string() {
            return Err(Error::new(
                ErrorKind::Internal,
                "connect",
                "another sandbox's runner answered",
            ));
        }
        let listener = take_listener(&spec.egress_socket(), LOOK)
            .await
            .map_err(|error| runner("connect", error))?;
        let workload = EgressWorkload {
            sandbox_id: record.id,
            session_id: record.claim.session_id,
        };
        self.gate
            .open(workload, record.egress.clone(), listener)
            .await?;
        Ok(Arc::new(LocalWorkload::new(client)))
    }

    /// Makes everything of a sandbox whose first record is written.
    async fn make(
        &self,
        folder: &Folder,
        record: &mut Record,
        spec: &CreateSpec,
    ) -> Result<Arc<LocalWorkload>> {
        if let Some(uids) = &self.uids {
            record.host_uid = Some(uids.claim(&folder.spec_path().with_file_name("sandbox.json"))?);
            folder.write(record)?;
        }
        let lives = |id| !matches!(self.runner_is_alive(id), Ok(false));
        let limits = spec.limits;
        let volume = self
            .volumes
            .take(
                &self.program,
                spec.volume_id,
                limits.disk_bytes,
                spec.sandbox_id,
                lives,
            )
            .await?;
        let launch = LaunchSpec {
            format: SPEC_FORMAT,
            sandbox_id: spec.sandbox_id.to_string(),
            root_id: self.root_id.clone(),
            run_dir: folder.run_dir().to_path_buf(),
            state_dir: folder.state().path().to_path_buf(),
            base: self.config.base.clone().map_or(Base::Host, Base::Dir),
            image: spec.image.as_ref().map(|image| image.root.clone()),
            volume,
            host_uid: record
                .host_uid
                .unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            limits: Limits {
                memory_bytes: limits.memory_bytes,
                pids: limits.pids,
                cpu_millis: limits.cpu_millis,
                disk_bytes: limits.disk_bytes,
                file_bytes: limits.disk_bytes,
            },
            level: spec.permission_level,
            hostname: "sandbox".to_owned(),
            egress_port: EGRESS_PROXY_PORT,
            spool_bytes: self.config.spool_bytes,
            stdin_bytes: STDIN_BYTES,
            max_processes: MAX_PROCESSES,
            log_bytes: LOG_BYTES,
        };
        launch.write(&folder.spec_path()).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "create",
                "the launch spec cannot be written",
            )
            .with_source(error)
        })?;
        self.program.run(&folder.spec_path()).await?;
        let workload = self.open(record).await?;
        record.complete = true;
        folder.write(record)?;
        Ok(workload)
    }

    /// Removes everything of a sandbox but its volume.
    async fn unmake(&self, folder: &Folder, record: &Record) -> Result<()> {
        self.gate.close(record.id).await?;
        let known = self.connected().remove(&record.id);
        if let Some(spec) = folder.spec() {
            self.end_runner(folder, known, &spec).await?;
            self.program.clean(&folder.spec_path()).await?;
        }
        self.volumes.release(record.claim.volume_id, record.id)?;
        if let (Some(uids), Some(uid)) = (&self.uids, record.host_uid) {
            uids.release(uid, &folder.spec_path().with_file_name("sandbox.json"))?;
        }
        folder.remove()
    }

    /// Asks the runner to end; kills it when it does not.
    async fn end_runner(
        &self,
        folder: &Folder,
        known: Option<Arc<LocalWorkload>>,
        spec: &LaunchSpec,
    ) -> Result<()> {
        let io = |error| host("destroy", "the runner's record", error);
        let Some(process) = folder.runner().map_err(io)? else {
            return Ok(());
        };
        if !process.is_alive().map_err(io)? {
            return Ok(());
        }
        let asked = match known {
            Some(workload) => workload.client().shutdown().await,
            None => match RunnerClient::connect(ConnectOptions::new(spec.runner_socket())).await {
                Ok(client) => client.shutdown().await,
                Err(error) => Err(error),
            },
        };
        if let Err(error) = asked {
            tracing::warn!(sandbox = spec.sandbox_id, %error, "the runner did not end by itself; killing it");
        }
        let until = tokio::time::Instant::now() + LOOK;
        while process.is_alive().map_err(io)? {
            if tokio::time::Instant::now() > until {
                kill(&process).map_err(|error| host("destroy", "killing the runner", error))?;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            if tokio::time::Instant::now() > until + LOOK {
                return Err(Error::new(
                    ErrorKind::DeadlineExceeded,
                    "destroy",
                    "the runner does not end",
                ));
            }
        }
        Ok(())
    }

    fn info(&self, record: Record, state: SandboxState) -> SandboxInfo {
        let Record {
            id,
            claim,
            created_at,
            image,
            labels,
            ..
        } = record;
        SandboxInfo {
            id,
            claim,
            state,
            created_at,
            image,
            labels,
        }
    }

    /// Where a sandbox stands, by its runner's own word where it gives one.
    async fn state(&self, record: &Record) -> SandboxState {
        match self.runner_is_alive(record.id) {
            Ok(false) => return SandboxState::Dead,
            Ok(true) if record.complete => {}
            Ok(true) | Err(_) => return SandboxState::Unknown,
        }
        let looked = async {
            let workload = self.reach("list", record.id).await?;
            workload
                .client()
                .status()
                .await
                .map_err(|error| runner("list", error))
        };
        match tokio::time::timeout(LOOK, looked).await {
            Ok(Ok(status)) => match status.state {
                BoxState::Running => SandboxState::Running,
                BoxState::Frozen => SandboxState::Paused,
                BoxState::Gone(_) => SandboxState::Dead,
            },
            Ok(Err(_)) | Err(_) => SandboxState::Unknown,
        }
    }
}

/// Kills exactly this process: a process id that was given to another one meanwhile is left alone.
fn kill(process: &astrabox_runner_protocol::ProcessIdentity) -> io::Result<()> {
    let Some(pid) = i32::try_from(process.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return Ok(());
    };
    let descriptor = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // The descriptor holds whoever has the id now; is that the one?
    if process.is_alive()? {
        rustix::process::pidfd_send_signal(&descriptor, rustix::process::Signal::KILL)?;
    }
    Ok(())
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
            hard_disk_limit: self.uids.is_some(),
        }
    }

    async fn find_sandbox_by_assignment(
        &self,
        assignment: &AssignmentId,
    ) -> Result<Option<SandboxId>> {
        let mut found = self
            .records()?
            .into_iter()
            .filter(|record| record.claim.assignment_id == *assignment);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(Error::new(
                ErrorKind::AssignmentAmbiguous,
                "find",
                "destroy all but one of the sandboxes",
            )),
            // What was never made whole, or has died, carries nothing out: its folder is removed, and it is not there.
            (Some(record), None)
                if !record.complete || matches!(self.runner_is_alive(record.id), Ok(false)) =>
            {
                self.destroy(record.id).await?;
                Ok(None)
            }
            (record, None) => Ok(record.map(|record| record.id)),
        }
    }

    async fn create_sandbox(&self, spec: CreateSpec) -> Result<Sandbox> {
        let folder = self.folder(spec.sandbox_id);
        if let Some(image) = &spec.image
            && !image.root.is_dir()
        {
            return Err(Error::new(
                ErrorKind::ImageMissing,
                "create",
                format!("`{}` is not on this host", image.name),
            ));
        }
        let mut record = Record {
            id: spec.sandbox_id,
            claim: Claim {
                session_id: spec.session_id,
                assignment_id: spec.assignment_id.clone(),
                volume_id: spec.volume_id,
            },
            created_at: Timestamp::now(),
            image: spec.image.as_ref().map(|image| image.name.clone()),
            labels: spec.labels.clone(),
            egress: spec.egress.clone(),
            host_uid: None,
            complete: false,
        };
        folder.begin(&record)?;
        match self.make(&folder, &mut record, &spec).await {
            Ok(workload) => {
                self.connected().insert(record.id, Arc::clone(&workload));
                Ok(Sandbox {
                    id: record.id,
                    workload,
                })
            }
            Err(error) => {
                // SB2: nothing is left behind; the first error is the one to tell.
                if let Err(left) = self.unmake(&folder, &record).await {
                    tracing::error!(sandbox = %record.id, error = %left, "a failed sandbox could not be removed");
                }
                Err(error)
            }
        }
    }

    async fn connect(&self, id: SandboxId) -> Result<Sandbox> {
        let workload = self.reach("connect", id).await?;
        match workload.client().status().await {
            Ok(status) if matches!(status.state, BoxState::Gone(_)) => Err(gone("connect")),
            Ok(_) => Ok(Sandbox { id, workload }),
            Err(error) => {
                self.connected().remove(&id);
                Err(runner("connect", error))
            }
        }
    }

    async fn probe(&self, id: SandboxId) -> Probe {
        let looked = tokio::time::timeout(LOOK, self.connect(id)).await;
        match looked {
            Ok(Ok(_)) => Probe::Ok,
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
        self.reach("pause", id)
            .await?
            .client()
            .freeze()
            .await
            .map_err(|error| runner("pause", error))
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.reach("resume", id)
            .await?
            .client()
            .thaw()
            .await
            .map_err(|error| runner("resume", error))
    }

    async fn snapshot(&self, id: SandboxId) -> Result<Snapshot> {
        let workload = self.reach("snapshot", id).await?;
        let client = workload.client();
        let status = client
            .status()
            .await
            .map_err(|error| runner("snapshot", error))?;
        let paused = status.state == BoxState::Frozen;
        if !paused {
            client
                .freeze()
                .await
                .map_err(|error| runner("snapshot", error))?;
        }
        let sealed = snapshot::seal(client, &self.snapshots, id).await;
        if !paused {
            client
                .thaw()
                .await
                .map_err(|error| runner("snapshot", error))?;
        }
        sealed
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
        self.folder(id).write(&record)?;
        self.reach("update egress", id).await?;
        self.gate.update(id, policy).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        let folder = self.folder(id);
        match folder.read()? {
            Some(record) => self.unmake(&folder, &record).await,
            None => folder.remove(),
        }
    }

    async fn confirm_destroyed(&self, id: SandboxId) -> Result<DestroyProof> {
        let folder = self.folder(id);
        let io = |error| host("confirm destroyed", "looking for what is left", error);
        let files = folder.exists().map_err(io)?;
        let runner = runner_lives(&folder.spec_path()).map_err(io)?;
        Ok(if files || runner {
            DestroyProof::StillThere
        } else {
            DestroyProof::Gone
        })
    }

    async fn claim_of(&self, id: SandboxId) -> Result<Option<Claim>> {
        Ok(self.folder(id).read()?.map(|record| record.claim))
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>> {
        let mut infos = Vec::new();
        for record in self.records()? {
            let state = self.state(&record).await;
            infos.push(self.info(record, state));
        }
        Ok(infos)
    }

    async fn describe(&self, id: SandboxId) -> Result<SandboxInfo> {
        let record = self.record("describe", id)?;
        let state = self.state(&record).await;
        Ok(self.info(record, state))
    }

    async fn diagnostics(&self, id: SandboxId) -> Result<Diagnostics> {
        use std::fmt::Write as _;
        let record = self.record("diagnostics", id)?;
        let mut summary = format!(
            "state: {:?}\nmade whole: {}\n",
            self.state(&record).await,
            record.complete
        );
        if let Ok(Some(process)) = self.folder(id).runner() {
            let _ = writeln!(
                summary,
                "runner: process {}, alive: {:?}",
                process.pid,
                process.is_alive().ok()
            );
        }
        if let Ok(workload) = self.reach("diagnostics", id).await
            && let Ok(status) = workload.client().status().await
        {
            for process in status.processes {
                let _ = writeln!(
                    summary,
                    "process {}: {:?} {:?}",
                    process.name, process.state, process.exit
                );
            }
        }
        let log = std::fs::read(self.folder(id).state().log()).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(LOG_TAIL)..];
        Ok(Diagnostics {
            summary,
            log: String::from_utf8_lossy(tail).into_owned(),
        })
    }

    async fn security_posture(&self, id: SandboxId) -> Result<Posture> {
        let workload = self.reach("security posture", id).await?;
        let posture = workload
            .client()
            .posture()
            .await
            .map_err(|error| runner("security posture", error))?;
        let limit = |limit: &astrabox_runner_protocol::LimitPosture| match limit.enforcement {
            Enforcement::Hard => LimitState::Hard,
            Enforcement::Soft => LimitState::Soft,
            Enforcement::None => LimitState::None,
        };
        Ok(Posture {
            technology: "namespaces".to_owned(),
            host_uid: posture.host_uid,
            rootless: posture.rootless,
            permission_level: posture.level,
            seccomp: posture.seccomp,
            no_new_privileges: posture.no_new_privileges,
            capabilities: if posture.no_capabilities {
                Vec::new()
            } else {
                vec!["unknown".to_owned()]
            },
            loopback_only: posture.loopback_only,
            memory: limit(&posture.memory),
            pids: limit(&posture.pids),
            cpu: limit(&posture.cpu),
            disk: limit(&posture.disk),
            notes: posture.notes,
        })
    }

    async fn delete_volume(&self, volume: VolumeId) -> Result<()> {
        let lives = |id: SandboxId| !matches!(self.runner_is_alive(id), Ok(false));
        self.volumes.delete(volume, lives)
    }
}
