//! Holds the beginning of a body back until it was looked through, so that nothing of a refused request goes upstream.

use std::time::Duration;

use astrabox_egress::{BodyLength as Told, BodyTreatment};
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

use super::upload::UploadFailed;
use super::{Io, Outgoing, Side};
use crate::budget::Share;
use crate::http::body::BodyReader;
use crate::http::framing::BodyLength;
use crate::http::upstream::Terms;
use crate::inject::Filter;
use crate::meter::Meter;

/// How much of a body is held back, in bytes. A longer one streams on, and is broken off when it has to be refused.
pub(crate) const MOST_HELD: usize = 1024 * 1024;

/// How long a body may pause before what there is of it goes on: a call that streams both ways waits for answers.
const PAUSE: Duration = Duration::from_millis(250);

/// The same for a short body of a stated length: its sender hardly waits for anything before its end.
const LONG_PAUSE: Duration = Duration::from_secs(3);

/// How long a body may pause while it is held.
pub(crate) const fn pause(to_the_end: bool) -> Duration {
    if to_the_end { LONG_PAUSE } else { PAUSE }
}

/// How long a body may be held in all: who sends it drop by drop is not waited for.
pub(crate) const MOST_HOLDING: Duration = Duration::from_secs(15);

/// Pieces below this are copied while they are held: a slice of few bytes would keep the whole buffer that it was read
/// into.
const SMALL: usize = 4096;

/// A piece that keeps no more memory than it counts for.
pub(crate) fn own(piece: Bytes) -> Bytes {
    if piece.len() < SMALL {
        Bytes::copy_from_slice(&piece)
    } else {
        piece
    }
}

/// What is to be sent first, and what does the rest.
pub(super) struct Held {
    pub(super) terms: Terms,
    pub(super) ready: Vec<Bytes>,
    pub(super) body: BodyReader,
    pub(super) filter: Filter,
    /// The body has ended.
    pub(super) complete: bool,
    /// What is held counts for the sandbox until it is sent.
    share: Share,
}

pub(super) async fn hold<C: Io>(
    client: &mut Side<C>,
    outgoing: &Outgoing,
    meter: &Meter,
) -> Result<Held, UploadFailed> {
    let request = &outgoing.request;
    let mut held = Held {
        terms: Terms {
            body: request.body,
            expect: request.expects_continue(),
            persistent: outgoing.persistent,
        },
        ready: Vec::new(),
        body: BodyReader::new(request.body),
        filter: outgoing.filter(),
        complete: false,
        share: Share::of(&outgoing.budget),
    };
    if outgoing.treatment == BodyTreatment::Unseen {
        return Ok(held);
    }
    if held.terms.expect {
        // The upstream cannot be asked before the body was seen.
        held.terms.expect = false;
        let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
        let told = async {
            client.stream.write_all(go_on).await?;
            client.stream.flush().await
        };
        told.await.map_err(|_| UploadFailed::Client)?;
    }
    let stated = match request.body {
        BodyLength::Length(length) => Some(length),
        _ => None,
    };
    let told = outgoing.treatment.length(stated, MOST_HELD as u64);
    let length = read(client, &mut held, told == Told::Collect, meter).await?;
    held.terms.body = match told {
        Told::Keep => request.body,
        // All of it is there.
        Told::Collect | Told::Stream if held.complete => BodyLength::Length(length as u64),
        Told::Collect if outgoing.treatment == BodyTreatment::Scan => request.body,
        Told::Collect | Told::Stream => BodyLength::Chunked,
    };
    Ok(held)
}

/// Reads until the body ends, enough is held, or the body pauses; gives how many bytes are to be sent.
async fn read<C: Io>(
    client: &mut Side<C>,
    held: &mut Held,
    to_the_end: bool,
    meter: &Meter,
) -> Result<usize, UploadFailed> {
    let mut length = 0;
    let mut room = true;
    let end = Instant::now() + MOST_HOLDING;
    while room && (to_the_end || held.share.taken() < MOST_HELD) {
        let next = held.body.next(&mut client.stream, &mut client.buffer);
        let until = end.min(Instant::now() + pause(to_the_end));
        let Ok(piece) = timeout_at(until, next).await else {
            break;
        };
        let first = held.ready.len();
        match piece? {
            Some(piece) => {
                meter.touch();
                room = held.share.take(piece.len());
                held.filter.push(own(piece), &mut held.ready)?;
            }
            None => {
                held.filter.finish(&mut held.ready)?;
                held.complete = true;
            }
        }
        length += held.ready[first..].iter().map(Bytes::len).sum::<usize>();
        if held.complete {
            break;
        }
    }
    Ok(length)
}
