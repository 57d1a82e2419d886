//! A pair of sockets that carries whole messages and descriptors between the runner and the box.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::wire::MAX_MESSAGE;

/// The most descriptors in one message: a spawn request's payload and three streams.
const MAX_FDS: usize = 4;

/// One end.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

/// What a receive found.
pub(super) enum Received {
    /// A message and the descriptors that came with it.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// Nothing at the moment; only where the end does not block.
    Nothing,
    /// The other end is closed.
    End,
}

impl Channel {
    /// The runner's end, which never blocks, and the box's, which does.
    pub(super) fn pair() -> Result<(Self, Self), Errno> {
        let (runner, init) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::io::ioctl_fionbio(&runner, true)?;
        Ok((Self(runner), Self(init)))
    }

    /// Sends one message.
    pub(super) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOBIG);
        }
        loop {
            match sendmsg(
                &self.0,
                &[IoSlice::new(message)],
                &mut control,
                SendFlags::NOSIGNAL,
            ) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Receives one message.
    pub(super) fn receive(&self) -> Result<Received, Errno> {
        let mut bytes = [0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            let mut target = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut target, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // The other end died with our message unread: as much an end as a close.
                Err(Errno::CONNRESET) => return Ok(Received::End),
                Err(error) => return Err(error),
                Ok(received) => break received.bytes,
            }
        };
        if length == 0 {
            return Ok(Received::End);
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        Ok(Received::Message(bytes[..length].to_vec(), fds))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
