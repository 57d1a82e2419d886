//! The protocol's server: decodes, asks the runner, encodes.

mod files;

use std::pin::Pin;
use std::sync::Arc;

use astrabox_runner_protocol::wire::runner_service_server::RunnerService;
use astrabox_runner_protocol::{
    AttachEvent, MAX_DATA_BYTES, MAX_VERSION, MIN_VERSION, RunnerError, RunnerErrorKind,
    RunnerInfo, SignalTarget, SpawnCommand, negotiate, to_status, wire,
};
use futures::Stream;
use futures::stream::unfold;
use tonic::{Request, Response, Status, Streaming};

use crate::files::Files;
use crate::isolation;
use crate::process::{Cursor, Process};
use crate::runner::Runner;
use crate::spool::SpoolError;
use crate::stdin::{AcceptError, Acceptance};

/// One runner, as its callers reach it.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Runner>);

type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn refuse(error: RunnerError) -> Status {
    to_status(&error)
}

/// What a process's output answered.
fn output(operation: &'static str, process: &Process, error: &SpoolError) -> Status {
    let text = format!("process {:?}: {error}", process.name);
    refuse(RunnerError::new(error.kind(), operation, text))
}

/// What a process's input answered.
fn input(operation: &'static str, process: &Process, error: &AcceptError) -> Status {
    let text = format!("process {:?}: {error}", process.name);
    refuse(RunnerError::new(error.kind(), operation, text))
}

#[tonic::async_trait]
impl RunnerService for Service {
    type AttachStream = Answers<wire::AttachResponse>;
    type ReadFileStream = Answers<wire::ReadFileResponse>;
    type ListFilesStream = Answers<wire::ListFilesResponse>;

    async fn hello(&self, request: Request<wire::HelloRequest>) -> Answer<wire::HelloResponse> {
        let request = request.into_inner();
        let client: String = request
            .client
            .chars()
            .filter(|c| !c.is_control())
            .take(100)
            .collect();
        self.0.log.line(format_args!("hello from {client:?}"));
        let Some(version) = negotiate(request.min_version, request.max_version) else {
            let text = format!("this runner speaks versions {MIN_VERSION} to {MAX_VERSION}");
            let kind = RunnerErrorKind::VersionMismatch;
            return Err(refuse(RunnerError::new(kind, "hello", text)));
        };
        let info = RunnerInfo {
            version,
            ..self.0.info.clone()
        };
        Ok(Response::new(info.into()))
    }

    async fn spawn(&self, request: Request<wire::SpawnRequest>) -> Answer<wire::SpawnResponse> {
        let command = SpawnCommand::from(request.into_inner());
        let process = self.0.spawn(command).await.map_err(refuse)?;
        Ok(Response::new(wire::SpawnResponse {
            process: Some(process.into()),
        }))
    }

    async fn attach(&self, request: Request<wire::AttachRequest>) -> Answer<Self::AttachStream> {
        let request = request.into_inner();
        let process = self.0.process("attach", &request.name).map_err(refuse)?;
        let cursor = Cursor::new(request.stdout_offset, request.stderr_offset);
        process
            .check(&cursor)
            .map_err(|error| output("attach", &process, &error))?;
        Ok(Response::new(Box::pin(unfold(
            Some((process, cursor)),
            next_output,
        ))))
    }

    async fn write_stdin(
        &self,
        request: Request<wire::WriteStdinRequest>,
    ) -> Answer<wire::WriteStdinResponse> {
        let request = request.into_inner();
        let process = self
            .0
            .process("write_stdin", &request.name)
            .map_err(refuse)?;
        if request.data.len() > MAX_DATA_BYTES {
            let text = format!("at most {MAX_DATA_BYTES} bytes in one message");
            let kind = RunnerErrorKind::InvalidArgument;
            return Err(refuse(RunnerError::new(kind, "write_stdin", text)));
        }
        let mut changes = process.changes();
        loop {
            changes.mark_unchanged();
            let accepted = process
                .accept_stdin(request.offset, &request.data)
                .map_err(|error| input("write_stdin", &process, &error))?;
            match accepted {
                Acceptance::Done(next_offset) => {
                    return Ok(Response::new(wire::WriteStdinResponse { next_offset }));
                }
                // The sender lives in the process. The caller's deadline ends this wait.
                Acceptance::NoRoom => drop(changes.changed().await),
            }
        }
    }

