//! One connection of a sandbox to the proxy: request by request, each with a verdict of its own.

use std::sync::Arc;

use astrabox_egress::{DenyReason, Destination};
use tokio::net::TcpStream;

use crate::answer::Reason;
use crate::dial::dial;
use crate::exchange::{self, Outcome, Outgoing, Side};
use crate::http::head::RequestHead;
use crate::http::read;
use crate::http::request::{Forward, Refused, Request};
use crate::intercept;
use crate::record::{Asked, Record, deny, deny_placeholder};
use crate::resolve::Candidates;
use crate::services::Services;
use crate::sockets::{abort, farewell};
use crate::tunnel;
use crate::workload::{Admission, Place, Revoked, Way, Workload};

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
    pub(crate) const fn code(self) -> &'static str {
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
        client: Side::new(client),
        workload,
        services,
        _place: place,
    });
    while let Some(connection) = next {
        next = connection.serve_one().await;
    }
}

/// Tells a client that the sandbox has too many connections.
pub(crate) async fn refuse(
    mut client: TcpStream,
    workload: Arc<Workload>,
    services: Arc<Services>,
) {
    let reason = Reason::TooManyConnections;
    deny(&workload, &services, reason, Asked::default(), None).await;
    farewell(&mut client, &reason.answer(None), &workload).await;
}

struct Connection {
    client: Side<TcpStream>,
    workload: Arc<Workload>,
    services: Arc<Services>,
    _place: Place,
}

/// A destination that may be reached.
struct Reached {
    admission: Admission,
    candidates: Candidates,
}

