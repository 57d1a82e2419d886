//! What a box can see and reach.

use std::collections::BTreeMap;
use std::fs;

use astrabox_runner_core::isolation::{Base, PermissionLevel, Posture, Strength};

use crate::host::{PROBE, Plan, TestBox, processes_of};
use crate::protocol::{Answer, Ask};
use crate::{Needs, Test, files};

pub(crate) const TESTS: &[Test] = &[
    (
        "nothing_of_the_host_outside_the_base_is_readable",
        Needs::Root,
        host_is_unreadable,
    ),
    (
        "no_foreign_process_is_visible",
        Needs::Root,
        processes_are_hidden,
    ),
    (
        "the_mount_table_shows_no_path_of_the_host",
        Needs::Root,
        mount_table_is_clean,
    ),
    (
        "a_base_of_its_own_shows_no_path_either",
        Needs::Root,
        own_base,
    ),
    (
        "calls_that_reach_out_of_the_box_fail",
        Needs::Root,
        calls_fail,
    ),
    (
        "the_advanced_level_allows_namespaces_and_nothing_beyond",
        Needs::Root,
        advanced_level,
    ),
    (
        "a_box_is_an_unprivileged_user_of_its_own",
        Needs::Root,
        own_user,
    ),
    (
        "the_network_is_a_loopback_with_one_listener",
        Needs::Root,
        loopback_only,
    ),
    (
        "the_first_process_can_be_neither_killed_nor_looked_into",
        Needs::Root,
        first_process,
    ),
    ("two_boxes_do_not_see_each_other", Needs::Root, two_boxes),
    ("the_posture_says_what_is_so", Needs::Root, posture),
];

pub(crate) fn host_is_unreadable() {
    look_around(&mut Plan::root().start());
}

/// Looks for the host from inside; the same with and without root.
pub(crate) fn look_around(made: &mut TestBox) {
    let secret = made.plan.dir.path().join("secret");
    fs::write(&secret, "secret").expect("writes");
    let script = format!("cat {} 2>/dev/null; true", secret.display());
    assert_eq!(made.shell(&script), "");

    let root = made.shell("ls -A /");
    let root: Vec<_> = root.split_whitespace().collect();
    let allowed = [
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "opt",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
        "var",
        "workspace",
    ];
    let extra: Vec<_> = root.iter().filter(|name| !allowed.contains(name)).collect();
    assert!(extra.is_empty(), "{extra:?} in the root");

    let lists = [
        ("/home", "agent"),
        ("/home/agent", ""),
        ("/opt", "astrabox"),
        ("/opt/astrabox", "image"),
        ("/opt/astrabox/image", "probe"),
        ("/run", ""),
        ("/tmp", ""),
        ("/usr/local", ""),
        ("/var", "run\ntmp"),
        ("/workspace", ""),
    ];
    for (dir, expected) in lists {
        assert_eq!(made.shell(&format!("ls -A {dir}")), expected, "{dir}");
    }
    let etc = made.shell("ls -A /etc /etc/ssl");
    for name in etc.split_whitespace() {
        let known = [
            "/etc:",
            "/etc/ssl:",
            "alternatives",
            "ca-certificates",
            "certs",
            "group",
            "hostname",
            "hosts",
            "ld.so.cache",
            "localtime",
            "mime.types",
            "mtab",
            "nsswitch.conf",
            "openssl.cnf",
            "os-release",
            "passwd",
            "pki",
            "resolv.conf",
            "ssl",
            "timezone",
        ];
        let known = known.contains(&name) || name.starts_with("java");
        assert!(known, "{name} in /etc");
    }
    for path in [
        "/root",
        "/sys",
        "/etc/shadow",
        "/etc/ssl/private",
        "/boot",
        "/var/lib",
        "/old",
    ] {
        assert_eq!(
            made.shell(&format!("test ! -e {path} && echo absent")),
            "absent",
            "{path}"
        );
    }
    // The first process is the runner's fork: what it still knows must not be readable.
    for look in [
        "ls root/",
        "ls cwd/",
        "ls fd/",
        "ls ns/ -l",
        "cat environ",
        "cat mem",
        "cat maps",
        "cat exe",
    ] {
        let ended = made.run(&["sh", "-c", &format!("cd /proc/1 && {look}")]);
        assert_ne!(ended.code, Some(0), "{look}: {ended:?}");
        assert!(
            ended.stderr.contains("Permission denied"),
            "{look}: {ended:?}"
        );
    }
    let line = made.shell("tr '\\0' ' ' </proc/1/cmdline");
    assert_eq!(line.trim(), "astrabox-init");
    // Devices: these and no other.
    let devices = made.shell(
        "find /dev -xdev ! -type l ! -type d | while read f; do test -c $f && echo $f; done | sort",
    );
    let expected = ["full", "null", "random", "tty", "urandom", "zero"];
    let expected: Vec<_> = expected.iter().map(|name| format!("/dev/{name}")).collect();
    assert_eq!(devices.lines().collect::<Vec<_>>(), expected);
    // What is set aside for somebody else: nothing with another owner can be read that is private.
    let found = made.shell("find / -xdev -perm -4000 -user 1000 2>/dev/null; true");
    assert_eq!(found, "");
}

