//! The input of a process: from its callers, through a spool, to its pipe.
//!
//! The spool holds what the pipe has not taken yet and, below that, what was delivered last, so that a
//! repeated write can be compared with what was accepted.

use std::io;
use std::sync::Arc;

use astrabox_runner_protocol::{CHUNK_BYTES, RunnerErrorKind, StdinInfo};
use bytes::Bytes;
use tokio::net::unix::pipe;

use crate::spool::{Spool, SpoolError};

/// What a step did, and what the next one has to wait for.
#[derive(Debug)]
pub(crate) enum Step {
    /// It moved bytes.
    Progress,
    /// The pipe is full until it says otherwise.
    Blocked(Arc<pipe::Sender>),
    /// Everything accepted is delivered.
    Idle,
    /// The pipe is closed, by us or by its reader.
    Finished,
}

/// Whether a write was accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// Wholly; this is the next offset.
    Done(u64),
    /// Not at all: the process has to read first.
    NoRoom,
}

/// The input of a process.
#[derive(Debug)]
pub(crate) struct Stdin {
    pipe: Option<Arc<pipe::Sender>>,
    spool: Spool,
    delivered: u64,
    close_wanted: bool,
}

impl Stdin {
    /// Of a new process.
    pub(crate) fn new(pipe: pipe::Sender, spool: Spool) -> Self {
        Self {
            pipe: Some(Arc::new(pipe)),
            spool,
            delivered: 0,
            close_wanted: false,
        }
    }

    /// Takes responsibility for `data` at `offset`.
    pub(crate) fn accept(&mut self, offset: u64, data: &Bytes) -> Result<Acceptance, AcceptError> {
        let next = self.spool.next();
        self.spool.check(offset).map_err(AcceptError::Spool)?;
        let known = usize::try_from(next - offset)
            .unwrap_or(usize::MAX)
            .min(data.len());
        self.compare(offset, &data[..known])?;
        // A copy, because the spool may keep it and the original is a part of a whole message.
        let rest = Bytes::copy_from_slice(&data[known..]);
        if rest.is_empty() {
            return Ok(Acceptance::Done(next));
        }
        if !self.is_open() {
            return Err(AcceptError::Closed);
        }
        let waiting = next - self.delivered;
        if waiting > 0 && waiting + rest.len() as u64 > self.spool.capacity() {
            return Ok(Acceptance::NoRoom);
        }
        self.spool
            .append(rest)
            .map_err(|error| AcceptError::Spool(SpoolError::Io(error)))?;
        self.forget_old();
        Ok(Acceptance::Done(self.spool.next()))
    }

    fn compare(&self, mut offset: u64, mut data: &[u8]) -> Result<(), AcceptError> {
        while !data.is_empty() {
            let limit = data.len().min(CHUNK_BYTES);
            let accepted = self.spool.read(offset, limit).map_err(AcceptError::Spool)?;
            let (head, rest) = data.split_at(accepted.len());
            if accepted.is_empty() || *head != accepted {
                return Err(AcceptError::Conflict);
            }
            offset += accepted.len() as u64;
            data = rest;
        }
        Ok(())
    }

    /// Keeps the delivered bytes only as long as they fit.
    fn forget_old(&mut self) {
        let oldest = self.spool.next().saturating_sub(self.spool.capacity());
        // The offset lies within the spool, so there is nothing to refuse.
        let _ = self.spool.free(oldest.min(self.delivered));
    }

    /// Closes the pipe after the last accepted byte, which must be the one before `offset`.
    pub(crate) fn close(&mut self, offset: u64) -> Result<(), AcceptError> {
        self.spool.check(offset).map_err(AcceptError::Spool)?;
        if offset != self.spool.next() {
            return Err(AcceptError::Conflict);
        }
        self.close_wanted = true;
        Ok(())
    }

    /// Moves at most one chunk from the spool to the pipe.
    pub(crate) fn step(&mut self) -> Step {
        let Some(pipe) = self.pipe.clone() else {
            return Step::Finished;
        };
        let data = self
            .spool
            .read(self.delivered, CHUNK_BYTES)
            .unwrap_or_default();
        if data.is_empty() {
            if self.close_wanted {
                self.abandon();
                return Step::Finished;
            }
            return Step::Idle;
        }
        match pipe.try_write(&data) {
            Ok(count) => {
                self.delivered += count as u64;
                self.forget_old();
                Step::Progress
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Blocked(pipe),
            Err(_) => {
                self.abandon();
                Step::Finished
            }
        }
    }

    /// Closes the pipe now: the process has ended or does not read any more.
    pub(crate) fn abandon(&mut self) {
        self.pipe = None;
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some() && !self.close_wanted
    }

    /// Its offsets.
    pub(crate) fn info(&self) -> StdinInfo {
        StdinInfo {
            open: self.is_open(),
            accepted: self.spool.next(),
            delivered: self.delivered,
        }
    }
}

/// Why a write was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    /// The offset is not one that can be written.
    #[error(transparent)]
    Spool(SpoolError),
    /// Other bytes were accepted there.
    #[error("other bytes were accepted at this offset of stdin")]
    Conflict,
    /// Nothing can be written any more.
    #[error("stdin is closed")]
    Closed,
    /// Nothing can be written any more, because the process has ended.
    #[error("the process has ended")]
    Ended,
}

impl AcceptError {
    /// As the protocol says it.
    pub(crate) fn kind(&self) -> RunnerErrorKind {
        match self {
            Self::Spool(error) => error.kind(),
            Self::Conflict => RunnerErrorKind::StdinConflict,
            Self::Closed => RunnerErrorKind::StdinClosed,
            Self::Ended => RunnerErrorKind::ProcessEnded,
        }
    }
}

#[cfg(test)]
mod tests;
