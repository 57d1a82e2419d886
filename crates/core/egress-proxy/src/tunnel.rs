//! A CONNECT tunnel: bytes both ways, until both ways have ended.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::connection::End;
use crate::meter::Meter;

/// How much is held of each direction.
const PIECE: usize = 32 * 1024;

/// Tells the client that the tunnel stands, and relays. `early` is what the client sent ahead of that.
pub(crate) async fn relay(
    client: &mut TcpStream,
    early: Bytes,
    upstream: &mut TcpStream,
    meter: &Meter,
    idle: Duration,
) -> End {
    let (client_read, mut client_write) = client.split();
    let (upstream_read, mut upstream_write) = upstream.split();
    let up = async {
        upstream_write.write_all(&early).await?;
        meter.sent_up(early.len());
        pump(
            client_read,
            upstream_write,
            |bytes| meter.sent_up(bytes),
            meter,
        )
        .await
    };
    let down = async {
        client_write
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await?;
        pump(
            upstream_read,
            client_write,
            |bytes| meter.sent_down(bytes),
            meter,
        )
        .await
    };
    tokio::select! {
        result = async { tokio::try_join!(up, down) } => match result {
            Ok(_) => End::Completed,
            Err(_) => End::Aborted,
        },
        () = meter.idle(idle) => End::Idle,
    }
}

/// Copies until the end of `from`, and passes that end on while the other direction goes on.
pub(crate) async fn pump<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut from: R,
    mut to: W,
    sent: impl Fn(usize),
    meter: &Meter,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        meter.touch();
        to.write_all(&piece[..read]).await?;
        sent(read);
    }
}
