//! One connection of a sandbox to the proxy: request by request, each with a verdict of its own.

use std::sync::Arc;
use std::time::Duration;

use astrabox_egress::{DenyReason, Destination, Scheme};
use astrabox_types::Timestamp;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::Reason;
use crate::audit::{AuditEvent, AuditKind};
use crate::dial::dial;
use crate::forward::{self, Outcome};
use crate::http::head::RequestHead;
use crate::http::read;
use crate::http::request::{Forward, Refused, Request};
use crate::meter::Meter;
use crate::resolve::Candidates;
use crate::services::Services;
use crate::tunnel;
use crate::workload::{Admission, Place, Revoked, Workload};

/// How long an answer of the proxy may take to be written and read.
const FAREWELL: Duration = Duration::from_secs(2);

/// How much of what a refused client still sends is read, so that it gets to read the answer.
const FAREWELL_BYTES: usize = 1024 * 1024;

/// How an exchange that was let through has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    Idle,
    /// One of the two sides broke it off.
    Aborted,
    Revoked(Revoked),
    /// The proxy answered in the upstream's place.
    Answered(Reason),
}

impl End {
    const fn code(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Idle => "idle_timeout",
            Self::Aborted => "aborted",
            Self::Revoked(Revoked::PolicyChanged) => "policy_changed",
            Self::Revoked(Revoked::Expired) => "policy_expired",
            Self::Revoked(Revoked::Closed) => "sandbox_closed",
            Self::Answered(reason) => reason.code(),
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(
    client: TcpStream,
    workload: Arc<Workload>,
    services: Arc<Services>,
    place: Place,
) {
    let mut next = Some(Connection {
        client,
        buffer: BytesMut::new(),
        workload,
        services,
        _place: place,
    });
    while let Some(connection) = next {
        next = connection.serve_one().await;
    }
}

/// Tells a client that the sandbox has too many connections.
pub(crate) async fn refuse(client: TcpStream, workload: Arc<Workload>, services: Arc<Services>) {
    let reason = Reason::TooManyConnections;
    deny(&workload, &services, reason, Asked::default()).await;
    farewell(client, &reason.answer(None), &workload).await;
}

struct Connection {
    client: TcpStream,
    /// What was read of the client and not yet used.
    buffer: BytesMut,
    workload: Arc<Workload>,
    services: Arc<Services>,
    _place: Place,
}

/// A request that was let through.
struct Exchange {
    started: AuditEvent,
    meter: Meter,
    admission: Admission,
}

/// What the audit log may tell of a request.
#[derive(Clone, Copy, Default)]
struct Asked<'a> {
    method: Option<&'a str>,
    scheme: Option<Scheme>,
    destination: Option<&'a Destination>,
}

impl Connection {
    /// Serves one request; gives the connection back when the client may send another.
    async fn serve_one(mut self) -> Option<Self> {
        let head = tokio::select! {
            biased;
            () = self.workload.closing.cancelled() => return None,
            head = read::request_head(&mut self.client, &mut self.buffer) => head,
        };
        let head = match head {
            Ok(Some(head)) => RequestHead::parse(&head),
            Ok(None) => return None,
            Err(bad) => Err(bad),
        };
        let head = match head {
            Ok(head) => head,
            Err(bad) => return self.refuse(bad.into(), Asked::default()).await,
        };
        let method = head.method.clone();
        match Request::interpret(head) {
            Ok(Request::Tunnel(destination)) => self.tunnel(destination).await,
            Ok(Request::Forward(request)) => self.forward(request).await,
            Err(Refused {
                reason,
                scheme,
                destination,
            }) => {
                let asked = Asked {
                    method: Some(&method),
                    scheme,
                    destination: destination.as_ref(),
                };
                self.refuse(reason, asked).await
            }
        }
    }

    async fn tunnel(self, destination: Destination) -> Option<Self> {
        let (mut this, exchange, mut upstream) = self.reach(&destination, "CONNECT").await?;
        let idle = this.services.settings().idle_timeout;
        let early = this.buffer.split().freeze();
        let end = tokio::select! {
            biased;
            why = exchange.admission.revoked() => End::Revoked(why),
            end = tunnel::relay(&mut this.client, early, &mut upstream, &exchange.meter, idle) => end,
        };
        if end != End::Completed {
            abort(&this.client);
            abort(&upstream);
        }
        drop(upstream);
        drop(this.client);
        exchange.finish(end, &this.services).await;
        None
    }

