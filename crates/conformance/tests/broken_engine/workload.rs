//! A workload that an adapter changed on its way to the box.

use std::sync::Arc;

use astrabox_sandbox::{
    BoxPath, FileInfo, Output, OutputEvent, OutputStream, ProcessName, ProcessStatus, Result,
    Signal, SignalScope, SpawnSpec, Workload, WriteOptions,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;

/// What is changed.
pub(crate) enum Change {
    /// Programs get one more argument.
    AddArgument(String),
    /// Each piece of output is made UTF-8 by itself.
    DecodeOutput,
}

pub(crate) struct BrokenWorkload {
    inner: Arc<dyn Workload>,
    change: Change,
}

impl BrokenWorkload {
    pub(crate) fn new(inner: Arc<dyn Workload>, change: Change) -> Self {
        Self { inner, change }
    }
}

fn decoded(event: OutputEvent) -> OutputEvent {
    match event {
        OutputEvent::Output(output) => {
            let text = String::from_utf8_lossy(&output.bytes).into_owned();
            OutputEvent::Output(Output {
                bytes: Bytes::from(text),
                ..output
            })
        }
        exited @ OutputEvent::Exited(_) => exited,
    }
}

#[async_trait]
impl Workload for BrokenWorkload {
    async fn spawn(&self, mut spec: SpawnSpec) -> Result<ProcessStatus> {
        if let Change::AddArgument(argument) = &self.change {
            spec.argv.push(argument.clone());
        }
        self.inner.spawn(spec).await
    }

    async fn attach(
        &self,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<OutputStream> {
        let stream = self.inner.attach(process, stdout, stderr).await?;
        match &self.change {
            Change::DecodeOutput => Ok(stream.map(|event| event.map(decoded)).boxed()),
            Change::AddArgument(_) => Ok(stream),
        }
    }

    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        self.inner.write_stdin(process, offset, bytes).await
    }

    async fn close_stdin(&self, process: &ProcessName) -> Result<()> {
        self.inner.close_stdin(process).await
    }

    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        self.inner.acknowledge(process, stdout, stderr).await
    }

    async fn signal(
        &self,
        process: &ProcessName,
        signal: Signal,
        scope: SignalScope,
    ) -> Result<()> {
        self.inner.signal(process, signal, scope).await
    }

    async fn status(&self, process: &ProcessName) -> Result<Option<ProcessStatus>> {
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
