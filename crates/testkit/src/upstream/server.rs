//! The server: each request is kept, then answered by a function.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Authority;

/// The largest request body that is read.
const MAX_BODY: usize = 64 << 20;

/// A request as it came, secrets and all.
#[derive(Debug, Clone)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Bytes,
}

impl Received {
    /// The first header of this name, given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }
}

/// What is answered.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// An answer with a body of this type.
    #[must_use]
    pub fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.into(),
        }
    }
}

/// Answers a request.
pub type Handler =
    dyn Fn(Received) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync + 'static;

struct Shared {
    handler: Box<Handler>,
    received: Mutex<Vec<Received>>,
    count: watch::Sender<usize>,
    cancel: CancellationToken,
}

/// A running server. Dropping it ends it.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinSet<()>,
    cancel: DropGuard,
}

impl Upstream {
    /// Listens on a free port of 127.0.0.1, with TLS as these names where an authority is given.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start<F, A>(tls: Option<(&Authority, &[&str])>, handler: F) -> Result<Self>
    where
        F: Fn(Received) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let acceptor = tls
            .map(|(authority, names)| authority.server(names, &["http/1.1"]))
            .transpose()?
            .map(TlsAcceptor::from);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let cancel = CancellationToken::new();
        let shared = Arc::new(Shared {
            handler: Box::new(move |received| Box::pin(handler(received))),
            received: Mutex::default(),
            count: watch::Sender::new(0),
            cancel: cancel.clone(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            accepting,
            cancel: cancel.drop_guard(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        let received = self.shared.received.lock();
        received.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until there were `n` requests.
    ///
    /// # Errors
    /// When they do not come within `deadline`.
    pub async fn wait_for(&self, n: usize, deadline: Duration) -> Result<Vec<Received>> {
        let mut count = self.shared.count.subscribe();
        let enough = count.wait_for(|count| *count >= n);
        match tokio::time::timeout(deadline, enough).await {
            Ok(Ok(_)) => Ok(self.received()),
            Ok(Err(_)) => bail!("the server has ended"),
            Err(_) => bail!("{} of {n} requests came", self.received().len()),
        }
    }

    /// Ends it and waits for its tasks.
    pub async fn shutdown(mut self) {
        drop(self.cancel);
        while self.accepting.join_next().await.is_some() {}
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = shared.cancel.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => break,
            },
        };
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let cancel = shared.cancel.clone();
            let serve = async {
                // A handshake that fails is the client's to tell.
                match acceptor {
                    None => connection(stream, shared).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            connection(stream, shared).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = serve => {}
                () = cancel.cancelled() => {}
            }
        });
    }
    connections.shutdown().await;
}

async fn connection<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    // Its errors are clients that went away.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let answer = match receive(request).await {
        Ok(received) => {
            let kept = received.clone();
            shared
                .received
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(kept);
            shared.count.send_modify(|count| *count += 1);
            (shared.handler)(received).await
        }
        Err(error) => Answer::new(400, "text/plain", format!("{error:#}")),
    };
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response
        .body(Full::new(answer.body))
        .unwrap_or_else(|_| Response::new(Full::new(Bytes::from_static(b"a bad answer"))))
}

async fn receive(request: Request<Incoming>) -> Result<Received> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body
        .map_err(|error| anyhow::anyhow!("{error}"))
        .context("the body")?;
    let headers = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    Ok(Received {
        method: parts.method.to_string(),
        target: parts
            .uri
            .path_and_query()
            .map_or_else(|| parts.uri.to_string(), ToString::to_string),
        headers: headers.collect(),
        body: body.to_bytes(),
    })
}
