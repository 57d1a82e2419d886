//! Asking a runner for the listener inside its box.
//!
//! The runner keeps the descriptor for the box's whole life and hands out as many copies as are asked
//! for, so a server that starts again asks again.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::{RunnerError, RunnerErrorKind};

/// The byte that carries the descriptor.
pub const LISTENER_TAG: u8 = b'L';

/// A copy of the box's egress listener: a listening TCP socket on the box's own loopback, non-blocking.
///
/// # Errors
/// [`RunnerErrorKind::Unavailable`] when the runner does not answer, [`RunnerErrorKind::Protocol`] when it
/// answers something else.
pub async fn take_listener(socket: &Path, deadline: Duration) -> Result<OwnedFd, RunnerError> {
    const OPERATION: &str = "take_listener";
    let work = async {
        let stream = UnixStream::connect(socket).await?;
        loop {
            stream.readable().await?;
            match stream.try_io(Interest::READABLE, || receive(&stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    };
    match tokio::time::timeout(deadline, work).await {
        Ok(Ok(descriptor)) => Ok(descriptor),
        Ok(Err(error)) => {
            let kind = match error.kind() {
                io::ErrorKind::InvalidData => RunnerErrorKind::Protocol,
                _ => RunnerErrorKind::Unavailable,
            };
            Err(RunnerError::new(kind, OPERATION, error.to_string()))
        }
        Err(_) => Err(RunnerError::new(
            RunnerErrorKind::TimedOut,
            OPERATION,
            format!("no answer within {} ms", deadline.as_millis()),
        )),
    }
}

fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let message = recvmsg(stream, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = entry {
            descriptors.extend(rights);
        }
    }
    let truncated = message.flags.contains(ReturnFlags::CTRUNC);
    match (byte, descriptors.pop()) {
        ([LISTENER_TAG], Some(descriptor)) if descriptors.is_empty() && !truncated => {
            Ok(descriptor)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "expected one descriptor",
        )),
    }
}