fn processes_are_hidden() {
    see_own_processes(&mut Plan::root().start());
}

pub(crate) fn see_own_processes(made: &mut TestBox) {
    let seen = made.shell("cd /proc && ls -d [0-9]*");
    let seen: Vec<u32> = seen
        .split_whitespace()
        .map(|pid| pid.parse().expect("a pid"))
        .collect();
    // The first, the shell, and ls.
    assert!(seen.len() <= 3 && seen.contains(&1), "{seen:?}");
    // A pid of the host means nothing here.
    let host = std::process::id();
    let ended = made.run(&["sh", "-c", &format!("kill -0 {host}")]);
    assert_ne!(ended.code, Some(0));
}

fn mount_table_is_clean() {
    let mut made = Plan::root().start();
    assert_clean(&mut made, &["/usr", "/etc/", "/bin", "/sbin", "/lib"]);
}

/// No line names a directory of this test, and bind mounts come from standard places only.
fn assert_clean(made: &mut TestBox, standard: &[&str]) {
    let table = made.shell("cat /proc/self/mountinfo /proc/self/mounts");
    let dir = made.plan.dir.path().to_string_lossy().into_owned();
    for trace in [&*dir, "astrabox-isolation", "/home/user", "/root"] {
        assert!(!table.contains(trace), "{trace} in {table}");
    }
    let table = made.shell("cat /proc/self/mountinfo");
    for line in table.lines() {
        let root = line.split(' ').nth(3).expect("has a root field");
        let own = ["/", "/tmp", "/run", "/shm", "/workspace", "/home"].contains(&root);
        assert!(
            own || standard.iter().any(|place| root.starts_with(place)),
            "{line}"
        );
    }
    assert!(
        table.contains(" /dev/loop"),
        "the volume is an image: {table}"
    );
}

fn own_base() {
    let table = table_over_own_base(Plan::root());
    assert!(!table.contains("astrabox-"), "{table}");
}

/// Makes a box over a small tree, sees that it works, and returns its mount table.
pub(crate) fn table_over_own_base(plan: Plan) -> String {
    let tree = files::small_tree(plan.dir.path());
    let mut made = plan.with(|spec| spec.base = Base::Dir(tree)).start();
    // There is no shell in the tree, so the probe has to do.
    let ended = made.run(&[PROBE, "probe", "calls"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let table = fs::read_to_string(format!("/proc/{}/mountinfo", made.init_pid)).expect("reads");
    for root in table.lines().filter_map(|line| line.split(' ').nth(3)) {
        assert!(
            !root.contains("/tree") && !root.contains("/image"),
            "{table}"
        );
    }
    let root = table
        .lines()
        .find(|line| line.split(' ').nth(4) == Some("/"));
    assert!(
        root.is_some_and(|line| line.contains(" ro,nosuid,nodev")),
        "{table}"
    );
    table
}

pub(crate) fn answers(made: &mut TestBox, what: &str) -> BTreeMap<String, i32> {
    let ended = made.run(&[PROBE, "probe", what]);
    assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
    let pairs = ended.stdout.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, errno)| (name.to_owned(), errno.parse().expect("a number")))
        .collect()
}

