//! Accepts what a sandbox opens to the proxy.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::connection;
use crate::services::Services;
use crate::workload::Workload;

/// How many clients at once are told that the sandbox has too many connections; beyond it they are cut off.
const REFUSALS: usize = 32;

/// How long to wait when the system has no descriptor or memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a descriptor for a listener. It becomes non-blocking, in every process that holds it.
///
/// # Errors
/// A text when it is no listening TCP socket.
pub(crate) fn take(descriptor: OwnedFd) -> Result<TcpListener, &'static str> {
    let not_one = "the descriptor is not a listening TCP socket";
    let tcp = sockopt::socket_domain(&descriptor)
        .is_ok_and(|domain| matches!(domain, AddressFamily::INET | AddressFamily::INET6))
        && sockopt::socket_type(&descriptor) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(&descriptor) == Ok(Some(rustix::net::ipproto::TCP));
    if !tcp || sockopt::socket_acceptconn(&descriptor) != Ok(true) {
        return Err(not_one);
    }
    let listener = std::net::TcpListener::from(descriptor);
    listener.set_nonblocking(true).map_err(|_| not_one)?;
    TcpListener::from_std(listener).map_err(|_| "the listener cannot be watched")
}

/// The accept loop of one listener.
pub(crate) struct Acceptor {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Acceptor {
    /// Begins to accept, as a task of the workload.
    pub(crate) fn start(
        listener: TcpListener,
        workload: &Arc<Workload>,
        services: &Arc<Services>,
    ) -> Self {
        let stop = workload.closing.child_token();
        let work = accept(
            listener,
            Arc::clone(workload),
            Arc::clone(services),
            stop.clone(),
        );
        Self {
            task: workload.tasks.spawn(work),
            stop,
        }
    }

    /// Stops accepting and closes this descriptor of the listener; connections go on.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("an accept loop panicked");
        }
    }
}

async fn accept(
    listener: TcpListener,
    workload: Arc<Workload>,
    services: Arc<Services>,
    stop: CancellationToken,
) {
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => receive(client, &workload, &services, &refusals),
            Err(error) => {
                tracing::warn!(sandbox = %workload.sandbox_id, %error, "cannot accept a connection");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}

fn receive(
    client: TcpStream,
    workload: &Arc<Workload>,
    services: &Arc<Services>,
    refusals: &Arc<Semaphore>,
) {
    // A byte of a stream is worth a packet: events come one by one.
    let _ = client.set_nodelay(true);
    let (owner, shared) = (Arc::clone(workload), Arc::clone(services));
    match workload.enter(services.settings().max_connections) {
        Some(place) => {
            workload
                .tasks
                .spawn(connection::serve(client, owner, shared, place));
        }
        None => {
            if let Ok(turn) = Arc::clone(refusals).try_acquire_owned() {
                workload.tasks.spawn(async move {
                    connection::refuse(client, owner, shared).await;
                    drop(turn);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn only_a_listening_tcp_socket_is_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let file = std::fs::File::open(folder.path()).unwrap();
        for wrong in [
            OwnedFd::from(stream),
            datagrams.into(),
            unix.into(),
            file.into(),
        ] {
            assert!(take(wrong).is_err());
        }
        assert!(take(listener.into()).is_ok());
    }
}
