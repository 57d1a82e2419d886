//! The way down: interim answers end here, the final one goes to the client piece by piece.

use std::sync::atomic::Ordering;

use astrabox_egress::BodyTreatment;
use bytes::BytesMut;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use super::{Io, Outgoing, Progress};
use crate::answer::{Bad, Reason};
use crate::http::body::{BodyError, BodyReader, write_end, write_piece};
use crate::http::head::ResponseHead;
use crate::http::read;
use crate::http::response::{Passage, switching};
use crate::meter::Meter;
use crate::websocket::accepts;

/// How many interim answers may come before the final one.
const MAX_INTERIM: usize = 16;

/// An answer that came to its end.
pub(super) enum Answered {
    Whole(Passage),
    /// A WebSocket is granted; the client has yet to get this head.
    Switched(Vec<u8>),
}

/// Why an answer did not come to its end.
pub(super) enum DownloadFailed {
    /// The upstream failed.
    Upstream(Reason),
    /// The client takes no more.
    Client,
}

/// Returns the answer.
pub(super) async fn download<C: Io, U: Io>(
    mut upstream: ReadHalf<U>,
    buffer: &mut BytesMut,
    mut client: WriteHalf<C>,
    outgoing: &Outgoing,
    meter: &Meter,
    progress: &Progress,
) -> Result<Answered, DownloadFailed> {
    let invalid = |_| DownloadFailed::Upstream(Reason::UpstreamInvalid);
    let client_is_gone = |_| DownloadFailed::Client;
    let response = final_head(&mut upstream, buffer, &mut client, outgoing, meter).await?;
    if response.status == 101 {
        return Ok(Answered::Switched(switching(&response)));
    }
    let passage = Passage::plan(&response, &outgoing.request).map_err(invalid)?;
    progress.answered.store(true, Ordering::Relaxed);
    client
        .write_all(&passage.head)
        .await
        .map_err(client_is_gone)?;
    meter.sent_down(passage.head.len());
    let mut body = BodyReader::new(passage.from);
    loop {
        // Nothing waits in a buffer of ours while the upstream is waited for.
        client.flush().await.map_err(client_is_gone)?;
        let piece = match body.next(&mut upstream, buffer).await {
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
    client.flush().await.map_err(client_is_gone)?;
    Ok(Answered::Whole(passage))
}

/// The head of the final answer. `100 Continue` goes to a client that still waits for it; other interim answers end
/// here.
async fn final_head<C: Io, U: Io>(
    upstream: &mut ReadHalf<U>,
    buffer: &mut BytesMut,
    client: &mut WriteHalf<C>,
    outgoing: &Outgoing,
    meter: &Meter,
) -> Result<ResponseHead, DownloadFailed> {
    let invalid = DownloadFailed::Upstream(Reason::UpstreamInvalid);
    let request = &outgoing.request;
    let plain = outgoing.injection.messages() != BodyTreatment::Unseen;
    let waits = request.expects_continue() && outgoing.treatment == BodyTreatment::Unseen;
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
            101 => {
                // Nothing else than what was asked for is accepted, and that in the one right form.
                let granted = request.upgrade.as_ref();
                let granted = granted.is_some_and(|key| accepts(&response, key, plain));
                return if granted { Ok(response) } else { Err(invalid) };
            }
            100 if waits => {
                let told = async {
                    client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                    client.flush().await
                };
                told.await.map_err(|_| DownloadFailed::Client)?;
            }
            100..=199 => {}
            _ => return Ok(response),
        }
    }
    Err(invalid)
}
