//! An image's tree: copied with its hashes, checked against them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use astrabox_engine::RecipeCopy;
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::manifest::FileEntry;

const CHUNK: usize = 256 << 10;
const DIR_MODE: u32 = 0o755;

/// Lets whoever waits for work on a tree follow and stop it.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Bytes done so far.
    pub(crate) done: AtomicU64,
    /// Bytes to do, once that is known.
    pub(crate) total: AtomicU64,
    /// Whether to stop.
    pub(crate) stop: AtomicBool,
}

/// Why a tree was not copied.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The recipe does not fit the installation.
    Recipe(String),
    /// The file system refused, at this path below the image's root.
    Io(String, io::Error),
}

/// Copies what the recipe lists from `installation` into the empty folder `root`, and tells what is there now.
pub(crate) fn copy(
    installation: &Path,
    copies: &[RecipeCopy],
    root: &Path,
    control: &Control,
) -> Result<Vec<FileEntry>, CopyError> {
    let mut all = Vec::new();
    for copy in copies {
        all.extend(sources(installation, copy)?);
    }
    copy_sources(all, root, control)
}

/// Copies everything in `folder` into the empty folder `root`, and tells what is there now.
pub(crate) fn copy_all(
    folder: &Path,
    root: &Path,
    control: &Control,
) -> Result<Vec<FileEntry>, CopyError> {
    let all = sources_below(folder, "", "")?;
    if all.is_empty() {
        return Err(CopyError::Recipe("the folder is empty".to_owned()));
    }
    copy_sources(all, root, control)
}

fn copy_sources(
    all: Vec<Source>,
    root: &Path,
    control: &Control,
) -> Result<Vec<FileEntry>, CopyError> {
    let total = all.iter().map(|source| source.bytes).sum();
    control.total.store(total, Ordering::Relaxed);
    let mut files = BTreeMap::new();
    for Source { file, to, .. } in all {
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                CopyError::Recipe(format!("two copies go to `{to}`"))
            }
            _ => CopyError::Io(to.clone(), error),
        };
        make_parents(root, &to).map_err(refused)?;
        let entry = copy_file(&file, root, &to, control).map_err(refused)?;
        files.insert(to, entry);
    }
    sync_folders(root).map_err(|error| CopyError::Io(String::new(), error))?;
    Ok(files.into_values().collect())
}

/// Compares a tree with what it was when it was built; tells each difference, by file.
pub(crate) fn verify(
    root: &Path,
    files: &[FileEntry],
    control: &Control,
) -> io::Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut found = BTreeMap::new();
    for path in files_below(root)? {
        match path.strip_prefix(root).ok().and_then(Path::to_str) {
            Some(relative) => {
                found.insert(relative.to_owned(), path);
            }
            None => problems.push("a file whose name is not UTF-8".to_owned()),
        }
    }
    for entry in files {
        let Some(path) = found.remove(&entry.path) else {
            problems.push(format!("{}: missing", entry.path));
            continue;
        };
        if let Some(problem) = difference(&path, entry, control)? {
            problems.push(format!("{}: {problem}", entry.path));
        }
    }
    problems.extend(found.keys().map(|path| format!("{path}: not part of it")));
    Ok(problems)
}

/// What can be seen without reading the files: whether each is there with its size.
pub(crate) fn glance(root: &Path, files: &[FileEntry]) -> Vec<String> {
    files
        .iter()
        .filter_map(|entry| match fs::symlink_metadata(root.join(&entry.path)) {
            Ok(found) if found.is_file() && found.len() == entry.bytes => None,
            Ok(_) => Some(format!("{}: has another size or type", entry.path)),
            Err(_) => Some(format!("{}: missing", entry.path)),
        })
        .collect()
}

/// The size of all files below a folder, as far as it can be read while others write.
pub(crate) fn size_below(dir: &Path) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => bytes += found.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// One file to copy.
struct Source {
    file: PathBuf,
    bytes: u64,
    /// Below the image's root.
    to: String,
}

