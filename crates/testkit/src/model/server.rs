//! The endpoint as a value: started, asked, released, shut down.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::conversation::Conversation;
use super::gate::Gates;
use super::http::{self, Observer, Script, Shared};
use super::reply::Reply;
use super::requests::{CredentialHash, Recorded};

/// The gate at which a `STALL` waits.
pub(crate) const STALL: &str = "stall";
/// How long answers under way may take to go out at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// What can go wrong with a scripted model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something that was waited for did not happen.
    #[error("{what} did not happen within {deadline:?}; {seen}")]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        deadline: Duration,
        /// What happened instead.
        seen: String,
    },
}

/// How a scripted model is to be.
#[derive(Default)]
pub struct Builder {
    listen: Option<SocketAddr>,
    models: Vec<String>,
    credential: Option<CredentialHash>,
    script: Option<Box<Script>>,
    observer: Option<Box<Observer>>,
    queue: VecDeque<Reply>,
    tls: Option<Arc<ServerConfig>>,
}

impl Builder {
    /// Speaks TLS this way, as [`crate::upstream::Authority::server`] makes it.
    #[must_use]
    pub fn tls(mut self, tls: Arc<ServerConfig>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Listens here instead of on a free port of 127.0.0.1.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Adds a model to `/v1/models`; without any it lists `scripted-model`. Answers are given
    /// under whatever name is asked for.
    #[must_use]
    pub fn model(mut self, id: impl Into<String>) -> Self {
        self.models.push(id.into());
        self
    }

    /// Answers 401 to every request without exactly this credential. Only its hash is kept.
    #[must_use]
    pub fn require_credential(mut self, credential: &str) -> Self {
        self.credential = Some(CredentialHash::of(credential));
        self
    }

    /// Asks this closure for each answer; where it gives none, the directives decide.
    #[must_use]
    pub fn script(
        mut self,
        script: impl Fn(&Conversation) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        self.script = Some(Box::new(script));
        self
    }

    /// Queues an answer; queued answers go before the closure and the directives.
    #[must_use]
    pub fn reply(mut self, reply: Reply) -> Self {
        self.queue.push_back(reply);
        self
    }

    /// Calls this with each request, in order, before it is answered. It must not block for long.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&Recorded) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub async fn start(self) -> Result<ScriptedModel, Error> {
        let address = self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut models = self.models;
        if models.is_empty() {
            models.push("scripted-model".to_owned());
        }
        let cancel = CancellationToken::new();
        let shared = Arc::new(Shared {
            models,
            credential: self.credential,
            script: self.script,
            observer: self.observer,
            queue: Mutex::new(self.queue),
            asked: Mutex::new(HashMap::new()),
            log: watch::Sender::new(Vec::new()),
            gates: Gates::new(),
            cancel: cancel.clone(),
        });
        let mut accepting = JoinSet::new();
        let tls = self.tls.is_some();
        accepting.spawn(accept(
            listener,
            self.tls.map(TlsAcceptor::from),
            shared.clone(),
        ));
        Ok(ScriptedModel {
            address,
            tls,
            accepting,
            shared,
            cancel: cancel.drop_guard(),
        })
    }
}

/// A running scripted model. Dropping it ends it; [`ScriptedModel::shutdown`] also waits for that.
pub struct ScriptedModel {
    address: SocketAddr,
    tls: bool,
    shared: Arc<Shared>,
    accepting: JoinSet<()>,
    cancel: DropGuard,
}

impl ScriptedModel {
    /// A model to be set up.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://address`, without a path: what Anthropic clients want. OpenAI clients want `/v1`
    /// behind it.
    pub fn base_url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// All requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<Arc<Recorded>> {
        self.shared.log.borrow().clone()
    }

    /// Waits until the model was asked for `n` answers and gives those requests. Lists, token
    /// counts and the like do not count.
    ///
    /// # Errors
    /// [`Error::Deadline`].
    pub async fn wait_for_requests(
        &self,
        n: usize,
        deadline: Duration,
    ) -> Result<Vec<Arc<Recorded>>, Error> {
        let mut log = self.shared.log.subscribe();
        let enough = async {
            // The sender lives in `self.shared`, so the channel stays open.
            let _ = log.wait_for(|log| answers(log).count() >= n).await;
        };
        self.within(deadline, format!("request {n}"), enough)
            .await?;
        let log = self.shared.log.borrow();
        Ok(answers(&log).cloned().collect())
    }

    /// Queues an answer for the next request that asks for one.
    pub fn enqueue(&self, reply: Reply) {
        let queue = self.shared.queue.lock();
        queue
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(reply);
    }

    /// Opens a `HOLD` for good: for all who wait there and all who come later.
    pub fn release(&self, name: &str) {
        self.shared.gates.release(name);
    }

    /// Lets every `STALL` go on, now and later.
    pub fn release_stalls(&self) {
        self.release(STALL);
    }

    /// The names at which answers wait now; `stall` stands for a `STALL`.
    pub fn held(&self) -> Vec<String> {
        self.shared.gates.held()
    }

    /// Waits until an answer waits at `name`.
    ///
    /// # Errors
    /// [`Error::Deadline`].
    pub async fn wait_until_held(&self, name: &str, deadline: Duration) -> Result<(), Error> {
        let held = self.shared.gates.until_held(name);
        self.within(deadline, format!("a hold at `{name}`"), held)
            .await
    }

    /// Waits until no answer waits at `name` any more, because it was released or its client went
    /// away.
    ///
    /// # Errors
    /// [`Error::Deadline`].
    pub async fn wait_until_left(&self, name: &str, deadline: Duration) -> Result<(), Error> {
        let left = self.shared.gates.until_left(name);
        self.within(deadline, format!("the end of the hold at `{name}`"), left)
            .await
    }

    /// Stops listening, breaks off answers that wait or pause, and returns when no task is left.
    pub async fn shutdown(mut self) {
        drop(self.cancel);
        // The task ends by itself within the grace period and has nothing to tell.
        while self.accepting.join_next().await.is_some() {}
    }

    async fn within(
        &self,
        deadline: Duration,
        what: String,
        event: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        tokio::time::timeout(deadline, event)
            .await
            .map_err(|_| Error::Deadline {
                what,
                deadline,
                seen: self.seen(),
            })
    }

    fn seen(&self) -> String {
        let log = self.shared.log.borrow();
        let prompts: Vec<&str> = answers(&log).map(|request| request.prompt()).collect();
        let held = self.held();
        format!("prompts so far: {prompts:?}, held at: {held:?}")
    }
}

fn answers(log: &[Arc<Recorded>]) -> impl Iterator<Item = &Arc<Recorded>> {
    log.iter().filter(|request| request.wire.is_some())
}

/// Accepts until cancelled, then waits for the connections.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.cancel.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(shake_hands(stream, tls.clone(), shared.clone()));
                }
                // Out of descriptors, most likely: others may give some back.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_GRACE, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn shake_hands(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Deltas are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return connection(stream, shared).await;
    };
    let cancel = shared.cancel.clone();
    let shaken = tokio::select! {
        shaken = tls.accept(stream) => shaken,
        () = cancel.cancelled() => return,
    };
    // A handshake that fails is the client's to tell.
    if let Ok(stream) = shaken {
        connection(stream, shared).await;
    }
}

/// Serves one connection. Its errors are clients that went away and cuts that were asked for.
async fn connection<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let cancel = shared.cancel.clone();
    let service = service_fn(move |request| http::handle(shared.clone(), request));
    let mut connection =
        pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = cancel.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
