//! A runner, as a workload.

use astrabox_runner_protocol as runner;
use astrabox_runner_protocol::{
    AttachEvent, ProcessInfo, RunnerClient, RunnerErrorKind, SignalTarget, SpawnCommand,
    WriteFileOptions,
};
use astrabox_sandbox::{
    BoxPath, ExitReason, ExitStatus, FileInfo, FileKind, Output, OutputEvent, OutputStream,
    ProcessName, ProcessStatus, Result, Signal, SignalScope, SpawnSpec, Stdio, Workload,
    WriteOptions,
};
use astrabox_types::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;

use crate::error;

/// What an engine may do inside one local sandbox.
pub(crate) struct LocalWorkload {
    client: RunnerClient,
}

impl LocalWorkload {
    pub(crate) fn new(client: RunnerClient) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> &RunnerClient {
        &self.client
    }
}

#[async_trait]
impl Workload for LocalWorkload {
    async fn spawn(&self, spec: SpawnSpec) -> Result<ProcessStatus> {
        let command = SpawnCommand {
            name: spec.name.as_str().to_owned(),
            argv: spec.argv,
            env: spec.env.into_iter().collect(),
            cwd: spec.cwd.as_str().to_owned(),
            stdin: spec.stdin == Stdio::Piped,
            wall_limit_ms: spec.wall_limit.map_or(0, |limit| {
                u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
            }),
            spool_bytes: 0,
        };
        let process = self
            .client
            .spawn(command)
            .await
            .map_err(|error| error::runner("spawn", error))?;
        Ok(status(process))
    }

    async fn attach(
        &self,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<OutputStream> {
        let attached = self.client.attach(process.as_str(), stdout, stderr).await;
        let attachment = attached.map_err(|error| error::runner("attach", error))?;
        Ok(attachment
            .map(|event| match event {
                Ok(AttachEvent::Output {
                    stream,
                    offset,
                    data,
                }) => Ok(OutputEvent::Output(Output {
                    stderr: stream == runner::OutputStream::Stderr,
                    offset,
                    bytes: data,
                })),
                Ok(AttachEvent::Exited(exit)) => Ok(OutputEvent::Exited(exit_status(&exit))),
                Err(error) => Err(error::runner("attach", error)),
            })
            .boxed())
    }

    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        let written = self
            .client
            .write_stdin(process.as_str(), offset, bytes)
            .await;
        written.map_err(|error| error::runner("write stdin", error))
    }

    async fn close_stdin(&self, process: &ProcessName) -> Result<()> {
        match self.client.close_stdin(process.as_str(), None).await {
            // It is closed, and that is what was asked for.
            Err(error)
                if matches!(
                    error.kind(),
                    RunnerErrorKind::StdinClosed | RunnerErrorKind::ProcessEnded
                ) =>
            {
                Ok(())
            }
            closed => closed.map_err(|error| error::runner("close stdin", error)),
        }
    }

    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        let freed = self.client.ack(process.as_str(), stdout, stderr).await;
        freed
            .map(drop)
            .map_err(|error| error::runner("acknowledge", error))
    }

    async fn signal(
        &self,
        process: &ProcessName,
        signal: Signal,
        scope: SignalScope,
    ) -> Result<()> {
        let name = process.as_str().to_owned();
        let target = match scope {
            SignalScope::Process => SignalTarget::Process(name),
            SignalScope::Group => SignalTarget::Group(name),
            SignalScope::Sandbox => SignalTarget::Box,
        };
        let number = match signal {
            Signal::Interrupt => 2,
            Signal::Terminate => 15,
            Signal::Kill => 9,
        };
        match self.client.signal(target, number).await {
            // The dead do not mind.
            Err(error) if error.kind() == RunnerErrorKind::ProcessEnded => Ok(()),
            sent => sent.map_err(|error| error::runner("signal", error)),
        }
    }

    async fn status(&self, process: &ProcessName) -> Result<Option<ProcessStatus>> {
        let found = self.client.process(process.as_str()).await;
        Ok(found
            .map_err(|error| error::runner("status", error))?
            .map(status))
    }

    async fn read_file(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes> {
        let read = self.client.read_file(path.as_str(), offset, limit).await;
        read.map(|(_, content)| content)
            .map_err(|error| error::runner("read file", error))
    }

    async fn write_file(
        &self,
        path: &BoxPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        let mode = match (options.private, options.executable) {
            (true, true) => 0o700,
            (true, false) => 0o600,
            (false, true) => 0o755,
            (false, false) => 0o644,
        };
        let options = WriteFileOptions {
            mode,
            exclusive: options.exclusive,
            sync: options.durable,
            create_parents: true,
        };
        let written = self
            .client
            .write_file(path.as_str(), options, content)
            .await;
        written
            .map(drop)
            .map_err(|error| error::runner("write file", error))
    }

    async fn list_files(&self, path: &BoxPath) -> Result<Vec<FileInfo>> {
        let listed = self.client.list_files(path.as_str()).await;
        let mut files: Vec<_> = listed
            .map_err(|error| error::runner("list files", error))?
            .into_iter()
            .map(file)
            .collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    async fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        self.client
            .stat(path.as_str(), true)
            .await
            .map(file)
            .map_err(|error| error::runner("stat", error))
    }

    async fn make_dir(&self, path: &BoxPath) -> Result<()> {
        let made = self.client.make_dir(path.as_str(), 0o755, true).await;
        made.map_err(|error| error::runner("make directory", error))
    }

    async fn remove(&self, path: &BoxPath) -> Result<()> {
        match self.client.remove(path.as_str(), true).await {
            Err(error) if error.kind() == RunnerErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| error::runner("remove", error)),
        }
    }

    async fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()> {
        let renamed = self.client.rename(from.as_str(), to.as_str(), false).await;
        renamed.map_err(|error| error::runner("rename", error))
    }
}

fn status(process: ProcessInfo) -> ProcessStatus {
    ProcessStatus {
        pid: process.pid,
        stdin_offset: process.stdin.accepted,
        stdout_kept: process.stdout.lowest_offset,
        stderr_kept: process.stderr.lowest_offset,
        exit: process.exit.as_ref().map(exit_status),
    }
}

fn exit_status(exit: &runner::ExitInfo) -> ExitStatus {
    let (code, signal) = match exit.status {
        Some(runner::ExitStatus::Code(code)) => (Some(code), None),
        Some(runner::ExitStatus::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let reason = match exit.reason {
        runner::ExitReason::Exited => ExitReason::Exited,
        runner::ExitReason::MemoryLimit => ExitReason::MemoryLimit,
        runner::ExitReason::PidsLimit => ExitReason::PidsLimit,
        runner::ExitReason::DiskLimit => ExitReason::DiskLimit,
        runner::ExitReason::WallTime => ExitReason::WallTime,
        runner::ExitReason::Killed => ExitReason::Killed,
        runner::ExitReason::BoxDied | runner::ExitReason::RunnerRestarted => {
            ExitReason::SandboxDied
        }
    };
    ExitStatus {
        code,
        signal,
        reason,
    }
}

fn file(info: runner::FileInfo) -> FileInfo {
    FileInfo {
        name: info.name,
        kind: match info.kind {
            runner::FileKind::File => FileKind::File,
            runner::FileKind::Directory => FileKind::Directory,
            runner::FileKind::Symlink => FileKind::Symlink,
            runner::FileKind::Other => FileKind::Other,
        },
        size: info.size,
        modified_at: Timestamp::from_millisecond(info.modified_ms).unwrap_or_default(),
    }
}
