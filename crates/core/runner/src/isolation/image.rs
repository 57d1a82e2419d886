//! Makes volumes: an ext4 image copied from a template, or a directory.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, SeekFrom, copy_file_range, flock, seek};
use rustix::io::Errno;

use super::error::Step;
use super::spec::{BOX_ID, Volume, am_root};
use super::{IsolationError, probe};

/// Changes when the template's options do, so that an old one is not used.
const TEMPLATE_VERSION: u32 = 2;
const BLOCK: u64 = 4096;
const SMALLEST: u64 = 8 << 20;
const JOURNAL_FROM: u64 = 64 << 20;
const ROOMY_FROM: u64 = 256 << 20;
const MKFS_PLACES: [&str; 4] = [
    "/usr/sbin/mkfs.ext4",
    "/sbin/mkfs.ext4",
    "/usr/bin/mkfs.ext4",
    "/bin/mkfs.ext4",
];

/// Makes a volume that [`BoxSpec`](super::BoxSpec) can name, the hardest kind that this host has.
///
/// `place` is a directory of the volume alone. As root with loop devices and `mkfs.ext4` the answer is
/// an image of `size` bytes in it, otherwise a directory, whose limit is soft: the box's posture says so.
///
/// # Errors
/// What could not be made. A missing device or program is not an error.
pub fn prepare_volume(
    template_cache: &Path,
    place: &Path,
    size: u64,
) -> Result<Volume, IsolationError> {
    if am_root() && probe::loop_devices().ok && mkfs().is_some() {
        let path = place.join("volume.ext4");
        prepare_loop_image(template_cache, &path, size)?;
        return Ok(Volume::LoopImage { path });
    }
    let path = place.join("volume");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .step("make the volume")?;
    Ok(Volume::Directory { path })
}

/// Makes an ext4 image of `size` bytes (at least 8 MiB, rounded up to 4 KiB) at `path`, sparse.
///
/// The first image of a size costs a `mkfs.ext4`; its template stays in `template_cache`, and the
/// next ones are copies of the few blocks that it wrote. Safe to call from several processes at once.
/// An image that is there already is left as it is.
///
/// # Errors
/// [`IsolationError::Unavailable`] without `mkfs.ext4`; else what could not be written.
pub fn prepare_loop_image(
    template_cache: &Path,
    path: &Path,
    size: u64,
) -> Result<(), IsolationError> {
    if path.exists() {
        return Ok(());
    }
    let size = size.max(SMALLEST).next_multiple_of(BLOCK);
    let template = template(template_cache, size)?;
    let partial = beside(path);
    let copied = copy_sparse(&template, &partial)
        // A link refuses to replace what another process has made in the meantime.
        .and_then(|()| match fs::hard_link(&partial, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    let _ = fs::remove_file(&partial);
    copied.step("make the volume's image")
}

fn mkfs() -> Option<&'static str> {
    MKFS_PLACES
        .into_iter()
        .find(|place| Path::new(place).exists())
}

/// Whether images can be made here, for the doctor.
pub(super) fn mkfs_available() -> bool {
    mkfs().is_some()
}

/// The template of a size, made if it is not there.
fn template(cache: &Path, size: u64) -> Result<PathBuf, IsolationError> {
    let path = cache.join(format!("ext4-{TEMPLATE_VERSION}-{size}.img"));
    if path.exists() {
        return Ok(path);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(cache)
        .step("make the cache")?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(cache.join("ext4.lock"))
        .step("lock the cache")?;
    flock(&lock, FlockOperation::LockExclusive).step("lock the cache")?;
    if !path.exists() {
        let partial = beside(&path);
        let made = format(&partial, size)
            .and_then(|()| fs::rename(&partial, &path).step("put the template into the cache"));
        if made.is_err() {
            let _ = fs::remove_file(&partial);
        }
        made?;
    }
    Ok(path)
}

fn format(path: &Path, size: u64) -> Result<(), IsolationError> {
    let program = mkfs().ok_or(IsolationError::Unavailable {
        what: "mkfs.ext4",
        remedy: "install e2fsprogs, or use a directory volume",
    })?;
    let _ = fs::remove_file(path);
    let file = new_file(path).step("make the template")?;
    file.set_len(size).step("make the template")?;
    drop(file);
    let features = match size {
        // Too small to be worth a journal.
        0..JOURNAL_FROM => &["-O", "^resize_inode,^has_journal"][..],
        // A fixed small journal: a large one would be written through once and stay on the host's disk.
        JOURNAL_FROM..ROOMY_FROM => &["-O", "^resize_inode", "-J", "size=4"],
        _ => &["-O", "^resize_inode", "-J", "size=16"],
    };
    let extended = format!("root_owner={BOX_ID}:{BOX_ID},lazy_itable_init=1,lazy_journal_init=1");
    let output = Command::new(program)
        .args(["-q", "-F", "-b", "4096", "-m", "0", "-i", "8192"])
        .args(features)
        .args(["-E", &extended])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .step("run mkfs.ext4")?;
    if output.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("mkfs.ext4 ended with {output}"))).step("format the template")
}

/// A name of this process alone, in the same directory.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Copies what a file holds and leaves its holes holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let _ = fs::remove_file(to);
    let source = File::open(from)?;
    let target = new_file(to)?;
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while at < length {
        let data = match seek(&source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = seek(&source, SeekFrom::Hole(data))?;
        copy_range(&source, &target, data, hole)?;
        at = hole;
    }
    // A machine that stops now must not leave a volume of zeroes under a good name.
    target.sync_data()
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let length = usize::try_from(end - read_at).unwrap_or(usize::MAX);
        let (from, to) = (source.as_fd(), target.as_fd());
        match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            // Between two file systems that cannot do it by themselves.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                let mut buffer = vec![0; length.min(1 << 20)];
                source.read_exact_at(&mut buffer, read_at)?;
                target.write_all_at(&buffer, read_at)?;
                read_at += buffer.len() as u64;
                write_at = read_at;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_sparse_copy_has_the_data_and_the_holes() {
        let temp = TempDir::new().expect("makes a directory");
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        let file = File::create(&from).expect("makes a file");
        file.set_len(64 << 20).expect("sizes it");
        file.write_all_at(b"begin", 0).expect("writes");
        file.write_all_at(b"middle", 20 << 20).expect("writes");
        copy_sparse(&from, &to).expect("copies");
        let copy = File::open(&to).expect("opens");
        let mut middle = [0; 6];
        copy.read_exact_at(&mut middle, 20 << 20).expect("reads");
        assert_eq!(&middle, b"middle");
        let found = copy.metadata().expect("looks");
        assert_eq!(found.len(), 64 << 20);
        assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    }

    #[test]
    fn images_of_one_size_are_made_at_once_and_never_replaced() {
        if mkfs().is_none() {
            eprintln!("skipped: there is no mkfs.ext4 here");
            return;
        }
        let temp = TempDir::new().expect("makes a directory");
        let cache = temp.path().join("cache");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (cache, path) = (&cache, temp.path().join(format!("{number}.ext4")));
                scope.spawn(move || prepare_loop_image(cache, &path, 100 << 20).expect("makes it"));
            }
        });
        let first = temp.path().join("0.ext4");
        let found = fs::metadata(&first).expect("is there");
        assert_eq!((found.len(), found.mode() & 0o777), (100 << 20, 0o600));
        assert!(found.blocks() * 512 < 8 << 20, "sparse");
        fs::write(&first, "kept").expect("writes");
        prepare_loop_image(&cache, &first, 100 << 20).expect("leaves it");
        assert_eq!(fs::read(&first).expect("reads"), b"kept");
    }
}
