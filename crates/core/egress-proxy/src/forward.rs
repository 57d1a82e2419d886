//! One request in absolute form and its answer, both streamed as they come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::answer::{Bad, Reason};
use crate::connection::End;
use crate::http::body::{BodyError, BodyReader, write_end, write_piece};
use crate::http::head::{MAX_HEAD, ResponseHead};
use crate::http::read;
use crate::http::request::Forward;
use crate::http::response::Passage;
use crate::meter::Meter;

/// How many interim answers may come before the final one.
const MAX_INTERIM: usize = 16;

/// How an exchange went.
pub(crate) enum Outcome {
    /// The answer is complete.
    Done {
        /// Whether the client's connection stands at the beginning of another request.
        reusable: bool,
    },
    /// The client has got nothing yet and is owed this answer.
    Unanswered(Reason),
    /// The client has got a part and must see that it is one.
    Broken(End),
}

/// Sends `request` with its body, which begins in `buffer`, and returns the answer.
pub(crate) async fn exchange(
    client: &mut TcpStream,
    buffer: &mut BytesMut,
    upstream: &mut TcpStream,
    request: &Forward,
    meter: &Meter,
    idle: Duration,
) -> Outcome {
    let (client_read, client_write) = client.split();
    let (upstream_read, upstream_write) = upstream.split();
    let progress = Progress::default();
    let upload = upload(
        client_read,
        buffer,
        upstream_write,
        request,
        meter,
        &progress,
    );
    let download = download(upstream_read, client_write, request, meter, &progress);
    tokio::pin!(upload, download);
    let mut uploading = true;
    loop {
        let (reason, end) = tokio::select! {
            failed = &mut upload, if uploading => match failed {
                // The upstream reads no more; it may have answered all the same.
                UploadFailed::Upstream => {
                    uploading = false;
                    continue;
                }
                UploadFailed::Body(bad) => (bad.into(), End::Answered(bad.into())),
                UploadFailed::Client => return Outcome::Broken(End::Aborted),
            },
            outcome = &mut download => match outcome {
                Ok(keep_alive) => {
                    let sent = progress.sent.load(Ordering::Relaxed);
                    return Outcome::Done { reusable: keep_alive && sent };
                }
                Err(DownloadFailed::Upstream(reason)) => (reason, End::Answered(reason)),
                Err(DownloadFailed::Client) => return Outcome::Broken(End::Aborted),
            },
            () = meter.idle(idle) => (Reason::Timeout, End::Idle),
        };
        return if progress.answered.load(Ordering::Relaxed) {
            Outcome::Broken(end)
        } else {
            Outcome::Unanswered(reason)
        };
    }
}

#[derive(Default)]
struct Progress {
    /// The request is wholly sent.
    sent: AtomicBool,
    /// The final answer has begun to go to the client.
    answered: AtomicBool,
}

enum UploadFailed {
    /// The upstream takes no more.
    Upstream,
    /// The client's body is not what it says.
    Body(Bad),
    /// The client's connection failed.
    Client,
}

/// Sends the request; then passes on the end of what the client sends, which is how a client gives up.
/// Returns on failure only.
async fn upload(
    mut client: ReadHalf<'_>,
    buffer: &mut BytesMut,
    mut upstream: WriteHalf<'_>,
    request: &Forward,
    meter: &Meter,
    progress: &Progress,
) -> UploadFailed {
    if let Err(failed) = send(&mut client, buffer, &mut upstream, request, meter).await {
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
    match upstream.shutdown().await {
        Ok(()) => std::future::pending().await,
        Err(_) => UploadFailed::Upstream,
    }
}

async fn send(
    client: &mut ReadHalf<'_>,
    buffer: &mut BytesMut,
    upstream: &mut WriteHalf<'_>,
    request: &Forward,
    meter: &Meter,
) -> Result<(), UploadFailed> {
    let head = request.upstream_head();
    upstream.write_all(&head).await.map_err(upstream_is_gone)?;
    meter.sent_up(head.len());
    let mut body = BodyReader::new(request.body);
    loop {
        let piece = match body.next(client, buffer).await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(BodyError::Malformed) => return Err(UploadFailed::Body(Bad::Body)),
            Err(BodyError::Truncated) => return Err(UploadFailed::Body(Bad::Incomplete)),
            Err(BodyError::Io) => return Err(UploadFailed::Client),
        };
        meter.touch();
        let length = piece.len();
        write_piece(upstream, request.body, piece)
            .await
            .map_err(upstream_is_gone)?;
        meter.sent_up(length);
    }
    write_end(upstream, request.body)
        .await
        .map_err(upstream_is_gone)
}

fn upstream_is_gone(_: std::io::Error) -> UploadFailed {
    UploadFailed::Upstream
}

enum DownloadFailed {
    /// The upstream failed.
    Upstream(Reason),
    /// The client takes no more.
    Client,
}

/// Returns the answer, and whether the client's connection may be used again after it.
async fn download(
    mut upstream: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    request: &Forward,
    meter: &Meter,
    progress: &Progress,
) -> Result<bool, DownloadFailed> {
    let invalid = |_| DownloadFailed::Upstream(Reason::UpstreamInvalid);
    let client_is_gone = |_| DownloadFailed::Client;
    let mut buffer = BytesMut::new();
    let response = final_head(&mut upstream, &mut buffer, &mut client, request, meter).await?;
    let passage = Passage::plan(&response, request).map_err(invalid)?;
    progress.answered.store(true, Ordering::Relaxed);
    client
        .write_all(&passage.head)
        .await
        .map_err(client_is_gone)?;
    meter.sent_down(passage.head.len());
    let mut body = BodyReader::new(passage.from);
    loop {
        let piece = match body.next(&mut upstream, &mut buffer).await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(BodyError::Malformed) => {
                return Err(DownloadFailed::Upstream(Reason::UpstreamInvalid));
            }
            Err(BodyError::Truncated | BodyError::Io) => {
                return Err(DownloadFailed::Upstream(Reason::UpstreamClosed));
            }
        };
        meter.touch();
        let length = piece.len();
        write_piece(&mut client, passage.to, piece)
            .await
            .map_err(client_is_gone)?;
        meter.sent_down(length);
    }
    write_end(&mut client, passage.to)
        .await
        .map_err(client_is_gone)?;
    Ok(passage.keep_alive)
}

/// The head of the final answer. `100 Continue` goes to a client that asked for it; other interim answers end here.
async fn final_head(
    upstream: &mut ReadHalf<'_>,
    buffer: &mut BytesMut,
    client: &mut WriteHalf<'_>,
    request: &Forward,
    meter: &Meter,
) -> Result<ResponseHead, DownloadFailed> {
    let invalid = DownloadFailed::Upstream(Reason::UpstreamInvalid);
    for _ in 0..=MAX_INTERIM {
        let head = read::head(upstream, buffer).await.map_err(|bad| {
            DownloadFailed::Upstream(match bad {
                Bad::Incomplete => Reason::UpstreamClosed,
                _ => Reason::UpstreamInvalid,
            })
        })?;
        meter.touch();
        let Ok(response) = ResponseHead::parse(&head) else {
            return Err(invalid);
        };
        match response.status {
            // No upgrade was asked for, so none is accepted.
            101 => return Err(invalid),
            100 if request.expects_continue() => {
                client
                    .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                    .await
                    .map_err(|_| DownloadFailed::Client)?;
            }
            102..=199 | 100 => {}
            _ => return Ok(response),
        }
    }
    Err(invalid)
}
