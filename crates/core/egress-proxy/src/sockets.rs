//! How sockets are closed: broken off, or with a last word.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::workload::Workload;

/// How long an answer of the proxy may take to be written and read.
const FAREWELL: Duration = Duration::from_secs(2);

/// How much of what a refused client still sends is read, so that it gets to read the answer.
const FAREWELL_BYTES: usize = 1024 * 1024;

/// Closing the socket resets the connection: a peer must not take a broken stream for one that has ended.
pub(crate) fn abort(stream: &TcpStream) {
    // A socket that refuses the option is closed in the ordinary way.
    let _ = stream.set_zero_linger();
}

/// Closing the socket ends the connection in the ordinary way.
pub(crate) fn settle(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream.as_fd(), None);
}

/// A second handle of a socket that somebody else owns, to say how it is to be closed. Drop it before the socket.
pub(crate) struct Handle(std::io::Result<OwnedFd>);

impl Handle {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(stream.as_fd().try_clone_to_owned())
    }

    /// As [`settle`].
    pub(crate) fn settle(self) {
        if let Ok(descriptor) = self.0 {
            let _ = sockopt::set_socket_linger(&descriptor, None);
        }
    }
}

/// Writes a last answer and closes. What the client still sends is read for a while, because closing over unread
/// bytes resets the connection and takes the answer away from the client.
pub(crate) async fn farewell<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut S,
    answer: &[u8],
    workload: &Workload,
) {
    let goodbye = async {
        client.write_all(answer).await?;
        client.shutdown().await?;
        let mut sink = [0; 4096];
        let mut left = FAREWELL_BYTES;
        while left > 0 {
            match client.read(&mut sink).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    // Whether the client takes it is the client's affair.
    tokio::select! {
        () = workload.closing.cancelled() => {}
        _ = timeout(FAREWELL, goodbye) => {}
    }
}

/// A socket of which something was read already.
pub(crate) struct Prefixed {
    pub(crate) early: BytesMut,
    pub(crate) stream: TcpStream,
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..length]);
        self.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
