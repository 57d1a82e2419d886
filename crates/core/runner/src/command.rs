//! The commands of `astrabox-runner`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use astrabox_runner_protocol::launch::{
    self, Cleaned, Failure, FailureKind, HostCheck, HostReport, LaunchSpec, Report, SpecError,
};
use astrabox_runner_protocol::state::StateDir;
use astrabox_types::PermissionLevel;
use serde::Serialize;

use crate::isolation::{
    self, BoxSpec, IsolationError, destroy_leftovers, prepare_volume, probe_host,
};
use crate::records::Records;
use crate::sandbox::with_source;
use crate::{daemon, serve};

const USAGE: &str = "usage: astrabox-runner run SPEC | clean SPEC | probe | \
                     prepare-volume CACHE PLACE BYTES | --version";

/// Runs the program with the arguments after its name. See [`launch`] for what the commands take and
/// answer.
///
/// Must be called by the only thread, before anything is opened.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    daemon::close_inherited();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let texts: Vec<&str> = arguments
        .iter()
        .map(|text| text.to_str().unwrap_or("?"))
        .collect();
    match (texts.as_slice(), arguments.as_slice()) {
        (["run", _], [_, spec]) => serve::run(Path::new(spec)),
        (["clean", _], [_, spec]) => answer(&clean(Path::new(spec))),
        (["probe"], _) => answer(&Report::Ok(probe())),
        (["prepare-volume", _, _, bytes], [_, cache, place, _]) => {
            answer(&prepare(Path::new(cache), Path::new(place), bytes))
        }
        (["--version"], _) => print(concat!(env!("CARGO_PKG_VERSION"), "\n").as_bytes()),
        _ => {
            let failure = Failure {
                kind: FailureKind::InvalidSpec,
                message: USAGE.into(),
            };
            answer::<Cleaned>(&Report::Failed(failure))
        }
    }
}

fn answer<T: Serialize>(report: &Report<T>) -> ExitCode {
    let printed = print(&report.line());
    if matches!(report, Report::Ok(_)) {
        printed
    } else {
        ExitCode::FAILURE
    }
}

