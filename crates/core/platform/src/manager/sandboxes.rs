//! Sandboxes as operators see them, and the files of a session's sandbox.

use std::sync::Arc;

use astrabox_identity::OpContext;
use astrabox_sandbox::{
    BoundaryState, BoxPath, Diagnostics, ErrorKind, FileInfo, Posture, SandboxProvider, WORKSPACE,
    Workload,
};
use astrabox_types::{ErrorReason, SandboxId, SessionId};
use bytes::Bytes;

use super::Manager;
use crate::{Error, Result, SandboxView};

/// The most that is read from a file in one call.
const MAX_READ: u64 = 4 << 20;

impl Manager {
    pub(crate) async fn list_sandboxes(&self, _ctx: &OpContext) -> Result<Vec<SandboxView>> {
        let mut views = Vec::new();
        for (name, provider) in &self.parts.sandboxes {
            let infos = provider.list().await?;
            views.extend(infos.into_iter().map(|info| SandboxView {
                provider: name,
                info,
            }));
        }
        Ok(views)
    }

    async fn find_sandbox(
        &self,
        id: SandboxId,
    ) -> Result<(SandboxView, &Arc<dyn SandboxProvider>)> {
        for (name, provider) in &self.parts.sandboxes {
            match provider.describe(id).await {
                Ok(info) => {
                    return Ok((
                        SandboxView {
                            provider: name,
                            info,
                        },
                        provider,
                    ));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::new(
            ErrorReason::SandboxNotFound,
            "no sandbox has this id; list them with ListSandboxes",
        ))
    }

    pub(crate) async fn describe_sandbox(
        &self,
        _ctx: &OpContext,
        id: SandboxId,
    ) -> Result<(SandboxView, Diagnostics)> {
        let (view, provider) = self.find_sandbox(id).await?;
        let diagnostics = provider.diagnostics(id).await?;
        Ok((view, diagnostics))
    }

    pub(crate) async fn security_posture(
        &self,
        _ctx: &OpContext,
        id: SandboxId,
    ) -> Result<(Posture, Option<BoundaryState>)> {
        let (_, provider) = self.find_sandbox(id).await?;
        let posture = provider.security_posture(id).await?;
        let boundary = match &self.parts.boundary {
            Some(boundary) => boundary.state(id).await?,
            None => None,
        };
        Ok((posture, boundary))
    }

    /// The running sandbox of a session.
    async fn workload_of(&self, id: SessionId) -> Result<Arc<dyn Workload>> {
        let row = self.session_row(id).await?;
        let Some(sandbox) = row.sandbox_id else {
            return Err(Error::new(
                ErrorReason::SessionStateWrong,
                "the session has no sandbox now; send an input or recover it first",
            ));
        };
        let (_, environment) = self.agent_of(&row.session).await?;
        let sandbox = self
            .sandbox_provider(&environment.spec.sandbox)?
            .connect(sandbox)
            .await?;
        Ok(sandbox.workload)
    }

    pub(crate) async fn list_files(
        &self,
        _ctx: &OpContext,
        id: SessionId,
        path: &str,
    ) -> Result<Vec<FileInfo>> {
        let path = box_path(path)?;
        let workload = self.workload_of(id).await?;
        workload.list_files(&path).await.map_err(file_error)
    }

    pub(crate) async fn read_file(
        &self,
        _ctx: &OpContext,
        id: SessionId,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<Bytes> {
        let path = box_path(path)?;
        let workload = self.workload_of(id).await?;
        workload
            .read_file(&path, offset, limit.min(MAX_READ))
            .await
            .map_err(file_error)
    }
}

fn box_path(path: &str) -> Result<BoxPath> {
    let path = if path.is_empty() { WORKSPACE } else { path };
    BoxPath::new(path).map_err(|error| Error::field("path", error))
}

fn file_error(error: astrabox_sandbox::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::new(
            ErrorReason::FileNotFound,
            "no such file or directory in the sandbox",
        ),
        ErrorKind::Invalid => Error::field("path", error.context()),
        _ => error.into(),
    }
}
