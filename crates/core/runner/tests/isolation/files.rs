//! What a box can write, and what stays of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{IMAGE, PROBE, Plan, TestBox};
use crate::protocol::Ask;
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    (
        "base_and_image_cannot_be_written",
        Needs::Root,
        base_is_read_only,
    ),
    (
        "a_volume_keeps_its_files_under_another_host_uid",
        Needs::Root,
        volume_moves,
    ),
    (
        "a_directory_volume_works_for_root_too",
        Needs::Root,
        directory_volume,
    ),
    (
        "one_volume_is_in_one_box_at_a_time",
        Needs::Root,
        volume_is_exclusive,
    ),
    (
        "the_runner_writes_files_as_the_box_and_no_further",
        Needs::Root,
        runner_writes,
    ),
    (
        "programs_that_cannot_be_started_say_why",
        Needs::Root,
        spawn_failures,
    ),
    (
        "a_large_environment_arrives_whole",
        Needs::Root,
        large_environment,
    ),
];

fn base_is_read_only() {
    assert_read_only(&mut Plan::root().start());
}

pub(crate) fn assert_read_only(made: &mut TestBox) {
    let image_file = format!("{IMAGE}/x");
    let places = [
        "/x",
        "/usr/x",
        "/usr/bin/x",
        "/usr/local/x",
        "/usr/local/bin/x",
        "/etc/x",
        "/etc/ssl/certs/x",
        "/opt/x",
        "/opt/astrabox/x",
        &image_file,
        "/dev/x",
        "/home/x",
        "/var/x",
        "/proc/x",
    ];
    for place in places {
        let ended = made.run(&["sh", "-c", &format!("echo x > {place}")]);
        assert_ne!(ended.code, Some(0), "{place}");
        let refused = [
            "Read-only file system",
            "Permission denied",
            "nonexistent",
            "not permitted",
        ];
        let known = refused.iter().any(|reason| ended.stderr.contains(reason))
            || ended.stderr.contains("No such file or directory")
            || ended.stderr.contains("Directory nonexistent");
        assert!(known, "{place}: {}", ended.stderr);
    }
    for command in [
        format!("rm {PROBE}"),
        format!("mv {PROBE} {IMAGE}/y"),
        format!("chmod 777 {PROBE}"),
        "rm /etc/passwd".into(),
        "echo agent2 >> /etc/passwd".into(),
        "mkdir /usr/share/x".into(),
        "touch /bin/sh".into(),
        "echo 1 > /proc/sys/kernel/panic".into(),
        "echo core > /proc/sys/kernel/core_pattern".into(),
    ] {
        let ended = made.run(&["sh", "-c", &command]);
        assert_ne!(ended.code, Some(0), "{command}");
    }
    // And what is for writing can be written.
    for place in ["/workspace", "/home/agent", "/tmp", "/run", "/dev/shm"] {
        made.shell(&format!("echo x > {place}/x && rm {place}/x"));
    }
    // Programs can be made and run where agents make them, but not with another's rights.
    made.shell("printf '#!/bin/sh\\necho ran\\n' > /workspace/p && chmod 4755 /workspace/p && /workspace/p");
}

fn volume_moves() {
    let mut made = Plan::root().start();
    made.shell("mkdir -p /workspace/a && echo kept > /workspace/a/f && echo home > /home/agent/h");
    let plan = made.destroy();
    let mut made = plan.with(|spec| spec.host_uid += 32).start();
    assert_eq!(made.shell("cat /workspace/a/f /home/agent/h"), "kept\nhome");
    assert_eq!(made.shell("stat -c %u:%g /workspace/a/f"), "1000:1000");
    made.shell("echo more >> /workspace/a/f && rm -r /workspace/a");
    made.destroy();
}

fn directory_volume() {
    let plan = Plan::root();
    let path = plan.dir.path().join("directory");
    fs::create_dir(&path).expect("makes a directory");
    let volume = astrabox_runner_core::isolation::Volume::Directory { path: path.clone() };
    let mut made = plan.with(|spec| spec.volume = volume).start();
    made.shell("echo kept > /workspace/f");
    let found = crate::confinement::posture_of(&mut made);
    assert_eq!(
        found.disk.strength,
        astrabox_runner_core::isolation::Strength::Soft
    );
    assert!(
        !found.host_paths_hidden && found.notes.len() == 1,
        "{:?}",
        found.notes
    );
    made.shell("dd if=/dev/zero of=/workspace/big bs=1M count=80 2>/dev/null");
    let breach = made.ask(&Ask::PollLimits);
    assert!(format!("{breach:?}").contains("Disk"), "{breach:?}");
    let plan = made.destroy();
    let mut made = plan.with(|spec| spec.host_uid += 32).start();
    assert_eq!(
        made.shell("cat /workspace/f && echo more >> /workspace/f && echo ok"),
        "kept\nok"
    );
}

