//! Finds the runner's own groups: never by a fixed path, always from what the kernel says.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The controllers of version 1 that a box uses.
pub(super) const V1_CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "freezer"];

/// The runner's own groups that it may make others in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Hierarchies {
    pub(super) v1: Vec<OwnV1>,
    pub(super) v2: Option<OwnV2>,
}

/// The runner's own group in one hierarchy of version 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnV1 {
    pub(super) dir: PathBuf,
    /// Those of [`V1_CONTROLLERS`] that are mounted there.
    pub(super) controllers: Vec<&'static str>,
}

/// The runner's own group in the unified hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnV2 {
    pub(super) dir: PathBuf,
    /// Where the hierarchy, or the part of it that can be seen, begins.
    pub(super) mount: PathBuf,
}

impl Hierarchies {
    /// Looks at this process. A group that cannot be written to is left out.
    pub(in super::super) fn discover() -> io::Result<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mut found = parse(&mountinfo, &own);
        let writable = |dir: &Path| access(dir, Access::WRITE_OK).is_ok();
        found.v1.retain(|own| writable(&own.dir));
        found.v2 = found
            .v2
            .filter(|own| own.homes().iter().any(|home| writable(home)));
        Ok(found)
    }

    /// The controllers that a box could have here, and by which version. Looks only, changes nothing.
    pub(in super::super) fn offered(&self) -> Vec<(&'static str, u32)> {
        let v1 = self
            .v1
            .iter()
            .flat_map(|own| &own.controllers)
            .map(|name| (*name, 1));
        let mut all: Vec<_> = v1.collect();
        for home in self.v2.iter().flat_map(OwnV2::homes) {
            let on = fs::read_to_string(home.join("cgroup.subtree_control")).unwrap_or_default();
            let offered = fs::read_to_string(home.join("cgroup.controllers")).unwrap_or_default();
            let busy =
                fs::read_to_string(home.join("cgroup.procs")).is_ok_and(|all| !all.is_empty());
            // A group with processes in it cannot begin to hand down, unless it is the topmost.
            let can_begin = !busy || self.v2.as_ref().is_some_and(|own| own.mount == home);
            let handed = |name: &str| {
                let lists = |text: &str| text.split_whitespace().any(|word| word == name);
                lists(&on) || (can_begin && lists(&offered))
            };
            all.extend(
                V1_CONTROLLERS
                    .iter()
                    .filter(|name| handed(name))
                    .map(|name| (*name, 2)),
            );
        }
        if self.v2.is_some() {
            all.push(("freezer", 2));
        }
        all
    }
}

/// One line of mountinfo, as far as it matters here.
struct MountLine<'a> {
    root: String,
    point: String,
    kind: &'a str,
    options: &'a str,
}

fn parse(mountinfo: &str, own: &str) -> Hierarchies {
    let mut found = Hierarchies::default();
    for line in mountinfo.lines().filter_map(parse_mount_line) {
        match line.kind {
            "cgroup" => {
                let mounted: Vec<_> = line.options.split(',').collect();
                let mut controllers = V1_CONTROLLERS.to_vec();
                controllers.retain(|name| mounted.contains(name));
                let taken: Vec<_> = found.v1.iter().flat_map(|own| &own.controllers).collect();
                controllers.retain(|name| !taken.contains(&name));
                let dir = controllers
                    .first()
                    .and_then(|name| own_dir(&line, own, name));
                if let Some(dir) = dir {
                    found.v1.push(OwnV1 { dir, controllers });
                }
            }
            "cgroup2" if found.v2.is_none() => {
                let mount = PathBuf::from(&line.point);
                found.v2 = own_dir(&line, own, "").map(|dir| OwnV2 { dir, mount });
            }
            _ => {}
        }
    }
    found
}

/// The directory of this process's group below a mount; none if it lies outside of it.
fn own_dir(line: &MountLine<'_>, own: &str, controller: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|entry| {
        let mut fields = entry.splitn(3, ':').skip(1);
        let (names, path) = (fields.next()?, fields.next()?);
        let matches = match controller {
            "" => names.is_empty(),
            name => names.split(',').any(|listed| listed == name),
        };
        matches.then_some(path)
    })?;
    let below = Path::new(path).strip_prefix(&line.root).ok()?;
    if below
        .components()
        .any(|part| part == std::path::Component::ParentDir)
    {
        return None;
    }
    // A join with nothing would end in a slash.
    let point = PathBuf::from(&line.point);
    Some(if below.as_os_str().is_empty() {
        point
    } else {
        point.join(below)
    })
}

fn parse_mount_line(line: &str) -> Option<MountLine<'_>> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (unescape(mount.next()?), unescape(mount.next()?));
    let mut filesystem = filesystem.split(' ');
    let kind = filesystem.next()?;
    Some(MountLine {
        root,
        point,
        kind,
        options: filesystem.nth(1)?,
    })
}

/// Undoes the octal escapes of mountinfo for space, tab, line feed and backslash.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escape, plain)| {
        text.replace(escape, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
50 31 0:32 / /elsewhere rw,relatime - cgroup cgroup rw,memory
";
    const V1_OWN: &str = "4:memory:/a/b\n3:cpu,cpuacct:/\n2:devices:/d\n0::/u\n";

    #[test]
    fn own_groups_are_found_in_each_layout() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let container = "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        type Groups = &'static [(&'static str, &'static [&'static str])];
        let cases: &[(&str, &str, Groups, Option<&str>)] = &[
            (
                V1,
                V1_OWN,
                &[
                    ("/sys/fs/cgroup/cpu,cpuacct", &["cpu", "cpuacct"]),
                    ("/sys/fs/cgroup/memory/a/b", &["memory"]),
                ],
                Some("/sys/fs/cgroup/unified/u"),
            ),
            (
                v2,
                "0::/user.slice/x.scope\n",
                &[],
                Some("/sys/fs/cgroup/user.slice/x.scope"),
            ),
            (container, "0::/docker/x\n", &[], Some("/sys/fs/cgroup")),
            (container, "0::/docker/x/y\n", &[], Some("/sys/fs/cgroup/y")),
            // Outside of what is mounted here.
            (container, "0::/other\n", &[], None),
            (v2, "0::/../sibling\n", &[], None),
            ("", "0::/\n", &[], None),
        ];
        for (mountinfo, own, v1, v2) in cases {
            let found = parse(mountinfo, own);
            let found_v1: Vec<_> = found
                .v1
                .iter()
                .map(|o| (o.dir.to_str().unwrap_or(""), &o.controllers[..]))
                .collect();
            assert_eq!(found_v1, *v1, "{own}");
            assert_eq!(found.v2.map(|o| o.dir), v2.map(PathBuf::from), "{own}");
        }
    }

    #[test]
    fn escaped_mount_points_are_read() {
        let line = "1 2 0:1 / /a\\040b rw - cgroup2 none rw\n";
        assert_eq!(
            parse(line, "0::/\n").v2.map(|own| own.dir),
            Some("/a b".into())
        );
    }
}