    async fn close_stdin(
        &self,
        request: Request<wire::CloseStdinRequest>,
    ) -> Answer<wire::CloseStdinResponse> {
        let request = request.into_inner();
        let process = self
            .0
            .process("close_stdin", &request.name)
            .map_err(refuse)?;
        process
            .close_stdin(request.offset)
            .map_err(|error| input("close_stdin", &process, &error))?;
        Ok(Response::new(wire::CloseStdinResponse {}))
    }

    async fn ack(&self, request: Request<wire::AckRequest>) -> Answer<wire::AckResponse> {
        let request = request.into_inner();
        let process = self.0.process("ack", &request.name).map_err(refuse)?;
        process
            .acknowledge(request.stdout_offset, request.stderr_offset)
            .map_err(|error| output("ack", &process, &error))?;
        let info = process.info();
        Ok(Response::new(wire::AckResponse {
            stdout: Some(info.stdout.into()),
            stderr: Some(info.stderr.into()),
        }))
    }

    async fn signal(&self, request: Request<wire::SignalRequest>) -> Answer<wire::SignalResponse> {
        let request = request.into_inner();
        let target = SignalTarget::try_from(request.target).map_err(|error| {
            let kind = RunnerErrorKind::InvalidArgument;
            refuse(RunnerError::new(kind, "signal", error.to_string()))
        })?;
        self.0.signal(&target, request.signal).map_err(refuse)?;
        Ok(Response::new(wire::SignalResponse {}))
    }

    async fn forget(&self, request: Request<wire::ForgetRequest>) -> Answer<wire::ForgetResponse> {
        self.0.forget(&request.into_inner().name).map_err(refuse)?;
        Ok(Response::new(wire::ForgetResponse {}))
    }

    async fn status(&self, request: Request<wire::StatusRequest>) -> Answer<wire::StatusResponse> {
        let status = self.0.status(request.into_inner().process.as_deref());
        Ok(Response::new(status.into()))
    }

    async fn read_file(
        &self,
        request: Request<wire::ReadFileRequest>,
    ) -> Answer<Self::ReadFileStream> {
        files::read(&self.0, request.into_inner())
            .map(Response::new)
            .map_err(refuse)
    }

