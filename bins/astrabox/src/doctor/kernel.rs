//! What the kernel of this host is set to, as far as it can be read.

use std::fs;

use super::Check;

const MAX_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";

/// Settings that keep user namespaces from ordinary users: file, the value that does, the setting's name and the
/// value that does not.
const CLOSED_BY: &[(&str, &str, &str)] = &[
    (MAX_NAMESPACES, "0", "user.max_user_namespaces=15000"),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

pub(super) fn checks() -> Vec<Check> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let root = rustix::process::geteuid().is_root();
    vec![user_namespaces(read, root), cgroups(read)]
}

/// Whether ordinary users may make user namespaces: a server without root needs them, and sandboxes of the level
/// `advanced`.
fn user_namespaces(read: impl Fn(&str) -> Option<String>, root: bool) -> Check {
    const NAME: &str = "kernel.user_namespaces";
    let value = |path: &str| read(path).map(|text| text.trim().to_owned());
    let closed: Vec<&str> = CLOSED_BY
        .iter()
        .filter(|(path, closed, _)| value(path).as_deref() == Some(closed))
        .map(|(_, _, setting)| *setting)
        .collect();
    let Some(most) = value(MAX_NAMESPACES) else {
        let check = if root { Check::weak } else { Check::failed };
        return check(NAME, "the kernel has no user namespaces")
            .lost(lost_namespaces(root))
            .mend("use a kernel with CONFIG_USER_NS");
    };
    if closed.is_empty() {
        return Check::good(
            NAME,
            format!("ordinary users may make them (at most {most})"),
        );
    }
    let names: Vec<&str> = closed
        .iter()
        .filter_map(|setting| setting.split('=').next())
        .collect();
    let check = if root { Check::weak } else { Check::failed };
    check(
        NAME,
        format!("ordinary users may not make them: {}", names.join(", ")),
    )
    .lost(lost_namespaces(root))
    .mend(format!(
        "printf '%s\\n' {} | sudo tee /etc/sysctl.d/60-astrabox.conf && sudo sysctl --system",
        closed.join(" ")
    ))
}

fn lost_namespaces(root: bool) -> &'static str {
    if root {
        "programs in sandboxes of permission level `advanced` make no namespaces of their own, as browsers do"
    } else {
        "a server without root makes no sandbox"
    }
}

/// Which control groups there are, and what this shell's own one has.
fn cgroups(read: impl Fn(&str) -> Option<String>) -> Check {
    const NAME: &str = "kernel.cgroups";
    let mounts = read("/proc/self/mountinfo").unwrap_or_default();
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    let mut v1 = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let mut after = after.split(' ');
        let point = before.split(' ').nth(4).unwrap_or_default();
        match after.next() {
            Some("cgroup2") => {
                let group = own
                    .lines()
                    .find_map(|line| line.strip_prefix("0::"))
                    .unwrap_or("/");
                let dir = format!("{point}{}", group.trim_end_matches('/'));
                let has = read(&format!("{dir}/cgroup.controllers")).unwrap_or_default();
                let has = match has.trim() {
                    "" => "no controllers",
                    has => has,
                };
                found.push(format!("v2, this shell in {group} with {has}"));
            }
            Some("cgroup") => {
                let options = after.nth(1).unwrap_or_default();
                v1.extend(
                    options
                        .split(',')
                        .filter(|name| matches!(*name, "memory" | "pids" | "cpu" | "freezer")),
                );
            }
            _ => {}
        }
    }
    if !v1.is_empty() {
        found.push(format!("v1 with {}", v1.join(" ")));
    }
    if found.is_empty() {
        return Check::weak(NAME, "none is mounted")
            .lost("sandboxes are limited by counting only, and ended process by process")
            .mend("sudo mount -t cgroup2 none /sys/fs/cgroup");
    }
    Check::good(NAME, found.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |path| {
            let found = files.iter().find(|(name, _)| path.ends_with(name));
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn what_closes_user_namespaces_is_named_with_the_command_that_opens_them() {
        let open = [("max_user_namespaces", "127\n")];
        assert!(user_namespaces(host(&open), false).ok);
        let ubuntu = [
            ("max_user_namespaces", "127\n"),
            ("apparmor_restrict_unprivileged_userns", "1\n"),
        ];
        let check = user_namespaces(host(&ubuntu), false);
        assert!(!check.ok && check.required);
        assert!(
            check
                .remedy
                .contains("kernel.apparmor_restrict_unprivileged_userns=0")
                && !check.remedy.contains("user.max"),
            "{check:?}"
        );
        // Root needs them for sandboxes of level `advanced` only.
        assert!(!user_namespaces(host(&ubuntu), true).required);
        let none = [
            ("max_user_namespaces", "0"),
            ("unprivileged_userns_clone", "0"),
        ];
        let check = user_namespaces(host(&none), false);
        assert!(
            check
                .remedy
                .contains("user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1")
        );
        assert!(!user_namespaces(host(&[]), false).ok);
    }

    #[test]
    fn control_groups_are_told_by_version() {
        let v2 = [
            (
                "mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw",
            ),
            ("self/cgroup", "0::/user.slice\n"),
            (
                "/sys/fs/cgroup/user.slice/cgroup.controllers",
                "memory pids\n",
            ),
        ];
        assert_eq!(
            cgroups(host(&v2)).detail,
            "v2, this shell in /user.slice with memory pids"
        );
        let v1 = [(
            "mountinfo",
            "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        )];
        assert_eq!(cgroups(host(&v1)).detail, "v1 with memory");
        assert!(!cgroups(host(&[])).ok);
    }
}