    async fn forward(self, request: Forward) -> Option<Self> {
        let (mut this, exchange, mut upstream) =
            self.reach(&request.destination, &request.method).await?;
        let idle = this.services.settings().idle_timeout;
        let outcome = tokio::select! {
            biased;
            why = exchange.admission.revoked() => Outcome::Broken(End::Revoked(why)),
            outcome = forward::exchange(
                &mut this.client,
                &mut this.buffer,
                &mut upstream,
                &request,
                &exchange.meter,
                idle,
            ) => outcome,
        };
        match outcome {
            Outcome::Done { reusable } => {
                drop(upstream);
                exchange.finish(End::Completed, &this.services).await;
                if reusable {
                    return Some(this);
                }
                farewell(this.client, &[], &this.workload).await;
            }
            Outcome::Unanswered(reason) => {
                abort(&upstream);
                drop(upstream);
                exchange.finish(End::Answered(reason), &this.services).await;
                let answer = reason.answer(Some(&request.destination));
                farewell(this.client, &answer, &this.workload).await;
            }
            Outcome::Broken(end) => {
                abort(&upstream);
                abort(&this.client);
                drop(upstream);
                drop(this.client);
                exchange.finish(end, &this.services).await;
            }
        }
        None
    }

    /// Decides on the destination and connects to it. When there is no way, the client has been answered.
    async fn reach(
        self,
        destination: &Destination,
        method: &str,
    ) -> Option<(Self, Exchange, TcpStream)> {
        let asked = Asked {
            method: Some(method),
            scheme: Some(destination.scheme),
            destination: Some(destination),
        };
        let admission = match self.workload.admit(destination) {
            Ok(admission) => admission,
            Err(reason) => return self.refuse(reason.into(), asked).await.and(None),
        };
        let candidates = match self.judge(destination, &admission).await {
            Ok(candidates) => candidates,
            Err(reason) => {
                drop(admission);
                return self.refuse(reason.into(), asked).await.and(None);
            }
        };
        self.workload.counters.allow();
        let started =
            event(&self.workload, &self.services, AuditKind::Allow, asked).because("allowed");
        self.services.audit.record(started.clone()).await;
        let mut exchange = Exchange {
            started,
            meter: Meter::new(Arc::clone(&self.workload.counters)),
            admission,
        };
        let connect_timeout = self.services.settings().connect_timeout;
        let dialled = tokio::select! {
            biased;
            why = exchange.admission.revoked() => Err(End::Revoked(why)),
            dialled = dial(&candidates.addresses, connect_timeout) => dialled.map_err(End::Answered),
        };
        match dialled {
            Ok(upstream) => {
                exchange.started.address = upstream.peer_addr().ok();
                Some((self, exchange, upstream))
            }
            Err(End::Answered(reason)) => {
                exchange.finish(End::Answered(reason), &self.services).await;
                let answer = reason.answer(Some(destination));
                farewell(self.client, &answer, &self.workload).await;
                None
            }
            Err(end) => {
                abort(&self.client);
                drop(self.client);
                exchange.finish(end, &self.services).await;
                None
            }
        }
    }

    /// Looks the destination up and judges every address, while it is admitted.
    async fn judge(
        &self,
        destination: &Destination,
        admission: &Admission,
    ) -> Result<Candidates, DenyReason> {
        let settings = self.services.settings();
        let find = async {
            let _turn = self.workload.lookups.acquire().await;
            Candidates::find(destination, &settings, &*self.services.resolver).await
        };
        let candidates = tokio::select! {
            biased;
            why = admission.revoked() => return Err(match why {
                Revoked::PolicyChanged => DenyReason::HostNotAllowed,
                Revoked::Expired | Revoked::Closed => DenyReason::NoPlan,
            }),
            found = find => found?,
        };
        // First pinned, then judged by the settings of now: a change of the settings either comes before and
        // is seen here, or comes after and sees the pin.
        admission.pin(&candidates);
        candidates.judge(&self.services.settings())?;
        Ok(candidates)
    }

    async fn refuse(self, reason: Reason, asked: Asked<'_>) -> Option<Self> {
        let answer = reason.answer(asked.destination);
        deny(&self.workload, &self.services, reason, asked).await;
        farewell(self.client, &answer, &self.workload).await;
        None
    }
}

impl Exchange {
    /// Gives the destination up and writes down how it went. The sockets are closed by now.
    async fn finish(self, end: End, services: &Services) {
        let (bytes_up, bytes_down, duration) = self.meter.totals();
        drop(self.admission);
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

async fn deny(workload: &Workload, services: &Services, reason: Reason, asked: Asked<'_>) {
    workload.counters.deny();
    let event = event(workload, services, AuditKind::Deny, asked).because(reason.code());
    services.audit.record(event).await;
}

/// Closing the socket resets the connection: a peer must not take a broken stream for one that has ended.
fn abort(stream: &TcpStream) {
    // A socket that refuses the option is closed in the ordinary way.
    let _ = stream.set_zero_linger();
}

/// Writes a last answer and closes. What the client still sends is read for a while, because closing over unread
/// bytes resets the connection and takes the answer away from the client.
async fn farewell(mut client: TcpStream, answer: &[u8], workload: &Workload) {
    let goodbye = async {
        client.write_all(answer).await?;
        client.shutdown().await?;
        let mut sink = [0; 4096];
        let mut left = FAREWELL_BYTES;
        while left > 0 {
            match client.read(&mut sink).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    // Whether the client takes it is the client's affair.
    tokio::select! {
        () = workload.closing.cancelled() => {}
        _ = timeout(FAREWELL, goodbye) => {}
    }
}
