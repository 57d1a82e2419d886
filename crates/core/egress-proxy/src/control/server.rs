//! The role's side of the control socket.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use astrabox_sandbox::EgressWorkload;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::control::{
    MAX_VERSION, MIN_VERSION, RefusalKind, Reply, Request, RoleInfo, WireCredentials, frame,
};
use crate::workloads::{CommandError, Workloads};

/// How long a peer may take to say hello.
const HELLO: Duration = Duration::from_secs(5);

/// How long an answer may take to be sent.
const ANSWER: Duration = Duration::from_secs(5);

/// How many control connections there may be; a server needs one.
const MAX_CONNECTIONS: usize = 16;

/// How long to wait when the system has no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// What the control connections share.
pub(crate) struct Control {
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) info: RoleInfo,
    /// The only user besides root that may speak: the one that started the role.
    pub(crate) owner: u32,
    /// Ends the role.
    pub(crate) shutdown: CancellationToken,
}

/// Serves the control socket until `stop`.
pub(crate) async fn serve(listener: UnixListener, control: Arc<Control>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if ended.is_err() {
                    tracing::error!("a control connection panicked");
                }
            }
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    if is_peer_allowed(&stream, control.owner) {
                        connections.spawn(converse(stream, Arc::clone(&control)));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a control connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn is_peer_allowed(stream: &UnixStream, owner: u32) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == owner || peer.uid() == 0 => true,
        Ok(peer) => {
            tracing::warn!(
                uid = peer.uid(),
                "another user's control connection is refused"
            );
            false
        }
        Err(error) => {
            tracing::warn!(%error, "a control connection without a peer is refused");
            false
        }
    }
}

/// Counts the connection as its server's presence for as long as it lives.
struct Presence<'a> {
    workloads: &'a Workloads,
    instance: String,
}

impl<'a> Presence<'a> {
    fn begin(workloads: &'a Workloads, instance: String) -> Self {
        workloads.arrive(&instance);
        Self {
            workloads,
            instance,
        }
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.workloads.leave(&self.instance);
    }
}

async fn converse(stream: UnixStream, control: Arc<Control>) {
    let result = match timeout(HELLO, greet(&stream, &control)).await {
        Ok(Ok(Some(presence))) => answer_all(&stream, &control, &presence.instance).await,
        Ok(Ok(None)) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = result {
        tracing::warn!(%error, "a control connection broke");
    }
}

/// The first request must be `hello`, or `shutdown` from a server of any version.
async fn greet<'a>(stream: &UnixStream, control: &'a Control) -> io::Result<Option<Presence<'a>>> {
    let Some((request, _)) = frame::receive::<Request>(stream).await? else {
        return Ok(None);
    };
    let (min_version, max_version, client, instance) = match request {
        Request::Hello {
            min_version,
            max_version,
            client,
            instance,
        } => (min_version, max_version, client, instance),
        Request::Shutdown {} => {
            frame::send(stream, &Reply::Done {}, None).await?;
            control.shutdown.cancel();
            return Ok(None);
        }
        _ => {
            let refusal = refused(RefusalKind::Invalid, "the first request is hello");
            frame::send(stream, &refusal, None).await?;
            return Ok(None);
        }
    };
    let version = max_version.min(MAX_VERSION);
    if version < MIN_VERSION.max(min_version) {
        let message = format!(
            "the role speaks the versions {MIN_VERSION} to {MAX_VERSION}, the client {min_version} to {max_version}"
        );
        frame::send(stream, &refused(RefusalKind::Version, message), None).await?;
        return Ok(None);
    }
    tracing::info!(%client, "a control connection");
    let presence = Presence::begin(&control.workloads, instance);
    let role = control.info.clone();
    frame::send(stream, &Reply::Hello { version, role }, None).await?;
    Ok(Some(presence))
}

async fn answer_all(stream: &UnixStream, control: &Control, instance: &str) -> io::Result<()> {
    while let Some((request, descriptor)) = frame::receive::<Request>(stream).await? {
        let shutdown = matches!(request, Request::Shutdown {});
        let reply = execute(control, instance, request, descriptor).await;
        timeout(ANSWER, frame::send(stream, &reply, None))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if shutdown {
            // The end of this connection tells the client that everything is closed.
            control.shutdown.cancel();
        }
    }
    Ok(())
}

async fn execute(
    control: &Control,
    instance: &str,
    request: Request,
    descriptor: Option<OwnedFd>,
) -> Reply {
    let workloads = &control.workloads;
    let done = match (request, descriptor) {
        (
            Request::Configure {
                config,
                extra_roots,
            },
            None,
        ) => {
            if let Err(error) = config.check() {
                return refused(RefusalKind::Invalid, error.to_string());
            }
            workloads.configure(config, &extra_roots).await
        }
        (
            Request::Open {
                sandbox_id,
                session_id,
                policy,
                credentials,
            },
            Some(listener),
        ) => {
            let workload = EgressWorkload {
                sandbox_id,
                session_id,
            };
            let credentials = credentials.map(|WireCredentials(credentials)| credentials);
            workloads
                .open(instance, workload, policy, credentials, listener)
                .await
        }
        (Request::Open { .. }, None) => {
            return refused(RefusalKind::Invalid, "open comes with a listener");
        }
        (Request::Update { sandbox_id, policy }, None) => {
            workloads.update(instance, sandbox_id, policy).await
        }
        (
            Request::SetCredentials {
                sandbox_id,
                credentials: WireCredentials(credentials),
            },
            None,
        ) => {
            workloads
                .set_credentials(instance, sandbox_id, credentials)
                .await
        }
        (Request::Authority {}, None) => {
            return Reply::Authority {
                certificate: workloads.services().interception.authority().to_owned(),
            };
        }
        (Request::Close { sandbox_id }, None) => {
            workloads.close(sandbox_id).await;
            Ok(())
        }
        (Request::List {}, None) => {
            return Reply::Workloads {
                workloads: workloads.list(),
            };
        }
        (Request::Drain {}, None) => {
            workloads.drain();
            Ok(())
        }
        (Request::Shutdown {}, None) => Ok(()),
        (Request::Hello { .. }, _) => {
            return refused(RefusalKind::Invalid, "hello is the first request only");
        }
        (_, Some(_)) => {
            return refused(RefusalKind::Invalid, "only open comes with a descriptor");
        }
    };
    match done {
        Ok(()) => Reply::Done {},
        Err(error @ CommandError::NotOpen) => refused(RefusalKind::NotOpen, error.to_string()),
        Err(error @ (CommandError::Listener(_) | CommandError::Roots(_))) => {
            refused(RefusalKind::Invalid, error.to_string())
        }
    }
}

fn refused(kind: RefusalKind, message: impl Into<String>) -> Reply {
    Reply::Refused {
        kind,
        message: message.into(),
    }
}
