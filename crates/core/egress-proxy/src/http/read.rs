//! Reads a head off a connection, within a size and a time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::Bad;
use crate::http::head::find_end;

/// How long a client may keep a connection open between requests.
pub(crate) const QUIET: Duration = Duration::from_secs(60);

/// How long the head of a request may take from its first byte.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);

/// The next request of a client. Nothing when the client went away, or said nothing for [`QUIET`].
pub(crate) async fn request_head<R: AsyncRead + Unpin>(
    client: &mut R,
    buffer: &mut BytesMut,
) -> Result<Option<Bytes>, Bad> {
    if buffer.is_empty() {
        buffer.reserve(4096);
        match timeout(QUIET, client.read_buf(buffer)).await {
            Ok(Ok(read)) if read > 0 => {}
            _ => return Ok(None),
        }
    }
    let deadline = Instant::now() + HEAD_TIME;
    match timeout_at(deadline, head(client, buffer)).await {
        Ok(head) => head.map(Some),
        Err(_) => Err(Bad::HeadTimeout),
    }
}

/// A whole head; [`Bad::Incomplete`] when the connection ends first. The caller bounds the time.
pub(crate) async fn head<R: AsyncRead + Unpin>(
    source: &mut R,
    buffer: &mut BytesMut,
) -> Result<Bytes, Bad> {
    let mut scanned = 0;
    loop {
        if let Some(end) = find_end(buffer, scanned)? {
            return Ok(buffer.split_to(end).freeze());
        }
        scanned = buffer.len();
        buffer.reserve(4096);
        match source.read_buf(buffer).await {
            Ok(read) if read > 0 => {}
            _ => return Err(Bad::Incomplete),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn d10_a_slow_head_times_out_and_a_quiet_client_is_let_go() {
        let (mut near, mut far) = tokio::io::duplex(1024);
        let mut buffer = BytesMut::new();
        far.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let began = Instant::now();
        let slow = async {
            // One byte each second keeps the connection busy and must not keep it open.
            while far.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            head = request_head(&mut near, &mut buffer) => assert_eq!(head, Err(Bad::HeadTimeout)),
            () = slow => panic!("the reader is still there"),
        }
        assert_eq!(began.elapsed(), HEAD_TIME);

        let (mut near, _far) = tokio::io::duplex(1024);
        let began = Instant::now();
        let head = request_head(&mut near, &mut BytesMut::new()).await;
        assert_eq!(head, Ok(None));
        assert_eq!(began.elapsed(), QUIET);
    }

    #[tokio::test]
    async fn an_end_inside_a_head_is_no_request() {
        let (mut near, mut far) = tokio::io::duplex(1024);
        far.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        drop(far);
        let head = request_head(&mut near, &mut BytesMut::new()).await;
        assert_eq!(head, Err(Bad::Incomplete));
    }
}
