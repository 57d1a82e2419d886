//! What this host has: the runner, what the kernel allows, the commands that recipes need.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use super::Check;
use crate::args::Global;
use crate::connect::config;
use crate::image::engines;

const PROGRAM: &str = "astrabox-runner";
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

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
    let Some(program) = find(global) else {
        return vec![Check::bad(
            "runner",
            true,
            format!("{PROGRAM} is not beside this program and not on the PATH"),
            "build it (cargo build -p astrabox-runner), or set sandbox.local.runner",
        )];
    };
    match probe(&program).await {
        Ok(report) => checks(report),
        Err(error) => vec![Check::bad(
            "runner",
            true,
            format!("{error:#}"),
            "build it anew",
        )],
    }
}

fn checks(report: HostReport) -> Vec<Check> {
    let mode = if report.rootless {
        "sandboxes are made without root"
    } else {
        "sandboxes are made as root"
    };
    let host = report.checks.into_iter().map(
        |HostCheck {
             name,
             ok,
             required,
             detail,
             remedy,
         }| Check {
            name: format!("host.{name}"),
            ok,
            required,
            detail,
            remedy,
        },
    );
    std::iter::once(Check::good("runner", mode))
        .chain(host)
        .collect()
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

/// What each engine's recipe needs of this host.
pub(super) fn recipes() -> anyhow::Result<Vec<Check>> {
    let mut checks = Vec::new();
    for engine in engines()?.iter() {
        let adapter = engine.adapter();
        let recipe = adapter.image_recipe();
        let name = format!("recipe.{}", adapter.kind());
        let missing: Vec<_> = recipe
            .commands
            .iter()
            .filter(|command| on_path(command).is_none())
            .copied()
            .collect();
        checks.push(if !recipe.architectures.contains(&std::env::consts::ARCH) {
            let detail = format!(
                "{} does not run on {}",
                adapter.kind(),
                std::env::consts::ARCH
            );
            Check::bad(
                name,
                false,
                detail,
                format!("use a host with {}", recipe.architectures.join(" or ")),
            )
        } else if missing.is_empty() {
            Check::good(
                name,
                format!("commands found: {}", recipe.commands.join(", ")),
            )
        } else {
            Check::bad(
                name,
                false,
                format!("not on the PATH: {}", missing.join(", ")),
                "install them to build the image",
            )
        });
    }
    Ok(checks)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths::<OsStr>(path.as_os_str())
        .map(|folder| folder.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
