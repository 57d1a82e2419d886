//! From a sandbox's folder to its runner.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use astrabox_runner_protocol::egress::take_listener;
use astrabox_runner_protocol::{BoxState, ConnectOptions, RunnerClient};
use astrabox_sandbox::{EgressWorkload, Error, ErrorKind, Result, SandboxState};
use astrabox_types::SandboxId;

use crate::backend::{LOOK, Local};
use crate::error::{gone, host, runner};
use crate::folder::{Folder, Record};
use crate::workload::LocalWorkload;

impl Local {
    pub(crate) fn folder(&self, id: SandboxId) -> Folder {
        Folder::of(&self.sandboxes, &self.run_dir, id)
    }

    pub(crate) fn connected(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<LocalWorkload>>> {
        self.connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the connection, if there is one. Who still holds it may go on using it.
    pub(crate) fn forget(&self, id: SandboxId) -> Option<Arc<LocalWorkload>> {
        self.connected().remove(&id)
    }

    /// Every readable record of this root, by id.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        let io = |error| host("list", "the provider's folder", error);
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.sandboxes).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match self.folder(id).read() {
                Ok(record) => records.extend(record),
                // One that cannot be read must not hide the others. It can still be destroyed by its id.
                Err(error) => tracing::error!(sandbox = %id, %error, "left out of the list"),
            }
        }
        records.sort_by_key(|record| record.id);
        Ok(records)
    }

    pub(crate) fn record(&self, operation: &'static str, id: SandboxId) -> Result<Record> {
        self.folder(id).read()?.ok_or_else(|| gone(operation))
    }

    /// Whether it certainly has no processes and gets none any more.
    pub(crate) fn is_over(&self, record: &Record) -> Result<bool> {
        let io = |error| host("find", "the sandbox's folder", error);
        let folder = self.folder(record.id);
        if folder.is_held().map_err(io)? {
            return Ok(false);
        }
        Ok(!record.complete || !folder.runner_is_alive().map_err(io)?)
    }

    /// A runner that is there and speaks.
    pub(crate) async fn reach(
        &self,
        operation: &'static str,
        id: SandboxId,
    ) -> Result<Arc<LocalWorkload>> {
        let record = self.record(operation, id)?;
        let folder = self.folder(id);
        if !record.complete && matches!(folder.is_held(), Ok(true)) {
            return Err(busy(operation));
        }
        if !record.complete || matches!(folder.runner_is_alive(), Ok(false)) {
            return Err(gone(operation));
        }
        let known = self.connected().get(&id).cloned();
        if let Some(workload) = known {
            return Ok(workload);
        }
        let workload = self.open(operation, &record).await?;
        self.connected().insert(id, Arc::clone(&workload));
        Ok(workload)
    }

    /// Connects to a runner and gives its listener to the gate.
    pub(crate) async fn open(
        &self,
        operation: &'static str,
        record: &Record,
    ) -> Result<Arc<LocalWorkload>> {
        let folder = self.folder(record.id);
        let failed = |error| runner(operation, error);
        let spec = folder.spec().ok_or_else(|| gone(operation))?;
        let client = RunnerClient::connect(ConnectOptions::new(spec.runner_socket())).await;
        let client = client.map_err(failed)?;
        let recorded = folder
            .runner()
            .map_err(|error| host(operation, "the runner's record", error))?;
        let info = client.info();
        let ours = info.sandbox_id == record.id.to_string()
            && info.root_id == self.root_id
            && recorded.is_none_or(|recorded| recorded == info.process);
        if !ours {
            let text = "another sandbox's runner answered";
            return Err(Error::new(ErrorKind::Internal, operation, text));
        }
        let listener = take_listener(&spec.egress_socket(), LOOK).await;
        let workload = EgressWorkload {
            sandbox_id: record.id,
            session_id: record.claim.session_id,
        };
        self.gate
            .open(workload, record.egress.clone(), listener.map_err(failed)?)
            .await?;
        Ok(Arc::new(LocalWorkload::new(client)))
    }

    /// Where a sandbox stands, by its runner's own word where it gives one.
    pub(crate) async fn state(&self, record: &Record) -> SandboxState {
        match self.is_over(record) {
            Ok(true) => return SandboxState::Dead,
            Ok(false) => {}
            Err(_) => return SandboxState::Unknown,
        }
        let look = async {
            let workload = self.reach("list", record.id).await?;
            let status = workload.client().status().await;
            status.map_err(|error| runner("list", error))
        };
        match tokio::time::timeout(LOOK, look).await {
            Ok(Ok(status)) => match status.state {
                BoxState::Running => SandboxState::Running,
                BoxState::Frozen => SandboxState::Paused,
                BoxState::Gone(_) => SandboxState::Dead,
            },
            Ok(Err(_)) | Err(_) => SandboxState::Unknown,
        }
    }
}

/// It is being made or removed: nothing can be said about it yet.
pub(crate) fn busy(operation: &'static str) -> Error {
    let text = "the sandbox is being made or removed; ask again";
    Error::new(ErrorKind::WrongState, operation, text).with_retryable(true)
}