impl Connection {
    /// Serves one request; gives the connection back when the client may send another.
    async fn serve_one(mut self) -> Option<Self> {
        let head = tokio::select! {
            biased;
            () = self.workload.closing.cancelled() => return None,
            head = read::request_head(&mut self.client.stream, &mut self.client.buffer) => head,
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
        let asked = Asked::of("CONNECT", &destination);
        let (this, reached) = self.reach(&destination, asked).await?;
        let record = Record::begin(&this.workload, &this.services, asked, &[]).await;
        let (mut this, reached, mut upstream, record) =
            this.dial(reached, &destination, record).await?;
        let admission = &reached.admission;
        let idle = this.services.settings().idle_timeout;
        let end = if admission.way == Way::Intercepted {
            let tunnel = intercept::Tunnel {
                destination: Destination {
                    scheme: astrabox_egress::Scheme::Https,
                    ..destination
                },
                addresses: reached.candidates.addresses,
                workload: &this.workload,
                services: &this.services,
            };
            intercept::serve(this.client, upstream, &tunnel, admission).await
        } else {
            let early = this.client.buffer.split().freeze();
            let client = &mut this.client.stream;
            let end = tokio::select! {
                biased;
                why = admission.revoked() => End::Revoked(why),
                end = tunnel::relay(client, early, &mut upstream, &record.meter, idle) => end,
            };
            if end != End::Completed {
                abort(client);
                abort(&upstream);
            }
            drop(upstream);
            drop(this.client);
            end
        };
        drop(reached.admission);
        record.end(end, &this.services).await;
        None
    }

    async fn forward(self, request: Forward) -> Option<Self> {
        let destination = request.destination.clone();
        let method = request.method.clone();
        let asked = Asked::of(&method, &destination);
        let (this, reached) = self.reach(&destination, asked).await?;
        let mut outgoing = match Outgoing::prepare(request, &this.workload, false) {
            Ok(outgoing) => outgoing,
            Err(refusal) => {
                drop(reached);
                deny_placeholder(&this.workload, &this.services, &refusal, asked).await;
                return this.farewell(Reason::from(&refusal), &destination).await;
            }
        };
        let used = &outgoing.injection.used;
        let record = Record::begin(&this.workload, &this.services, asked, used).await;
        let (mut this, reached, upstream, mut record) =
            this.dial(reached, &destination, record).await?;
        let admission = reached.admission;
        let mut upstream = Side::new(upstream);
        let idle = this.services.settings().idle_timeout;
        let (client, meter) = (&mut this.client, &record.meter);
        let outcome = tokio::select! {
            biased;
            why = admission.revoked() => Outcome::Broken(End::Revoked(why)),
            outcome = exchange::exchange(client, &mut upstream, &mut outgoing, meter, idle) => outcome,
        };
        record.with(&outgoing.injection.used);
        let (reason, end) = match outcome {
            Outcome::Done { reusable, .. } => {
                drop(upstream);
                drop(admission);
                record.end(End::Completed, &this.services).await;
                if reusable {
                    return Some(this);
                }
                farewell(&mut this.client.stream, &[], &this.workload).await;
                return None;
            }
            // No upgrade was asked for in the clear, so none was granted.
            Outcome::Switched(_) => {
                let reason = Reason::UpstreamInvalid;
                (Some(reason), End::Answered(reason))
            }
            Outcome::Unanswered(reason) => (Some(reason), End::Answered(reason)),
            Outcome::Refused(refusal) => {
                record.with(
                    &refusal
                        .credential_id
                        .clone()
                        .into_iter()
                        .collect::<Vec<_>>(),
                );
                let reason = Reason::from(&refusal);
                (Some(reason), End::Answered(reason))
            }
            Outcome::Broken(end) => (None, end),
        };
        abort(&upstream.stream);
        drop(upstream);
        if reason.is_none() {
            abort(&this.client.stream);
        }
        drop(admission);
        record.end(end, &this.services).await;
        match reason {
            Some(reason) => this.farewell(reason, &destination).await,
            None => None,
        }
    }

    /// Decides on the destination and on its addresses. When there is no way, the client has been answered.
    async fn reach(self, destination: &Destination, asked: Asked<'_>) -> Option<(Self, Reached)> {
        let admission = match self.workload.admit(destination) {
            Ok(admission) => admission,
            Err(reason) => return self.refuse(reason.into(), asked).await.and(None),
        };
        match self.judge(destination, &admission).await {
            Ok(candidates) => {
                let reached = Reached {
                    admission,
                    candidates,
                };
                Some((self, reached))
            }
            Err(reason) => {
                drop(admission);
                self.refuse(reason.into(), asked).await.and(None)
            }
        }
    }

    /// Connects to the destination. When that fails, the client has been answered and the record has its end.
    async fn dial(
        mut self,
        reached: Reached,
        destination: &Destination,
        mut record: Record,
    ) -> Option<(Self, Reached, TcpStream, Record)> {
        let connect_timeout = self.services.settings().connect_timeout;
        let dialled = tokio::select! {
            biased;
            why = reached.admission.revoked() => Err(End::Revoked(why)),
            dialled = dial(&reached.candidates.addresses, connect_timeout) => {
                dialled.map_err(End::Answered)
            }
        };
        let end = match dialled {
            Ok(upstream) => {
                record.at(upstream.peer_addr().ok());
                return Some((self, reached, upstream, record));
            }
            Err(end) => end,
        };
        drop(reached);
        if let End::Revoked(_) = end {
            abort(&self.client.stream);
        }
        record.end(end, &self.services).await;
        if let End::Answered(reason) = end {
            let answer = reason.answer(Some(destination));
            farewell(&mut self.client.stream, &answer, &self.workload).await;
        }
        None
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

    async fn refuse(mut self, reason: Reason, asked: Asked<'_>) -> Option<Self> {
        let answer = reason.answer(asked.destination);
        deny(&self.workload, &self.services, reason, asked, None).await;
        farewell(&mut self.client.stream, &answer, &self.workload).await;
        None
    }

    async fn farewell(mut self, reason: Reason, destination: &Destination) -> Option<Self> {
        let answer = reason.answer(Some(destination));
        farewell(&mut self.client.stream, &answer, &self.workload).await;
        None
    }
}
