//! Whether there is room in the folders of a server of this user.

use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::Check;
use crate::args::Global;
use crate::bytes;
use crate::connect::config;

/// Below this much a server cannot keep its journal.
const LEAST: u64 = 64 << 20;
/// Below this much an image or a few volumes fill the disk.
const ENOUGH: u64 = 2 << 30;

pub(super) fn checks(global: &Global) -> Vec<Check> {
    // The configuration has a check of its own.
    let Ok(config) = config(global) else {
        return Vec::new();
    };
    vec![
        folder(
            "space.state",
            "state_dir",
            &config.state_dir,
            "the journal and the workspaces of sessions have no room",
        ),
        folder(
            "space.cache",
            "images.cache_dir",
            &config.images.cache_dir,
            "no image can be built",
        ),
    ]
}

/// Room and right to write where a folder is, or will be made.
fn folder(name: &str, setting: &str, folder: &Path, lost: &str) -> Check {
    let there = folder.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let shown = folder.display();
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Check::failed(name, format!("{shown} cannot be written by this user"))
            .lost(lost)
            .mend(format!(
                "sudo install -d -m 0700 -o \"$(id -un)\" {shown}, or set {setting}"
            ));
    }
    let free = match statvfs(there) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            return Check::weak(
                name,
                format!("{shown}: its free space cannot be read: {error}"),
            )
            .lost("a full disk is not foreseen")
            .mend(format!("df -h {}", there.display()));
        }
    };
    room(name, setting, &shown.to_string(), free, lost)
}

fn room(name: &str, setting: &str, shown: &str, free: u64, lost: &str) -> Check {
    let detail = format!("{} free in {shown}", bytes::show(free));
    let check = match free {
        ENOUGH.. => return Check::good(name, detail),
        LEAST..ENOUGH => Check::weak(name, detail),
        0..LEAST => Check::failed(name, detail),
    };
    check.lost(format!("soon: {lost}")).mend(format!(
        "astrabox session delete SESSION, astrabox image remove IMAGE, or set {setting} to a larger disk"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_weak_and_none_fails() {
        for (free, ok, required) in [
            (10 << 30, true, true),
            (1 << 30, false, false),
            (1 << 20, false, true),
        ] {
            let check = room("space.x", "x_dir", "/x", free, "lost");
            assert_eq!((check.ok, check.required), (ok, required), "{check:?}");
            assert_eq!(check.ok, check.remedy.is_empty());
        }
    }
}
