//! The stream of `ReadFile`.

use std::pin::Pin;

use astrabox_platform::{OpContext, Platform, Result};
use astrabox_proto::v1::ReadFileResponse;
use astrabox_types::SessionId;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use tonic::Status;

use crate::status;

pub(crate) type FileStream =
    Pin<Box<dyn Stream<Item = std::result::Result<ReadFileResponse, Status>> + Send + 'static>>;

/// How much is read at once, bytes: a few of these wait in the connection, not the file.
const PIECE_BYTES: u64 = 256 << 10;

/// The file, piece by piece, as the client takes it. The first piece is read before the answer begins, so that a
/// file that cannot be read is an error of the call.
///
/// # Errors
/// As `Platform::read_file`.
pub(crate) async fn stream(
    platform: Platform,
    ctx: OpContext,
    id: SessionId,
    path: String,
) -> Result<FileStream> {
    let first = platform.read_file(&ctx, id, &path, 0, PIECE_BYTES).await?;
    let rest = Rest {
        platform,
        ctx,
        id,
        path,
        offset: first.len() as u64,
        done: first.is_empty(),
    };
    let head = (!first.is_empty()).then_some(Ok(piece(first)));
    Ok(Box::pin(
        stream::iter(head).chain(stream::try_unfold(rest, Rest::next)),
    ))
}

struct Rest {
    platform: Platform,
    ctx: OpContext,
    id: SessionId,
    path: String,
    offset: u64,
    done: bool,
}

impl Rest {
    async fn next(mut self) -> std::result::Result<Option<(ReadFileResponse, Self)>, Status> {
        if self.done {
            return Ok(None);
        }
        let read = self
            .platform
            .read_file(&self.ctx, self.id, &self.path, self.offset, PIECE_BYTES)
            .await;
        let content = read.map_err(|error| {
            status::log("ReadFile", &error);
            status::to_status(&error)
        })?;
        if content.is_empty() {
            return Ok(None);
        }
        self.offset += content.len() as u64;
        Ok(Some((piece(content), self)))
    }
}

fn piece(content: Bytes) -> ReadFileResponse {
    ReadFileResponse { content }
}
