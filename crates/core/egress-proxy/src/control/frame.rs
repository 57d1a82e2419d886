//! Frames with descriptors on a unix stream socket.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

/// The longest frame: a policy of some ten thousand hosts.
const MAX_FRAME: usize = 1024 * 1024;

/// Room for more descriptors than a frame may carry, so that a wrong frame is seen as one.
const MAX_DESCRIPTORS: usize = 4;

/// Sends a message, with a descriptor or without.
pub(crate) async fn send<T: Serialize>(
    stream: &UnixStream,
    message: &T,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut frame = Wiped(Zeroizing::new(vec![0; 4]));
    serde_json::to_writer(&mut frame, message)?;
    let Wiped(mut frame) = frame;
    let length = frame.len() - 4;
    if length > MAX_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the message is longer than 1 MiB; use fewer hosts, or patterns",
        ));
    }
    // Below 2^20, as was just checked.
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    let mut sent = 0;
    while sent < frame.len() {
        // The descriptor goes with the first byte, once.
        let with = descriptor.filter(|_| sent == 0);
        let rest = &frame[sent..];
        sent += stream
            .async_io(Interest::WRITABLE, || send_part(stream, rest, with))
            .await?;
    }
    Ok(())
}

/// A buffer that wipes what it leaves behind when it grows, as what it is written may be secret.
struct Wiped(Zeroizing<Vec<u8>>);

impl Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.0.capacity())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send_part(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let sent = sendmsg(
        stream.as_fd(),
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(sent)
}

/// The next message and the descriptor that came with it; nothing at the end of the stream.
pub(crate) async fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut descriptors = Vec::new();
    let mut length = [0; 4];
    if !fill(stream, &mut length, &mut descriptors).await? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(malformed("a frame is too long"));
    }
    let mut body = Zeroizing::new(vec![0; length]);
    if length > 0 && !fill(stream, &mut body, &mut descriptors).await? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if descriptors.len() > 1 {
        return Err(malformed("a frame has more than one descriptor"));
    }
    let message = serde_json::from_slice(&body)?;
    Ok(Some((message, descriptors.pop())))
}

/// Fills the buffer; false when the stream ended before its first byte.
async fn fill(
    stream: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        let read = stream
            .async_io(Interest::READABLE, || {
                receive_part(stream, rest, descriptors)
            })
            .await?;
        match read {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(true)
}

fn receive_part(
    stream: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        stream.as_fd(),
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = entry {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(malformed("a frame has too many descriptors"));
    }
    Ok(message.bytes)
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[tokio::test]
    async fn a_descriptor_arrives_with_its_own_message() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        // Longer than a socket buffer, so that the message is cut.
        let long = "x".repeat(MAX_FRAME - 2);
        let receiving = async {
            let first: (String, Option<OwnedFd>) = receive(&far).await.unwrap().unwrap();
            let second: (String, Option<OwnedFd>) = receive(&far).await.unwrap().unwrap();
            let third: (String, Option<OwnedFd>) = receive(&far).await.unwrap().unwrap();
            (first, second, third)
        };
        let sending = async {
            send(&near, &"first", None).await.unwrap();
            send(&near, &long, Some(writer.as_fd())).await.unwrap();
            send(&near, &"third", None).await.unwrap();
        };
        let ((first, second, third), ()) = tokio::join!(receiving, sending);
        assert_eq!((&*first.0, first.1.is_none()), ("first", true));
        assert_eq!((&*third.0, third.1.is_none()), ("third", true));
        assert_eq!(second.0, long);
        drop(writer);
        let mut copy = std::fs::File::from(second.1.unwrap());
        copy.write_all(b"through").unwrap();
        drop(copy);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[tokio::test]
    async fn a_wrong_frame_is_an_error_and_keeps_no_descriptor() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let two = [writer.as_fd(), writer.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&two)));
        let bytes = b"\0\0\0\x02\"\"";
        let flags = SendFlags::NOSIGNAL;
        near.writable().await.unwrap();
        sendmsg(near.as_fd(), &[IoSlice::new(bytes)], &mut control, flags).unwrap();
        assert!(receive::<String>(&far).await.is_err());
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "a copy is still open");

        for bytes in [
            &b"\xff\xff\xff\xff"[..],
            b"\0\0\0\x05\"",
            b"\0\0\0\x01x",
            b"\0\0",
        ] {
            let (near, far) = UnixStream::pair().unwrap();
            near.writable().await.unwrap();
            near.try_write(bytes).unwrap();
            drop(near);
            assert!(receive::<String>(&far).await.is_err(), "{bytes:?}");
        }
        let too_long = "x".repeat(MAX_FRAME);
        assert!(send(&near, &too_long, None).await.is_err());
    }
}
