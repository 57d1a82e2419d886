//! What is tried from inside a box against the boundary around it, by the names in `docs/egress-attacks.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use crate::confinement::answers;
use crate::host::{PROBE, Plan, TestBox};
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    (
        "h1_no_protocol_and_no_address_leads_out_of_a_box",
        Needs::Root,
        no_way_out,
    ),
    (
        "h2_nobody_inside_changes_the_network_or_ends_what_is_outside",
        Needs::Root,
        network_and_processes_are_out_of_reach,
    ),
    (
        "h4_no_socket_of_the_host_is_reached_from_inside",
        Needs::Root,
        sockets_are_out_of_reach,
    ),
    (
        "b28_the_network_of_a_box_has_nothing_else_in_it",
        Needs::Root,
        network_of_its_own,
    ),
    (
        "b29_what_controls_a_box_is_not_inside_of_it",
        Needs::Root,
        control_is_outside,
    ),
];

fn no_way_out() {
    let mut made = Plan::root().start();
    // Whatever says otherwise inside is heard by nobody outside.
    let ended = made.run(&[
        "env",
        "NO_PROXY=*",
        "no_proxy=*",
        "http_proxy=",
        PROBE,
        "probe",
        "ways",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ways: BTreeMap<_, _> = ended
        .stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    assert!(ways.len() > 15, "{ways:?}");
    let refused = [libc::ENETUNREACH, libc::EPERM, libc::EACCES].map(|errno| errno.to_string());
    for (way, errno) in ways {
        assert!(refused.iter().any(|known| known == errno), "{way}: {errno}");
    }
}

fn network_and_processes_are_out_of_reach() {
    let mut made = Plan::root().start();
    let calls = answers(&mut made, "calls");
    for call in [
        "socket_netfilter",
        "socket_raw",
        "socket_packet",
        "unshare_user",
        "setns",
        "bpf",
        "pidfd_getfd_first",
        "ptrace_first",
    ] {
        assert_eq!(calls.get(call), Some(&libc::EPERM), "{call}");
    }
    // Routing can be asked about and not changed.
    let changes = answers(&mut made, "routing");
    for (change, errno) in &changes {
        assert_eq!(*errno, libc::EPERM, "{change}");
    }
    assert_eq!(changes.len(), 3, "{changes:?}");
    let mut outside = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .expect("it starts");
    for pid in [outside.id(), std::process::id()] {
        let ended = made.run(&["sh", "-c", &format!("kill -9 {pid}")]);
        assert_ne!(ended.code, Some(0), "{pid}");
    }
    made.run(&["sh", "-c", "kill -9 -1"]);
    assert!(outside.try_wait().expect("it is asked").is_none());
    outside.kill().expect("it is ended");
    outside.wait().expect("it ends");
}

fn sockets_are_out_of_reach() {
    let mut made = Plan::root().start();
    // As the control socket of the role is: a path of the host that is known.
    let folder = made.plan.dir.path().join("role");
    fs::create_dir(&folder).expect("a folder");
    let socket = folder.join("egress.sock");
    let listener = UnixListener::bind(&socket).expect("it listens");
    listener.set_nonblocking(true).expect("it does not wait");
    let inside_path = socket.display().to_string();
    let volume = made.shell("readlink -f /workspace");
    for path in [
        inside_path.clone(),
        format!("/proc/1/root{inside_path}"),
        format!("/proc/self/cwd/../../..{inside_path}"),
        format!("{volume}/..{inside_path}"),
    ] {
        let ended = made.run(&[PROBE, "probe", "unix-connect", &path]);
        assert_eq!(ended.stdout.trim(), "alone", "{path}: {ended:?}");
    }
    // Nor by a name that is no path: those are each network's own.
    assert!(listener.accept().is_err(), "it was reached");
    let found = made.shell("find / -type s 2>/dev/null; true");
    assert_eq!(found, "", "a socket of somebody else");
}

fn namespaces(pid: &str) -> BTreeSet<String> {
    let kinds = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    kinds
        .iter()
        .map(|kind| {
            let link = fs::read_link(format!("/proc/{pid}/ns/{kind}"));
            link.expect("a namespace").display().to_string()
        })
        .collect()
}

fn network_of_its_own() {
    let (mut one, mut other) = (Plan::root().start(), Plan::root().start());
    let network = |made: &mut TestBox| made.shell("readlink /proc/self/ns/net");
    let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
    let all = BTreeSet::from([
        network(&mut one),
        network(&mut other),
        own.display().to_string(),
    ]);
    assert_eq!(all.len(), 3, "{all:?}");
    for made in [&mut one, &mut other] {
        // One listener, the way out, which no process inside holds; nothing that redirects, and no other socket.
        let listening = made.shell("tail -n +2 /proc/net/tcp | tr -s ' ' | cut -d' ' -f3,5");
        assert_eq!(listening, "0100007F:0C38 0A");
        for table in ["tcp6", "udp", "udp6", "raw", "raw6"] {
            let lines = made.shell(&format!("tail -n +2 /proc/net/{table} | wc -l"));
            assert_eq!(lines, "0", "{table}");
        }
        let tables = made.shell("cat /proc/net/ip_tables_names 2>/dev/null; true");
        assert_eq!(tables, "");
    }
}

fn control_is_outside() {
    let mut made = Plan::root().start();
    // The process that made it shares no namespace with it, so neither its memory nor its descriptors are in reach.
    let inside = namespaces(&made.init_pid.to_string());
    let outside = namespaces("self");
    assert!(inside.is_disjoint(&outside), "{inside:?} {outside:?}");
    // Inside there is the first process, which does nothing else, and what was started; no descriptor leads to a socket.
    let seen = made.shell("cat /proc/[0-9]*/comm 2>/dev/null | sort -u");
    for name in seen.lines() {
        assert!(
            ["astrabox-init", "sh", "cat", "sort"].contains(&name),
            "{seen}"
        );
    }
    let descriptors = made.shell("ls -l /proc/self/fd");
    assert!(!descriptors.contains("socket:"), "{descriptors}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let line = made.shell(&format!("grep {set} /proc/self/status"));
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
}
