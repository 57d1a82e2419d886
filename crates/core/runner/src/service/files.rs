//! The file calls that take more than one step.

use std::sync::Arc;

use astrabox_runner_protocol::{
    MAX_DATA_BYTES, RunnerError, RunnerErrorKind, WriteFileOptions, wire,
};
use futures::stream::{self, StreamExt as _, unfold};
use tonic::{Status, Streaming};

use super::{Answers, refuse};
use crate::runner::Runner;

type Result<T> = std::result::Result<T, RunnerError>;

/// Opens a file and streams it.
pub(super) fn read(
    runner: &Runner,
    request: wire::ReadFileRequest,
) -> Result<Answers<wire::ReadFileResponse>> {
    use wire::read_file_response::Part;
    let mut info = None;
    let reading = runner.sandbox.open("read_file", |files| {
        let (found, reading) = files.read(&request.path, request.offset, request.limit)?;
        info = Some(found);
        Ok(reading)
    })?;
    let part = |part: Part| Ok(wire::ReadFileResponse { part: Some(part) });
    let head = stream::iter(info.map(|info| part(Part::Info(info.into()))));
    let body = unfold(Some(reading), move |reading| async move {
        let reading = reading?;
        match reading.with(|reading| reading.next()) {
            Ok(data) if data.is_empty() => None,
            Ok(data) => Some((part(Part::Data(data)), Some(reading))),
            Err(error) => Some((Err(refuse(error)), None)),
        }
    });
    Ok(Box::pin(head.chain(body)))
}

/// Opens a directory and streams what is in it.
pub(super) fn list(
    runner: &Arc<Runner>,
    request: wire::ListFilesRequest,
) -> Result<Answers<wire::ListFilesResponse>> {
    let listing = runner
        .sandbox
        .open("list_files", |files| files.list(&request.path))?;
    let state = Some((runner.clone(), listing));
    Ok(Box::pin(unfold(state, |state| async move {
        let (runner, listing) = state?;
        // Each look at an entry needs the rights of the box's user again.
        let looked = runner
            .sandbox
            .with_files("list_files", |_| listing.with(|listing| listing.next()));
        match looked {
            Ok(entries) if entries.is_empty() => None,
            Ok(entries) => {
                let entries = entries.into_iter().map(Into::into).collect();
                Some((
                    Ok(wire::ListFilesResponse { entries }),
                    Some((runner, listing)),
                ))
            }
            Err(error) => Some((Err(refuse(error)), None)),
        }
    })))
}

/// Writes a file from a stream of messages. A broken stream leaves the old file.
pub(super) async fn write(
    runner: &Runner,
    mut request: Streaming<wire::WriteFileRequest>,
) -> std::result::Result<wire::WriteFileResponse, Status> {
    use wire::write_file_request::Part;
    const OPERATION: &str = "write_file";
    let invalid = |text: &str| {
        refuse(RunnerError::new(
            RunnerErrorKind::InvalidArgument,
            OPERATION,
            text,
        ))
    };
    let first = request.message().await?.and_then(|message| message.part);
    let Some(Part::Header(header)) = first else {
        return Err(invalid("the first message is the header"));
    };
    let options = WriteFileOptions::from(&header);
    let writing = runner
        .sandbox
        .open(OPERATION, |files| files.write(&header.path, options))
        .map_err(refuse)?;
    while let Some(message) = request.message().await? {
        let Some(Part::Data(data)) = message.part else {
            return Err(invalid("only the first message is a header"));
        };
        if data.len() > MAX_DATA_BYTES {
            return Err(invalid("too many bytes in one message"));
        }
        writing
            .with(|writing| writing.append(&data))
            .map_err(refuse)?;
    }
    let finish = || writing.take()?.finish();
    let info = runner
        .sandbox
        .with_files(OPERATION, |_| finish())
        .map_err(refuse)?;
    Ok(wire::WriteFileResponse {
        info: Some(info.into()),
    })
}

/// Removes a file, or a tree in steps between which others get their turn.
pub(super) async fn remove(runner: &Runner, request: wire::RemoveRequest) -> Result<()> {
    const OPERATION: &str = "remove";
    let mut removal = None;
    runner.sandbox.with_files(OPERATION, |files| {
        removal = files.remove(&request.path, request.recursive)?;
        Ok(())
    })?;
    let Some(removal) = removal else {
        return Ok(());
    };
    let removal = runner.sandbox.open(OPERATION, |_| Ok(removal))?;
    loop {
        let step = runner
            .sandbox
            .with_files(OPERATION, |_| removal.with(|removal| removal.step()));
        if step? {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}
