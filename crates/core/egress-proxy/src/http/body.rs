//! Reads and writes bodies piece by piece; nothing is held back and nothing is collected.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::answer::Bad;
use crate::http::framing::BodyLength;
use crate::http::head::parse_fields;

/// How much is read at once, which bounds what a body takes of memory.
const PIECE: usize = 64 * 1024;

/// Below this it is not worth it to look for more.
const ROOM: usize = 4096;

/// The longest line that gives the size of a chunk.
const MAX_SIZE_LINE: usize = 256;

/// How many bytes a body may spend on chunk extensions, and on trailers.
const MAX_EXTRAS: usize = 16 * 1024;

/// Why a body did not come to its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The connection ended before the body did.
    Truncated,
    /// The chunks are wrong.
    Malformed,
    /// The connection failed.
    Io,
}

impl From<io::Error> for BodyError {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

impl From<Bad> for BodyError {
    fn from(_: Bad) -> Self {
        Self::Malformed
    }
}

/// Takes the framing off a body. Chunk extensions and trailers are checked and dropped.
pub(crate) struct BodyReader {
    state: State,
    extras: usize,
}

#[derive(Clone, Copy)]
enum State {
    Fixed(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    Done,
}

impl BodyReader {
    pub(crate) fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::None | BodyLength::Length(0) => State::Done,
            BodyLength::Length(length) => State::Fixed(length),
            BodyLength::Chunked => State::ChunkSize,
            BodyLength::UntilClose => State::UntilClose,
        };
        Self { state, extras: 0 }
    }

    /// The next piece, as soon as any of it is there; nothing at the end. What follows the body stays in `buffer`.
    pub(crate) async fn next<R: AsyncRead + Unpin>(
        &mut self,
        source: &mut R,
        buffer: &mut BytesMut,
    ) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.state {
                State::Done => return Ok(None),
                State::Fixed(left) => {
                    let piece = take(source, buffer, left).await?;
                    self.state = match left - piece.len() as u64 {
                        0 => State::Done,
                        left => State::Fixed(left),
                    };
                    return Ok(Some(piece));
                }
                State::ChunkData(left) => {
                    let piece = take(source, buffer, left).await?;
                    self.state = match left - piece.len() as u64 {
                        0 => State::ChunkEnd,
                        left => State::ChunkData(left),
                    };
                    return Ok(Some(piece));
                }
                State::UntilClose => {
                    if buffer.is_empty() && fill(source, buffer).await? == 0 {
                        self.state = State::Done;
                        return Ok(None);
                    }
                    return Ok(Some(buffer.split().freeze()));
                }
                State::ChunkSize => {
                    let line = take_line(source, buffer, MAX_SIZE_LINE).await?;
                    let (size, extension) = parse_size(&line)?;
                    self.spend(extension)?;
                    self.state = match size {
                        0 => State::Trailers,
                        size => State::ChunkData(size),
                    };
                }
                State::ChunkEnd => {
                    if !take_line(source, buffer, 2).await?.is_empty() {
                        return Err(BodyError::Malformed);
                    }
                    self.state = State::ChunkSize;
                }
                State::Trailers => {
                    let line = take_line(source, buffer, MAX_EXTRAS).await?;
                    if line.is_empty() {
                        self.state = State::Done;
                    } else {
                        self.spend(line.len())?;
                        parse_fields(&line, &line)?;
                    }
                }
            }
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.extras += bytes;
        if self.extras > MAX_EXTRAS {
            return Err(BodyError::Malformed);
        }
        Ok(())
    }
}

/// Waits for something, and takes what else is there by then: TLS hands out one record after the other.
async fn fill<R: AsyncRead + Unpin>(source: &mut R, buffer: &mut BytesMut) -> io::Result<usize> {
    buffer.reserve(PIECE);
    let mut read = source.read_buf(buffer).await?;
    while read >= ROOM && buffer.capacity() - buffer.len() >= ROOM {
        let more = tokio::select! {
            biased;
            more = source.read_buf(buffer) => more?,
            () = std::future::ready(()) => break,
        };
        if more == 0 {
            break;
        }
        read += more;
    }
    Ok(read)
}

/// At least one and at most `most` bytes.
async fn take<R: AsyncRead + Unpin>(
    source: &mut R,
    buffer: &mut BytesMut,
    most: u64,
) -> Result<Bytes, BodyError> {
    if buffer.is_empty() && fill(source, buffer).await? == 0 {
        return Err(BodyError::Truncated);
    }
    let length = usize::try_from(most).map_or(buffer.len(), |most| most.min(buffer.len()));
    Ok(buffer.split_to(length).freeze())
}

/// A line without its CR LF, which must be both there, in at most `most` bytes.
async fn take_line<R: AsyncRead + Unpin>(
    source: &mut R,
    buffer: &mut BytesMut,
    most: usize,
) -> Result<Bytes, BodyError> {
    let mut scanned = 0;
    loop {
        if let Some(at) = buffer[scanned..].iter().position(|byte| *byte == b'\n') {
            let end = scanned + at;
            if end + 1 > most || end == 0 || buffer[end - 1] != b'\r' {
                return Err(BodyError::Malformed);
            }
            let line = buffer.split_to(end - 1).freeze();
            buffer.advance(2);
            let plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
            return if line.iter().all(plain) {
                Ok(line)
            } else {
                Err(BodyError::Malformed)
            };
        }
        scanned = buffer.len();
        if scanned >= most {
            return Err(BodyError::Malformed);
        }
        if fill(source, buffer).await? == 0 {
            return Err(BodyError::Truncated);
        }
    }
}

