//! What really confines a box, as the kernel says: never what was merely asked for.

use std::fs;

use serde::{Deserialize, Serialize};

use super::cgroup::Enforced;
use super::spec::{Base, BoxSpec, PermissionLevel, Volume};

/// The namespaces that a box has of its own, named as in `/proc/PID/ns`.
pub(super) const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// What confines a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posture {
    /// What system calls it may make.
    pub level: PermissionLevel,
    /// Whether runner and box live without any privilege of the host's root.
    pub rootless: bool,
    /// The user id that its processes have on the host.
    pub host_uid: u32,
    /// The user id that its processes have inside.
    pub box_uid: u32,
    /// Its own namespaces, named as in `/proc/PID/ns`.
    pub namespaces: Vec<String>,
    /// Whether no program in it can gain privileges.
    pub no_new_privileges: bool,
    /// Whether it has no capability and can get none.
    pub no_capabilities: bool,
    /// Whether a system call filter is in force.
    pub seccomp: bool,
    /// Whether its only way out is the egress listener: it has a loopback and nothing else.
    pub loopback_only: bool,
    /// Where its programs come from: `host` or `dir`. Read-only either way.
    pub base: String,
    /// Whether its mount table shows no path of the host but standard ones (`/usr`, `/etc/ssl`).
    pub host_paths_hidden: bool,
    /// The version of the cgroups that hold its limits; 0: none.
    pub cgroup_version: u32,
    /// How the memory limit is kept.
    pub memory: Enforcement,
    /// How the limit of processes is kept.
    pub pids: Enforcement,
    /// How the limit of CPU time is kept.
    pub cpu: Enforcement,
    /// How the limit of the volume is kept.
    pub disk: Enforcement,
    /// How the limit of one file's size is kept.
    pub file_size: Enforcement,
    /// How the box is frozen.
    pub freeze: Enforcement,
    /// What is weaker than it could be, and why.
    pub notes: Vec<String>,
}

/// How something is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enforcement {
    /// How surely.
    pub strength: Strength,
    /// By what.
    pub how: String,
}

/// How surely something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Not at all.
    None,
    /// The runner looks at intervals, see [`IsolatedBox::poll_limits`](super::IsolatedBox::poll_limits).
    Soft,
    /// The kernel keeps it at every moment.
    Hard,
}

fn hard(how: impl Into<String>) -> Enforcement {
    Enforcement {
        strength: Strength::Hard,
        how: how.into(),
    }
}

fn soft(how: &str) -> Enforcement {
    Enforcement {
        strength: Strength::Soft,
        how: how.into(),
    }
}

fn none(how: &str) -> Enforcement {
    Enforcement {
        strength: Strength::None,
        how: how.into(),
    }
}

impl Posture {
    /// Puts together what the first process read about itself and what the host let the runner do.
    pub(super) fn found(
        spec: &BoxSpec,
        rootless: bool,
        owner: (u32, u32),
        enforced: Enforced,
        hard_disk: bool,
        facts: &str,
    ) -> Self {
        let by_cgroup = |version: u32, what: &str| hard(format!("cgroup v{version} {what}"));
        let namespaces = own_namespaces(facts);
        let versions = [enforced.memory, enforced.pids, enforced.cpu];
        let mut posture = Self {
            level: spec.level,
            rootless,
            host_uid: owner.0,
            box_uid: super::BOX_ID,
            no_new_privileges: has(facts, "NoNewPrivs: 1"),
            no_capabilities: has(facts, "CapBnd: 0000000000000000")
                && has(facts, "CapPrm: 0000000000000000"),
            seccomp: has(facts, "Seccomp: 2"),
            loopback_only: namespaces.iter().any(|name| name == "net"),
            base: match spec.base {
                Base::Host => "host".into(),
                Base::Dir(_) => "dir".into(),
            },
            host_paths_hidden: has(facts, "paths hidden"),
            cgroup_version: versions.into_iter().flatten().max().unwrap_or(0),
            memory: enforced.memory.map_or_else(
                || soft("the runner adds up the processes' memory and the files in /tmp"),
                |version| by_cgroup(version, "memory, with /tmp and /dev/shm"),
            ),
            pids: enforced.pids.map_or_else(
                || hard("RLIMIT_NPROC"),
                |version| by_cgroup(version, "pids"),
            ),
            cpu: enforced.cpu.map_or_else(
                || none("no cgroup with the cpu controller can be written to"),
                |version| by_cgroup(version, "cpu quota"),
            ),
            disk: if hard_disk {
                hard("ext4 image of fixed size")
            } else {
                soft("the runner adds up the volume's files")
            },
            file_size: hard("RLIMIT_FSIZE"),
            freeze: enforced.freeze.map_or_else(
                || soft("SIGSTOP to every process; the kernel cannot be told to keep them stopped"),
                |version| by_cgroup(version, "freezer"),
            ),
            namespaces,
            notes: Vec::new(),
        };
        posture.notes = notes(&posture, spec);
        posture
    }
}

