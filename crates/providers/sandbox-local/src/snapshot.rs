//! Sealing a volume: a tar of what is in it, compressed.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;

use astrabox_runner_protocol::{FileInfo, FileKind, RunnerClient};
use astrabox_sandbox::{Error, ErrorKind, HOME, Result, Snapshot, WORKSPACE};
use astrabox_types::{SandboxId, Timestamp};
use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{host, runner};
use crate::folder::{private_dirs, remove_file};

/// The user and group of everything in a volume, inside a sandbox.
const INSIDE: u64 = 1000;

/// How many pieces of files may wait to be compressed.
const WAITING: usize = 16;

type Archive = tar::Builder<zstd::stream::Encoder<'static, File>>;

/// Something to put into the archive.
enum Entry {
    /// The header and the path inside.
    Plain(tar::Header, String),
    /// A symbolic link and where it points.
    Link(tar::Header, String, String),
    /// A file, whose content follows.
    File(tar::Header, String, mpsc::Receiver<Bytes>),
}

/// Writes the volume of a frozen sandbox to `place` and tells what it became.
pub(crate) async fn seal(client: &RunnerClient, place: &Path, id: SandboxId) -> Result<Snapshot> {
    let at = Timestamp::now();
    let name = format!("{id}-{}", at.as_millisecond());
    let path = place.join(format!("{name}.tar.zst"));
    let part = path.with_extension("part");
    let io = |error| host("snapshot", "the snapshot", error);
    private_dirs(place).map_err(io)?;
    let sealed = write(client, &part)
        .await
        .and_then(|()| fs::rename(&part, &path).map_err(io));
    if let Err(error) = sealed {
        // The error that led here is the one to tell.
        let _ = remove_file(&part);
        return Err(error);
    }
    let bytes = fs::metadata(&path).map_err(io)?.len();
    Ok(Snapshot { name, bytes, at })
}

/// Reads on this task and compresses on another thread, which ends when it gets nothing more.
async fn write(client: &RunnerClient, path: &Path) -> Result<()> {
    let io = |error| host("snapshot", "the snapshot", error);
    let file = File::create_new(path).map_err(io)?;
    let packer = zstd::stream::Encoder::new(file, 3).map_err(io)?;
    let (entries, waiting) = mpsc::channel(WAITING);
    let mut writer = JoinSet::new();
    writer.spawn_blocking(move || pack(tar::Builder::new(packer), waiting));
    let walked = walk(client, &entries).await;
    drop(entries);
    let written = match writer.join_next().await {
        Some(Ok(written)) => written.map_err(io),
        Some(Err(_)) | None => Err(Error::new(
            ErrorKind::Internal,
            "snapshot",
            "the snapshot's writer did not end well",
        )),
    };
    // What the writer could not write is why nobody took what was read.
    written.and(walked)
}

fn pack(mut archive: Archive, mut entries: mpsc::Receiver<Entry>) -> io::Result<()> {
    while let Some(entry) = entries.blocking_recv() {
        match entry {
            Entry::Plain(mut header, path) => {
                archive.append_data(&mut header, path, io::empty())?;
            }
            Entry::Link(mut header, path, target) => {
                archive.append_link(&mut header, path, target)?;
            }
            Entry::File(mut header, path, pieces) => {
                let wanted = header.size()?;
                let mut content = Content {
                    pieces,
                    piece: Bytes::new(),
                    length: 0,
                };
                archive.append_data(&mut header, path, &mut content)?;
                if content.length != wanted {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}

/// A file's content, piece by piece as it comes.
struct Content {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
    length: u64,
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        self.length += count as u64;
        Ok(count)
    }
}

/// Everything below the volume's two directories.
async fn walk(client: &RunnerClient, entries: &mpsc::Sender<Entry>) -> Result<()> {
    for root in [WORKSPACE, HOME] {
        let mut open = vec![root.to_owned()];
        while let Some(folder) = open.pop() {
            let listed = client.list_files(&folder).await;
            for info in listed.map_err(|error| runner("snapshot", error))? {
                let inside = format!("{folder}/{}", info.name);
                if info.kind == FileKind::Directory {
                    open.push(inside.clone());
                }
                add(client, entries, &inside, info).await?;
            }
        }
    }
    Ok(())
}

async fn add(
    client: &RunnerClient,
    entries: &mpsc::Sender<Entry>,
    path: &str,
    info: FileInfo,
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(info.mode);
    header.set_mtime(u64::try_from(info.modified_ms / 1000).unwrap_or(0));
    header.set_uid(INSIDE);
    header.set_gid(INSIDE);
    header.set_size(0);
    let inside = path.trim_start_matches('/').to_owned();
    match info.kind {
        FileKind::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            give(entries, Entry::Plain(header, inside)).await
        }
        FileKind::Symlink => {
            header.set_entry_type(tar::EntryType::Symlink);
            let target = info.link_target.unwrap_or_default();
            give(entries, Entry::Link(header, inside, target)).await
        }
        FileKind::File => {
            let opened = client.open_file(path, 0, 0).await;
            let mut reader = opened.map_err(|error| runner("snapshot", error))?;
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(reader.info.size);
            let (pieces, content) = mpsc::channel(WAITING);
            give(entries, Entry::File(header, inside, content)).await?;
            loop {
                let piece = reader.next().await;
                let Some(piece) = piece.map_err(|error| runner("snapshot", error))? else {
                    return Ok(());
                };
                pieces.send(piece).await.map_err(|_| cut())?;
            }
        }
        // Sockets and pipes have no content to keep.
        FileKind::Other => Ok(()),
    }
}

async fn give(entries: &mpsc::Sender<Entry>, entry: Entry) -> Result<()> {
    entries.send(entry).await.map_err(|_| cut())
}

/// The writer has ended; it says why.
fn cut() -> Error {
    Error::new(
        ErrorKind::Internal,
        "snapshot",
        "the snapshot's writer has ended",
    )
}
