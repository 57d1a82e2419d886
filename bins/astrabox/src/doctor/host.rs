//! The runner, and what it finds of this host by trying.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use super::Check;
use crate::args::Global;
use crate::connect::config;

const PROGRAM: &str = "astrabox-runner";
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

const BUILD: &str = "cargo build --profile runner -p astrabox-runner --target x86_64-unknown-linux-gnu, and install it \
                     beside astraboxd; or set sandbox.local.runner";
const DELEGATE: &str = "run the server by the unit of docs/systemd, or: systemd-run --user --unit astraboxd -p Delegate=yes \
                        -p DelegateSubgroup=server -p KillMode=process $(command -v astraboxd)";

/// What is lost without the things that the runner looks at, by their names, and the command that mends it; the
/// runner's own words when there is none.
const KNOWN: &[(&str, &str, Option<&str>)] = &[
    (
        "host_base",
        "sandboxes need a root tree of their own",
        Some("set sandbox.local.base to a directory with one"),
    ),
    ("namespaces", "no sandbox can be made", None),
    ("seccomp", "no sandbox can be made", None),
    ("kernel", "no sandbox can be made", None),
    (
        "cgroup_memory",
        "a sandbox can take all memory of this host",
        Some(DELEGATE),
    ),
    (
        "cgroup_pids",
        "the processes of a sandbox are limited per user only",
        Some(DELEGATE),
    ),
    (
        "cgroup_cpu",
        "a sandbox can take all of the CPU",
        Some(DELEGATE),
    ),
    (
        "cgroup_freezer",
        "sandboxes cannot be paused, and are ended process by process",
        Some(DELEGATE),
    ),
    (
        "idmapped_mounts",
        "the owner of each file of a volume is changed when a sandbox starts",
        None,
    ),
    (
        "loop_devices",
        "the disk limit of a sandbox is soft: its volume is counted now and then",
        Some(
            "sudo modprobe -a loop ext4; in a container, give it /dev/loop-control and /dev/loop*",
        ),
    ),
    (
        "mkfs_ext4",
        "the disk limit of a sandbox is soft: its volume is counted now and then",
        Some("sudo apt-get install e2fsprogs"),
    ),
];

/// What `astrabox-runner probe` answers.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Ok(HostReport),
    Failed(Failed),
}

#[derive(Deserialize)]
struct HostReport {
    rootless: bool,
    checks: Vec<HostCheck>,
}

#[derive(Deserialize)]
struct HostCheck {
    name: String,
    ok: bool,
    required: bool,
    detail: String,
    remedy: String,
}

#[derive(Deserialize)]
struct Failed {
    message: String,
}

/// The runner, and what it finds of this host.
pub(super) async fn runner(global: &Global) -> Vec<Check> {
    let failed = |detail: String| {
        let check = Check::failed("runner", detail);
        vec![check.lost("no sandbox can be made").mend(BUILD)]
    };
    let Some(program) = find(global) else {
        return failed(format!(
            "{PROGRAM} is not beside this program and not on the PATH"
        ));
    };
    match probe(&program).await {
        Ok(report) => checks(report),
        Err(error) => failed(format!("{error:#}")),
    }
}

fn checks(report: HostReport) -> Vec<Check> {
    let mode = if report.rootless {
        "sandboxes are made without root"
    } else {
        "sandboxes are made as root"
    };
    let host = report.checks.into_iter().map(check);
    std::iter::once(Check::good("runner", mode))
        .chain(host)
        .collect()
}

fn check(told: HostCheck) -> Check {
    let HostCheck {
        name,
        ok,
        required,
        detail,
        remedy,
    } = told;
    let title = format!("host.{name}");
    if ok {
        return Check {
            required,
            ..Check::good(title, detail)
        };
    }
    let known = KNOWN.iter().find(|(known, ..)| *known == name);
    let (lost, command) = known.map_or(("", None), |(_, lost, command)| (*lost, *command));
    let check = if required { Check::failed } else { Check::weak };
    check(title, detail)
        .lost(lost)
        .mend(command.map_or(remedy, ToOwned::to_owned))
}

/// The runner that the local sandbox provider would take: configured, beside this program, or on the PATH.
fn find(global: &Global) -> Option<PathBuf> {
    let configured = config(global).ok().and_then(|config| {
        let block = config.sandbox.providers.get("local")?.value();
        Some(PathBuf::from(block.get("runner")?.as_str()?))
    });
    if configured.is_some() {
        return configured;
    }
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside
        .filter(|path| is_program(path))
        .or_else(|| on_path(PROGRAM))
}

async fn probe(program: &Path) -> anyhow::Result<HostReport> {
    let mut command = tokio::process::Command::new(program);
    command
        .arg("probe")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PROBE_TIMEOUT, command.output()).await;
    let output = output.map_err(|_| anyhow::anyhow!("{PROGRAM} probe did not end in time"))??;
    match serde_json::from_slice(&output.stdout) {
        Ok(Report::Ok(report)) => Ok(report),
        Ok(Report::Failed(failed)) => Err(anyhow::anyhow!("{PROGRAM} probe: {}", failed.message)),
        Err(_) => Err(anyhow::anyhow!(
            "{PROGRAM} probe answers something else ({})",
            output.status
        )),
    }
}

pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths::<OsStr>(path.as_os_str())
        .map(|folder| folder.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_tells_what_is_lost_and_how_to_mend_it() {
        for (name, ..) in KNOWN {
            let told = HostCheck {
                name: (*name).to_owned(),
                ok: false,
                required: false,
                detail: "not there".into(),
                remedy: "the runner's word".into(),
            };
            let check = check(told);
            assert!(
                !check.lost.is_empty() && !check.remedy.is_empty(),
                "{check:?}"
            );
        }
    }
}
