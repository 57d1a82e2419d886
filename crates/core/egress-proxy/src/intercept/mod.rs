//! A tunnel to a host that credentials go to: TLS is ended on both sides, and each request inside has a verdict.

mod clear;
mod handshake;
mod http1;
pub(crate) mod http2;

use std::net::SocketAddr;
use std::sync::Arc;

use astrabox_egress::Destination;
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::answer::Reason;
use crate::connection::End;
use crate::exchange::Side;
use crate::record::{Asked, Ledger, deny};
use crate::services::Services;
use crate::sockets::{ReadAhead, abort};
use crate::workload::{Admission, Workload};

/// The client's side, as the server that it wants to speak to.
type ClientTls = server::TlsStream<ReadAhead>;

/// The upstream's side, verified.
type UpstreamTls = client::TlsStream<ReadAhead>;

/// Where a tunnel leads, and for whom.
pub(crate) struct Tunnel<'a> {
    pub(crate) destination: Destination,
    /// The addresses that were judged; no other is dialled.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) workload: &'a Arc<Workload>,
    pub(crate) services: &'a Arc<Services>,
}

/// What both sides have agreed on.
enum Session {
    Http1(Side<ClientTls>, UpstreamTls),
    Http2(ClientTls, UpstreamTls),
    /// No TLS, where a credential may go in the clear.
    Clear(Side<TcpStream>, TcpStream),
    /// The upstream failed; the client's first request gets to know.
    Failed(Protocol, ClientTls, Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves a tunnel until it ends or may not go on. The sockets are closed when this returns.
pub(crate) async fn serve(
    client: Side<TcpStream>,
    upstream: TcpStream,
    tunnel: &Tunnel<'_>,
    admission: &Admission,
) -> End {
    // Whatever ends without having said so is a break, for both sides.
    abort(&client.stream);
    abort(&upstream);
    let ledger = Ledger::default();
    let end = tokio::select! {
        biased;
        why = admission.revoked() => End::Revoked(why),
        end = run(client, upstream, tunnel, &ledger) => end,
    };
    ledger.end_all(end, tunnel.services).await;
    end
}

async fn run(
    client: Side<TcpStream>,
    upstream: TcpStream,
    tunnel: &Tunnel<'_>,
    ledger: &Ledger,
) -> End {
    match handshake::handshake(client, upstream, tunnel).await {
        Ok(Session::Http1(client, upstream)) => {
            http1::serve(client, upstream, tunnel, ledger).await
        }
        Ok(Session::Http2(client, upstream)) => {
            http2::serve(client, upstream, tunnel, ledger).await
        }
        Ok(Session::Clear(client, upstream)) => {
            clear::serve(client, upstream, tunnel, ledger).await
        }
        Ok(Session::Failed(Protocol::Http1, client, reason)) => {
            http1::answer_first(client, reason, tunnel).await
        }
        Ok(Session::Failed(Protocol::Http2, client, reason)) => {
            http2::answer_first(client, reason, tunnel).await
        }
        Err(end) => {
            if let End::Answered(reason) = end {
                tunnel.deny(reason).await;
            }
            end
        }
    }
}

impl Tunnel<'_> {
    /// Whether the owner of a credential for its host said that it goes in the clear.
    fn may_be_clear(&self) -> bool {
        let Destination { host, port, .. } = &self.destination;
        self.workload.credentials().reach_in_the_clear(host, *port)
    }

    /// Writes down why nothing can be asked in the tunnel.
    async fn deny(&self, reason: Reason) {
        let asked = Asked {
            method: None,
            scheme: Some(self.destination.scheme),
            destination: Some(&self.destination),
        };
        deny(self.workload, self.services, reason, asked, None).await;
    }
}
