//! A box of the provider in memory with one fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use astrabox_conformance::sandbox::Probe;
use astrabox_sandbox::{
    BoxPath, ErrorKind, ExitReason, FileInfo, OutputEvent, OutputStream, ProcessName,
    ProcessStatus, Result, Signal, SignalScope, SpawnSpec, Workload, WriteOptions,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;

use super::faults::Fault;

/// The links that programs made, path to target.
pub(crate) type Links = Arc<Mutex<BTreeMap<String, String>>>;

pub(crate) struct BrokenWorkload {
    inner: Arc<dyn Workload>,
    fault: Fault,
    links: Links,
}

impl BrokenWorkload {
    pub(crate) fn new(inner: Arc<dyn Workload>, fault: Fault, links: Links) -> Self {
        Self {
            inner,
            fault,
            links,
        }
    }

    fn link_at(&self, path: &BoxPath) -> Option<String> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.get(path.as_str()).cloned()
    }

    fn remember_link(&self, spec: &SpawnSpec) {
        let probe = spec.argv.get(1).map(String::as_str).unwrap_or_default();
        if let Ok(Probe::Link { target, path }) = serde_json::from_str(probe) {
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.insert(path, target);
        }
    }
}

/// A name that nobody else uses.
fn second(name: &ProcessName) -> ProcessName {
    ProcessName::new(format!("{name}-again")).expect("it is short")
}

#[async_trait]
impl Workload for BrokenWorkload {
    async fn spawn(&self, mut spec: SpawnSpec) -> Result<ProcessStatus> {
        self.remember_link(&spec);
        if self.fault == Fault::EnvironmentLeaks {
            spec.env.insert("HOSTNAME_OF_THE_HOST".into(), "h".into());
        }
        let running = self.inner.status(&spec.name).await?;
        match (self.fault, running) {
            (Fault::SpawnStartsAgain, Some(_)) => {
                spec.name = second(&spec.name);
                self.inner.spawn(spec).await
            }
            (Fault::SpawnTakesAnything, Some(status)) => Ok(status),
            _ => self.inner.spawn(spec).await,
        }
    }

    async fn attach(
        &self,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<OutputStream> {
        if self.fault == Fault::OffsetIsIgnored {
            return self.inner.attach(process, 0, 0).await;
        }
        let stream = self.inner.attach(process, stdout, stderr).await?;
        let (fault, inner, process) = (self.fault, Arc::clone(&self.inner), process.clone());
        let broken = stream.then(move |event| {
            let (inner, process) = (Arc::clone(&inner), process.clone());
            async move {
                match event {
                    Ok(OutputEvent::Exited(mut exit)) if fault == Fault::ExitHasNoReason => {
                        exit.reason = ExitReason::Exited;
                        Ok(OutputEvent::Exited(exit))
                    }
                    Ok(OutputEvent::Output(output)) if fault == Fault::OutputIsReadOnce => {
                        let end = output.offset + output.bytes.len() as u64;
                        let (out, err) = if output.stderr { (0, end) } else { (end, 0) };
                        inner.acknowledge(&process, out, err).await?;
                        Ok(OutputEvent::Output(output))
                    }
                    event => event,
                }
            }
        });
        Ok(broken.boxed())
    }

    async fn write_stdin(&self, process: &ProcessName, offset: u64, bytes: Bytes) -> Result<u64> {
        let status = self.inner.status(process).await?;
        let end = status.map_or(offset, |status| status.stdin_offset);
        match self.fault {
            Fault::StdinRepeats if offset < end => {
                self.inner.write_stdin(process, end, bytes.clone()).await?;
                Ok(offset + bytes.len() as u64)
            }
            Fault::GapIsTaken if offset > end => self.inner.write_stdin(process, end, bytes).await,
            _ => self.inner.write_stdin(process, offset, bytes).await,
        }
    }

    async fn close_stdin(&self, process: &ProcessName) -> Result<()> {
        self.inner.close_stdin(process).await
    }

    async fn acknowledge(&self, process: &ProcessName, stdout: u64, stderr: u64) -> Result<()> {
        if self.fault == Fault::AcknowledgeIsIgnored {
            // An offset that does not exist is refused all the same.
            return self.inner.attach(process, stdout, stderr).await.map(drop);
        }
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
        if self.fault == Fault::LinkLeadsOut
            && let Some(target) = self.link_at(path)
            && let Ok(content) = std::fs::read(target)
        {
            return Ok(content.into());
        }
        self.inner.read_file(path, offset, limit).await
    }

    async fn write_file(
        &self,
        path: &BoxPath,
        content: Bytes,
        mut options: WriteOptions,
    ) -> Result<()> {
        options.exclusive &= self.fault != Fault::ExclusiveReplaces;
        match self.inner.write_file(path, content, options).await {
            Err(error)
                if self.fault == Fault::BaseIsWritten && error.kind() == ErrorKind::Refused =>
            {
                Ok(())
            }
            written => written,
        }
    }

    async fn list_files(&self, path: &BoxPath) -> Result<Vec<FileInfo>> {
        let mut listed = self.inner.list_files(path).await?;
        if self.fault == Fault::ListIsUnsorted {
            listed.reverse();
        }
        Ok(listed)
    }

    async fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        self.inner.stat(path).await
    }

    async fn make_dir(&self, path: &BoxPath) -> Result<()> {
        self.inner.make_dir(path).await
    }

    async fn remove(&self, path: &BoxPath) -> Result<()> {
        if self.fault == Fault::RemoveFollows
            && let Some(target) = self.link_at(path)
            && let Ok(target) = BoxPath::new(format!("/workspace/{target}"))
        {
            self.inner.remove(&target).await?;
        }
        self.inner.remove(path).await
    }

    async fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()> {
        self.inner.rename(from, to).await
    }
}