/// The files of one entry of the recipe.
fn sources(installation: &Path, copy: &RecipeCopy) -> Result<Vec<Source>, CopyError> {
    let from = installation.join(copy.from);
    let found = fs::symlink_metadata(&from)
        .map_err(|_| CopyError::Recipe(format!("the installation has no `{}`", copy.from)))?;
    if found.is_file() {
        return Ok(vec![Source {
            file: from,
            bytes: found.len(),
            to: copy.to.to_owned(),
        }]);
    }
    if !found.is_dir() {
        return Err(not_plain(copy.from));
    }
    sources_below(&from, &format!("{}/", copy.from), &format!("{}/", copy.to))
}

/// The files below a folder; `told` and `to` stand before their paths in messages and in the image.
fn sources_below(from: &Path, told: &str, to: &str) -> Result<Vec<Source>, CopyError> {
    let refused = |error| CopyError::Io(to.trim_end_matches('/').to_owned(), error);
    let mut sources = Vec::new();
    for file in files_below(from).map_err(refused)? {
        let relative = file.strip_prefix(from).ok().and_then(Path::to_str);
        let relative = relative.ok_or_else(|| {
            let folder = told.trim_end_matches('/');
            CopyError::Recipe(format!("`{folder}` has a file whose name is not UTF-8"))
        })?;
        let found = fs::symlink_metadata(&file).map_err(refused)?;
        if !found.is_file() {
            return Err(not_plain(&format!("{told}{relative}")));
        }
        sources.push(Source {
            bytes: found.len(),
            to: format!("{to}{relative}"),
            file,
        });
    }
    Ok(sources)
}

fn not_plain(path: &str) -> CopyError {
    // A link could lead out of the image into the host.
    CopyError::Recipe(format!("`{path}` is neither a file nor a folder"))
}

/// Everything below a folder that is not a folder, in path order.
fn files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn make_parents(root: &Path, path: &str) -> io::Result<()> {
    let mut folder = root.to_owned();
    let parents = Path::new(path).parent().into_iter();
    for part in parents.flat_map(Path::components) {
        folder.push(part);
        match fs::create_dir(&folder) {
            // Whatever the umask is: another uid reads the image.
            Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(DIR_MODE))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy_file(source: &Path, root: &Path, path: &str, control: &Control) -> io::Result<FileEntry> {
    let mut input = File::open(source)?;
    let mut output = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(root.join(path))?;
    let mut entry = FileEntry {
        path: path.to_owned(),
        bytes: 0,
        executable: input.metadata()?.permissions().mode() & 0o111 != 0,
        sha256: String::new(),
    };
    let (sha256, bytes) = hash(&mut input, control, |chunk| output.write_all(chunk))?;
    entry.bytes = bytes;
    entry.sha256 = sha256;
    output.set_permissions(Permissions::from_mode(entry.mode()))?;
    // A power cut after the image got its name must not leave it with empty files.
    output.sync_all()?;
    Ok(entry)
}

fn difference(
    path: &Path,
    entry: &FileEntry,
    control: &Control,
) -> io::Result<Option<&'static str>> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() {
        return Ok(Some("is no longer a file"));
    }
    if found.permissions().mode() & 0o7777 != entry.mode() {
        return Ok(Some("has other permissions"));
    }
    if found.len() != entry.bytes {
        return Ok(Some("has another size"));
    }
    let (sha256, _) = hash(&mut File::open(path)?, control, |_| Ok(()))?;
    Ok((sha256 != entry.sha256).then_some("has other content"))
}

fn hash(
    input: &mut File,
    control: &Control,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        if control.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        let count = match input.read(&mut chunk) {
            Ok(0) => return Ok((hex(&hasher.finalize()), bytes)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&chunk[..count]);
        each(&chunk[..count])?;
        bytes += count as u64;
        control.done.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Makes the folders' entries durable.
fn sync_folders(root: &Path) -> io::Result<()> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
        File::open(&folder)?.sync_all()?;
    }
    Ok(())
}