fn has(facts: &str, line: &str) -> bool {
    facts.lines().any(|fact| fact == line)
}

/// Those namespaces of the first process that are not the runner's.
fn own_namespaces(facts: &str) -> Vec<String> {
    let theirs: Vec<_> = facts
        .lines()
        .filter_map(|line| line.strip_prefix("ns "))
        .collect();
    let differs = |name: &&str| {
        let ours = fs::read_link(format!("/proc/self/ns/{name}")).ok();
        let prefix = format!("{name}:");
        let theirs = theirs.iter().find(|link| link.starts_with(&prefix));
        matches!((ours, theirs), (Some(ours), Some(theirs)) if ours.as_os_str() != *theirs)
    };
    NAMESPACES
        .iter()
        .filter(|name| differs(name))
        .map(|name| (*name).to_owned())
        .collect()
}

fn notes(posture: &Posture, spec: &BoxSpec) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |when: bool, text: &str| {
        if when {
            notes.push(text.to_owned());
        }
    };
    note(
        posture.rootless,
        "rootless: the box's files and processes are those of the user who runs the server, with \
         that user's supplementary groups; run the server as root for a user id of its own",
    );
    let soft_memory = posture.memory.strength != Strength::Hard;
    note(
        soft_memory || posture.cpu.strength != Strength::Hard,
        "no writable cgroup has all of memory and cpu; delegate one to the server \
         (systemd: Delegate=yes, DelegateSubgroup=server)",
    );
    note(
        matches!(spec.volume, Volume::Directory { .. }),
        "the volume is a directory: its size is looked at, not enforced, and its path on the host \
         shows in the box's mount table",
    );
    note(
        spec.level == PermissionLevel::Advanced,
        "level advanced: programs in the box can make user namespaces and mount inside them",
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::Limits;

    fn posture(enforced: Enforced, rootless: bool, facts: &str) -> Posture {
        let spec = BoxSpec {
            sandbox_id: "b".into(),
            root_id: "r".into(),
            run_dir: "/r".into(),
            base: Base::Host,
            image: None,
            volume: Volume::LoopImage { path: "/v".into() },
            host_uid: 1_900_000_000,
            limits: Limits {
                memory_bytes: 1 << 30,
                pids: 64,
                cpu_millis: 1000,
                disk_bytes: 1 << 30,
                file_bytes: 1 << 30,
            },
            level: PermissionLevel::Default,
            hostname: "box".into(),
            egress_port: 3128,
        };
        Posture::found(
            &spec,
            rootless,
            (1_900_000_000, 1_900_000_000),
            enforced,
            true,
            facts,
        )
    }

    #[test]
    fn what_the_kernel_did_not_say_is_not_claimed() {
        let found = posture(Enforced::default(), true, "");
        assert!(!found.no_new_privileges && !found.no_capabilities && !found.loopback_only);
        assert!(!found.seccomp);
        assert!(found.namespaces.is_empty() && !found.host_paths_hidden);
        assert_eq!(found.cgroup_version, 0);
        assert_eq!(
            (found.memory.strength, found.cpu.strength),
            (Strength::Soft, Strength::None)
        );
        assert_eq!(found.notes.len(), 2);
    }

    #[test]
    fn a_namespace_counts_only_if_it_is_not_the_runners() {
        let own = fs::read_link("/proc/self/ns/net").expect("reads");
        let shared = format!("ns {}\nns uts:[1]\n", own.display());
        assert_eq!(
            posture(Enforced::default(), false, &shared).namespaces,
            ["uts"]
        );
        let all = Enforced {
            memory: Some(1),
            pids: Some(1),
            cpu: Some(1),
            freeze: Some(2),
        };
        let found = posture(all, false, "ns net:[1]\nNoNewPrivs: 1\npaths hidden\n");
        assert!(found.loopback_only && found.no_new_privileges && found.host_paths_hidden);
        assert_eq!(
            (found.cgroup_version, found.freeze.how.as_str()),
            (1, "cgroup v2 freezer")
        );
        assert!(found.notes.is_empty());
    }
}