fn volume_is_exclusive() {
    let mut first = Plan::root().start();
    first.shell("echo x > /workspace/f");
    let volume = first.plan.spec.volume.clone();
    let second = Plan::root().with(|spec| spec.volume = volume.clone());
    let Err(failed) = second.try_start() else {
        panic!("two boxes have one volume")
    };
    assert!(failed.0.contains("in use"), "{}", failed.0);
    // When the first is gone it is free again, and whole.
    let _first = first.destroy();
    let mut second = Plan::root().with(|spec| spec.volume = volume).start();
    assert_eq!(second.shell("cat /workspace/f"), "x");
}

fn runner_writes() {
    let mut made = Plan::root().start();
    let put = |path: &str| Ask::Put {
        path: path.into(),
        content: "put".into(),
    };
    made.ask(&put("/workspace/put"));
    assert_eq!(
        made.shell("cat /workspace/put; stat -c %u:%g /workspace/put"),
        "put1000:1000"
    );
    // Links are followed inside the box only, and the runner has no more rights than the box.
    let victim = made.plan.dir.path().join("victim");
    fs::write(&victim, "untouched").expect("writes");
    fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("sets");
    let target = victim.display();
    made.shell(&format!(
        "ln -s {target} /workspace/out; ln -s ../../../../../..{target} /workspace/up; \
         ln -s /proc/1/root{target} /workspace/magic; ln -s /etc/passwd /workspace/etc"
    ));
    for link in ["out", "up", "magic", "etc"] {
        let result = made.try_ask(&put(&format!("/workspace/{link}")));
        assert!(result.is_err(), "{link}");
    }
    assert!(made.try_ask(&put("/usr/bin/x")).is_err());
    assert_eq!(fs::read_to_string(&victim).expect("reads"), "untouched");
}

fn spawn_failures() {
    let mut made = Plan::root().start();
    let nothing = made.run(&["no-such-program"]);
    assert_eq!(nothing.spawn_failure, Some(("Exec".into(), libc::ENOENT)));
    let forbidden = made.run(&["/etc/passwd"]);
    assert_eq!(forbidden.spawn_failure, Some(("Exec".into(), libc::EACCES)));
    made.shell("echo text > /workspace/text && chmod 755 /workspace/text");
    let text = made.run(&["/workspace/text"]);
    assert_eq!(text.spawn_failure, Some(("Exec".into(), libc::ENOEXEC)));
    let run = Ask::Run {
        argv: vec!["true".into()],
        env: Vec::new(),
        cwd: "/nowhere".into(),
    };
    let nowhere = made.ask(&run);
    assert!(
        format!("{nowhere:?}").contains("(\"Directory\", 2)"),
        "{nowhere:?}"
    );
    assert!(made.try_ask(&Ask::Start { argv: Vec::new() }).is_err());
    assert_eq!(made.run(&["sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(
        made.run(&["sh", "-c", "kill -TERM $$"]).signal,
        Some(libc::SIGTERM)
    );
}

fn large_environment() {
    let mut made = Plan::root().start();
    // A single string may have 128 KiB on Linux.
    let value = "x".repeat(100 << 10);
    let env = (0..12)
        .map(|number| (format!("V{number}"), value.clone()))
        .collect();
    let argv = [
        "sh",
        "-c",
        "echo ${#V0} ${#V11}; env | cut -d= -f1 | sort | tr '\\n' ' '",
    ];
    let argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
    let answer = made.ask(&Ask::Run {
        argv,
        env,
        cwd: "/".into(),
    });
    let text = format!("{answer:?}");
    assert!(text.contains("102400 102400"), "{text}");
    // Nothing of the runner's own environment came along.
    assert!(!text.contains("CARGO") && !text.contains("HOME"), "{text}");
}

/// A root tree with this program's libraries and nothing else.
pub(crate) fn small_tree(place: &Path) -> PathBuf {
    let tree = place.join("tree");
    let maps = fs::read_to_string("/proc/self/maps").expect("reads the maps");
    let libraries: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains(".so"))
        .collect();
    for library in libraries {
        let name = Path::new(library).file_name().expect("has a name");
        // The loader is looked for by a fixed path, the rest by their own.
        let places = [
            tree.join(&library[1..]),
            tree.join("lib64").join(name),
            tree.join("lib").join(name),
        ];
        for to in places {
            fs::create_dir_all(to.parent().expect("has a parent")).expect("makes a directory");
            fs::copy(library, to).expect("copies a library");
        }
    }
    tree
}
