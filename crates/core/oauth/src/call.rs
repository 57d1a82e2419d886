//! One call: resolve, judge every address, dial that address, speak HTTP/1.1.

use std::net::SocketAddr;
use std::sync::Arc;

use astrabox_egress::{
    AddressClass, AddressRules, Decision, DenyReason, Destination, Host, classify,
};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Error, ErrorKind, RefreshRequest, TokenClient, Tokens, answer};

/// No answer of a token endpoint is longer (1 MiB).
const MOST_ANSWER: usize = 1 << 20;

/// The certificates in a PEM text, as [`TokenClient::new`] takes them; what is no certificate is left out.
#[must_use]
pub fn roots_of_pem(pem: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(pem)
        .flatten()
        .map(|root| root.to_vec())
        .collect()
}

/// The system's roots and the operator's.
pub(crate) fn tls(more_roots: &[Vec<u8>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    let more = more_roots.iter().cloned().map(CertificateDer::from);
    roots.add_parsable_certificates(more);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the versions that rustls takes for safe")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(crate) async fn call(
    client: &TokenClient,
    request: RefreshRequest<'_>,
) -> Result<Tokens, Error> {
    let endpoint = Endpoint::parse(request.endpoint)?;
    let connect = async {
        let (stream, private) = dial(client, &endpoint.to).await?;
        if endpoint.tls {
            let name = server_name(&endpoint.to.host)?;
            let stream = TlsConnector::from(client.tls())
                .connect(name, stream)
                .await
                .map_err(|error| unavailable("its TLS is not good").caused(error))?;
            return Ok(Stream::Tls(Box::new(stream)));
        }
        if !private {
            return Err(forbidden(
                "a token endpoint without TLS is let through at private addresses only",
            ));
        }
        Ok(Stream::Plain(stream))
    };
    let stream = tokio::time::timeout(client.connect_within, connect)
        .await
        .map_err(|_| unavailable("it cannot be connected to in time"))??;
    match stream {
        Stream::Plain(stream) => exchange(stream, &endpoint, &request).await,
        Stream::Tls(stream) => exchange(stream, &endpoint, &request).await,
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

struct Endpoint {
    tls: bool,
    to: Destination,
    authority: String,
    target: String,
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new(ErrorKind::Forbidden, "the token endpoint is no address");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?.as_str().to_owned();
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let default = if tls { 443 } else { 80 };
        let to = Destination::tunnel(&authority)
            .or_else(|_| Destination::tunnel(&format!("{authority}:{default}")))
            .map_err(|_| wrong())?;
        let target = uri
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        Ok(Self {
            tls,
            to,
            authority,
            target: target.to_owned(),
        })
    }
}

/// A connection to an address that is judged, and whether it is one that is not public.
async fn dial(client: &TokenClient, to: &Destination) -> Result<(TcpStream, bool), Error> {
    let addresses = resolve(client, to).await?;
    let mut judged = Vec::with_capacity(addresses.len());
    for (address, stated) in addresses {
        judged.push((address, judge(client, address, stated)?));
    }
    let mut last = None;
    for (address, private) in judged {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok((stream, private)),
            Err(error) => last = Some(error),
        }
    }
    let error = unavailable("it cannot be connected to");
    Err(match last {
        Some(last) => error.caused(last),
        None => error,
    })
}

/// The addresses of a host, each with whether the operator stated it.
async fn resolve(client: &TokenClient, to: &Destination) -> Result<Vec<(SocketAddr, bool)>, Error> {
    if let Some(stated) = (client.stated)(&to.host, to.port) {
        return Ok(vec![(stated, true)]);
    }
    let name = match &to.host {
        Host::Address(address) => return Ok(vec![(SocketAddr::new(*address, to.port), false)]),
        Host::Name(name) => name,
    };
    let found = tokio::net::lookup_host((name.as_str(), to.port)).await;
    let found = found.map_err(|error| unavailable("its name does not resolve").caused(error))?;
    Ok(found.map(|address| (address, false)).collect())
}

/// Whether the address is let through, and whether it is one that is not public. One bad address of a name is enough:
/// it may be the next answer to the same question.
fn judge(client: &TokenClient, address: SocketAddr, stated: bool) -> Result<bool, Error> {
    let ip = address.ip();
    let rules = AddressRules {
        denied: &client.deny,
        allowed: &client.allow_private,
    };
    match rules.judge(ip, stated) {
        Decision::Allow => Ok(classify(ip) != AddressClass::Public),
        Decision::Deny(DenyReason::Metadata) => Err(forbidden("it is a metadata service")),
        Decision::Deny(DenyReason::AddressDenied) => {
            Err(forbidden("the operator denies its address (egress.deny)"))
        }
        Decision::Deny(_) => Err(forbidden(
            "it is at a private address, which the operator does not let through (egress.allow_private)",
        )),
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, Error> {
    match host {
        Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| forbidden("its host is no name that a certificate can have")),
    }
}

async fn exchange<S>(
    stream: S,
    endpoint: &Endpoint,
    request: &RefreshRequest<'_>,
) -> Result<Tokens, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let failed = |error: hyper::Error| unavailable("the connection failed").caused(error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let speak = async {
        let answer = sender
            .send_request(head_and_body(endpoint, request)?)
            .await
            .map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_ANSWER)
            .collect()
            .await;
        let body = body.map_err(|_| unavailable("its answer does not end, or is too long"))?;
        let mut body = zeroize::Zeroizing::new(body.to_bytes().to_vec());
        let tokens = answer::read(status, &body);
        body.clear();
        tokens
    };
    // Both in this task: nothing of the connection outlives the call.
    let mut speak = std::pin::pin!(speak);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        tokens = &mut speak => tokens,
        // What it had read before it ended, one way or another, may be the whole answer.
        _ = &mut connection => speak.await,
    }
}

fn head_and_body(
    endpoint: &Endpoint,
    request: &RefreshRequest<'_>,
) -> Result<Request<Full<Bytes>>, Error> {
    let wrong = |_: http::Error| forbidden("the token endpoint is no address");
    let mut built = Request::builder()
        .method(Method::POST)
        .uri(&endpoint.target)
        .header(HOST, &endpoint.authority)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(shown) = request.authorization() {
        let mut shown = HeaderValue::from_str(&shown)
            .map_err(|_| forbidden("the client's secret cannot be shown"))?;
        shown.set_sensitive(true);
        built = built.header(AUTHORIZATION, shown);
    }
    built
        .body(Full::new(Bytes::copy_from_slice(&request.body())))
        .map_err(wrong)
}

fn forbidden(what: &str) -> Error {
    Error::new(ErrorKind::Forbidden, what)
}

fn unavailable(what: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the token endpoint does not answer: {what}"),
    )
}
