//! Where a server is and how to reach it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Uri};
use zeroize::Zeroizing;

use crate::ClientError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The largest answer that is taken, bytes. A page of events can be large, a single message of 16 MiB fits anyway.
pub(crate) const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Where a server is.
#[derive(Clone)]
pub struct Endpoint(Place);

#[derive(Clone)]
enum Place {
    Unix(PathBuf),
    Tcp { url: String, token_file: PathBuf },
}

impl Endpoint {
    /// A unix socket; the server knows the caller by the kernel's word.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self(Place::Unix(path.into()))
    }

    /// TCP, as `http://127.0.0.1:7400`; the server knows the caller by the token in this file.
    #[must_use]
    pub fn tcp(url: impl Into<String>, token_file: impl Into<PathBuf>) -> Self {
        Self(Place::Tcp {
            url: url.into(),
            token_file: token_file.into(),
        })
    }

    /// The endpoint as people write it.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.0 {
            Place::Unix(path) => format!("unix:{}", path.display()),
            Place::Tcp { url, .. } => url.clone(),
        }
    }
}

/// A client of one server. Cheap to clone; connects again by itself when the connection breaks.
#[derive(Clone)]
pub struct Client {
    pub(crate) channel: Channel,
    pub(crate) authorization: Option<Arc<MetadataValue<Ascii>>>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`crate::UNREACHABLE`] when nobody listens there, `INVALID_ARGUMENT` for an endpoint that cannot be meant.
    pub async fn connect(endpoint: Endpoint) -> Result<Self, ClientError> {
        match endpoint.0 {
            Place::Unix(path) => connect_unix(path).await,
            Place::Tcp { url, token_file } => connect_tcp(&url, &token_file).await,
        }
    }
}

async fn connect_unix(path: PathBuf) -> Result<Client, ClientError> {
    // Tried once by hand, so that the error is the system's own word and not a chain of wrappers.
    drop(UnixStream::connect(&path).await.map_err(|error| {
        ClientError::unreachable(format!("no server answers at {}: {error}", path.display()))
    })?);
    let endpoint = settings(tonic::transport::Endpoint::from_static(
        "http://astrabox.local",
    ));
    let path: Arc<Path> = path.into();
    let connector = tower::service_fn(move |_: Uri| {
        let path = Arc::clone(&path);
        async move { UnixStream::connect(&path).await.map(TokioIo::new) }
    });
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| unreachable(&error))?;
    Ok(Client {
        channel,
        authorization: None,
    })
}

async fn connect_tcp(url: &str, token_file: &Path) -> Result<Client, ClientError> {
    let uri: Uri = url
        .parse()
        .map_err(|_| ClientError::invalid(format!("`{url}` is not a URL")))?;
    if uri.scheme_str() != Some("http") {
        return Err(ClientError::invalid(format!(
            "`{url}`: this client speaks http:// only; for a server behind TLS, forward a local port to it"
        )));
    }
    let authorization = read_token(token_file).await?;
    let channel = settings(tonic::transport::Endpoint::from(uri))
        .connect()
        .await
        .map_err(|error| unreachable(&error))?;
    Ok(Client {
        channel,
        authorization: Some(Arc::new(authorization)),
    })
}

fn settings(endpoint: tonic::transport::Endpoint) -> tonic::transport::Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .http2_adaptive_window(true)
}

async fn read_token(file: &Path) -> Result<MetadataValue<Ascii>, ClientError> {
    let name = file.display();
    let text = tokio::fs::read_to_string(file)
        .await
        .map(Zeroizing::new)
        .map_err(|error| {
            ClientError::invalid(format!("the token file {name} cannot be read: {error}"))
        })?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ClientError::invalid(format!(
            "the token file {name} must hold one token of printable ASCII"
        )));
    }
    let header = Zeroizing::new(format!("Bearer {token}"));
    let mut value = MetadataValue::try_from(header.as_str()).map_err(|_| {
        ClientError::invalid(format!(
            "the token file {name} must hold one token of printable ASCII"
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn unreachable(error: &tonic::transport::Error) -> ClientError {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        text = error.to_string();
        next = error.source();
    }
    ClientError::unreachable(format!("the server is not reached: {text}"))
}
