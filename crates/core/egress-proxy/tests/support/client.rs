//! A client inside a sandbox, byte for byte.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::soon;

/// An answer, read to the end that its framing gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The reason that the proxy gives, when the answer is its own.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix("x-astrabox-egress-reason: "))
    }

    pub(crate) fn error(&self) -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        body["error"].clone()
    }
}

pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(proxy: SocketAddr) -> Self {
        let stream = TcpStream::connect(proxy).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Sends, to a proxy that may have hung up.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    async fn more(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 * 1024];
        let read = soon("an answer", self.stream.read(&mut piece)).await?;
        self.buffer.extend_from_slice(&piece[..read]);
        Ok(read)
    }

    /// Reads until there are `length` bytes, and takes them.
    pub(crate) async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.more().await? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Whether the connection has ended, in whatever way, and nothing more came.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.rest().await.is_ok_and(|rest| rest.is_empty()) || self.buffer.is_empty()
    }

    /// Reads a head.
    pub(crate) async fn head(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.buffer.drain(..at + 4).collect();
                return Ok(String::from_utf8(head).unwrap());
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads one answer to a request that was no HEAD.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        let head = self.head().await?;
        let field = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(&format!("{name}: ")))
                .map(str::to_owned)
        };
        let status: u16 = head[9..12].parse().unwrap();
        let body = if let Some(length) = field("content-length") {
            self.take(length.parse().unwrap()).await?
        } else if field("transfer-encoding").is_some() {
            self.chunks().await?
        } else if status == 200 && head.contains("established") || status == 204 {
            Vec::new()
        } else {
            self.rest().await?
        };
        Ok(Answer { status, head, body })
    }

    /// Reads one chunk; empty at the end.
    pub(crate) async fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let mut size = Vec::new();
        while !size.ends_with(b"\r\n") {
            size.extend(self.take(1).await?);
        }
        let size = String::from_utf8(size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let chunk = self.take(size).await?;
        assert_eq!(self.take(2).await?, b"\r\n");
        Ok(chunk)
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk().await?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend(chunk);
        }
    }
}

/// Sends one request on a connection of its own and reads the answer.
pub(crate) async fn ask(proxy: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut client = Client::connect(proxy).await;
    client.send(request).await;
    client.answer().await.unwrap()
}

pub(crate) fn connect_to(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

pub(crate) fn get(authority: &str, path: &str) -> String {
    format!("GET http://{authority}{path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

/// A tunnel that stands.
pub(crate) async fn tunnel(proxy: SocketAddr, authority: &str) -> Client {
    let mut client = Client::connect(proxy).await;
    client.send(connect_to(authority)).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    client
}
