//! An image from a folder that somebody has made, for engines whose program the environment names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::blocking::follow;
use crate::builder::{Described, IMAGE, ROOT, make_open_dir, publish};
use crate::digest::hex;
use crate::error::io_error;
use crate::manifest::FileEntry;
use crate::name::{is_engine_kind, is_tag};
use crate::staging::Staging;
use crate::store::{Image, ImageStore};
use crate::tree::{self, Control, CopyError};
use crate::{Error, Event, ImageName, Progress, Result, Step, lock};

/// Copies a folder into the cache under the name of what is in it; a folder that is there already is found.
pub(crate) async fn import(
    store: &ImageStore,
    engine: &str,
    version: &str,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Image> {
    let refused = |what: &str| Error::Import {
        what: what.to_owned(),
    };
    if !is_engine_kind(engine) {
        return Err(refused(
            "the engine's kind is not lowercase letters, digits and `_`",
        ));
    }
    if !is_tag(version) || version.len() > 80 {
        return Err(refused(
            "the version is not letters, digits and . _ - +, a letter or digit first, at most 80",
        ));
    }
    progress.report(Event::Started(Step::Copy));
    let (staging, files) = copied(store, folder.to_owned(), progress).await?;
    let digest = digest(&files);
    let name: ImageName = format!("{engine}:{version}-{}", &digest[..12]).parse()?;
    let image = name.to_string();
    let file = store.lock_file(&name)?;
    if !lock::try_exclusive(&file).map_err(io_error(&image, "lock the image"))? {
        return Err(Error::InUse { image });
    }
    if let Some(found) = store.complete(&name).await? {
        return Ok(found);
    }
    let described = Described {
        engine,
        version,
        digest,
        licence: "unknown",
    };
    publish(store, &name, described, staging, files).await?;
    let imported = store.complete(&name).await?;
    imported.ok_or_else(|| store.missing(&name))
}

async fn copied(
    store: &ImageStore,
    folder: PathBuf,
    progress: &dyn Progress,
) -> Result<(Arc<Staging>, Vec<FileEntry>)> {
    let control = Arc::new(Control::default());
    let parent = store.staging_dir();
    let work = spawn_blocking({
        let control = Arc::clone(&control);
        move || {
            let io = |error| CopyError::Io(String::new(), error);
            let staging = Arc::new(Staging::create(&parent).map_err(io)?);
            let image = staging.path().join(IMAGE);
            let root = image.join(ROOT);
            for dir in [&image, &root] {
                make_open_dir(dir).map_err(io)?;
            }
            let files = tree::copy_all(&folder, &root, &control)?;
            Ok((staging, files))
        }
    });
    let tell = |done, total| {
        let total = Some(total);
        progress.report(Event::Bytes { done, total });
    };
    let done: std::result::Result<_, CopyError> = follow(work, control, &tell).await;
    done.map_err(|error| match error {
        CopyError::Recipe(what) => Error::Import {
            what: format!(
                "{what}; install without links (npm: --no-bin-links, python: pip install --target)"
            ),
        },
        CopyError::Io(path, error) => io_error("imported", &format!("copy `{path}`"))(error),
    })
}

/// The digest of what is in the files and where they are.
fn digest(files: &[FileEntry]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        for part in [&file.path, &file.sha256] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update([u8::from(file.executable)]);
    }
    hex(&hash.finalize())
}
