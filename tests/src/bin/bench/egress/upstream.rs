//! The server that everybody is measured against: TLS and HTTP/1.1 by hand, with answers that were made beforehand,
//! so that it costs as little as it can.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificates;

/// The credential's value. Whoever does not show it gets no answer.
pub(super) const VALUE: &str = "bench-value-0123456789abcdef0123456789";
/// The body of a small answer.
pub(super) const SMALL: usize = 128;
/// The longest head.
const HEAD: usize = 16 * 1024;
/// How much is read and written at once of a large body.
pub(super) const PIECE: usize = 256 * 1024;
/// How long an event stream waits before each of its two events: what came before is through by then.
const BETWEEN: Duration = Duration::from_millis(10);
/// What comes before the time in an event.
pub(super) const STAMP: &[u8] = b"data: ";
/// How many digits the time has.
pub(super) const DIGITS: usize = 20;

/// Serves on a port of its own, which it prints, until its input ends. One thread.
pub(crate) fn run(folder: &Path) -> Result<()> {
    super::ends_with_its_input();
    let acceptor = TlsAcceptor::from(certificates::server(folder)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        super::print_address(&listener)?;
        let mut tasks = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            while tasks.try_join_next().is_some() {}
            let acceptor = acceptor.clone();
            // A peer may go at any time.
            tasks.spawn(async move {
                let _ = converse(stream, &acceptor).await;
            });
        }
    })
}

async fn converse(stream: TcpStream, acceptor: &TlsAcceptor) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = BufReader::with_capacity(PIECE, stream);
    let stream = acceptor.accept(stream).await?;
    Conversation::new(stream).serve().await
}

struct Conversation {
    /// rustls reads 4 KiB at a time, which is many calls for a large body.
    stream: TlsStream<BufReader<TcpStream>>,
    buffer: Vec<u8>,
    /// How much of `buffer` was read and not used.
    read: usize,
    small: Vec<u8>,
}

impl Conversation {
    fn new(stream: TlsStream<BufReader<TcpStream>>) -> Self {
        let mut small = head(SMALL as u64);
        small.resize(small.len() + SMALL, b'x');
        Self {
            stream,
            buffer: vec![0; HEAD],
            read: 0,
            small,
        }
    }

    async fn serve(&mut self) -> Result<()> {
        while let Some(end) = self.head().await? {
            let head = &self.buffer[..end];
            if !contains(head, VALUE.as_bytes()) {
                bail!("a request without the value");
            }
            let ask = Ask::read(head)?;
            self.buffer.copy_within(end..self.read, 0);
            self.read -= end;
            match ask {
                Ask::Small => self.stream.write_all(&self.small).await?,
                Ask::Events => self.events().await?,
                Ask::Down(length) => self.down(length).await?,
                Ask::Up(length) => self.up(length).await?,
            }
            self.stream.flush().await?;
        }
        Ok(())
    }

    /// Reads up to the end of the next head.
    async fn head(&mut self) -> Result<Option<usize>> {
        loop {
            let read = &self.buffer[..self.read];
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(Some(at + 4));
            }
            match self.stream.read(&mut self.buffer[self.read..]).await? {
                0 if self.read == self.buffer.len() => bail!("a head that is too long"),
                0 => return Ok(None),
                read => self.read += read,
            }
        }
    }

    async fn events(&mut self) -> Result<()> {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.stream.write_all(head).await?;
        self.stream.flush().await?;
        for _ in 0..2 {
            tokio::time::sleep(BETWEEN).await;
            let event = format!("data: {:0DIGITS$}\n\n", now());
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            self.stream.write_all(chunk.as_bytes()).await?;
            self.stream.flush().await?;
        }
        Ok(self.stream.write_all(b"0\r\n\r\n").await?)
    }

    async fn down(&mut self, length: u64) -> Result<()> {
        self.stream.write_all(&head(length)).await?;
        let text = text();
        let mut left = length;
        while left > 0 {
            let next = text.len().min(usize::try_from(left)?);
            self.stream.write_all(&text[..next]).await?;
            left -= next as u64;
        }
        Ok(())
    }

    async fn up(&mut self, length: u64) -> Result<()> {
        let mut left = length - self.read as u64;
        self.read = 0;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            match self.stream.read(&mut piece).await? {
                0 => bail!("a body without its end"),
                read => left -= read as u64,
            }
        }
        Ok(self.stream.write_all(&self.small).await?)
    }
}

/// What is asked for.
enum Ask {
    Small,
    Events,
    Down(u64),
    Up(u64),
}

impl Ask {
    fn read(head: &[u8]) -> Result<Self> {
        let line = head.split(|byte| *byte == b'\r').next();
        let line = std::str::from_utf8(line.unwrap_or_default())?;
        let target = line.split(' ').nth(1).unwrap_or_default();
        Ok(match target.rsplit_once('/') {
            Some((_, "small")) => Self::Small,
            Some((_, "events")) => Self::Events,
            Some(("/down", length)) => Self::Down(length.parse()?),
            Some(("/up", length)) => Self::Up(length.parse()?),
            _ => bail!("a request for something else"),
        })
    }
}

fn head(length: u64) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n")
        .into_bytes()
}

/// A piece of a large body: letters and digits without a pattern, in lines.
pub(super) fn text() -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |at| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match at % 77 {
            76 => b'\n',
            _ => LETTERS[(state & 63) as usize],
        }
    };
    (0..PIECE).map(letter).collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The host's monotonic clock, nanoseconds: the same for every process (clock_gettime(2)).
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    u64::try_from(nanoseconds).unwrap_or_default()
}
