//! The program's own options; servers that serve are tested elsewhere.

use std::path::Path;
use std::process::{Command, Output};

fn astraboxd(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_astraboxd"))
        .env_clear()
        .env("HOME", folder)
        .args([
            "--set",
            &format!("state_dir={}", folder.join("state").display()),
        ])
        .args([
            "--set",
            &format!("run_dir={}", folder.join("run").display()),
        ])
        .args([
            "--set",
            &format!("cache_dir={}", folder.join("cache").display()),
        ])
        .args(arguments)
        .output()
        .expect("it starts")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_configuration_is_checked_and_nothing_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = astraboxd(folder.path(), &["--check-config"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count(),
        0
    );
}

#[test]
fn what_is_wrong_is_told_in_one_line_with_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    for (setting, part) in [
        (
            "server.sokcet=/x",
            "unknown key `server.sokcet` in the command line",
        ),
        (
            "sandbox.default=moon",
            "sandbox.default: no sandbox provider is called `moon`",
        ),
        (
            "identity.local.allowed_uids=[]",
            "identity.local cannot be used: ",
        ),
        (
            "model.direct.base_url=ftp://x",
            "model.direct cannot be used: ",
        ),
        (
            "egress.orphan_graze=1m",
            "egress: unknown field `orphan_graze`",
        ),
        ("server.tcp=127.0.0.1:0", "server.tcp is set"),
        ("log.level=infoo", "log.level: `infoo`"),
    ] {
        let output = astraboxd(folder.path(), &["--check-config", "--set", setting]);
        let (_, complaint) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{setting}");
        assert!(
            complaint.starts_with("astraboxd: ") && complaint.contains(part),
            "{setting}: {complaint}"
        );
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

#[test]
fn a_dump_can_be_read_back_and_shows_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = astraboxd(
        folder.path(),
        &["--dump-config", "--set", "sandbox.local.note=x"],
    );
    let (dump, _) = texts(&output);
    assert_eq!(output.status.code(), Some(0));
    let file = folder.path().join("dump.toml");
    std::fs::write(&file, &dump).expect("it is written");
    let again = astraboxd(
        folder.path(),
        &["--dump-config", "--config", &file.display().to_string()],
    );
    assert_eq!(texts(&again).0, dump);
    let output = astraboxd(
        folder.path(),
        &["--dump-config", "--set", "sandbox.local.api_key=hunter2"],
    );
    assert!(!texts(&output).0.contains("hunter2"));
}

#[test]
fn the_role_without_its_configuration_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("none.json");
    let output = Command::new(env!("CARGO_BIN_EXE_astraboxd"))
        .args(["egress", "--config-file"])
        .arg(&missing)
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("the role's configuration"));
}