/// The size of a chunk, and the length of its extension.
fn parse_size(line: &[u8]) -> Result<(u64, usize), BodyError> {
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    // 15 digits keep the sum of any two sizes below 2^63.
    if digits == 0 || digits > 15 {
        return Err(BodyError::Malformed);
    }
    let extension = &line[digits..];
    if !extension.is_empty() && extension[0] != b';' {
        return Err(BodyError::Malformed);
    }
    let mut size = 0;
    for digit in &line[..digits] {
        let value = char::from(*digit)
            .to_digit(16)
            .ok_or(BodyError::Malformed)?;
        size = size * 16 + u64::from(value);
    }
    Ok((size, extension.len()))
}

/// Writes one piece in the framing of `length`; each is on the wire when this returns.
pub(crate) async fn write_piece<W: AsyncWrite + Unpin>(
    target: &mut W,
    length: BodyLength,
    piece: Bytes,
) -> io::Result<()> {
    if length == BodyLength::Chunked {
        let size = Bytes::from(format!("{:x}\r\n", piece.len()));
        let mut chunk = size.chain(piece).chain(Bytes::from_static(b"\r\n"));
        target.write_all_buf(&mut chunk).await
    } else {
        target.write_all(&piece).await
    }
}

/// Writes what ends a body of `length`.
pub(crate) async fn write_end<W: AsyncWrite + Unpin>(
    target: &mut W,
    length: BodyLength,
) -> io::Result<()> {
    if length == BodyLength::Chunked {
        target.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(length: BodyLength, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
        let (mut near, mut far) = tokio::io::duplex(1024 * 1024);
        for piece in pieces {
            far.write_all(piece).await.unwrap();
        }
        drop(far);
        let mut reader = BodyReader::new(length);
        let mut buffer = BytesMut::new();
        let mut body = Vec::new();
        while let Some(piece) = reader.next(&mut near, &mut buffer).await? {
            assert!(!piece.is_empty());
            body.extend_from_slice(&piece);
        }
        Ok((body, buffer.to_vec()))
    }

    #[tokio::test]
    async fn a_body_ends_where_it_says_and_leaves_what_follows() {
        let chunked = BodyLength::Chunked;
        for (length, input, body, rest) in [
            (BodyLength::None, "GET", "", ""),
            (BodyLength::Length(3), "abcGET", "abc", "GET"),
            (BodyLength::UntilClose, "abc", "abc", ""),
            (chunked, "3\r\nabc\r\n0\r\n\r\nGET", "abc", "GET"),
            (chunked, "3;a=\"b\"\r\nabc\r\n0;c\r\n\r\n", "abc", ""),
            (chunked, "00A\r\n0123456789\r\n0\r\n\r\n", "0123456789", ""),
            (chunked, "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", ""),
            (chunked, "0\r\nX-T: secret\r\nY: z\r\n\r\nGET", "", "GET"),
        ] {
            let (got, left) = read(length, &[input.as_bytes()]).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&got), body, "{input:?}");
            assert_eq!(String::from_utf8_lossy(&left), rest, "{input:?}");
        }
    }

    #[tokio::test]
    async fn d6_wrong_chunks_are_refused() {
        let flood = format!("1;{}\r\na\r\n", "x".repeat(200)).repeat(100);
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(5000));
        for input in [
            "x\r\n",
            "\r\n",
            "-1\r\na\r\n",
            "+1\r\na\r\n",
            "0x1\r\na\r\n",
            "1 \r\na\r\n",
            " 1\r\na\r\n",
            "1\na\r\n0\r\n\r\n",
            "1\r\na0\r\n\r\n",
            "1\r\nabc\r\n0\r\n\r\n",
            "1\r\na\n0\r\n\r\n",
            "0\r\nno field\r\n\r\n",
            "0\r\nA: b\n\r\n",
            "0\r\n folded: x\r\n\r\n",
            "1;a\rb\r\na\r\n0\r\n\r\n",
            "8000000000000000\r\n",
            "ffffffffffffffffff\r\n",
            &flood,
            &trailers,
        ] {
            let result = read(BodyLength::Chunked, &[input.as_bytes()]).await;
            let shown = &input[..input.len().min(40)];
            assert!(matches!(result, Err(BodyError::Malformed)), "{shown:?}");
        }
        for (length, input) in [
            (BodyLength::Chunked, "3\r\nab"),
            (BodyLength::Chunked, "3\r\nabc\r\n"),
            (BodyLength::Chunked, "3\r\nabc\r\n0\r\n"),
            (BodyLength::Length(4), "abc"),
        ] {
            let result = read(length, &[input.as_bytes()]).await;
            assert!(matches!(result, Err(BodyError::Truncated)), "{input:?}");
        }
    }

    #[tokio::test]
    async fn a_piece_is_framed_by_itself() {
        let mut chunked = Vec::new();
        for piece in ["data: x\n\n", "y"] {
            let piece = Bytes::from_static(piece.as_bytes());
            write_piece(&mut chunked, BodyLength::Chunked, piece)
                .await
                .unwrap();
        }
        write_end(&mut chunked, BodyLength::Chunked).await.unwrap();
        assert_eq!(
            chunked,
            b"9\r\ndata: x\n\n\r\n1\r\ny\r\n0\r\n\r\n".as_slice()
        );
    }
}
