//! Bodies of streams: what one side has room for is what the other one is let send.

use std::future::poll_fn;

use astrabox_egress::Refusal;
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

use crate::budget::Share;
use crate::exchange::{MOST_HELD, MOST_HOLDING, own, pause};
use crate::inject::{Filter, Injection};
use crate::meter::Meter;

/// Why a body did not come to its end.
pub(super) enum Failed {
    /// The side that it comes from.
    From(h2::Reason),
    /// The side that it goes to.
    To,
    /// A placeholder in it must not go on.
    Refused(Refusal),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn code(error: &h2::Error) -> h2::Reason {
    error.reason().unwrap_or(h2::Reason::CANCEL)
}

/// The beginning of a body that is held back until it was looked through.
pub(super) struct Held {
    pub(super) ready: Vec<Bytes>,
    /// The body has ended.
    pub(super) complete: bool,
    /// What is held counts for the sandbox until it is sent.
    pub(super) share: Share,
}

impl Held {
    pub(super) fn length(&self) -> usize {
        self.ready.iter().map(Bytes::len).sum()
    }
}

/// Reads until the body ends, enough is held, or the body pauses.
pub(super) async fn hold(
    body: &mut RecvStream,
    filter: &mut Filter,
    to_the_end: bool,
    share: Share,
    meter: &Meter,
) -> Result<Held, Failed> {
    let mut held = Held {
        ready: Vec::new(),
        complete: false,
        share,
    };
    let mut room = true;
    let end = Instant::now() + MOST_HOLDING;
    while room && (to_the_end || held.share.taken() < MOST_HELD) {
        let until = end.min(Instant::now() + pause(to_the_end));
        let Ok(next) = timeout_at(until, body.data()).await else {
            break;
        };
        match next {
            Some(piece) => {
                let piece = piece.map_err(|error| Failed::From(code(&error)))?;
                meter.touch();
                room = held.share.take(piece.len());
                let _ = body.flow_control().release_capacity(piece.len());
                filter.push(own(piece), &mut held.ready)?;
            }
            None => {
                filter.finish(&mut held.ready)?;
                held.complete = true;
                break;
            }
        }
    }
    Ok(held)
}

/// Sends what was held of a request's body, then the rest as it comes, then its trailers.
pub(super) async fn up(
    body: &mut RecvStream,
    to: &mut SendStream<Bytes>,
    held: Held,
    filter: &mut Filter,
    injection: &Injection,
    meter: &Meter,
) -> Result<(), Failed> {
    let Held {
        mut ready,
        mut complete,
        share,
    } = held;
    let mut share = Some(share);
    loop {
        for piece in ready.drain(..) {
            send(to, piece, |bytes| meter.sent_up(bytes)).await?;
        }
        share.take();
        if complete {
            break;
        }
        match body.data().await {
            Some(piece) => {
                let piece = piece.map_err(|error| Failed::From(code(&error)))?;
                meter.touch();
                let length = piece.len();
                filter.push(piece, &mut ready)?;
                for piece in ready.drain(..) {
                    send(to, piece, |bytes| meter.sent_up(bytes)).await?;
                }
                // Only now: the client is let send what the upstream has taken.
                let _ = body.flow_control().release_capacity(length);
            }
            None => {
                filter.finish(&mut ready)?;
                complete = true;
            }
        }
    }
    let trailers = body.trailers().await;
    let trailers = trailers.map_err(|error| Failed::From(code(&error)))?;
    for (name, value) in trailers.iter().flatten() {
        injection.trailer(name.as_str(), value.as_bytes())?;
    }
    end(to, trailers)
}

/// Returns an answer's body and its trailers.
pub(super) async fn down(
    body: &mut RecvStream,
    to: &mut SendStream<Bytes>,
    meter: &Meter,
) -> Result<(), Failed> {
    loop {
        // A client that went away says so while the upstream is silent.
        let piece = tokio::select! {
            piece = body.data() => piece,
            _ = poll_fn(|cx| to.poll_reset(cx)) => return Err(Failed::To),
        };
        let Some(piece) = piece else {
            break;
        };
        let piece = piece.map_err(|error| Failed::From(code(&error)))?;
        meter.touch();
        let length = piece.len();
        send(to, piece, |bytes| meter.sent_down(bytes)).await?;
        let _ = body.flow_control().release_capacity(length);
    }
    let trailers = body.trailers().await;
    end(to, trailers.map_err(|error| Failed::From(code(&error)))?)
}

fn end(to: &mut SendStream<Bytes>, trailers: Option<HeaderMap>) -> Result<(), Failed> {
    let ended = match trailers {
        Some(trailers) => to.send_trailers(trailers),
        None => to.send_data(Bytes::new(), true),
    };
    ended.map_err(|_| Failed::To)
}

/// Sends as much at a time as the other side has room for.
async fn send(
    to: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    sent: impl Fn(usize),
) -> Result<(), Failed> {
    while !bytes.is_empty() {
        to.reserve_capacity(bytes.len());
        let room = match poll_fn(|cx| to.poll_capacity(cx)).await {
            Some(Ok(room)) => room,
            Some(Err(_)) | None => return Err(Failed::To),
        };
        let piece = bytes.split_to(room.min(bytes.len()));
        let length = piece.len();
        to.send_data(piece, false).map_err(|_| Failed::To)?;
        sent(length);
    }
    Ok(())
}