fn calls_fail() {
    assert_calls(&mut Plan::root().start());
}

/// The answer to each call, the same with and without root.
pub(crate) fn assert_calls(made: &mut TestBox) {
    const OK: i32 = 0;
    const ABSENT: i32 = libc::ENOSYS;
    let found = answers(made, "calls");
    let not_eperm: BTreeMap<&str, i32> = BTreeMap::from([
        ("unshare_files", OK),
        ("clone3", ABSENT),
        ("io_uring_setup", ABSENT),
        ("newer_than_all", ABSENT),
        ("x32", ABSENT),
        // Killed by SIGSYS.
        ("i386", 1000 + libc::SIGSYS),
        // Not the filter but the user namespace, which has no such user.
        ("setuid_root", libc::EINVAL),
        // Process 1 ignores them, as it handles no signal.
        ("kill_first", OK),
        ("stop_first", OK),
        ("socket_unix", OK),
        ("socket_tcp", OK),
        ("socket_udp6", OK),
        ("socket_route", OK),
    ]);
    assert!(found.len() > 50, "{found:?}");
    for (name, errno) in &found {
        let expected = not_eperm.get(name.as_str()).copied().unwrap_or(libc::EPERM);
        assert_eq!(*errno, expected, "{name}");
    }
    // Still there after all that.
    assert_eq!(made.shell("echo alive"), "alive");
}

fn advanced_level() {
    let mut made = Plan::root()
        .with(|spec| spec.level = PermissionLevel::Advanced)
        .start();
    assert_advanced(&mut made);
}

pub(crate) fn assert_advanced(made: &mut TestBox) {
    let found = answers(made, "nested");
    let expected = [
        ("unshare", 0),
        ("mount_own", 0),
        // Locked, because they come from a more privileged mount namespace.
        ("uncover", libc::EINVAL),
        ("bind_usr", libc::EINVAL),
        ("rewrite_usr", libc::EPERM),
        ("mknod", libc::EPERM),
        ("ptrace_first", libc::EPERM),
        ("setns_first", libc::EACCES),
        ("bpf", libc::EPERM),
        ("socket_vsock", libc::EPERM),
    ];
    for (name, errno) in expected {
        assert_eq!(found.get(name), Some(&errno), "{name} in {found:?}");
    }
}

fn own_user() {
    let mut made = Plan::root().start();
    let host_uid = made.plan.spec.host_uid;
    assert_unprivileged(&mut made, host_uid);
    assert_eq!(made.host_owner, (host_uid, host_uid));
    // From outside: every process, the first included, has the box's own user and no other has.
    let (_, pid) = made.start(&["sleep", "60"]);
    assert!(pid > 1);
    let owned = processes_of(host_uid);
    assert_eq!(owned.len(), 2, "{owned:?}");
    assert!(owned.contains(&made.init_pid));
}

pub(crate) fn assert_unprivileged(made: &mut TestBox, host_uid: u32) {
    assert_eq!(made.shell("id -u; id -g; id -G"), "1000\n1000\n1000");
    for map in ["uid_map", "gid_map"] {
        let text = made.shell(&format!("cat /proc/self/{map}"));
        let fields: Vec<_> = text.split_whitespace().collect();
        assert_eq!(fields[0], "1000", "{map}");
        assert_eq!(fields[2], "1", "{map}");
    }
    let uid = made.shell("cat /proc/self/uid_map");
    assert_eq!(
        uid.split_whitespace().nth(1),
        Some(host_uid.to_string().as_str())
    );
    let status = made.shell("cat /proc/self/status");
    let field = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().trim().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(
        (field("NoNewPrivs:"), field("Seccomp:")),
        ("1".into(), "2".into())
    );
    assert_eq!(made.shell("hostname; ulimit -c"), "testbox\n0");
    assert_eq!(
        made.shell("ls -l /proc/self/fd | grep -c '[0-9] ->'"),
        "4",
        "no stray descriptor"
    );
}

