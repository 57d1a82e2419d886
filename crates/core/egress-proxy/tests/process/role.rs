//! The life and the rights of a role process.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

use astrabox_egress_proxy::{EgressConfig, WorkloadState, spawn_role};
use astrabox_sandbox::{EgressCredentials, EgressGate, ErrorKind};
use rustix::process::Signal;

use super::Test;
use super::stand::{
    PATIENCE, Stand, argv, ask, connect_to, exists, is_root, is_running, kill, say, status, until,
};

pub(crate) const TESTS: &[Test] = &[
    (
        "there_is_one_role_per_directory",
        there_is_one_role_per_directory,
    ),
    (
        "a_role_has_no_rights_that_it_does_not_need",
        a_role_has_no_rights_that_it_does_not_need,
    ),
    (
        "the_authoritys_key_is_for_the_starter_of_the_role_only",
        the_authoritys_key_is_for_the_starter_of_the_role_only,
    ),
    (
        "a_role_outlives_the_server_that_started_it",
        a_role_outlives_the_server_that_started_it,
    ),
    (
        "the_operator_names_the_roles_user",
        the_operator_names_the_roles_user,
    ),
    (
        "a_killed_role_is_started_again_with_what_was_open",
        a_killed_role_is_started_again_with_what_was_open,
    ),
    (
        "a_role_that_is_just_ending_is_followed_by_another",
        a_role_that_is_just_ending_is_followed_by_another,
    ),
    (
        "a_role_ends_when_it_is_told_to",
        a_role_ends_when_it_is_told_to,
    ),
    (
        "a_role_whose_directory_is_gone_ends",
        a_role_whose_directory_is_gone_ends,
    ),
    (
        "a_role_that_cannot_start_says_why",
        a_role_that_cannot_start_says_why,
    ),
];

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn there_is_one_role_per_directory() {
    let stand = Stand::new(EgressConfig::default());
    // Two servers at once, and one later.
    let program = argv();
    let start = || spawn_role(&stand.config, &program, PATIENCE);
    let (one, other) = stand
        .runtime
        .block_on(async { tokio::join!(start(), start()) });
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one, other);
    assert_eq!(stand.start_role(), one);

    // What is started in spite of it leaves at once, and leaves the one in peace.
    let refused = std::process::Command::new(&program[0])
        .args(&program[1..])
        .arg("--config-file")
        .arg(stand.config.run_dir.join("egress.json"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    assert_eq!(stand.start_role(), one);
}

fn a_role_has_no_rights_that_it_does_not_need() {
    let stand = Stand::new(EgressConfig::default());
    let role = stand.start_role();
    let pid = i32::try_from(role.pid).unwrap();
    let own = rustix::process::geteuid().as_raw();
    let wanted = if is_root() { 65_534 } else { own };
    let all_four = |id: u32| format!("{id}\t{id}\t{id}\t{id}");
    assert_eq!(role.uid, wanted);
    assert_eq!(status(pid, "Uid"), all_four(wanted));
    if is_root() {
        assert_eq!(status(pid, "Gid"), all_four(wanted));
        assert_eq!(status(pid, "Groups"), "");
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    if is_root() {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core"));
        let words: Vec<_> = core.unwrap().split_whitespace().collect();
        assert_eq!(words[4..6], ["0", "0"], "{words:?}");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert_eq!(environment, b"LOCALDOMAIN=\0");
    }
    // Not traceable by its own user: its /proc files are root's.
    let memory = std::fs::metadata(format!("/proc/{pid}/mem")).unwrap();
    assert_eq!(memory.uid(), 0);

    // It still does its work and writes it down.
    let gate = stand.gate();
    let sandbox = stand.open(&gate, &[], listener());
    let denied = ask(sandbox.proxy, &connect_to("a.test:443"));
    assert!(denied.contains("host_not_allowed"), "{denied}");
    until("the audit log", || {
        std::fs::read_to_string(stand.config.audit_dir.join("audit.jsonl"))
            .is_ok_and(|log| log.contains("host_not_allowed"))
    });
    let log = std::fs::metadata(stand.config.audit_dir.join("audit.jsonl")).unwrap();
    assert_eq!((log.uid(), log.mode() & 0o777), (wanted, 0o600));
    let socket = std::fs::metadata(stand.config.socket()).unwrap();
    assert_eq!((socket.uid(), socket.mode() & 0o777), (own, 0o600));
}

fn the_authoritys_key_is_for_the_starter_of_the_role_only() {
    let stand = Stand::new(EgressConfig::default());
    let role = stand.start_role();
    let own = rustix::process::geteuid().as_raw();
    let folder = &stand.config.authority_dir;
    let mode = |path: &std::path::Path| {
        let metadata = std::fs::metadata(path).unwrap();
        (metadata.uid(), metadata.mode() & 0o777)
    };
    assert_eq!(mode(folder), (own, 0o700));
    assert_eq!(mode(&folder.join("authority.key")), (own, 0o600));
    // What the role says it signs with is what lies there, and a role that is started anew says the same.
    let gate = stand.gate();
    let certificate = || stand.runtime.block_on(gate.authority()).unwrap();
    let first = certificate();
    let written = std::fs::read_to_string(folder.join("authority.pem")).unwrap();
    assert_eq!(first, written);
    kill(i32::try_from(role.pid).unwrap(), Signal::KILL);
    assert_eq!(certificate(), first);
    // Nothing of it is open in the role.
    let pid = stand.start_role().pid;
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
    {
        let Ok(target) = std::fs::read_link(descriptor.unwrap().path()) else {
            continue;
        };
        let open = target.starts_with(folder) && target != *folder;
        assert!(!open, "{target:?}");
    }
}

fn a_role_outlives_the_server_that_started_it() {
    let stand = Stand::new(EgressConfig::default());
    let pid = stand.started_by_another("");
    assert!(is_running(pid));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let session = after_name.split_whitespace().nth(3).unwrap();
    assert_eq!(session, pid.to_string(), "it is in its server's session");
    assert_eq!(stand.start_role().pid.to_string(), pid.to_string());
}

fn the_operator_names_the_roles_user() {
    if !is_root() {
        say("skipped: only root can choose the role's user");
        return;
    }
    let stand = Stand::new(EgressConfig::default());
    let pid = stand.started_by_another("12345:12346");
    assert!(status(pid, "Uid").starts_with("12345\t"));
    assert!(status(pid, "Gid").starts_with("12346\t"));
    let audit = stand.config.audit_dir.join("audit.jsonl");
    assert_eq!(std::fs::metadata(&audit).unwrap().uid(), 12_345);
    // The next role is another user's and can go on with the log.
    kill(pid, Signal::TERM);
    until("the end of the role", || !is_running(pid));
    let pid = stand.started_by_another("12347");
    assert!(status(pid, "Uid").starts_with("12347\t"));
    assert_eq!(std::fs::metadata(&audit).unwrap().uid(), 12_347);
}

fn a_killed_role_is_started_again_with_what_was_open() {
    let stand = Stand::new(EgressConfig::default());
    let role = stand.start_role();
    let gate = stand.gate();
    let sandbox = stand.open(&gate, &[], listener());
    let pid = i32::try_from(role.pid).unwrap();
    kill(pid, Signal::KILL);
    // The listener's queue holds the client until the next role answers.
    let denied = ask(sandbox.proxy, &connect_to("a.test:443"));
    assert!(denied.contains("host_not_allowed"), "{denied}");
    let next = stand.start_role();
    assert_ne!(next.instance, role.instance);
    until("the dead role is reaped", || !exists(pid));
    let list = stand.runtime.block_on(gate.list()).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].state, WorkloadState::Active);
}

