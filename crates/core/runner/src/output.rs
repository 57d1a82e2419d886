//! One output of a process: from its pipe to its spool.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use astrabox_runner_protocol::{CHUNK_BYTES, StreamInfo};
use bytes::Bytes;
use rustix::io::ioctl_fionread;
use tokio::net::unix::pipe;

use crate::spool::{Spool, SpoolError};

thread_local! {
    /// Where pipes are read into before their bytes are copied to the length that was read. The runner has
    /// one thread, so one buffer serves all pipes.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK_BYTES]);
}

/// What a step did, and what the next one has to wait for.
#[derive(Debug)]
pub(crate) enum Step {
    /// It moved bytes.
    Progress,
    /// Nothing to read until the pipe says so.
    Starved(Arc<pipe::Receiver>),
    /// The spool is full: wait for an acknowledgement.
    Full,
    /// The disk refused the bytes: they are kept, try again.
    DiskTrouble(io::Error),
    /// The pipe is closed and everything is in the spool.
    Finished,
}

/// One output of a process.
#[derive(Debug)]
pub(crate) struct Output {
    pipe: Option<Arc<pipe::Receiver>>,
    spool: Spool,
    /// Read but not yet on disk.
    pending: Bytes,
    /// Where the output ends, once the process has ended. What a descendant writes later is dropped, so that
    /// it neither blocks nor gets SIGPIPE.
    end: Option<u64>,
}

impl Output {
    /// Of a new process.
    pub(crate) fn new(pipe: pipe::Receiver, spool: Spool) -> Self {
        Self {
            pipe: Some(Arc::new(pipe)),
            spool,
            pending: Bytes::new(),
            end: None,
        }
    }

    /// Of a process that an earlier runner held.
    pub(crate) fn ended(spool: Spool) -> Self {
        let end = Some(spool.next());
        Self {
            pipe: None,
            spool,
            pending: Bytes::new(),
            end,
        }
    }

    /// Moves at most one chunk from the pipe to the spool.
    pub(crate) fn step(&mut self) -> Step {
        if !self.pending.is_empty() {
            return self.store(self.pending.clone());
        }
        let Some(pipe) = self.pipe.clone() else {
            return Step::Finished;
        };
        let room = match self.end {
            Some(end) if end <= self.spool.next() => return self.drop_rest(pipe),
            Some(end) => self.spool.room().min(end - self.spool.next()),
            None => self.spool.room(),
        };
        if room == 0 {
            return Step::Full;
        }
        let limit = usize::try_from(room)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        match read(&pipe, limit) {
            Ok(data) if data.is_empty() => self.close(),
            Ok(data) => self.store(data),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Starved(pipe),
            Err(_) => self.close(),
        }
    }

    fn store(&mut self, data: Bytes) -> Step {
        match self.spool.append(data.clone()) {
            Ok(()) => {
                self.pending = Bytes::new();
                Step::Progress
            }
            Err(error) => {
                self.pending = data;
                Step::DiskTrouble(error)
            }
        }
    }

    fn drop_rest(&mut self, pipe: Arc<pipe::Receiver>) -> Step {
        match read(&pipe, CHUNK_BYTES) {
            Ok(data) if data.is_empty() => self.close(),
            Ok(_) => Step::Progress,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Starved(pipe),
            Err(_) => self.close(),
        }
    }

    fn close(&mut self) -> Step {
        self.pipe = None;
        // A pipe that ends before its counted bytes came has none left to give.
        if let Some(end) = &mut self.end {
            *end = self.spool.next().min(*end);
        }
        Step::Finished
    }

    /// The process has ended: everything that it wrote is in the spool or in the pipe now, so this is where
    /// its output ends. Gives that offset.
    pub(crate) fn seal(&mut self) -> u64 {
        let held = self.spool.next() + self.pending.len() as u64;
        let in_pipe = self
            .pipe
            .as_ref()
            .map_or(0, |pipe| ioctl_fionread(pipe).unwrap_or(0));
        *self.end.get_or_insert(held + in_pipe)
    }

    /// At most one chunk from `offset` on; empty when a reader has to wait.
    pub(crate) fn read(&self, offset: u64) -> Result<Bytes, SpoolError> {
        self.spool.read(offset, CHUNK_BYTES)
    }

    /// Refuses an offset that was freed or does not exist yet.
    pub(crate) fn check(&self, offset: u64) -> Result<(), SpoolError> {
        self.spool.check(offset)
    }

    /// Gives up everything below `offset`.
    pub(crate) fn free(&mut self, offset: u64) -> Result<(), SpoolError> {
        self.spool.free(offset)
    }

    /// Whether a reader at `offset` has had everything there will ever be.
    pub(crate) fn is_complete_at(&self, offset: u64) -> bool {
        self.end.is_some_and(|end| offset >= end)
    }

    /// Whether everything was acknowledged and nothing will follow.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_complete_at(self.spool.lowest())
    }

    /// Its offsets.
    pub(crate) fn info(&self) -> StreamInfo {
        StreamInfo {
            lowest_offset: self.spool.lowest(),
            next_offset: self.spool.next(),
            full: self.spool.capacity() > 0 && self.spool.room() == 0,
        }
    }
}

fn read(pipe: &pipe::Receiver, limit: usize) -> io::Result<Bytes> {
    SCRATCH.with_borrow_mut(|scratch| {
        let count = pipe.try_read(&mut scratch[..limit])?;
        Ok(Bytes::copy_from_slice(&scratch[..count]))
    })
}
