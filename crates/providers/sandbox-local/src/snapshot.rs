//! Sealing a volume: a tar of what is in it, compressed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use astrabox_runner_protocol::{FileInfo, FileKind, RunnerClient};
use astrabox_sandbox::{HOME, Result, Snapshot, WORKSPACE};
use astrabox_types::{SandboxId, Timestamp};

use crate::error::{host, runner};
use crate::folder::private_dirs;

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
        // Best effort: the error that led here is the one to tell.
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    let bytes = fs::metadata(&path).map_err(io)?.len();
    Ok(Snapshot { name, bytes, at })
}

async fn write(client: &RunnerClient, path: &Path) -> Result<()> {
    let io = |error| host("snapshot", "the snapshot", error);
    let file = File::create_new(path).map_err(io)?;
    let packer = zstd::stream::Encoder::new(file, 3).map_err(io)?;
    let mut archive = tar::Builder::new(packer);
    for root in [WORKSPACE, HOME] {
        let mut open = vec![PathBuf::from(root)];
        while let Some(folder) = open.pop() {
            let text = folder.to_string_lossy().into_owned();
            let entries = client
                .list_files(&text)
                .await
                .map_err(|error| runner("snapshot", error))?;
            for entry in entries {
                let inside = folder.join(&entry.name);
                add(client, &mut archive, &inside, &entry).await?;
                if entry.kind == FileKind::Directory {
                    open.push(inside);
                }
            }
        }
    }
    let mut file = archive
        .into_inner()
        .and_then(zstd::stream::Encoder::finish)
        .map_err(io)?;
    file.flush().and_then(|()| file.sync_all()).map_err(io)
}

async fn add(
    client: &RunnerClient,
    archive: &mut tar::Builder<impl io::Write>,
    path: &Path,
    entry: &FileInfo,
) -> Result<()> {
    let io = |error| host("snapshot", "the snapshot", error);
    let mut header = tar::Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_mtime(u64::try_from(entry.modified_ms / 1000).unwrap_or(0));
    (header.set_uid(1000), header.set_gid(1000));
    let inside = path.strip_prefix("/").unwrap_or(path);
    match entry.kind {
        FileKind::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            archive
                .append_data(&mut header, inside, io::empty())
                .map_err(io)
        }
        FileKind::Symlink => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            archive
                .append_link(
                    &mut header,
                    inside,
                    entry.link_target.as_deref().unwrap_or_default(),
                )
                .map_err(io)
        }
        FileKind::File => {
            let text = path.to_string_lossy().into_owned();
            let (_, content) = client
                .read_file(&text, 0, entry.size)
                .await
                .map_err(|error| runner("snapshot", error))?;
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(content.len() as u64);
            archive
                .append_data(&mut header, inside, content.as_ref())
                .map_err(io)
        }
        // Sockets and pipes have no content to keep.
        FileKind::Other => Ok(()),
    }
}
