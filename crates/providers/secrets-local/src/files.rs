//! Files that are whole or not there: written aside, flushed, renamed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

/// What is being written; a leftover of a write that was cut off is removed by the next start.
const ASIDE: &str = ".new-";
/// No file of this store is longer (16 MiB).
const MOST: u64 = 16 << 20;

/// Makes a folder of mode 0700 when it is not there.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Puts a file of mode 0600 in its place, durably.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let aside = folder.join(format!("{ASIDE}{name}"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, folder.join(name))?;
    flush(folder)
}

/// A file's bytes; `None` when it is not there.
pub(crate) fn read(path: &Path) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    match OpenOptions::new().read(true).open(path) {
        Ok(file) => read_file(file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file that only its owner, who is this user or root, can read; `Err(None)` when others can.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, Option<io::Error>> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    let own = found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0;
    if !own || found.mode() & 0o077 != 0 {
        return Err(None);
    }
    Ok(read_file(file)?)
}

fn read_file(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let room = usize::try_from(file.metadata()?.len().min(MOST)).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room + 1));
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file, durably; it may be gone already.
pub(crate) fn remove(folder: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(folder.join(name)) {
        Ok(()) => flush(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The names of the files that are whole, in order; what was cut off is removed.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if name.starts_with(ASIDE) {
            fs::remove_file(folder.join(name))?;
        } else {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn flush(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl From<Option<io::Error>> for NotPrivate {
    fn from(error: Option<io::Error>) -> Self {
        Self(error)
    }
}

/// Why a private file was not read: what the system said, or nothing when others can read it.
pub(crate) struct NotPrivate(pub(crate) Option<io::Error>);
