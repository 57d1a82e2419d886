//! The way up: the head, what was held back of the body, and the rest as it comes.

use std::sync::atomic::Ordering;

use astrabox_egress::Refusal;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::hold::Held;
use super::{Io, Outgoing, Progress, lock};
use crate::answer::Bad;
use crate::http::body::{BodyError, write_end, write_piece};
use crate::http::framing::BodyLength;
use crate::http::head::MAX_HEAD;
use crate::meter::Meter;

/// Why a request was not sent to its end.
pub(super) enum UploadFailed {
    /// The upstream takes no more.
    Upstream,
    /// The client's body is not what it says.
    Body(Bad),
    /// A placeholder in the body must not go on.
    Refused(Refusal),
    /// The client's connection failed.
    Client,
}

impl From<BodyError> for UploadFailed {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Malformed => Self::Body(Bad::Body),
            BodyError::Truncated => Self::Body(Bad::Incomplete),
            BodyError::Io => Self::Client,
        }
    }
}

impl From<Refusal> for UploadFailed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Sends the request; then passes on the end of what the client sends, which is how a client gives up.
/// Returns on failure only.
pub(super) async fn upload<C: Io, U: Io>(
    mut client: ReadHalf<C>,
    buffer: &mut BytesMut,
    mut upstream: WriteHalf<U>,
    outgoing: &Outgoing,
    held: Held,
    meter: &Meter,
    progress: &Progress,
) -> UploadFailed {
    let sent = send(
        &mut client,
        buffer,
        &mut upstream,
        outgoing,
        held,
        meter,
        progress,
    );
    if let Err(failed) = sent.await {
        return failed;
    }
    progress.sent.store(true, Ordering::Relaxed);
    loop {
        // A client that sends its next requests ahead is read no further than a head may be long.
        if buffer.len() >= MAX_HEAD {
            return std::future::pending().await;
        }
        buffer.reserve(4096);
        match client.read_buf(buffer).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => return UploadFailed::Client,
        }
    }
    progress.half_closed.store(true, Ordering::Relaxed);
    match upstream.shutdown().await {
        Ok(()) => std::future::pending().await,
        Err(_) => UploadFailed::Upstream,
    }
}

async fn send<C: Io, U: Io>(
    client: &mut ReadHalf<C>,
    buffer: &mut BytesMut,
    upstream: &mut WriteHalf<U>,
    outgoing: &Outgoing,
    mut held: Held,
    meter: &Meter,
    progress: &Progress,
) -> Result<(), UploadFailed> {
    let gone = |_| UploadFailed::Upstream;
    let framing = held.terms.body;
    let head = outgoing.head.write(held.terms);
    upstream.write_all(&head).await.map_err(gone)?;
    meter.sent_up(head.len());
    drop(head);
    let mut pieces = std::mem::take(&mut held.ready);
    loop {
        send_all(upstream, framing, &mut pieces, meter).await?;
        if held.complete {
            break;
        }
        // Nothing waits in a buffer of ours while the client is waited for.
        upstream.flush().await.map_err(gone)?;
        match held.body.next(client, buffer).await? {
            Some(piece) => {
                meter.touch();
                held.filter.push(piece, &mut pieces)?;
            }
            None => {
                held.filter.finish(&mut pieces)?;
                held.complete = true;
            }
        }
    }
    held.filter.used().clone_into(&mut lock(&progress.used));
    write_end(upstream, framing).await.map_err(gone)?;
    upstream.flush().await.map_err(gone)
}

async fn send_all<U: Io>(
    upstream: &mut WriteHalf<U>,
    framing: BodyLength,
    pieces: &mut Vec<Bytes>,
    meter: &Meter,
) -> Result<(), UploadFailed> {
    for piece in pieces.drain(..) {
        // An empty chunk would end the body.
        if piece.is_empty() {
            continue;
        }
        let length = piece.len();
        write_piece(upstream, framing, piece)
            .await
            .map_err(|_| UploadFailed::Upstream)?;
        meter.sent_up(length);
    }
    Ok(())
}