fn loopback_only() {
    assert_network(&mut Plan::root().start());
}

pub(crate) fn assert_network(made: &mut TestBox) {
    assert_eq!(
        made.shell("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"),
        "lo"
    );
    assert_eq!(made.shell("tail -n +2 /proc/net/route"), "");
    let found = answers(made, "network");
    for (name, errno) in &found {
        let expected = match name.as_str() {
            // The listener is bound, so a connection is taken even before somebody accepts it.
            "own" | "proxy" => 0,
            _ => libc::ENETUNREACH,
        };
        assert_eq!(*errno, expected, "{name}");
    }
    // The first two connections are those of the probe; then one that says something.
    let (tag, _) = made.start(&[PROBE, "probe", "say", "hello from inside"]);
    assert_eq!(made.wait(tag).code, Some(0));
    match made.ask(&Ask::Accept) {
        Answer::Text(first) => assert_eq!(first, ""),
        other => panic!("unexpected {other:?}"),
    }
    assert!(
        made.try_ask(&Ask::Accept).is_err(),
        "the listener is handed out once"
    );
}

fn first_process() {
    let mut made = Plan::root().start();
    let _ = made.run(&[
        "sh",
        "-c",
        "kill -9 1; kill -TERM 1; kill -STOP 1; kill -SEGV 1",
    ]);
    assert_eq!(made.shell("echo alive"), "alive");
    // Even to a nosy process with the same user, that has just been started.
    let ended = made.run(&["sh", "-c", "cat /proc/1/environ"]);
    assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
    assert_eq!(made.shell("cat /proc/1/comm"), "astrabox-init");
    // It lives on when everything else is killed from inside, including what started it.
    let _ = made.run(&["sh", "-c", "kill -9 -1"]);
    assert_eq!(made.shell("echo alive"), "alive");
}

fn two_boxes() {
    let (mut one, mut two) = (Plan::root().start(), Plan::root().start());
    one.shell("echo one > /workspace/f; echo one > /tmp/f; echo one > /dev/shm/f; echo one > ~/f 2>/dev/null || echo one > /home/agent/f");
    let (_, _) = one.start(&[PROBE, "probe", "abstract-listen"]);
    one.start(&[
        "perl",
        "-e",
        "sleep 60 if defined shmget(4711, 4096, 0600 | 01000)",
    ]);
    let seen = two.shell("ls -A /workspace /tmp /dev/shm /home/agent | grep -v : ; true");
    assert_eq!(seen.trim(), "");
    assert_eq!(
        two.run(&[PROBE, "probe", "abstract-connect"]).stdout.trim(),
        "alone"
    );
    assert_eq!(two.shell("tail -n +2 /proc/sysvipc/shm"), "");
    let seen = two.shell("cd /proc && ls -d [0-9]* | wc -l");
    assert!(seen.parse::<u32>().expect("a number") <= 4, "{seen}");
    assert_ne!(one.host_owner, two.host_owner);
    // Ending one is nothing to the other.
    one.destroy();
    assert_eq!(two.shell("echo alive"), "alive");
}

fn posture() {
    let mut made = Plan::root().start();
    let found = posture_of(&mut made);
    assert!(found.no_new_privileges && found.no_capabilities && found.seccomp);
    assert!(found.loopback_only && found.host_paths_hidden && !found.rootless);
    assert_eq!(
        found.namespaces,
        ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]
    );
    for kept in [
        &found.memory,
        &found.pids,
        &found.cpu,
        &found.disk,
        &found.freeze,
    ] {
        assert_eq!(kept.strength, Strength::Hard, "{kept:?}");
    }
    assert!(found.notes.is_empty(), "{:?}", found.notes);
}

pub(crate) fn posture_of(made: &mut TestBox) -> Posture {
    match made.ask(&Ask::Posture) {
        Answer::Posture(posture) => *posture,
        other => panic!("unexpected {other:?}"),
    }
}
