//! An App that serves, and its end.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use astrabox_platform::Platform;
use astrabox_store::Store;
use tokio::time::Instant;

use crate::egress::Egress;
use crate::listeners::Addresses;

/// A server that serves. It goes on until [`RunningApp::shutdown`].
pub struct RunningApp {
    pub(crate) server: astrabox_grpc::Running,
    pub(crate) platform: Platform,
    pub(crate) store: Store,
    pub(crate) egress: Egress,
    pub(crate) addresses: Addresses,
    pub(crate) locks: Vec<File>,
    pub(crate) drain_timeout: Duration,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Every running call got its answer.
    Complete,
    /// Some calls were dropped at the deadline. What they did is durable or did not happen; no turn is lost.
    Cut,
}

impl RunningApp {
    /// The unix socket that the configuration named.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.addresses.socket.as_ref().map(|socket| socket.path())
    }

    /// The TCP address, with the port that the system chose.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.addresses.tcp
    }

    /// The platform, for embedders that call it without a wire.
    #[must_use]
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Takes no more work, tells watchers to come back later, waits for running calls up to `server.drain_timeout`,
    /// and ends every task. Running turns go on in their sandboxes; the next start adopts them.
    pub async fn shutdown(self) -> Shutdown {
        let Self {
            server,
            platform,
            store,
            egress,
            addresses,
            locks,
            drain_timeout,
        } = self;
        let deadline = Instant::now() + drain_timeout;
        tracing::info!("draining");
        let complete = server.drain(deadline).await;
        platform
            .drain(deadline.saturating_duration_since(Instant::now()))
            .await;
        server.close().await;
        drop(platform);
        store.close().await;
        egress.leave().await;
        drop(addresses);
        drop(locks);
        let shutdown = if complete {
            Shutdown::Complete
        } else {
            Shutdown::Cut
        };
        tracing::info!(?shutdown, "ended");
        shutdown
    }
}
