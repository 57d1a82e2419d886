//! The client that everybody is measured with: requests that were made beforehand, and answers that are hardly looked
//! at. It runs on one thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificates::HOST;
use super::stage::{Kind, Route};
use super::upstream::{DIGITS, PIECE, SMALL, STAMP, now, text};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much of an answer is read at once.
const BUFFER: usize = 16 * 1024;

/// A connection to the upstream over one of the routes.
pub(super) struct Connection {
    /// rustls reads 4 KiB at a time, which is many calls for a large body.
    stream: TlsStream<BufReader<TcpStream>>,
    buffer: Vec<u8>,
}

/// A request without a body, or the head of one.
pub(super) fn request(route: &Route, line: &str, more: &str) -> Vec<u8> {
    let shows = &route.shows;
    format!(
        "{line} HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: bench\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nAuthorization: Bearer {shows}\r\n{more}\r\n"
    )
    .into_bytes()
}

/// Does work on a thread of its own, with no other thread beside it.
pub(super) async fn alone<T: Send + 'static, Fut: Future<Output = Result<T>>>(
    work: impl FnOnce() -> Fut + Send + 'static,
) -> Result<T> {
    let thread = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        runtime.block_on(async { tokio::time::timeout(PATIENCE, work()).await? })
    };
    tokio::task::spawn_blocking(thread).await?
}

impl Connection {
    pub(super) async fn open(route: &Route) -> Result<Self> {
        let mut stream = TcpStream::connect(route.address).await?;
        stream.set_nodelay(true)?;
        if route.kind != Kind::Direct {
            let connect = format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n");
            stream.write_all(connect.as_bytes()).await?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                ensure!(stream.read_buf(&mut head).await? > 0, "no tunnel");
            }
            ensure!(head.starts_with(b"HTTP/1.1 200 "), "no tunnel: {head:?}");
        }
        let name = ServerName::try_from(HOST)?;
        let connector = TlsConnector::from(Arc::clone(&route.trust));
        Ok(Self {
            stream: connector
                .connect(name, BufReader::with_capacity(PIECE, stream))
                .await?,
            buffer: vec![0; BUFFER],
        })
    }

    /// Sends a request and reads the small answer.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.answered().await
    }

    async fn answered(&mut self) -> Result<()> {
        let head = self.head().await?;
        let mut missing = (head.end + SMALL)
            .checked_sub(head.read)
            .context("more than was asked for")?;
        while missing > 0 {
            let read = self.stream.read(&mut self.buffer).await?;
            ensure!(read > 0 && read <= missing, "an answer that is cut");
            missing -= read;
        }
        Ok(())
    }

    /// Reads a head and what comes with it.
    async fn head(&mut self) -> Result<Head> {
        let mut read = 0;
        loop {
            match self.stream.read(&mut self.buffer[read..]).await? {
                0 => bail!("no answer"),
                more => read += more,
            }
            let got = &self.buffer[..read];
            if let Some(at) = got.windows(4).position(|four| four == b"\r\n\r\n") {
                let ok = got.starts_with(b"HTTP/1.1 200");
                ensure!(ok, "{}", String::from_utf8_lossy(&got[..at]));
                return Ok(Head { end: at + 4, read });
            }
        }
    }

    /// How old the first event of a stream is when it is here.
    pub(super) async fn first_event(&mut self, request: &[u8]) -> Result<Duration> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let Head { end, read } = self.head().await?;
        let mut got = self.buffer[end..read].to_vec();
        let mut age = None;
        loop {
            if age.is_none() {
                age = stamp(&got).map(|then| now().saturating_sub(then));
            }
            if got.ends_with(b"0\r\n\r\n") {
                break;
            }
            let more = self.stream.read_buf(&mut got).await?;
            ensure!(more > 0, "a stream without its end");
        }
        Ok(Duration::from_nanos(age.context("no event came")?))
    }

    /// Reads an answer of so many bytes; how long it takes.
    pub(super) async fn download(&mut self, route: &Route, length: u64) -> Result<Duration> {
        let begun = Instant::now();
        let request = request(route, &format!("GET /down/{length}"), "");
        self.stream.write_all(&request).await?;
        self.stream.flush().await?;
        let head = self.head().await?;
        let mut left = length - (head.read - head.end) as u64;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            match self.stream.read(&mut piece).await? {
                0 => bail!("{left} bytes are missing"),
                read => left -= read as u64,
            }
        }
        Ok(begun.elapsed())
    }

    /// Sends a body of so many bytes; how long it takes until it is answered.
    pub(super) async fn upload(&mut self, route: &Route, length: u64) -> Result<Duration> {
        let text = text();
        let begun = Instant::now();
        let framing = format!("Content-Length: {length}\r\n");
        let head = request(route, &format!("POST /up/{length}"), &framing);
        self.stream.write_all(&head).await?;
        let mut left = length;
        while left > 0 {
            let next = text.len().min(usize::try_from(left)?);
            self.stream.write_all(&text[..next]).await?;
            left -= next as u64;
        }
        self.stream.flush().await?;
        self.answered().await?;
        Ok(begun.elapsed())
    }
}

struct Head {
    end: usize,
    read: usize,
}

/// The time in the first whole event.
fn stamp(got: &[u8]) -> Option<u64> {
    let at = got.windows(STAMP.len()).position(|part| part == STAMP)? + STAMP.len();
    std::str::from_utf8(got.get(at..at + DIGITS)?)
        .ok()?
        .parse()
        .ok()
}

/// How long each of so many small requests takes, one after the other on one connection.
pub(super) async fn each(route: Route, requests: usize) -> Result<Vec<Duration>> {
    alone(move || async move {
        let request = request(&route, "GET /v1/small", "");
        let mut connection = Connection::open(&route).await?;
        let mut times = Vec::with_capacity(requests);
        // The first ones fill caches.
        for number in 0..requests + requests / 10 {
            let begun = Instant::now();
            connection.ask(&request).await?;
            if number >= requests / 10 {
                times.push(begun.elapsed());
            }
        }
        Ok(times)
    })
    .await
}

/// What was done by all connections together.
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) requests: u64,
}

/// Small requests one after the other on each of so many connections, for this long. `begin` is called when all of them
/// have had their first.
pub(super) async fn load(
    route: Route,
    connections: usize,
    time: Duration,
    begin: impl FnOnce() + Send + 'static,
) -> Result<Load> {
    alone(move || async move {
        let request: Arc<[u8]> = request(&route, "GET /v1/small", "").into();
        let mut open = Vec::new();
        for _ in 0..connections {
            let mut connection = Connection::open(&route).await?;
            connection.ask(&request).await?;
            open.push(connection);
        }
        begin();
        let done = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for mut connection in open {
            let (request, done) = (Arc::clone(&request), Arc::clone(&done));
            tasks.spawn(async move {
                while begun.elapsed() < time {
                    connection.ask(&request).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let requests = done.load(Ordering::Relaxed);
        Ok(Load {
            per_second: requests as f64 / begun.elapsed().as_secs_f64(),
            requests,
        })
    })
    .await
}
