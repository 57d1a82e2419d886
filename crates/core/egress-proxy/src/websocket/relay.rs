//! Both directions of a WebSocket: raw where nothing is looked for, else the client's messages are looked through.

use std::time::Duration;

use astrabox_egress::{BodyTreatment, Surface};
use bytes::{Bytes, BytesMut};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::frame::{self, Opcode, apply_mask};
use crate::answer::Reason;
use crate::connection::End;
use crate::exchange::{Io, Side};
use crate::inject::{Filter, Injection};
use crate::meter::Meter;
use crate::tunnel::pump;

/// How much is read at once, which bounds what a message takes of memory.
const PIECE: usize = 32 * 1024;

/// The most bytes of a control frame's payload (RFC 6455, section 5.5).
const MOST_CONTROL: usize = 125;

/// Relays until both ways have ended. What was read of either side ahead is in its buffer.
pub(crate) async fn relay<C: Io, U: Io>(
    client: &mut Side<C>,
    upstream: &mut Side<U>,
    injection: &mut Injection,
    meter: &Meter,
    idle: Duration,
) -> End {
    let (client_read, mut client_write) = tokio::io::split(&mut client.stream);
    let (upstream_read, mut upstream_write) = tokio::io::split(&mut upstream.stream);
    let early_up = client.buffer.split();
    let early_down = upstream.buffer.split().freeze();
    let up = async {
        if injection.messages() == BodyTreatment::Unseen {
            write(&mut upstream_write, &early_up)
                .await
                .map_err(|()| End::Aborted)?;
            let sent = |bytes| meter.sent_up(bytes);
            pump(client_read, upstream_write, sent, meter)
                .await
                .map_err(|_| End::Aborted)
        } else {
            let mut messages = Messages::new(upstream_write, early_up, injection, meter);
            messages.run(client_read).await
        }
    };
    let down = async {
        write(&mut client_write, &early_down)
            .await
            .map_err(|()| End::Aborted)?;
        let sent = |bytes| meter.sent_down(bytes);
        pump(upstream_read, client_write, sent, meter)
            .await
            .map_err(|_| End::Aborted)
    };
    tokio::select! {
        result = async { tokio::try_join!(up, down) } => match result {
            Ok(_) => End::Completed,
            Err(end) => end,
        },
        () = meter.idle(idle) => End::Idle,
    }
}

async fn write<W: Io>(to: &mut WriteHalf<W>, bytes: &[u8]) -> Result<(), ()> {
    to.write_all(bytes).await.map_err(drop)?;
    to.flush().await.map_err(drop)
}

/// The client's messages on their way up: unmasked, looked through, and masked anew in frames of their new lengths.
struct Messages<'a, U> {
    upstream: WriteHalf<U>,
    buffer: BytesMut,
    injection: &'a mut Injection,
    meter: &'a Meter,
    random: SystemRandom,
    /// The message that has begun and not ended, and whether a frame of it was sent.
    open: Option<(Filter, Opcode, bool)>,
}

impl<'a, U: Io> Messages<'a, U> {
    fn new(
        upstream: WriteHalf<U>,
        buffer: BytesMut,
        injection: &'a mut Injection,
        meter: &'a Meter,
    ) -> Self {
        Self {
            upstream,
            buffer,
            injection,
            meter,
            random: SystemRandom::new(),
            open: None,
        }
    }

    async fn run<C: Io>(&mut self, mut client: ReadHalf<C>) -> Result<(), End> {
        loop {
            let head = loop {
                match frame::take_head(&mut self.buffer) {
                    Ok(Some(head)) => break head,
                    Ok(None) => {}
                    Err(frame::Malformed) => return Err(End::Answered(Reason::WebSocketFrame)),
                }
                if !self.fill(&mut client).await? {
                    // An end between frames is the client's; within one it is a break.
                    return match self.buffer.is_empty() && self.open.is_none() {
                        true => self.upstream.shutdown().await.map_err(|_| End::Aborted),
                        false => Err(End::Aborted),
                    };
                }
            };
            if head.opcode.is_control() {
                self.control(&mut client, head).await?;
            } else {
                self.data(&mut client, head).await?;
            }
        }
    }

    /// Reads some more; false at the end.
    async fn fill<C: Io>(&mut self, client: &mut ReadHalf<C>) -> Result<bool, End> {
        self.buffer.reserve(PIECE);
        let read = client.read_buf(&mut self.buffer).await;
        let read = read.map_err(|_| End::Aborted)?;
        self.meter.touch();
        Ok(read > 0)
    }

