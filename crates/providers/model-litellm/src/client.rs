//! One request over one connection: bounded in time and size, without redirects, nothing left running.

use std::error::Error;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use astrabox_types::Secret;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::api::Answer;

/// The largest answer that is read, bytes.
const MAX_ANSWER: usize = 4 << 20;

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Until the connection stands: name, TCP and TLS.
    pub(crate) connect: Duration,
    /// Until the answer is there.
    pub(crate) whole: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            whole: Duration::from_secs(15),
        }
    }
}

/// Why there is no answer. No text holds a credential, a header or a body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The address or the request cannot be made.
    #[error("the request to the proxy cannot be made")]
    Request(#[source] Box<dyn Error + Send + Sync>),
    /// The credential cannot stand in a header.
    #[error("the proxy's key has characters that no header may have")]
    Credential,
    /// No connection in time.
    #[error("no connection to the proxy in time")]
    ConnectTimeout,
    /// No connection.
    #[error("no connection to the proxy")]
    Connect(#[source] std::io::Error),
    /// No trusted connection.
    #[error("no trusted TLS connection to the proxy")]
    Tls(#[source] std::io::Error),
    /// The connection ended before the answer did.
    #[error("the proxy broke off its answer")]
    Broken(#[source] hyper::Error),
    /// The answer did not end in time.
    #[error("no whole answer of the proxy in time")]
    Timeout,
    /// The answer is too long.
    #[error("the proxy's answer is longer than {MAX_ANSWER} bytes")]
    TooLarge,
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// The proxy's root and the path.
    pub(crate) url: String,
    /// Shown as a bearer, which LiteLLM takes on every path.
    pub(crate) credential: Option<&'a Secret>,
    /// JSON.
    pub(crate) body: Option<Vec<u8>>,
}

/// Makes requests.
#[derive(Default)]
pub(crate) struct Client {
    limits: Limits,
    /// Read once, when the first trusted connection is needed.
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Client {
    #[cfg(test)]
    pub(crate) fn with(limits: Limits, roots: RootCertStore) -> Self {
        let tls = OnceLock::new();
        let _ = tls.set(tls_config(roots));
        Self { limits, tls }
    }

    /// Sends one request and reads the whole answer.
    pub(crate) async fn send(&self, ask: Ask<'_>) -> Result<Answer, Fault> {
        let (request, target) = prepare(ask)?;
        let whole = async {
            let connected = timeout(self.limits.connect, self.connect(&target)).await;
            let stream = connected.map_err(|_| Fault::ConnectTimeout)??;
            exchange(stream, request).await
        };
        timeout(self.limits.whole, whole)
            .await
            .map_err(|_| Fault::Timeout)?
    }

    async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, Fault> {
        let stream = TcpStream::connect((target.host.as_str(), target.port))
            .await
            .map_err(Fault::Connect)?;
        if !target.tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(target.host.clone())
            .map_err(|error| Fault::Request(error.into()))?;
        let config = self.tls.get_or_init(|| tls_config(native_roots()));
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        Ok(Box::new(stream.await.map_err(Fault::Tls)?))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where a connection goes.
struct Target {
    host: String,
    port: u16,
    tls: bool,
}

fn prepare(ask: Ask<'_>) -> Result<(Request<Full<Bytes>>, Target), Fault> {
    let uri: Uri = ask
        .url
        .parse()
        .map_err(|error: http::uri::InvalidUri| Fault::Request(error.into()))?;
    let tls = uri.scheme_str() == Some("https");
    let authority = uri
        .authority()
        .ok_or_else(|| Fault::Request("the address has no host".into()))?;
    let host = authority.host();
    let target = Target {
        // An IPv6 address stands in brackets.
        host: host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
        port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        tls,
    };
    let mut request = Request::builder()
        .method(ask.method)
        .uri(uri.path())
        .header(HOST, authority.as_str())
        .header(ACCEPT, "application/json");
    if let Some(credential) = ask.credential {
        let value = Zeroizing::new([b"Bearer ", credential.expose()].concat());
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| Fault::Credential)?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    if ask.body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(Bytes::from(ask.body.unwrap_or_default()));
    let request = request
        .body(body)
        .map_err(|error| Fault::Request(error.into()))?;
    Ok((request, target))
}

/// Drives the connection and the request together, so that neither is left when the other ends.
async fn exchange(stream: Box<dyn Stream>, request: Request<Full<Bytes>>) -> Result<Answer, Fault> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(Fault::Broken)?;
    let answer = async move {
        let response = sender.send_request(request).await.map_err(Fault::Broken)?;
        let status = response.status().as_u16();
        let body = read(response.into_body()).await?;
        Ok(Answer { status, body })
    };
    with_connection(answer, connection).await
}

async fn with_connection<T>(
    answer: impl Future<Output = Result<T, Fault>>,
    connection: impl Future<Output = hyper::Result<()>>,
) -> Result<T, Fault> {
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // What had come before the connection ended is still to be read, and tells whether it was all.
        _ = connection => answer.await,
    }
}

async fn read(mut body: Incoming) -> Result<Zeroizing<Vec<u8>>, Fault> {
    // As large as it may become: a buffer that grows leaves copies of a key behind.
    let mut read = Zeroizing::new(Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Fault::Broken)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if read.len() + data.len() > MAX_ANSWER {
            return Err(Fault::TooLarge);
        }
        if read.capacity() == 0 {
            read.reserve_exact(data.len().max(16 << 10));
        }
        if read.len() + data.len() > read.capacity() {
            let mut larger = Vec::with_capacity((read.len() + data.len()) * 2);
            larger.extend_from_slice(&read);
            read = Zeroizing::new(larger);
        }
        read.extend_from_slice(data);
    }
    Ok(read)
}

fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // A file that cannot be read leaves its certificates out: what they sign is then not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn tls_config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
