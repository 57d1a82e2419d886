//! Decisions and their ends, on their way to the audit log.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_egress::{Destination, Refusal, Scheme};
use astrabox_types::Timestamp;

use crate::answer::Reason;
use crate::audit::{AuditEvent, AuditKind};
use crate::connection::End;
use crate::meter::Meter;
use crate::services::Services;
use crate::workload::Workload;

/// What the audit log may tell of a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked<'a> {
    pub(crate) method: Option<&'a str>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) destination: Option<&'a Destination>,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(method: &'a str, destination: &'a Destination) -> Self {
        Self {
            method: Some(method),
            scheme: Some(destination.scheme),
            destination: Some(destination),
        }
    }
}

/// A request that was let through and has not ended.
pub(crate) struct Record {
    started: AuditEvent,
    pub(crate) meter: Arc<Meter>,
}

impl Record {
    /// Writes down that a request is let through, with these credentials.
    pub(crate) async fn begin(
        workload: &Workload,
        services: &Services,
        asked: Asked<'_>,
        credentials: &[String],
    ) -> Self {
        workload.counters.allow();
        let mut started = event(workload, services, AuditKind::Allow, asked).because("allowed");
        started.credentials = credentials.to_vec();
        services.audit.record(started.clone()).await;
        Self {
            started,
            meter: Arc::new(Meter::new(Arc::clone(&workload.counters))),
        }
    }

    /// States the address that the destination was taken for.
    pub(crate) fn at(&mut self, address: Option<SocketAddr>) {
        self.started.address = address;
    }

    /// States the credentials that were put in since.
    pub(crate) fn with(&mut self, credentials: &[String]) {
        self.started.credentials = credentials.to_vec();
    }

    /// Writes down how it went.
    pub(crate) async fn end(self, end: End, services: &Services) {
        let (bytes_up, bytes_down, duration) = self.meter.totals();
        let event = AuditEvent {
            time: Timestamp::now(),
            event: AuditKind::End,
            reason: end.code().to_owned(),
            bytes_up,
            bytes_down,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            ..self.started
        };
        services.audit.record(event).await;
    }
}

/// Writes down that a request is refused.
pub(crate) async fn deny(
    workload: &Workload,
    services: &Services,
    reason: Reason,
    asked: Asked<'_>,
    credential: Option<&str>,
) {
    workload.counters.deny();
    let mut event = event(workload, services, AuditKind::Deny, asked).because(reason.code());
    event.credentials.extend(credential.map(str::to_owned));
    services.audit.record(event).await;
}

/// Writes down that a request is refused for the sake of a placeholder.
pub(crate) async fn deny_placeholder(
    workload: &Workload,
    services: &Services,
    refusal: &Refusal,
    asked: Asked<'_>,
) {
    let credential = refusal.credential_id.as_deref();
    deny(workload, services, refusal.into(), asked, credential).await;
}

fn event(
    workload: &Workload,
    services: &Services,
    kind: AuditKind,
    asked: Asked<'_>,
) -> AuditEvent {
    let mut event = AuditEvent::new(
        kind,
        services.next_id(),
        workload.sandbox_id,
        workload.session_id(),
    );
    event.scheme = asked.scheme;
    event.to(asked.destination).by(asked.method)
}

/// The requests of one tunnel that have begun and not ended, so that each has its end when the tunnel is cut.
#[derive(Default)]
pub(crate) struct Ledger {
    open: Mutex<HashMap<u64, Record>>,
}

impl Ledger {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Record>> {
        // Nothing panics while it holds the lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request; gives its number.
    pub(crate) fn enter(&self, record: Record) -> u64 {
        let id = record.started.id;
        self.open().insert(id, record);
        id
    }

    /// Takes a request out, to be ended.
    pub(crate) fn leave(&self, id: u64) -> Option<Record> {
        self.open().remove(&id)
    }

    /// Ends every request that is left.
    pub(crate) async fn end_all(&self, end: End, services: &Services) {
        let left: Vec<Record> = self.open().drain().map(|(_, record)| record).collect();
        for record in left {
            record.end(end, services).await;
        }
    }
}
