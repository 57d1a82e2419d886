use astrabox_runner_core::protocol::{FileKind, RunnerErrorKind, WriteFileOptions};
use bytes::Bytes;

use crate::support::{Box, am_root};

#[tokio::test]
async fn what_is_written_here_is_read_there_and_belongs_to_the_boxs_user() {
    for sandbox in [Box::new().await, Box::rootless(|_| {}).await] {
        let client = &sandbox.client;
        let content: Bytes = (0..3_000_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        let options = WriteFileOptions {
            create_parents: true,
            sync: true,
            ..Default::default()
        };
        let info = client
            .write_file("/workspace/a/b/data", options, content.clone())
            .await
            .unwrap();
        assert_eq!(
            (info.kind, info.size, info.mode),
            (FileKind::File, 3_000_000, 0o644)
        );
        let script = "stat -c '%u %g %a %s' a/b a/b/data | cut -d' ' -f1-3; echo more >> a/b/data";
        let (out, err, _) = sandbox.run("look", script).await;
        assert_eq!(
            (out.as_str(), err.as_str()),
            ("1000 1000 755\n1000 1000 644\n", "")
        );
        let (info, read) = client
            .read_file("/workspace/a/b/data", 0, u64::MAX)
            .await
            .unwrap();
        assert_eq!(info.size, 3_000_005);
        assert_eq!(read, [&content[..], b"more\n"].concat());
        let (_, part) = client
            .read_file("/workspace/a/b/data", 2_999_999, 4)
            .await
            .unwrap();
        assert_eq!(part[1..], b"mor"[..]);

        client
            .make_dir("/home/agent/x/y", 0o700, true)
            .await
            .unwrap();
        client
            .rename("/workspace/a/b/data", "/workspace/moved", false)
            .await
            .unwrap();
        let listed = client.list_files("/workspace").await.unwrap();
        let mut names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
        names.retain(|name| *name != "lost+found");
        names.sort_unstable();
        assert_eq!(names, ["a", "moved"]);
        client.remove("/workspace/a", true).await.unwrap();
        let gone = client.stat("/workspace/a", true).await.unwrap_err();
        assert_eq!(gone.kind(), RunnerErrorKind::NotFound);
    }
}

#[tokio::test]
async fn nothing_that_the_box_makes_leads_a_call_out_of_it() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    let secret = sandbox.spec.state_dir.join("secret");
    std::fs::write(&secret, "host").unwrap();
    let script = format!(
        "ln -s {secret} absolute; ln -s ../../../../../../../..{secret} dots; ln -s /proc/1/root root;
         ln -s /proc/self/cwd cwd; ln -s /usr/lib lib; ln -s {state} state; mkfifo fifo;
         ln -s /dev/zero zero; ln -s loop loop",
        secret = secret.display(),
        state = sandbox.spec.state_dir.display(),
    );
    let (_, err, _) = sandbox.run("links", &script).await;
    assert_eq!(err, "");
    for path in [
        "absolute",
        "dots",
        "root/etc/passwd",
        "cwd/runner.json",
        "loop",
        "zero",
        "fifo",
    ] {
        let path = format!("/workspace/{path}");
        let error = client.read_file(&path, 0, u64::MAX).await.unwrap_err();
        let refused = [
            RunnerErrorKind::NotFound,
            RunnerErrorKind::PathDenied,
            RunnerErrorKind::WrongFileKind,
        ];
        assert!(refused.contains(&error.kind()), "{path}: {error}");
        assert!(
            !error
                .to_string()
                .contains(sandbox.spec.state_dir.to_str().unwrap()),
            "{error}"
        );
    }
    for path in [
        "state/planted",
        "lib/planted",
        "root/tmp/planted",
        "../etc/planted",
    ] {
        let path = format!("/workspace/{path}");
        let options = WriteFileOptions::default();
        let written = client
            .write_file(&path, options, Bytes::from_static(b"x"))
            .await;
        assert!(written.is_err(), "{path}");
    }
    assert!(!sandbox.spec.state_dir.join("planted").exists());
    for path in [
        "/etc/passwd",
        "/usr/bin/sh",
        "/dev/null",
        "/proc/1/oom_score_adj",
        "/opt/x",
    ] {
        let options = WriteFileOptions::default();
        let written = client
            .write_file(path, options, Bytes::from_static(b"x"))
            .await
            .unwrap_err();
        assert_eq!(
            written.kind(),
            RunnerErrorKind::PathDenied,
            "{path}: {written}"
        );
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "host");
}

#[tokio::test]
async fn calls_have_the_rights_of_the_boxs_user_and_no_more() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    // What the box's user may not read, the runner does not read for it, root or not.
    if am_root() {
        let locked = std::path::Path::new("/usr/bin/su");
        assert!(locked.exists(), "the test needs a program that is there");
        client.stat("/usr/bin/su", false).await.unwrap();
    }
    let (_, err, _) = sandbox
        .run("lock", "echo x > locked; chmod 000 locked")
        .await;
    assert_eq!(err, "");
    let error = client
        .read_file("/workspace/locked", 0, 10)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RunnerErrorKind::PathDenied);
    let full = Bytes::from(vec![0; 17 << 20]);
    let error = client
        .write_file("/workspace/long", Default::default(), full)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RunnerErrorKind::DiskFull);
    let taken = WriteFileOptions {
        exclusive: true,
        ..Default::default()
    };
    let error = client
        .write_file("/workspace/locked", taken, Bytes::new())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RunnerErrorKind::FileExists);
    let left = client.list_files("/workspace").await.unwrap();
    assert!(
        left.iter().all(|entry| !entry.name.starts_with('.')),
        "{left:?}"
    );
}
