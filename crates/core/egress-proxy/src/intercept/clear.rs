//! HTTP/1.1 in the clear inside of a tunnel: request after request, each judged anew, each on an upstream connection
//! of its own. Some programs tunnel to `http:` URLs too.

use astrabox_egress::{Destination, Scheme};
use tokio::net::TcpStream;

use super::Tunnel;
use crate::answer::{Bad, Reason};
use crate::connection::End;
use crate::dial::dial;
use crate::exchange::{Outcome, Outgoing, Side, exchange};
use crate::http::head::RequestHead;
use crate::http::read;
use crate::http::request::{Forward, inside};
use crate::record::{Asked, Ledger, Record, deny, deny_placeholder};
use crate::sockets::{abort, farewell, settle};

struct Connection<'a> {
    client: Side<TcpStream>,
    /// The connection that the tunnel was opened with, for the first request.
    upstream: Option<TcpStream>,
    /// The tunnel's host and port, spoken to in the clear.
    destination: Destination,
    tunnel: &'a Tunnel<'a>,
    ledger: &'a Ledger,
}

/// Serves requests until one of the sides ends.
pub(super) async fn serve(
    client: Side<TcpStream>,
    upstream: TcpStream,
    tunnel: &Tunnel<'_>,
    ledger: &Ledger,
) -> End {
    let mut connection = Connection {
        client,
        upstream: Some(upstream),
        destination: Destination {
            scheme: Scheme::Http,
            ..tunnel.destination.clone()
        },
        tunnel,
        ledger,
    };
    loop {
        if let Some(end) = connection.serve_one().await {
            return end;
        }
    }
}

impl Connection<'_> {
    /// Serves one request; tells how the tunnel ended with it, if it did.
    async fn serve_one(&mut self) -> Option<End> {
        let client = &mut self.client;
        let head = match read::request_head(&mut client.stream, &mut client.buffer).await {
            Ok(Some(head)) => RequestHead::parse(&head),
            Ok(None) => return Some(self.leave(&[]).await),
            Err(bad) => Err(bad),
        };
        let head = match head {
            Ok(head) => head,
            Err(bad) => return Some(self.refuse(bad.into(), None).await),
        };
        let method = head.method.clone();
        let request = match inside(head, &self.destination) {
            // WebSockets pass through tunnels that are encrypted, or run unseen.
            Ok(request) if request.upgrade.is_some() => {
                return Some(self.refuse(Bad::Upgrade.into(), Some(&method)).await);
            }
            Ok(request) => request,
            Err(reason) => return Some(self.refuse(reason, Some(&method)).await),
        };
        self.forward(request).await
    }

    async fn forward(&mut self, request: Forward) -> Option<End> {
        let Tunnel {
            workload, services, ..
        } = self.tunnel;
        let destination = self.destination.clone();
        let method = request.method.clone();
        let asked = Asked::of(&method, &destination);
        let mut outgoing = match Outgoing::prepare(request, workload, false) {
            Ok(outgoing) => outgoing,
            Err(refusal) => {
                deny_placeholder(workload, services, &refusal, asked).await;
                return Some(self.last_word(Reason::from(&refusal)).await);
            }
        };
        let used = &outgoing.injection.used;
        let mut record = Record::begin(workload, services, asked, used).await;
        let upstream = match self.upstream.take() {
            Some(upstream) => Ok(upstream),
            None => dial(&self.tunnel.addresses, services.settings().connect_timeout).await,
        };
        let upstream = match upstream {
            Ok(upstream) => upstream,
            Err(reason) => {
                record.end(End::Answered(reason), services).await;
                return Some(self.last_word(reason).await);
            }
        };
        abort(&upstream);
        record.at(upstream.peer_addr().ok());
        self.exchange(Side::new(upstream), &mut outgoing, record)
            .await
    }

    async fn exchange(
        &mut self,
        mut upstream: Side<TcpStream>,
        outgoing: &mut Outgoing,
        record: Record,
    ) -> Option<End> {
        let services = self.tunnel.services;
        let meter = std::sync::Arc::clone(&record.meter);
        let number = self.ledger.enter(record);
        let idle = services.settings().idle_timeout;
        let outcome = exchange(&mut self.client, &mut upstream, outgoing, &meter, idle).await;
        let mut used = outgoing.injection.used.clone();
        let (next, end) = match outcome {
            Outcome::Done { reusable, .. } => {
                settle(&upstream.stream);
                let next = match reusable {
                    true => None,
                    false => Some(self.leave(&[]).await),
                };
                (next, End::Completed)
            }
            // No upgrade was asked for, so none was granted.
            Outcome::Switched(_) => {
                let reason = Reason::UpstreamInvalid;
                (Some(self.last_word(reason).await), End::Answered(reason))
            }
            Outcome::Unanswered(reason) => {
                drop(upstream);
                (Some(self.last_word(reason).await), End::Answered(reason))
            }
            Outcome::Refused(refusal) => {
                drop(upstream);
                used.extend(refusal.credential_id.clone());
                let reason = Reason::from(&refusal);
                (Some(self.last_word(reason).await), End::Answered(reason))
            }
            Outcome::Broken(end) => (Some(end), end),
        };
        if let Some(mut record) = self.ledger.leave(number) {
            record.with(&used);
            record.end(end, services).await;
        }
        next
    }

    async fn refuse(&mut self, reason: Reason, method: Option<&str>) -> End {
        let asked = Asked {
            method,
            scheme: Some(self.destination.scheme),
            destination: Some(&self.destination),
        };
        let Tunnel {
            workload, services, ..
        } = self.tunnel;
        deny(workload, services, reason, asked, None).await;
        self.last_word(reason).await
    }

    /// Says why there is nothing more, and closes in the ordinary way.
    async fn last_word(&mut self, reason: Reason) -> End {
        let answer = reason.answer(Some(&self.destination));
        self.leave(&answer).await
    }

    async fn leave(&mut self, answer: &[u8]) -> End {
        settle(&self.client.stream);
        if let Some(upstream) = self.upstream.take() {
            settle(&upstream);
        }
        farewell(&mut self.client.stream, answer, self.tunnel.workload).await;
        End::Completed
    }
}
