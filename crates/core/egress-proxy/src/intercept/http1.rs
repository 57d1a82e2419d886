//! HTTP/1.1 inside of a tunnel: request after request, each judged anew, over one upstream connection where it lasts.

use astrabox_egress::BodyTreatment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::handshake::reconnect;
use super::{ClientTls, Tunnel, UpstreamTls};
use crate::answer::Reason;
use crate::connection::End;
use crate::exchange::{Outcome, Outgoing, Side, exchange};
use crate::http::head::RequestHead;
use crate::http::read;
use crate::http::request::inside;
use crate::record::{Asked, Ledger, Record, deny, deny_placeholder};
use crate::sockets::{farewell, settle};
use crate::websocket;

/// What comes after a request.
enum Next {
    /// Another one.
    Request,
    /// Nothing.
    End(End),
}

struct Connection<'a> {
    client: Side<ClientTls>,
    upstream: Option<Side<UpstreamTls>>,
    tunnel: &'a Tunnel<'a>,
    ledger: &'a Ledger,
}

/// Serves requests until one of the sides ends.
pub(super) async fn serve(
    client: Side<ClientTls>,
    upstream: UpstreamTls,
    tunnel: &Tunnel<'_>,
    ledger: &Ledger,
) -> End {
    let mut connection = Connection {
        client,
        upstream: Some(Side::new(upstream)),
        tunnel,
        ledger,
    };
    loop {
        match connection.serve_one().await {
            Next::Request => {}
            Next::End(end) => return end,
        }
    }
}

/// Answers the first request in the stead of an upstream that could not be reached.
pub(super) async fn answer_first(client: ClientTls, reason: Reason, tunnel: &Tunnel<'_>) -> End {
    let mut client = Side::new(client);
    if let Ok(Some(_)) = read::request_head(&mut client.stream, &mut client.buffer).await {
        last_word(&mut client, reason, tunnel).await;
    }
    End::Answered(reason)
}

/// Says why there is nothing more, and closes in the ordinary way.
async fn last_word(client: &mut Side<ClientTls>, reason: Reason, tunnel: &Tunnel<'_>) {
    settle(&client.stream.get_ref().0.stream);
    let answer = reason.answer(Some(&tunnel.destination));
    farewell(&mut client.stream, &answer, tunnel.workload).await;
}

