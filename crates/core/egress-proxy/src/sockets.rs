//! How sockets are closed: broken off, or with a last word.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
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

/// How much is read ahead of a socket.
const AHEAD: usize = 64 * 1024;

/// A socket under TLS. rustls asks for 4 KiB at a time, so while much comes it is read ahead; what little comes goes
/// straight through, and a connection that rests keeps no buffer.
pub(crate) struct ReadAhead {
    pub(crate) stream: TcpStream,
    /// Who is at the other end.
    pub(crate) peer: Option<SocketAddr>,
    /// What was read, from `at` to `end`; allocated while there is something, or much comes.
    held: Vec<u8>,
    at: usize,
    end: usize,
    /// The last read was as long as it could be.
    much: bool,
}

impl ReadAhead {
    /// A socket of which `early` was read already.
    pub(crate) fn new(stream: TcpStream, early: BytesMut) -> Self {
        Self {
            peer: stream.peer_addr().ok(),
            stream,
            at: 0,
            end: early.len(),
            held: early.into(),
            much: false,
        }
    }

    fn hand_out(&mut self, buf: &mut ReadBuf<'_>) {
        let length = (self.end - self.at).min(buf.remaining());
        buf.put_slice(&self.held[self.at..self.at + length]);
        self.at += length;
        if self.at == self.end && !self.much {
            self.held = Vec::new();
        }
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if this.at < this.end {
            this.hand_out(buf);
            return Poll::Ready(Ok(()));
        }
        if !this.much {
            let room = buf.remaining();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            this.much = room > 0 && buf.remaining() == 0;
            return Poll::Ready(Ok(()));
        }
        this.held.resize(AHEAD, 0);
        let mut ahead = ReadBuf::new(&mut this.held);
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut ahead))?;
        (this.at, this.end) = (0, ahead.filled().len());
        this.much = this.end >= AHEAD / 2;
        this.hand_out(buf);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAhead {
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_is_read_ahead_is_what_was_sent_and_a_rest_keeps_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (near, _) = listener.accept().await.unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let early = BytesMut::from(&sent[..777]);
        let mut near = ReadAhead::new(near, early);
        let mut got = Vec::new();
        let write = async {
            far.write_all(&sent[777..]).await.unwrap();
        };
        let read = async {
            let mut piece = [0; 4096];
            while got.len() < sent.len() {
                let read = near.read(&mut piece).await.unwrap();
                assert!(read > 0);
                got.extend_from_slice(&piece[..read]);
            }
        };
        tokio::join!(write, read);
        assert!(got == sent);
        // A few bytes at the end of much, and then nothing.
        far.write_all(b"rest").await.unwrap();
        let mut piece = [0; 4096];
        let read = near.read(&mut piece).await.unwrap();
        assert_eq!(&piece[..read], b"rest");
        assert_eq!((near.much, near.held.capacity()), (false, 0));
        drop(far);
        assert_eq!(near.read(&mut piece).await.unwrap(), 0);
    }
}