fn print(line: &[u8]) -> ExitCode {
    match std::io::stdout().write_all(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Removes what a dead runner left.
fn clean(path: &Path) -> Report<Cleaned> {
    let cleaned = || {
        let spec = LaunchSpec::read(path).map_err(|error| unusable(&error))?;
        // Held to the end, so that no runner starts meanwhile. Without its directory none could.
        let _records = match Records::take(StateDir::new(&spec.state_dir)) {
            Ok(records) => Some(records.ok_or_else(busy)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(state(&error)),
        };
        match destroy_leftovers(&box_spec(&spec)) {
            // The processes of this box are proven dead, so another box has the volume now: it was given away
            // after the runner's death.
            Ok(()) | Err(IsolationError::VolumeBusy) => {}
            Err(error) => return Err(isolation_failure(&error)),
        }
        for socket in [spec.runner_socket(), spec.egress_socket()] {
            serve::remove_socket(&socket).map_err(|error| state(&error))?;
        }
        Ok(Cleaned {})
    };
    match cleaned() {
        Ok(cleaned) => Report::Ok(cleaned),
        Err(failure) => Report::Failed(failure),
    }
}

fn probe() -> HostReport {
    let report = probe_host();
    let checks = report.checks.into_iter();
    HostReport {
        rootless: report.rootless,
        checks: checks
            .map(|check| HostCheck {
                name: check.name,
                ok: check.ok,
                required: check.required,
                detail: check.detail,
                remedy: check.remedy,
            })
            .collect(),
    }
}

fn prepare(cache: &Path, place: &Path, bytes: &str) -> Report<launch::Volume> {
    let Ok(bytes) = bytes.parse() else {
        let failure = Failure {
            kind: FailureKind::InvalidSpec,
            message: USAGE.into(),
        };
        return Report::Failed(failure);
    };
    match prepare_volume(cache, place, bytes) {
        Ok(isolation::Volume::LoopImage { path }) => Report::Ok(launch::Volume::LoopImage { path }),
        Ok(isolation::Volume::Directory { path }) => Report::Ok(launch::Volume::Directory { path }),
        Err(error) => Report::Failed(isolation_failure(&error)),
    }
}

/// The part of a launch that is the box.
pub(crate) fn box_spec(spec: &LaunchSpec) -> BoxSpec {
    BoxSpec {
        sandbox_id: spec.sandbox_id.clone(),
        root_id: spec.root_id.clone(),
        run_dir: spec.run_dir.clone(),
        base: match &spec.base {
            launch::Base::Host => isolation::Base::Host,
            launch::Base::Dir(path) => isolation::Base::Dir(path.clone()),
        },
        image: spec.image.clone(),
        volume: match &spec.volume {
            launch::Volume::LoopImage { path } => {
                isolation::Volume::LoopImage { path: path.clone() }
            }
            launch::Volume::Directory { path } => {
                isolation::Volume::Directory { path: path.clone() }
            }
        },
        host_uid: spec.host_uid,
        limits: isolation::Limits {
            memory_bytes: spec.limits.memory_bytes,
            pids: spec.limits.pids,
            cpu_millis: spec.limits.cpu_millis,
            disk_bytes: spec.limits.disk_bytes,
            file_bytes: spec.limits.file_bytes,
        },
        level: match spec.level {
            PermissionLevel::Default => isolation::PermissionLevel::Default,
            PermissionLevel::Advanced => isolation::PermissionLevel::Advanced,
        },
        hostname: spec.hostname.clone(),
        egress_port: spec.egress_port,
    }
}

/// Why a spec was not taken.
pub(crate) fn unusable(error: &SpecError) -> Failure {
    let kind = match error {
        SpecError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            FailureKind::NotFound
        }
        _ => FailureKind::InvalidSpec,
    };
    Failure {
        kind,
        message: error.to_string(),
    }
}

/// Another runner has the state directory.
pub(crate) fn busy() -> Failure {
    Failure {
        kind: FailureKind::Busy,
        message: "a runner serves this sandbox already; connect to it".into(),
    }
}

/// The state directory or the run directory does not do.
pub(crate) fn state(error: &std::io::Error) -> Failure {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => FailureKind::NotFound,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            FailureKind::Exhausted
        }
        _ => FailureKind::Internal,
    };
    Failure {
        kind,
        message: format!("state directory: {error}"),
    }
}

/// Why there is no box.
pub(crate) fn isolation_failure(error: &IsolationError) -> Failure {
    let of_errno = |source: &std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => FailureKind::NotFound,
        std::io::ErrorKind::StorageFull
        | std::io::ErrorKind::QuotaExceeded
        | std::io::ErrorKind::OutOfMemory => FailureKind::Exhausted,
        _ => FailureKind::Internal,
    };
    let kind = match error {
        IsolationError::InvalidSpec { .. } | IsolationError::InvalidRequest { .. } => {
            FailureKind::InvalidSpec
        }
        IsolationError::Unavailable { .. } => FailureKind::Unsupported,
        IsolationError::VolumeBusy | IsolationError::BoxExists => FailureKind::Busy,
        IsolationError::System { source, .. } | IsolationError::Setup { source, .. } => {
            of_errno(source)
        }
        _ => FailureKind::Internal,
    };
    Failure {
        kind,
        message: with_source(error),
    }
}

/// Paths that have to be absolute, because the runner leaves the directory that it was started in.
pub(crate) fn absolute(spec: &LaunchSpec) -> Result<(), Failure> {
    let paths: [(&str, &PathBuf); 2] = [("run_dir", &spec.run_dir), ("state_dir", &spec.state_dir)];
    for (name, path) in paths {
        if !path.is_absolute() {
            let message = format!("launch spec: {name} must be an absolute path");
            return Err(Failure {
                kind: FailureKind::InvalidSpec,
                message,
            });
        }
    }
    Ok(())
}
