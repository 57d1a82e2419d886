//! The record of every decision.

mod file;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use astrabox_egress::{Destination, Scheme};
use astrabox_types::{SandboxId, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use file::RotatingFile;

pub use file::AUDIT_FILE;

/// How many events may wait for the disk. Beyond it the sandboxes wait: a flood slows down its own source, and
/// no decision goes unrecorded.
const QUEUE: usize = 4096;

/// How long more is waited for before the first event of a batch is written: to be woken for each would cost more than
/// to write it.
const GATHER: Duration = Duration::from_millis(5);

/// One line of the audit log. Never holds a path, a query, a header or a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvent {
    /// When.
    pub time: Timestamp,
    /// What the line says.
    pub event: AuditKind,
    /// Ties the end to its decision; unique within one run of the role.
    pub id: u64,
    /// Whose connection.
    pub sandbox: SandboxId,
    /// The session that the sandbox served then.
    pub session: SessionId,
    /// How the destination was to be spoken to, where that much was understood.
    pub scheme: Option<Scheme>,
    /// The method; `OTHER` for one that HTTP does not define.
    pub method: Option<String>,
    /// The canonical host, where there was one.
    pub host: Option<String>,
    /// The port, where there was one.
    pub port: Option<u16>,
    /// The credentials that the request was given, or for whose sake it was refused; ids only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// `allowed`, a reason code of the answer, or how an allowed exchange ended.
    pub reason: String,
    /// The address that the destination was taken for, once it was dialled.
    pub address: Option<SocketAddr>,
    /// Bytes sent to the upstream.
    pub bytes_up: u64,
    /// Bytes of the upstream sent to the sandbox.
    pub bytes_down: u64,
    /// Milliseconds since the decision.
    pub duration_ms: u64,
}

/// What a line of the audit log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// The request was let through.
    Allow,
    /// The request was refused; there is no end to it.
    Deny,
    /// A request that was let through has ended.
    End,
}

impl AuditEvent {
    /// An event of now, with nothing moved yet.
    pub(crate) fn new(event: AuditKind, id: u64, sandbox: SandboxId, session: SessionId) -> Self {
        Self {
            time: Timestamp::now(),
            event,
            id,
            sandbox,
            session,
            scheme: None,
            method: None,
            host: None,
            port: None,
            credentials: Vec::new(),
            reason: String::new(),
            address: None,
            bytes_up: 0,
            bytes_down: 0,
            duration_ms: 0,
        }
    }

    pub(crate) fn to(mut self, destination: Option<&Destination>) -> Self {
        if let Some(destination) = destination {
            self.host = Some(destination.host.to_string());
            self.port = Some(destination.port);
        }
        self
    }

    pub(crate) fn by(mut self, method: Option<&str>) -> Self {
        self.method = method.map(|method| known_method(method).to_owned());
        self
    }

    pub(crate) fn because(mut self, code: &str) -> Self {
        self.reason = code.to_owned();
        self
    }
}

/// A method is free text to the sandbox, so only the registered ones are written down.
fn known_method(method: &str) -> &str {
    const KNOWN: &[&str] = &[
        "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
    ];
    if KNOWN.contains(&method) {
        method
    } else {
        "OTHER"
    }
}

/// The way into the audit log.
#[derive(Clone)]
pub(crate) struct AuditSender(mpsc::Sender<AuditEvent>);

impl AuditSender {
    /// A way that leads nowhere.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn nowhere() -> Self {
        Self(mpsc::channel(1).0)
    }

    /// Waits for room, and no longer.
    pub(crate) async fn record(&self, event: AuditEvent) {
        tracing::debug!(
            event = ?event.event,
            sandbox = %event.sandbox,
            session = %event.session,
            host = event.host.as_deref().unwrap_or("-"),
            port = event.port.unwrap_or_default(),
            reason = %event.reason,
            "egress"
        );
        // It fails only when the writer is gone, which is after the last workload.
        let _ = self.0.send(event).await;
    }
}

/// The thread that writes the log. It ends when the last sender is gone.
pub(crate) struct AuditWriter(JoinHandle<()>);

impl AuditWriter {
    /// Opens the log in a directory that this process may write to.
    pub(crate) fn start(directory: OwnedFd) -> std::io::Result<(AuditSender, Self)> {
        let mut log = RotatingFile::open(directory)?;
        let (sender, mut receiver) = mpsc::channel::<AuditEvent>(QUEUE);
        let write = move || {
            let mut lines = Vec::new();
            while let Some(event) = receiver.blocking_recv() {
                append(&mut lines, &event);
                gather();
                // Until the queue is empty: who waits for room in it is not to wait for more to come.
                while !lines.is_empty() {
                    while lines.len() < 64 * 1024
                        && let Ok(event) = receiver.try_recv()
                    {
                        append(&mut lines, &event);
                    }
                    log.write(&lines);
                    lines.clear();
                    if let Ok(event) = receiver.try_recv() {
                        append(&mut lines, &event);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("egress-audit".to_owned())
            .spawn(write)?;
        Ok((AuditSender(sender), Self(thread)))
    }

    /// Waits until everything is written.
    pub(crate) fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the audit writer panicked; decisions are missing from the audit log");
        }
    }
}

/// Lets more events come.
#[expect(
    clippy::disallowed_methods,
    reason = "on the writer's own thread, which does nothing else"
)]
fn gather() {
    std::thread::sleep(GATHER);
}

fn append(lines: &mut Vec<u8>, event: &AuditEvent) {
    match serde_json::to_vec(event) {
        Ok(line) => {
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
        Err(error) => tracing::error!(%error, "an audit event could not be written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_text_method_is_not_written_down() {
        assert_eq!(known_method("POST"), "POST");
        assert_eq!(known_method("SK-LIVE-CANARY"), "OTHER");
    }

    #[tokio::test]
    async fn what_is_recorded_is_on_disk_when_the_writer_ends() {
        let folder = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(folder.path()).unwrap();
        let (sender, writer) = AuditWriter::start(directory.into()).unwrap();
        let event = |id| {
            AuditEvent::new(AuditKind::Allow, id, SandboxId::new(), SessionId::new())
                .to(Destination::tunnel("a.test:443").ok().as_ref())
                .by(Some("CONNECT"))
        };
        let events: Vec<_> = (0..3000).map(event).collect();
        for event in &events {
            sender.record(event.clone()).await;
        }
        drop(sender);
        tokio::task::spawn_blocking(|| writer.join()).await.unwrap();
        let text = std::fs::read_to_string(folder.path().join(AUDIT_FILE)).unwrap();
        let read: Vec<AuditEvent> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, events);
    }
}
