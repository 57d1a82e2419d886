//! Listeners, connections, and their end.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use astrabox_platform::Platform;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body as TonicBody;

use crate::gate::Gate;
use crate::identity::Peer;
use crate::services::{self, Health};

/// How long connections get to send their last frames when everything else is done.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// How long accepting waits after the system refused it, as when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Settings of the transport.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// How many connections may be open.
    pub max_connections: usize,
    /// How many calls one connection may have open.
    pub max_calls_per_connection: u32,
    /// After how much silence a connection is asked whether it lives.
    pub keepalive_interval: Duration,
    /// How long it may take to answer that.
    pub keepalive_timeout: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_connections: 512,
            max_calls_per_connection: 128,
            keepalive_interval: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(20),
        }
    }
}

/// Where connections come from. Made by the caller, so that tests and socket activation need no special way.
#[derive(Debug)]
pub enum Listener {
    /// A unix socket; the kernel tells who connects.
    Unix(UnixListener),
    /// TCP, without encryption: for loopback, or behind something that encrypts.
    Tcp(TcpListener),
}

/// The gRPC server of one platform.
pub struct Server {
    platform: Platform,
    settings: ServerSettings,
}

impl Server {
    /// A server of this platform.
    #[must_use]
    pub fn new(platform: Platform, settings: ServerSettings) -> Self {
        Self { platform, settings }
    }

    /// Serves these listeners until the answer is drained and closed.
    #[must_use]
    pub fn spawn(self, listeners: Vec<Listener>) -> Running {
        let drain = CancellationToken::new();
        let kill = CancellationToken::new();
        let (routes, health) = services::routes(&self.platform, &drain);
        let gate = Gate::new(routes, Arc::new(self.platform), drain.clone(), kill.clone());
        let shared = Arc::new(Shared {
            gate,
            connections: Arc::new(Semaphore::new(self.settings.max_connections)),
            settings: self.settings,
            tasks: TaskTracker::new(),
            drain,
            kill,
        });
        for listener in listeners {
            shared.tasks.spawn(accept(Arc::clone(&shared), listener));
        }
        Running { shared, health }
    }
}

/// A server that serves. Dropping it ends it at once, without waiting for anything.
pub struct Running {
    shared: Arc<Shared>,
    health: Health,
}

impl Running {
    /// Takes no more connections and calls, tells watchers to come back later, and waits for running calls until
    /// `deadline`. Returns whether they all ended.
    pub async fn drain(&self, deadline: Instant) -> bool {
        self.health.not_serving().await;
        self.shared.drain.cancel();
        let calls = self.shared.gate.calls();
        calls.close();
        tokio::time::timeout_at(deadline, calls.wait())
            .await
            .is_ok()
    }

    /// Closes every connection. What still runs is dropped. No task of the server is left.
    pub async fn close(self) {
        self.shared.drain.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(CLOSE_GRACE, self.shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::debug!("closing connections whose clients did not read to the end");
        }
        self.shared.kill.cancel();
        self.shared.gate.calls().close();
        self.shared.tasks.wait().await;
        self.shared.gate.calls().wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.drain.cancel();
        self.shared.kill.cancel();
    }
}

struct Shared {
    gate: Gate,
    connections: Arc<Semaphore>,
    settings: ServerSettings,
    tasks: TaskTracker,
    drain: CancellationToken,
    kill: CancellationToken,
}

async fn accept(shared: Arc<Shared>, listener: Listener) {
    let drain = shared.drain.clone();
    let accepting = async {
        loop {
            let Ok(permit) = Arc::clone(&shared.connections).acquire_owned().await else {
                return;
            };
            let accepted = match &listener {
                Listener::Unix(listener) => accept_unix(&shared, listener, permit).await,
                Listener::Tcp(listener) => accept_tcp(&shared, listener, permit).await,
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    };
    drain.run_until_cancelled(accepting).await;
}

type Permit = tokio::sync::OwnedSemaphorePermit;

async fn accept_unix(
    shared: &Arc<Shared>,
    listener: &UnixListener,
    permit: Permit,
) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    // Without credentials the caller has only its token to show.
    let uid = stream.peer_cred().ok().map(|peer| peer.uid());
    shared
        .tasks
        .spawn(serve(Arc::clone(shared), stream, Peer { uid }, permit));
    Ok(())
}

async fn accept_tcp(
    shared: &Arc<Shared>,
    listener: &TcpListener,
    permit: Permit,
) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    // Deltas are small and shall not wait for each other.
    stream.set_nodelay(true)?;
    shared.tasks.spawn(serve(
        Arc::clone(shared),
        stream,
        Peer { uid: None },
        permit,
    ));
    Ok(())
}

async fn serve<S>(shared: Arc<Shared>, stream: S, peer: Peer, permit: Permit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = &shared.settings;
    let executor = Owned {
        tasks: shared.tasks.clone(),
        kill: shared.kill.clone(),
    };
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(settings.keepalive_interval)
        .keep_alive_timeout(settings.keepalive_timeout)
        .max_concurrent_streams(settings.max_calls_per_connection);
    let service = Calls {
        shared: Arc::clone(&shared),
        peer,
    };
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = shared.drain.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.as_mut().await
    };
    if let Some(Err(error)) = shared.kill.run_until_cancelled(served).await {
        tracing::debug!(%error, "a connection ended");
    }
    drop(permit);
}

/// The calls of one connection.
struct Calls {
    shared: Arc<Shared>,
    peer: Peer,
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<TonicBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let peer = self.peer;
        Box::pin(async move { Ok(shared.gate.call(peer, request).await) })
    }
}

/// Runs hyper's tasks where they are owned and end with the server.
#[derive(Clone)]
struct Owned {
    tasks: TaskTracker,
    kill: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Owned
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, work: F) {
        let kill = self.kill.clone();
        self.tasks.spawn(async move {
            kill.run_until_cancelled(work).await;
        });
    }
}
