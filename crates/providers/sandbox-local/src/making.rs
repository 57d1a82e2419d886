//! Making a sandbox and removing it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use astrabox_runner_protocol::launch::{
    Base, LaunchSpec, Limits, RUNNER_SOCKET, SPEC_FORMAT, Volume,
};
use astrabox_runner_protocol::{
    ConnectOptions, ProcessIdentity, RunnerClient, RunnerError, RunnerErrorKind,
};
use astrabox_sandbox::{Claim, CreateSpec, EGRESS_PROXY_PORT, Error, ErrorKind, Result};
use astrabox_types::{SandboxId, Timestamp};
use tokio::time::Instant;

use crate::backend::{LOOK, Local};
use crate::error::host;
use crate::folder::{Folder, Hold, Record};
use crate::reaching::busy;
use crate::workload::LocalWorkload;

/// Bytes of standard input that the runner keeps for comparison and that may wait for a program.
const STDIN_BYTES: u64 = 32 << 20;
/// Processes that a runner remembers.
const MAX_PROCESSES: u32 = 1024;
/// The length of a runner's log.
const LOG_BYTES: u64 = 1 << 20;
/// How often an end is looked for that no event tells.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Local {
    /// Makes a sandbox, or leaves nothing of it (SB2).
    pub(crate) async fn create(&self, spec: CreateSpec) -> Result<Arc<LocalWorkload>> {
        if let Some(image) = &spec.image
            && !image.root.is_dir()
        {
            let text = format!("`{}` is not on this host", image.name);
            return Err(Error::new(ErrorKind::ImageMissing, "create", text));
        }
        let folder = self.folder(spec.sandbox_id);
        let mut record = first_record(&spec);
        let hold = folder.begin(&record)?;
        match self.make(&folder, &mut record, &spec).await {
            Ok(workload) => {
                self.connected().insert(record.id, Arc::clone(&workload));
                Ok(workload)
            }
            Err(error) => {
                // The first error is the one to tell.
                if let Err(left) = self.unmake(&folder, record.id, Some(&record), hold).await {
                    tracing::error!(sandbox = %record.id, error = %left, "a failed sandbox could not be removed");
                }
                Err(error)
            }
        }
    }

    /// Makes everything of a sandbox whose first record is written.
    async fn make(
        &self,
        folder: &Folder,
        record: &mut Record,
        spec: &CreateSpec,
    ) -> Result<Arc<LocalWorkload>> {
        if let Some(uids) = &self.uids {
            record.host_uid = Some(uids.claim(&folder.record_path())?);
            folder.write(record)?;
        }
        let volume = self.volume(spec).await?;
        let launch = self.launch_spec(folder, record, spec, volume);
        launch.write(&folder.spec_path()).map_err(|error| {
            let text = "the launch spec cannot be written";
            Error::new(ErrorKind::Internal, "create", text).with_source(error)
        })?;
        self.program.run(&folder.spec_path()).await?;
        let workload = self.open("create", record).await?;
        record.complete = true;
        folder.write(record)?;
        Ok(workload)
    }

    /// The session's volume, free of what a dead sandbox may still have of it.
    async fn volume(&self, spec: &CreateSpec) -> Result<Volume> {
        let may_live = |id| self.folder(id).may_live();
        let last = self.volumes.holder(spec.volume_id)?;
        if let Some(last) = last.filter(|last| *last != spec.sandbox_id && !may_live(*last)) {
            let path = self.folder(last).spec_path();
            if path.is_file() {
                self.program.clean("create", &path).await?;
            }
        }
        let bytes = spec.limits.disk_bytes;
        self.volumes
            .take(
                &self.program,
                spec.volume_id,
                bytes,
                spec.sandbox_id,
                may_live,
            )
            .await
    }

    fn launch_spec(
        &self,
        folder: &Folder,
        record: &Record,
        spec: &CreateSpec,
        volume: Volume,
    ) -> LaunchSpec {
        let limits = spec.limits;
        let own_uid = || rustix::process::geteuid().as_raw();
        LaunchSpec {
            format: SPEC_FORMAT,
            sandbox_id: spec.sandbox_id.to_string(),
            root_id: self.root_id.clone(),
            run_dir: folder.run_dir().to_path_buf(),
            state_dir: folder.state().path().to_path_buf(),
            base: self.config.base.clone().map_or(Base::Host, Base::Dir),
            image: spec.image.as_ref().map(|image| image.root.clone()),
            volume,
            host_uid: record.host_uid.unwrap_or_else(own_uid),
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
        }
    }

    /// Removes a sandbox, in whatever state it is. One that is not there is no error.
    pub(crate) async fn remove(&self, id: SandboxId) -> Result<()> {
        let folder = self.folder(id);
        let io = |error| host("destroy", "the sandbox's folder", error);
        let until = Instant::now() + LOOK;
        let hold = loop {
            match folder.try_hold().map_err(io)? {
                Some(hold) => break hold,
                None if !folder.exists().map_err(io)? => return Ok(()),
                // Only its run directory is left.
                None if folder.read()?.is_none() && !folder.is_held().map_err(io)? => {
                    return folder.remove().map_err(io);
                }
                None if Instant::now() > until => return Err(busy("destroy")),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        };
        let record = folder.read().unwrap_or_else(|error| {
            tracing::error!(sandbox = %id, %error, "removed without its record");
            None
        });
        self.unmake(&folder, id, record.as_ref(), hold).await
    }

    /// Removes everything of a sandbox but its volume.
    async fn unmake(
        &self,
        folder: &Folder,
        id: SandboxId,
        record: Option<&Record>,
        hold: Hold,
    ) -> Result<()> {
        self.gate.close(id).await?;
        let known = self.forget(id);
        self.end_runner(folder, id, known).await?;
        let mut host_uid = record.and_then(|record| record.host_uid);
        if let Some(spec) = folder.spec() {
            self.program.clean("destroy", &folder.spec_path()).await?;
            host_uid = host_uid.or(Some(spec.host_uid));
        }
        if let Some(record) = record {
            self.volumes.release(record.claim.volume_id, id)?;
        }
        if let (Some(uids), Some(uid)) = (&self.uids, host_uid) {
            uids.release(uid, &folder.record_path())?;
        }
        let removed = folder.remove();
        drop(hold);
        removed.map_err(|error| host("destroy", "the sandbox's folder", error))
    }

    /// Asks the runner to end; kills it when it does not.
    async fn end_runner(
        &self,
        folder: &Folder,
        id: SandboxId,
        known: Option<Arc<LocalWorkload>>,
    ) -> Result<()> {
        let io = |error| host("destroy", "the runner's record", error);
        let Some(process) = folder.runner().map_err(io)? else {
            return Ok(());
        };
        if !process.is_alive().map_err(io)? {
            return Ok(());
        }
        let ask = async {
            match known {
                Some(workload) => workload.client().shutdown().await,
                None => {
                    let options = ConnectOptions::new(folder.run_dir().join(RUNNER_SOCKET));
                    let client = RunnerClient::connect(options).await?;
                    if client.info().process != process {
                        let text = "another runner answered";
                        let kind = RunnerErrorKind::Protocol;
                        return Err(RunnerError::new(kind, "destroy", text));
                    }
                    client.shutdown().await
                }
            }
        };
        match tokio::time::timeout(LOOK, ask).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(sandbox = %id, %error, "the runner is killed");
            }
            Err(_) => tracing::warn!(sandbox = %id, "a silent runner is killed"),
        }
        if ends(&process, LOOK).await.map_err(io)? {
            return Ok(());
        }
        kill(&process).map_err(|error| host("destroy", "killing the runner", error))?;
        if ends(&process, LOOK).await.map_err(io)? {
            return Ok(());
        }
        let text = "the runner does not end";
        Err(Error::new(ErrorKind::DeadlineExceeded, "destroy", text))
    }
}

fn first_record(spec: &CreateSpec) -> Record {
    Record {
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
    }
}

/// Waits for the end of a process that is nobody's child here; `false` when it does not come in time.
async fn ends(process: &ProcessIdentity, within: Duration) -> io::Result<bool> {
    let until = Instant::now() + within;
    while process.is_alive()? {
        if Instant::now() > until {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(true)
}

/// Kills exactly this process: a process id that was given to another one meanwhile is left alone.
fn kill(process: &ProcessIdentity) -> io::Result<()> {
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
