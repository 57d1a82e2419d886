//! Whether a folder is mounted anywhere: a running sandbox has its image mounted in a mount namespace of its own.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether any process that this user may look at has `dir`, or a folder below it, mounted.
///
/// The kernel tells a mount's source as device and path within the file system (mountinfo, fields 3 and 4), so
/// it is found whatever the mount point is called and whichever namespace it is in.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else {
        return false;
    };
    let Some(own) = fs::read_to_string("/proc/self/mountinfo").ok() else {
        return false;
    };
    let Some(wanted) = location(&own, &dir) else {
        return false;
    };
    let mut seen = HashSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let folder = process.path();
        // Most processes share a namespace; one look at each is enough. Others' processes do not tell.
        let Ok(namespace) = fs::read_link(folder.join("ns/mnt")) else {
            continue;
        };
        if seen.insert(namespace)
            && let Ok(table) = fs::read_to_string(folder.join("mountinfo"))
            && holds(&table, &wanted)
        {
            return true;
        }
    }
    false
}

/// A folder as the kernel names it: device, and path within the file system.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    device: String,
    path: PathBuf,
}

#[derive(Debug)]
struct Mount {
    source: Location,
    point: PathBuf,
}

/// Where an absolute path without links is, by the mount table of this process.
fn location(table: &str, path: &Path) -> Option<Location> {
    let mount = table
        .lines()
        .filter_map(parse)
        .filter(|mount| path.starts_with(&mount.point))
        // Of two mounts at one point the later one covers the other; max_by_key takes the last.
        .max_by_key(|mount| mount.point.components().count())?;
    let below = path.strip_prefix(&mount.point).ok()?;
    Some(Location {
        path: mount.source.path.join(below),
        device: mount.source.device,
    })
}

fn holds(table: &str, wanted: &Location) -> bool {
    table.lines().filter_map(parse).any(|mount| {
        mount.source.device == wanted.device && mount.source.path.starts_with(&wanted.path)
    })
}

fn parse(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(2);
    let device = fields.next()?.to_owned();
    let path = PathBuf::from(unescape(fields.next()?));
    let point = PathBuf::from(unescape(fields.next()?));
    Some(Mount {
        source: Location { device, path },
        point,
    })
}

/// The kernel writes space, tab, line feed and backslash as three octal digits.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (code, plain)| {
            text.replace(code, plain)
        })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Location, holds, is_mounted, location};

    const HOST: &str = "\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:25 / /proc rw - proc proc rw
40 21 254:1 /@users /home rw - btrfs /dev/vdb rw";

    #[test]
    fn a_path_is_told_by_the_deepest_mount_above_it() {
        for (path, device, inside) in [
            ("/var/x", "254:0", "/var/x"),
            ("/home/a/x y", "254:1", "/@users/a/x y"),
            ("/homely", "254:0", "/homely"),
        ] {
            let expected = Location {
                device: device.to_owned(),
                path: PathBuf::from(inside),
            };
            assert_eq!(location(HOST, Path::new(path)), Some(expected), "{path}");
        }
    }

    #[test]
    fn a_mount_of_the_folder_or_below_it_counts_and_its_neighbours_do_not() {
        let wanted = location(HOST, Path::new("/home/a/x y")).unwrap();
        for (source, expected) in [
            ("254:1 /@users/a/x\\040y", true),
            ("254:1 /@users/a/x\\040y/root", true),
            ("254:0 /@users/a/x\\040y", false),
            ("254:1 /@users/a", false),
            ("254:1 /@users/a/x\\040yz", false),
        ] {
            let table = format!("{HOST}\n50 21 {source} /opt/image ro - btrfs /dev/vdb ro");
            assert_eq!(holds(&table, &wanted), expected, "{source}");
        }
    }

    #[test]
    fn a_fresh_folder_is_mounted_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_mounted(dir.path()));
    }
}