fn a_role_that_is_just_ending_is_followed_by_another() {
    let stand = Stand::new(EgressConfig::default());
    std::fs::create_dir_all(&stand.config.run_dir).unwrap();
    // It still listens, and breaks off what it has taken.
    let ending = UnixListener::bind(stand.config.run_dir.join("egress.sock")).unwrap();
    let breaking = std::thread::spawn(move || {
        for _ in 0..2 {
            drop(ending.accept().unwrap());
        }
    });
    assert!(is_running(i32::try_from(stand.start_role().pid).unwrap()));
    breaking.join().unwrap();
}

fn a_role_ends_when_it_is_told_to() {
    for how in ["shutdown", "drain", "SIGTERM"] {
        let stand = Stand::new(EgressConfig::default());
        let role = stand.start_role();
        let pid = i32::try_from(role.pid).unwrap();
        let gate = stand.gate();
        let sandbox = stand.open(&gate, &[], listener());
        match how {
            "shutdown" => stand.runtime.block_on(gate.shutdown_role()).unwrap(),
            "drain" => {
                stand.runtime.block_on(gate.drain()).unwrap();
                assert!(is_running(pid));
                assert_eq!(stand.runtime.block_on(gate.list()).unwrap().len(), 1);
                stand.runtime.block_on(gate.close(sandbox.id)).unwrap();
            }
            _ => {
                // A role that is ended while it is needed would be started again.
                stand.runtime.block_on(gate.disconnect());
                kill(pid, Signal::TERM);
            }
        }
        until(how, || !exists(pid));
        assert!(
            std::net::TcpStream::connect(sandbox.proxy).is_err(),
            "{how}"
        );
    }
}

fn a_role_whose_directory_is_gone_ends() {
    let stand = Stand::new(EgressConfig::default());
    let role = stand.start_role();
    std::fs::remove_dir_all(&stand.config.run_dir).unwrap();
    let pid = i32::try_from(role.pid).unwrap();
    until("the end of the role", || !exists(pid));
}

fn a_role_that_cannot_start_says_why() {
    let stand = Stand::new(EgressConfig::default());
    let start = |argv: &[&str]| {
        let argv: Vec<_> = argv.iter().map(Into::into).collect();
        let start = spawn_role(&stand.config, &argv, PATIENCE);
        stand.runtime.block_on(start).unwrap_err()
    };
    for (argv, part) in [
        (&["/nowhere/astraboxd"][..], "not found"),
        (&["astraboxd"], "absolute path"),
        (&[], "absolute path"),
        (&["/bin/false"], "egress.log"),
    ] {
        let error = start(argv);
        assert_eq!(error.kind(), ErrorKind::Internal, "{argv:?}");
        let text = error.to_string();
        assert!(text.contains(part), "{argv:?}: {text}");
        let folder = stand.folder.to_string_lossy();
        assert!(!text.contains(&*folder), "a host path: {text}");
    }
}
