//! HTTP/2 inside of a tunnel: stream by stream, each judged by itself, over one upstream connection.

mod head;
mod stream;
mod transfer;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use h2::server::Connection;
use h2::{client, server};
use tokio::time::{Instant, timeout};

use super::{ClientTls, Tunnel, UpstreamTls};
use crate::answer::Reason;
use crate::connection::End;
use crate::exchange::Io;
use crate::http::head::MAX_HEAD;
use crate::http::read::{HEAD_TIME, QUIET};
use crate::meter::Meter;
use crate::record::Ledger;
use crate::sockets::Handle;

/// How many streams a client may have open at once.
const MOST_STREAMS: u32 = 100;

/// How much of each stream may be on its way, in bytes, and of the whole connection: what a side that does not read
/// makes the role keep.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// How many streams that the client opens and resets at once may be waiting for us before it is cut off
/// (CVE-2023-44487).
const MOST_PENDING_RESETS: usize = 20;

/// How many streams a client may give up within [`RESETS_WITHIN`].
const MOST_RESETS: usize = 200;
const RESETS_WITHIN: Duration = Duration::from_secs(10);

/// How long the end of a connection may take to be told.
const FAREWELL: Duration = Duration::from_secs(2);

/// A field list is at most as long as the head of an HTTP/1 message.
const MAX_FIELDS: u32 = MAX_HEAD as u32;

/// Serves streams until one of the sides ends.
pub(super) async fn serve(
    client: ClientTls,
    upstream: UpstreamTls,
    tunnel: &Tunnel<'_>,
    ledger: &Ledger,
) -> End {
    let address = upstream.get_ref().0.peer;
    let handles = vec![
        Handle::of(&client.get_ref().0.stream),
        Handle::of(&upstream.get_ref().0.stream),
    ];
    run(client, upstream, address, handles, tunnel, ledger).await
}

/// The same over any two connections; `handles` are those of their sockets.
pub(crate) async fn run<C: Io, U: Io>(
    client: C,
    upstream: U,
    address: Option<SocketAddr>,
    handles: Vec<Handle>,
    tunnel: &Tunnel<'_>,
    ledger: &Ledger,
) -> End {
    let both = async { tokio::try_join!(accept(client), connect(upstream)) };
    let (mut client, (requests, upstream)) = match timeout(HEAD_TIME, both).await {
        Ok(Ok(both)) => both,
        _ => return End::Aborted,
    };
    // Nothing may stand open for longer than the idle time without any stream that moves.
    let quiet = Meter::new(std::sync::Arc::default());
    let mut streams = FuturesUnordered::new();
    tokio::pin!(upstream);
    let mut upstream_lives = true;
    let mut resets = Resets::default();
    loop {
        tokio::select! {
            accepted = client.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    quiet.touch();
                    let requests = requests.clone();
                    streams.push(stream::serve(request, respond, requests, address, tunnel, ledger));
                }
                Some(Err(_)) => return End::Aborted,
                None => {
                    drop(streams);
                    return finish(client, handles).await;
                }
            },
            _ = &mut upstream, if upstream_lives => {
                // Its streams fail by themselves; the client has to open another tunnel.
                upstream_lives = false;
                client.graceful_shutdown();
            }
            Some(fate) = streams.next(), if !streams.is_empty() => {
                quiet.touch();
                if resets.is_too_many(fate) {
                    client.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                } else if fate == Fate::NotTaken {
                    client.graceful_shutdown();
                }
            }
            () = quiet.idle(QUIET), if streams.is_empty() => {
                client.graceful_shutdown();
                return finish(client, handles).await;
            }
        }
    }
}

/// Answers the first request in the stead of an upstream that could not be reached.
pub(super) async fn answer_first(client: ClientTls, reason: Reason, tunnel: &Tunnel<'_>) -> End {
    let handles = vec![Handle::of(&client.get_ref().0.stream)];
    let answer = async {
        let mut client = accept(client).await?;
        if let Some(accepted) = client.accept().await {
            let (request, mut respond) = accepted?;
            head::answer(&mut respond, reason, &tunnel.destination)?;
            drop(request);
        }
        client.graceful_shutdown();
        finish(client, handles).await;
        Ok::<(), h2::Error>(())
    };
    let _ = timeout(QUIET, answer).await;
    End::Answered(reason)
}

/// What became of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Served,
    /// The client did not wait for its answer.
    GivenUp,
    /// The upstream takes no more; the client has to open another tunnel.
    NotTaken,
}

/// The streams that a client gives up: each costs the upstream a request, and the client next to nothing.
#[derive(Default)]
struct Resets {
    since: Option<Instant>,
    count: usize,
}

impl Resets {
    fn is_too_many(&mut self, fate: Fate) -> bool {
        if fate != Fate::GivenUp {
            return false;
        }
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since > RESETS_WITHIN) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count += 1;
        self.count > MOST_RESETS
    }
}

async fn accept<C: Io>(client: C) -> Result<Connection<C, Bytes>, h2::Error> {
    server::Builder::new()
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MAX_FIELDS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(MOST_PENDING_RESETS)
        .handshake(client)
        .await
}

async fn connect<U: Io>(
    upstream: U,
) -> Result<(client::SendRequest<Bytes>, client::Connection<U, Bytes>), h2::Error> {
    client::Builder::new()
        .enable_push(false)
        .max_header_list_size(MAX_FIELDS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(upstream)
        .await
}

/// Lets what is on its way arrive, and closes in the ordinary way.
async fn finish<C: Io>(mut client: Connection<C, Bytes>, handles: Vec<Handle>) -> End {
    handles.into_iter().for_each(Handle::settle);
    let closed = std::future::poll_fn(|cx| client.poll_closed(cx));
    match timeout(FAREWELL, closed).await {
        Ok(Ok(())) => End::Completed,
        _ => End::Aborted,
    }
}
