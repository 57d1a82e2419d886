//! What the program does without a server; conversations are tested elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn astrabox(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_astrabox"))
        .env_clear()
        .env("HOME", folder)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("ASTRABOX_SOCKET", folder.join("none.sock"))
        .args(arguments)
        .output()
        .expect("it starts")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| panic!("{} is no JSON", String::from_utf8_lossy(bytes)))
}

#[test]
fn every_way_to_fail_has_its_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ["--server", "http://127.0.0.1:9"];
    for (arguments, code) in [
        (&["engine", "list"][..], 3),
        (&["--socket", "/nowhere/at.all", "session", "list"], 3),
        (&["session"], 2),
        (&["no-such-command"], 2),
        (&[server[0], server[1], "engine", "list"], 2),
        (&["image", "build", "moon"], 2),
        (&["image", "remove", "moon"], 2),
        (&["image", "remove", "codex:1-0"], 4),
        (&["run", "   "], 2),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        let output = astrabox(folder.path(), arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn errors_are_one_line_for_people_and_one_object_for_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = astrabox(folder.path(), &["engine", "list"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.starts_with("astrabox: no server answers at ") && told.lines().count() == 1,
        "{told}"
    );
    let output = astrabox(folder.path(), &["--json", "engine", "list"]);
    let error = &json(&output.stderr)["error"];
    assert_eq!(
        (error["reason"].as_str(), error["exit_code"].as_u64()),
        (Some("UNREACHABLE"), Some(3))
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn images_are_listed_without_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = astrabox(folder.path(), &["image", "list", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(json(&output.stdout), serde_json::json!({ "images": [] }));
}

#[test]
fn the_doctor_names_every_check_and_its_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = astrabox(folder.path(), &["doctor", "--json"]);
    let report = json(&output.stdout);
    let checks = report["checks"].as_array().expect("a list");
    for name in [
        "configuration",
        "kernel.user_namespaces",
        "kernel.cgroups",
        "runner",
        "space.state",
        "packages.npm",
        "recipe.codex",
        "image.codex",
        "server",
    ] {
        let check = checks.iter().find(|check| check["name"] == name);
        let check = check.unwrap_or_else(|| panic!("{name} is not in {report}"));
        for told in ["remedy", "lost"] {
            assert_eq!(check["ok"] == true, check[told] == "", "{check}");
        }
    }
    let well = report["ok"] == true;
    assert_eq!(output.status.code(), Some(if well { 0 } else { 1 }));
}

/// The unit files that ship.
fn units() -> [PathBuf; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd");
    ["astraboxd.service", "user/astraboxd.service"].map(|name| folder.join(name))
}

#[test]
fn the_doctor_checks_a_unit_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let bad = folder.path().join("bad.service");
    std::fs::write(&bad, "[Service]\nExecStart=/x\nKillMode=mixed\n").expect("it is written");
    let verdict = |unit: &Path| {
        let unit = unit.to_string_lossy();
        let output = astrabox(folder.path(), &["doctor", "--json", "--unit", &unit]);
        let report = json(&output.stdout);
        let checks = report["checks"].as_array().expect("a list").clone();
        let mut unit: Vec<Value> = checks
            .into_iter()
            .filter(|check| {
                check["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("unit"))
            })
            .collect();
        unit.retain(|check| check["ok"] == false && check["required"] == true);
        (unit, output.status.code())
    };
    for unit in units() {
        assert_eq!(verdict(&unit).0, Vec::<Value>::new(), "{}", unit.display());
    }
    let (failed, code) = verdict(&bad);
    assert_eq!(failed[0]["name"], "unit.KillMode");
    assert_eq!((failed.len(), code), (3, Some(1)), "{failed:?}");
    let (missing, code) = verdict(&folder.path().join("none.service"));
    assert_eq!((missing.len(), code), (1, Some(1)), "{missing:?}");
}

/// Runs where systemd is installed; it need not be running.
#[test]
fn systemd_takes_the_unit_files() {
    let folder = tempfile::tempdir().expect("a folder");
    for (unit, manager) in units().iter().zip(["--system", "--user"]) {
        let text = std::fs::read_to_string(unit).expect("it is there");
        // The programs need not be installed here.
        let text: Vec<String> = text
            .lines()
            .map(|line| match line.split_once('=') {
                Some((key @ ("ExecStart" | "ExecStartPre"), _)) => format!("{key}=/bin/true"),
                _ => line.to_owned(),
            })
            .collect();
        let copy = folder.path().join("astraboxd.service");
        std::fs::write(&copy, text.join("\n")).expect("it is written");
        let mut verify = Command::new("systemd-analyze");
        verify.args([manager, "verify"]).arg(&copy);
        verify.env("XDG_RUNTIME_DIR", folder.path());
        let Ok(output) = verify.output() else {
            println!("systemd-analyze is not installed: the units are not verified");
            return;
        };
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        // The one setting that is newer than the oldest systemd that will do.
        let complaints: Vec<&str> = told
            .lines()
            .filter(|line| line.contains("astraboxd.service") && !line.contains("DelegateSubgroup"))
            .collect();
        assert!(complaints.is_empty(), "{told}");
    }
}
