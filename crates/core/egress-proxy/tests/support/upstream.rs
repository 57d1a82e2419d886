//! An upstream that records every byte it receives.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::until;

pub(crate) type Log = Arc<Mutex<Vec<Vec<u8>>>>;

/// A listener on loopback; what each connection sent is kept.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    log: Log,
    _tasks: JoinSet<()>,
}

/// One connection to an upstream.
pub(crate) struct Conversation<S = TcpStream> {
    pub(crate) stream: S,
    log: Log,
    index: usize,
    read: Vec<u8>,
}

impl Upstream {
    /// Runs `script` on each connection.
    pub(crate) async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Conversation) -> Fut + Send + 'static,
        Fut: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Log::default();
        let mut tasks = JoinSet::new();
        let connections = Arc::clone(&log);
        tasks.spawn(async move {
            let mut scripts = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let work = script(Conversation::new(stream, &connections));
                scripts.spawn(async move {
                    // The proxy may hang up at any time.
                    let _ = work.await;
                });
            }
        });
        Self {
            address,
            log,
            _tasks: tasks,
        }
    }

    /// Answers each request, whose head is all of it, with the same bytes, and closes.
    pub(crate) async fn answering(answer: &'static str) -> Self {
        Self::start(move |mut conversation| async move {
            conversation.head().await?;
            conversation.write(answer).await?;
            conversation.drain().await
        })
        .await
    }

    /// Sends back what it receives, and ends when the other side does.
    pub(crate) async fn echo() -> Self {
        Self::start(|mut conversation| async move {
            while conversation.more().await? > 0 {
                let bytes = std::mem::take(&mut conversation.read);
                conversation.write(bytes).await?;
            }
            conversation.stream.shutdown().await
        })
        .await
    }

    /// What each connection sent so far.
    pub(crate) fn received(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }

    /// Waits until the first connection has sent exactly this.
    pub(crate) async fn has_received(&self, bytes: &str) {
        until(&format!("{bytes:?} at the upstream"), async || {
            self.received().first().is_some_and(|got| got == bytes)
        })
        .await;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// One connection of a log that others write to as well.
    pub(crate) fn new(stream: S, log: &Log) -> Self {
        let index = {
            let mut log = log.lock().unwrap();
            log.push(Vec::new());
            log.len() - 1
        };
        Self {
            stream,
            log: Arc::clone(log),
            index,
            read: Vec::new(),
        }
    }

    pub(crate) async fn more(&mut self) -> io::Result<usize> {
        let mut piece = vec![0; 64 * 1024];
        let read = self.stream.read(&mut piece).await?;
        self.read.extend_from_slice(&piece[..read]);
        self.log.lock().unwrap()[self.index].extend_from_slice(&piece[..read]);
        Ok(read)
    }

    /// Reads until `end` has come.
    pub(crate) async fn until(&mut self, end: &str) -> io::Result<()> {
        let end = end.as_bytes();
        while !self.read.windows(end.len()).any(|part| part == end) {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    pub(crate) async fn head(&mut self) -> io::Result<()> {
        self.until("\r\n\r\n").await
    }

    /// Whether what was read and not taken has this in it.
    pub(crate) fn has(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.read).contains(text)
    }

    /// Takes everything that was read.
    pub(crate) fn forget(&mut self) {
        self.read.clear();
    }

    /// Reads one request with a body in a length, or none, and takes it; gives it as text.
    pub(crate) async fn request(&mut self) -> io::Result<String> {
        self.head().await?;
        let head = self.read.windows(4).position(|part| part == b"\r\n\r\n");
        let end = head.unwrap() + 4;
        let text = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        while self.read.len() < end + length {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let request = self.read.drain(..end + length).collect::<Vec<u8>>();
        Ok(String::from_utf8_lossy(&request).into_owned())
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Ends the own side and reads what still comes.
    pub(crate) async fn drain(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        while self.more().await? > 0 {}
        Ok(())
    }
}