    async fn write_file(
        &self,
        request: Request<Streaming<wire::WriteFileRequest>>,
    ) -> Answer<wire::WriteFileResponse> {
        files::write(&self.0, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list_files(
        &self,
        request: Request<wire::ListFilesRequest>,
    ) -> Answer<Self::ListFilesStream> {
        files::list(&self.0, request.into_inner())
            .map(Response::new)
            .map_err(refuse)
    }

    async fn stat(&self, request: Request<wire::StatRequest>) -> Answer<wire::StatResponse> {
        let request = request.into_inner();
        let stat = |files: Files<'_>| files.stat(&request.path, request.no_follow);
        let info = self.0.sandbox.with_files("stat", stat).map_err(refuse)?;
        Ok(Response::new(wire::StatResponse {
            info: Some(info.into()),
        }))
    }

    async fn make_dir(
        &self,
        request: Request<wire::MakeDirRequest>,
    ) -> Answer<wire::MakeDirResponse> {
        let request = request.into_inner();
        let make = |files: Files<'_>| files.make_dir(&request.path, request.mode, request.parents);
        self.0
            .sandbox
            .with_files("make_dir", make)
            .map_err(refuse)?;
        Ok(Response::new(wire::MakeDirResponse {}))
    }

    async fn remove(&self, request: Request<wire::RemoveRequest>) -> Answer<wire::RemoveResponse> {
        files::remove(&self.0, request.into_inner())
            .await
            .map_err(refuse)?;
        Ok(Response::new(wire::RemoveResponse {}))
    }

    async fn rename(&self, request: Request<wire::RenameRequest>) -> Answer<wire::RenameResponse> {
        let request = request.into_inner();
        let rename = |files: Files<'_>| files.rename(&request.from, &request.to, request.exclusive);
        self.0
            .sandbox
            .with_files("rename", rename)
            .map_err(refuse)?;
        Ok(Response::new(wire::RenameResponse {}))
    }

    async fn freeze(&self, _: Request<wire::FreezeRequest>) -> Answer<wire::FreezeResponse> {
        self.0.sandbox.freeze().map_err(refuse)?;
        Ok(Response::new(wire::FreezeResponse {}))
    }

    async fn thaw(&self, _: Request<wire::ThawRequest>) -> Answer<wire::ThawResponse> {
        self.0.sandbox.thaw().map_err(refuse)?;
        Ok(Response::new(wire::ThawResponse {}))
    }

    async fn stats(&self, _: Request<wire::StatsRequest>) -> Answer<wire::StatsResponse> {
        let stats = self
            .0
            .sandbox
            .ask_any("stats", |isolated| Ok(isolated.stats()));
        Ok(Response::new(stats_of(&stats.map_err(refuse)?).into()))
    }

    async fn posture(&self, _: Request<wire::PostureRequest>) -> Answer<wire::PostureResponse> {
        Ok(Response::new(posture_of(self.0.sandbox.posture()).into()))
    }

    async fn shutdown(&self, _: Request<wire::ShutdownRequest>) -> Answer<wire::ShutdownResponse> {
        let result = self.0.shut_down().await;
        // The server answers what it has begun, this call among it, and then ends.
        self.0.stop.cancel();
        result.map_err(refuse)?;
        Ok(Response::new(wire::ShutdownResponse {}))
    }
}

/// The next event of an attachment; `None` after the end or an error.
async fn next_output(
    state: Option<(Arc<Process>, Cursor)>,
) -> Option<(
    Result<wire::AttachResponse, Status>,
    Option<(Arc<Process>, Cursor)>,
)> {
    let (process, mut cursor) = state?;
    let mut changes = process.changes();
    loop {
        changes.mark_unchanged();
        match process.read(&mut cursor) {
            Ok(Some(event)) => {
                let last = matches!(event, AttachEvent::Exited(_));
                let rest = (!last).then_some((process, cursor));
                return Some((Ok(event.into()), rest));
            }
            Err(error) => return Some((Err(output("attach", &process, &error)), None)),
            // The sender lives in the process.
            Ok(None) => drop(changes.changed().await),
        }
    }
}

fn stats_of(stats: &isolation::Stats) -> astrabox_runner_protocol::Stats {
    astrabox_runner_protocol::Stats {
        memory_bytes: stats.memory_bytes,
        memory_peak_bytes: stats.memory_peak_bytes,
        processes: stats.pids,
        cpu_us: stats.cpu_usec,
        disk_used_bytes: stats.disk_used_bytes,
        disk_total_bytes: stats.disk_limit_bytes,
        oom_kills: stats.oom_kills,
        forks_refused: stats.pids_denied,
    }
}

fn posture_of(posture: &isolation::Posture) -> astrabox_runner_protocol::Posture {
    use astrabox_runner_protocol::{Enforcement, LimitPosture};
    use astrabox_types::PermissionLevel;
    let limit = |found: &isolation::Enforcement| LimitPosture {
        enforcement: match found.strength {
            isolation::Strength::None => Enforcement::None,
            isolation::Strength::Soft => Enforcement::Soft,
            isolation::Strength::Hard => Enforcement::Hard,
        },
        how: found.how.clone(),
    };
    astrabox_runner_protocol::Posture {
        level: match posture.level {
            isolation::PermissionLevel::Default => PermissionLevel::Default,
            isolation::PermissionLevel::Advanced => PermissionLevel::Advanced,
        },
        rootless: posture.rootless,
        host_uid: posture.host_uid,
        box_uid: posture.box_uid,
        namespaces: posture.namespaces.clone(),
        no_new_privileges: posture.no_new_privileges,
        no_capabilities: posture.no_capabilities,
        seccomp: posture.seccomp,
        loopback_only: posture.loopback_only,
        base: posture.base.clone(),
        host_paths_hidden: posture.host_paths_hidden,
        cgroup_version: posture.cgroup_version,
        memory: limit(&posture.memory),
        pids: limit(&posture.pids),
        cpu: limit(&posture.cpu),
        disk: limit(&posture.disk),
        file_size: limit(&posture.file_size),
        freeze: limit(&posture.freeze),
        notes: posture.notes.clone(),
    }
}
