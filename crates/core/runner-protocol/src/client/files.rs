//! Files of the box.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};

use crate::client::{answer, protocol, within};
use crate::convert::Unintelligible;
use crate::wire::{read_file_response, write_file_request};
use crate::{
    FileInfo, MAX_DATA_BYTES, RunnerClient, RunnerError, WriteFileOptions, from_status, wire,
};

impl RunnerClient {
    /// Reads at most `limit` bytes of a file, from `offset` on.
    pub async fn read_file(
        &self,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<(FileInfo, Bytes), RunnerError> {
        if limit == 0 {
            return Ok((self.stat(path, false).await?, Bytes::new()));
        }
        let mut reader = self.open_file(path, offset, limit).await?;
        let mut content = BytesMut::new();
        while let Some(data) = reader.next().await? {
            content.extend_from_slice(&data);
        }
        Ok((reader.info, content.freeze()))
    }

    /// Streams a file from `offset` on; at most `limit` bytes, or to the end when 0.
    pub async fn open_file(
        &self,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<FileReader, RunnerError> {
        let request = wire::ReadFileRequest {
            path: path.to_owned(),
            offset,
            limit,
        };
        let deadline = self.deadlines.file;
        let mut wire = self.wire.clone();
        let call = async move { wire.read_file(request).await };
        let mut stream = answer("read_file", deadline, call).await?;
        let first = next_part(&mut stream, deadline).await?;
        let Some(read_file_response::Part::Info(info)) = first else {
            return Err(protocol("read_file", Unintelligible("info")));
        };
        let info = FileInfo::try_from(info).map_err(|error| protocol("read_file", error))?;
        Ok(FileReader {
            info,
            stream,
            deadline,
        })
    }

    /// Writes a file, which appears whole or not at all.
    pub async fn write_file(
        &self,
        path: &str,
        options: WriteFileOptions,
        content: Bytes,
    ) -> Result<FileInfo, RunnerError> {
        self.write_file_from(path, options, futures::stream::iter([content]))
            .await
    }

    /// Writes a file from a stream of pieces of any length.
    ///
    /// Dropping the future before its end leaves the old file in place.
    pub async fn write_file_from(
        &self,
        path: &str,
        options: WriteFileOptions,
        content: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<FileInfo, RunnerError> {
        let header = write_file_request::Part::Header(options.header(path));
        let parts = content
            .flat_map(|piece| futures::stream::iter(pieces(piece)))
            .map(write_file_request::Part::Data);
        let parts = futures::stream::iter([header])
            .chain(parts)
            .map(|part| wire::WriteFileRequest { part: Some(part) });
        let mut wire = self.wire.clone();
        let call = async move { wire.write_file(parts).await };
        let response = answer("write_file", self.deadlines.file, call).await?;
        file_info("write_file", response.info)
    }

    /// The entries of a directory, in no particular order.
    pub async fn list_files(&self, path: &str) -> Result<Vec<FileInfo>, RunnerError> {
        let request = wire::ListFilesRequest {
            path: path.to_owned(),
        };
        let mut wire = self.wire.clone();
        within("list_files", self.deadlines.file, async move {
            let status = |status| from_status("list_files", &status);
            let mut stream = wire.list_files(request).await.map_err(status)?.into_inner();
            let mut entries = Vec::new();
            while let Some(batch) = stream.message().await.map_err(status)? {
                for entry in batch.entries {
                    entries.push(file_info("list_files", Some(entry))?);
                }
            }
            Ok(entries)
        })
        .await
    }

    /// What a path names; the link itself with `no_follow`.
    pub async fn stat(&self, path: &str, no_follow: bool) -> Result<FileInfo, RunnerError> {
        let request = wire::StatRequest {
            path: path.to_owned(),
            no_follow,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.stat(request).await };
        let response = answer("stat", self.deadlines.file, call).await?;
        file_info("stat", response.info)
    }

    /// Makes a directory; with `parents` the missing ones above it too, and one that is there will do.
    pub async fn make_dir(&self, path: &str, mode: u32, parents: bool) -> Result<(), RunnerError> {
        let request = wire::MakeDirRequest {
            path: path.to_owned(),
            mode,
            parents,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.make_dir(request).await };
        answer("make_dir", self.deadlines.file, call).await?;
        Ok(())
    }

    /// Removes a file or an empty directory; with `recursive` a directory with everything below it.
    pub async fn remove(&self, path: &str, recursive: bool) -> Result<(), RunnerError> {
        let request = wire::RemoveRequest {
            path: path.to_owned(),
            recursive,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.remove(request).await };
        answer("remove", self.deadlines.file, call).await?;
        Ok(())
    }

    /// Renames a file or directory; with `exclusive` it refuses to replace another.
    pub async fn rename(&self, from: &str, to: &str, exclusive: bool) -> Result<(), RunnerError> {
        let request = wire::RenameRequest {
            from: from.to_owned(),
            to: to.to_owned(),
            exclusive,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.rename(request).await };
        answer("rename", self.deadlines.file, call).await?;
        Ok(())
    }
}

/// A file that is being streamed.
#[derive(Debug)]
pub struct FileReader {
    /// The file as it was when it was opened.
    pub info: FileInfo,
    stream: tonic::Streaming<wire::ReadFileResponse>,
    deadline: Duration,
}

impl FileReader {
    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RunnerError> {
        match next_part(&mut self.stream, self.deadline).await? {
            None => Ok(None),
            Some(read_file_response::Part::Data(data)) => Ok(Some(data)),
            Some(read_file_response::Part::Info(_)) => {
                Err(protocol("read_file", Unintelligible("data")))
            }
        }
    }
}

async fn next_part(
    stream: &mut tonic::Streaming<wire::ReadFileResponse>,
    deadline: Duration,
) -> Result<Option<read_file_response::Part>, RunnerError> {
    within("read_file", deadline, async {
        match stream.message().await {
            Ok(None) => Ok(None),
            Ok(Some(message)) => match message.part {
                Some(part) => Ok(Some(part)),
                None => Err(protocol("read_file", Unintelligible("part"))),
            },
            Err(status) => Err(from_status("read_file", &status)),
        }
    })
    .await
}

fn pieces(mut data: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(data.len().div_ceil(MAX_DATA_BYTES));
    while !data.is_empty() {
        pieces.push(data.split_to(data.len().min(MAX_DATA_BYTES)));
    }
    pieces
}

fn file_info(
    operation: &'static str,
    info: Option<wire::FileInfo>,
) -> Result<FileInfo, RunnerError> {
    info.ok_or(Unintelligible("info"))
        .and_then(FileInfo::try_from)
        .map_err(|error| protocol(operation, error))
}