    async fn control<C: Io>(
        &mut self,
        client: &mut ReadHalf<C>,
        head: frame::Head,
    ) -> Result<(), End> {
        // At most 125, as was checked.
        let length = usize::try_from(head.length).unwrap_or(MOST_CONTROL);
        while self.buffer.len() < length {
            if !self.fill(client).await? {
                return Err(End::Aborted);
            }
        }
        let mut payload = self.buffer.split_to(length);
        apply_mask(&mut payload, head.mask, 0);
        let payload = payload.freeze();
        // No credential stands in a control frame.
        let mut out = Vec::new();
        let mut filter = self
            .injection
            .filter(BodyTreatment::Scan, Surface::BinaryMessage);
        let checked = filter
            .push(payload.clone(), &mut out)
            .and_then(|()| filter.finish(&mut out));
        checked.map_err(|refusal| self.refused(&refusal))?;
        self.send(true, head.opcode, &payload).await
    }

    async fn data<C: Io>(
        &mut self,
        client: &mut ReadHalf<C>,
        head: frame::Head,
    ) -> Result<(), End> {
        let malformed = End::Answered(Reason::WebSocketFrame);
        let surface = match head.opcode {
            Opcode::Text => Surface::Message,
            _ => Surface::BinaryMessage,
        };
        match (&self.open, head.opcode) {
            (None, Opcode::Continuation) => return Err(malformed),
            (Some(_), Opcode::Continuation) => {}
            (Some(_), _) => return Err(malformed),
            (None, opcode) => {
                let filter = self.injection.filter(BodyTreatment::Scan, surface);
                self.open = Some((filter, opcode, false));
            }
        }
        let mut left = head.length;
        let mut at = 0;
        while left > 0 {
            if self.buffer.is_empty() && !self.fill(client).await? {
                return Err(End::Aborted);
            }
            let length = usize::try_from(left).map_or(self.buffer.len(), |left| {
                left.min(self.buffer.len()).min(PIECE)
            });
            let mut piece = self.buffer.split_to(length);
            apply_mask(&mut piece, head.mask, at);
            at += length as u64;
            left -= length as u64;
            self.part(piece.freeze(), head.last && left == 0).await?;
        }
        if head.length == 0 && head.last {
            self.part(Bytes::new(), true).await?;
        }
        Ok(())
    }

    /// Sends what a piece of the open message has become, as one frame; nothing when all of it is held back.
    async fn part(&mut self, piece: Bytes, last: bool) -> Result<(), End> {
        let Some((mut filter, opcode, begun)) = self.open.take() else {
            return Ok(());
        };
        let mut out = Vec::new();
        let looked = filter.push(piece, &mut out).and_then(|()| match last {
            true => filter.finish(&mut out),
            false => Ok(()),
        });
        looked.map_err(|refusal| self.refused(&refusal))?;
        let length = out.iter().map(Bytes::len).sum();
        let mut payload = zeroize::Zeroizing::new(Vec::with_capacity(length));
        for piece in out {
            payload.extend_from_slice(&piece);
        }
        let opcode_now = if begun { Opcode::Continuation } else { opcode };
        let sends = last || !payload.is_empty();
        if sends {
            self.send(last, opcode_now, &payload).await?;
        }
        if last {
            self.injection.note(filter.used());
        } else {
            self.open = Some((filter, opcode, begun || sends));
        }
        Ok(())
    }

    async fn send(&mut self, last: bool, opcode: Opcode, payload: &[u8]) -> Result<(), End> {
        let mut mask = [0; 4];
        self.random.fill(&mut mask).map_err(|_| End::Aborted)?;
        // Of the right size at once: what grows leaves copies behind.
        let mut out = zeroize::Zeroizing::new(Vec::with_capacity(payload.len() + 14));
        frame::write(&mut out, last, opcode, payload, mask);
        let written = write(&mut self.upstream, &out).await;
        written.map_err(|()| End::Aborted)?;
        self.meter.sent_up(out.len());
        Ok(())
    }

    fn refused(&mut self, refusal: &astrabox_egress::Refusal) -> End {
        if let Some(id) = &refusal.credential_id {
            self.injection.note(std::slice::from_ref(id));
        }
        End::Answered(Reason::from(refusal))
    }
}