impl Connection<'_> {
    async fn serve_one(&mut self) -> Next {
        let client = &mut self.client;
        let head = match read::request_head(&mut client.stream, &mut client.buffer).await {
            Ok(Some(head)) => RequestHead::parse(&head),
            Ok(None) => return self.leave().await,
            Err(bad) => Err(bad),
        };
        let head = match head {
            Ok(head) => head,
            Err(bad) => return self.refuse(bad.into(), None).await,
        };
        let method = head.method.clone();
        let request = match inside(head, &self.tunnel.destination) {
            Ok(request) => request,
            Err(reason) => return self.refuse(reason, Some(&method)).await,
        };
        let asked = Asked::of(&method, &self.tunnel.destination);
        let Tunnel {
            workload, services, ..
        } = self.tunnel;
        let outgoing = match Outgoing::prepare(request, workload, true) {
            Ok(outgoing) => outgoing,
            Err(refusal) => {
                deny_placeholder(workload, services, &refusal, asked).await;
                let reason = Reason::from(&refusal);
                last_word(&mut self.client, reason, self.tunnel).await;
                return Next::End(End::Completed);
            }
        };
        let used = &outgoing.injection.used;
        let record = Record::begin(workload, services, asked, used).await;
        self.exchange(outgoing, record).await
    }

    async fn exchange(&mut self, mut outgoing: Outgoing, mut record: Record) -> Next {
        let services = self.tunnel.services;
        let mut upstream = match self.fresh_upstream().await {
            Ok(upstream) => upstream,
            Err(reason) => {
                record.end(End::Answered(reason), services).await;
                last_word(&mut self.client, reason, self.tunnel).await;
                return Next::End(End::Completed);
            }
        };
        record.at(upstream.stream.get_ref().0.peer);
        let meter = std::sync::Arc::clone(&record.meter);
        let number = self.ledger.enter(record);
        let idle = services.settings().idle_timeout;
        let outcome = exchange(&mut self.client, &mut upstream, &mut outgoing, &meter, idle).await;
        let mut used = outgoing.injection.used.clone();
        let (next, end) = match outcome {
            Outcome::Done {
                reusable,
                persistent,
            } => {
                // What came after the answer was not asked for.
                if persistent && upstream.buffer.is_empty() {
                    self.upstream = Some(upstream);
                } else {
                    settle(&upstream.stream.get_ref().0.stream);
                }
                let next = match reusable {
                    true => Next::Request,
                    false => self.leave().await,
                };
                (next, End::Completed)
            }
            Outcome::Switched(head) => {
                let end = self
                    .switch(&mut upstream, &mut outgoing, &head, &meter)
                    .await;
                used.clone_from(&outgoing.injection.used);
                if end == End::Completed {
                    settle(&upstream.stream.get_ref().0.stream);
                    settle(&self.client.stream.get_ref().0.stream);
                }
                (Next::End(end), end)
            }
            Outcome::Unanswered(reason) => {
                drop(upstream);
                last_word(&mut self.client, reason, self.tunnel).await;
                (Next::End(End::Completed), End::Answered(reason))
            }
            Outcome::Refused(refusal) => {
                drop(upstream);
                used.extend(refusal.credential_id.clone());
                let reason = Reason::from(&refusal);
                last_word(&mut self.client, reason, self.tunnel).await;
                (Next::End(End::Completed), End::Answered(reason))
            }
            Outcome::Broken(end) => (Next::End(end), end),
        };
        if let Some(mut record) = self.ledger.leave(number) {
            record.with(&used);
            record.end(end, services).await;
        }
        next
    }

    /// Relays a WebSocket that was granted, for as long as the credentials that it may carry stay the same.
    async fn switch(
        &mut self,
        upstream: &mut Side<UpstreamTls>,
        outgoing: &mut Outgoing,
        head: &[u8],
        meter: &crate::meter::Meter,
    ) -> End {
        let told = async {
            self.client.stream.write_all(head).await?;
            self.client.stream.flush().await
        };
        if told.await.is_err() {
            return End::Aborted;
        }
        meter.sent_down(head.len());
        let idle = self.tunnel.services.settings().idle_timeout;
        let replaces = outgoing.injection.messages() == BodyTreatment::Replace;
        let changed = self
            .tunnel
            .workload
            .credentials_change(outgoing.injection.credentials());
        let injection = &mut outgoing.injection;
        tokio::select! {
            biased;
            why = changed, if replaces => End::Revoked(why),
            end = websocket::relay(&mut self.client, upstream, injection, meter, idle) => end,
        }
    }

    /// The upstream connection, unless it has ended or spoken unasked since the last answer; then another one.
    async fn fresh_upstream(&mut self) -> Result<Side<UpstreamTls>, Reason> {
        if let Some(mut upstream) = self.upstream.take() {
            let said = tokio::select! {
                biased;
                said = upstream.stream.read_buf(&mut upstream.buffer) => Some(said),
                () = std::future::ready(()) => None,
            };
            if said.is_none() {
                return Ok(upstream);
            }
            settle(&upstream.stream.get_ref().0.stream);
        }
        reconnect(self.tunnel).await.map(Side::new)
    }

    /// Closes both sides in the ordinary way.
    async fn leave(&mut self) -> Next {
        settle(&self.client.stream.get_ref().0.stream);
        farewell(&mut self.client.stream, &[], self.tunnel.workload).await;
        if let Some(mut upstream) = self.upstream.take() {
            settle(&upstream.stream.get_ref().0.stream);
            // It says that the connection has ended; nobody has to hear it.
            let bye = upstream.stream.shutdown();
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), bye).await;
        }
        Next::End(End::Completed)
    }

    async fn refuse(&mut self, reason: Reason, method: Option<&str>) -> Next {
        let asked = Asked {
            method,
            scheme: Some(self.tunnel.destination.scheme),
            destination: Some(&self.tunnel.destination),
        };
        deny(
            self.tunnel.workload,
            self.tunnel.services,
            reason,
            asked,
            None,
        )
        .await;
        last_word(&mut self.client, reason, self.tunnel).await;
        Next::End(End::Completed)
    }
}
