//! Both handshakes: the client's is begun first and ended last, so that both sides speak one protocol.

use std::io;
use std::sync::Arc;

use astrabox_egress::Host;
use bytes::BytesMut;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::StartHandshake;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

use super::{ClientTls, Protocol, Session, Tunnel, UpstreamTls};
use crate::answer::Reason;
use crate::connection::End;
use crate::dial::dial;
use crate::exchange::Side;
use crate::http::read::HEAD_TIME;
use crate::sockets::{ReadAhead, farewell};
use crate::tls::{ALPN_H1, ALPN_H2};

/// The first byte of a TLS record with a handshake in it (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// What a client's hello asks for.
struct Offer {
    /// Whether it names protocols at all.
    named: bool,
    /// Those of them that are spoken here, in its order.
    protocols: Vec<Vec<u8>>,
}

impl Offer {
    fn has(&self, protocol: &[u8]) -> bool {
        self.protocols.iter().any(|offered| offered == protocol)
    }

    /// What an answer to the client can be said in when the upstream has not chosen.
    fn fallback(&self) -> Protocol {
        match self.has(ALPN_H2) && !self.has(ALPN_H1) {
            true => Protocol::Http2,
            false => Protocol::Http1,
        }
    }
}

/// How a client begins.
enum Hello {
    Tls(Box<StartHandshake<ReadAhead>>),
    /// Not with TLS, in a tunnel where it need not.
    Clear(Side<TcpStream>),
}

/// Makes the session; the reason why there is none has not been written down.
pub(super) async fn handshake(
    mut client: Side<TcpStream>,
    upstream: TcpStream,
    tunnel: &Tunnel<'_>,
) -> Result<Session, End> {
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    let written = client.stream.write_all(established).await;
    written.map_err(|_| End::Aborted)?;
    let deadline = Instant::now() + HEAD_TIME;
    let hello = match timeout_at(deadline, hello(client, tunnel)).await {
        Ok(hello) => hello?,
        Err(_) => return Err(End::Idle),
    };
    let start = match hello {
        Hello::Tls(start) => *start,
        Hello::Clear(client) => return Ok(Session::Clear(client, upstream)),
    };
    let offer = match check(&start.client_hello(), &tunnel.destination.host) {
        Ok(offer) => offer,
        Err(reason) => {
            reject(start).await;
            return Err(End::Answered(reason));
        }
    };
    match connect(upstream, tunnel, offer.protocols.clone()).await {
        Ok(upstream) => {
            let protocol = match upstream.get_ref().1.alpn_protocol() {
                Some(ALPN_H2) => Protocol::Http2,
                _ => Protocol::Http1,
            };
            let client = accept(start, &offer, protocol, tunnel).await?;
            Ok(match protocol {
                Protocol::Http1 => Session::Http1(Side::new(client), upstream),
                Protocol::Http2 => Session::Http2(client, upstream),
            })
        }
        Err(reason) => {
            tunnel.deny(reason).await;
            let protocol = offer.fallback();
            let client = accept(start, &offer, protocol, tunnel).await?;
            Ok(Session::Failed(protocol, client, reason))
        }
    }
}

/// Reads the client's hello, whole, however it was cut.
async fn hello(mut client: Side<TcpStream>, tunnel: &Tunnel<'_>) -> Result<Hello, End> {
    if client.buffer.is_empty() {
        match client.stream.read_buf(&mut client.buffer).await {
            Ok(read) if read > 0 => {}
            _ => return Err(End::Aborted),
        }
    }
    if client.buffer[0] != TLS_HANDSHAKE {
        if tunnel.may_be_clear() {
            return Ok(Hello::Clear(client));
        }
        crate::sockets::settle(&client.stream);
        let answer = Reason::NotTls.answer(Some(&tunnel.destination));
        farewell(&mut client.stream, &answer, tunnel.workload).await;
        return Err(End::Answered(Reason::NotTls));
    }
    let client = ReadAhead::new(client.stream, client.buffer);
    LazyConfigAcceptor::new(Acceptor::default(), client)
        .await
        .map(|start| Hello::Tls(Box::new(start)))
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => End::Answered(Reason::NotTls),
            _ => End::Aborted,
        })
}

/// The name in the hello must be the tunnel's.
fn check(hello: &ClientHello<'_>, host: &Host) -> Result<Offer, Reason> {
    match (host, hello.server_name()) {
        (Host::Name(_), None) => return Err(Reason::SniMissing),
        (Host::Name(_), Some(name)) if name.parse().as_ref() == Ok(host) => {}
        // An address is never named (RFC 6066, section 3).
        (Host::Address(_), None) => {}
        _ => return Err(Reason::SniMismatch),
    }
    let offered = hello.alpn();
    let named = offered.is_some();
    let protocols: Vec<Vec<u8>> = offered
        .into_iter()
        .flatten()
        .filter(|name| [ALPN_H1, ALPN_H2].contains(name))
        .map(<[u8]>::to_vec)
        .collect();
    if named && protocols.is_empty() {
        return Err(Reason::ClientTls);
    }
    Ok(Offer { named, protocols })
}

/// Speaks TLS with the upstream; its certificate is verified for exactly the tunnel's host.
pub(super) async fn connect(
    upstream: TcpStream,
    tunnel: &Tunnel<'_>,
    protocols: Vec<Vec<u8>>,
) -> Result<UpstreamTls, Reason> {
    let name = match &tunnel.destination.host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| Reason::UpstreamTls)?,
        Host::Address(address) => ServerName::from(*address),
    };
    let config = tunnel.services.interception.trust.client_config(protocols);
    let upstream = ReadAhead::new(upstream, BytesMut::new());
    let connect = TlsConnector::from(config).connect(name, upstream);
    match timeout(tunnel.services.settings().connect_timeout, connect).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(failure(&error)),
        Err(_) => Err(Reason::Timeout),
    }
}

/// Connects once more, to an address that was judged.
pub(super) async fn reconnect(tunnel: &Tunnel<'_>) -> Result<UpstreamTls, Reason> {
    let connect_timeout = tunnel.services.settings().connect_timeout;
    let stream = dial(&tunnel.addresses, connect_timeout).await?;
    crate::sockets::abort(&stream);
    connect(stream, tunnel, vec![ALPN_H1.to_vec()]).await
}

fn failure(error: &io::Error) -> Reason {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => Reason::UpstreamCertificate,
        _ => Reason::UpstreamTls,
    }
}

async fn accept(
    start: StartHandshake<ReadAhead>,
    offer: &Offer,
    protocol: Protocol,
    tunnel: &Tunnel<'_>,
) -> Result<ClientTls, End> {
    let failed = End::Answered(Reason::ClientTls);
    let protocol = match protocol {
        Protocol::Http1 => ALPN_H1,
        Protocol::Http2 => ALPN_H2,
    };
    let leaves = &tunnel.services.interception.leaves;
    let config = leaves.server_config(&tunnel.destination.host, offer.named.then_some(protocol));
    let config = config.map_err(|error| {
        tracing::error!(%error, "no certificate can be made");
        failed
    })?;
    match timeout(HEAD_TIME, start.into_stream(config)).await {
        Ok(Ok(stream)) => Ok(stream),
        _ => Err(failed),
    }
}

/// Ends a handshake with an alert instead of a certificate.
async fn reject(start: StartHandshake<ReadAhead>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    if let Ok(config) = config {
        let config = config
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Nobody));
        let _ = timeout(HEAD_TIME, start.into_stream(Arc::new(config))).await;
    }
}

#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}
