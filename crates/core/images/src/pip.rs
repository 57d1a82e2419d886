//! The package client pip: which command, with which environment, and what its failures mean.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use astrabox_engine::PythonPackages;

use crate::client::{Environment, InstallJob, is_proxy, run};
use crate::error::io_error;
use crate::process::Finished;
use crate::recipe::find_command;
use crate::{Error, Event, Result};

/// The Python of the sandboxes, and so the one that installs for them. One from elsewhere on the search path would
/// choose packages for another version.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Where the packages go, below the project and, where a sandbox runs them, below the image's root.
pub(crate) const TARGET: &str = "python";
/// The name of that Python in a recipe's check.
pub(crate) const IN_BOX: &str = "python3";
/// Making the environment that pip runs in.
const PREPARE_LIMIT: Duration = Duration::from_secs(120);
const COMPILE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The settings on which the outcome depends, stronger than the user's own. Where packages come from, and
/// with which login, proxy and certificates, is the user's affair.
const ARGUMENTS: &[&str] = &[
    "-m",
    "pip",
    "install",
    "--require-hashes",
    // Nothing of a package runs on this host, but for the recipe's own check.
    "--only-binary=:all:",
    // The lock names all.
    "--no-deps",
    "--no-compile",
    "--no-warn-script-location",
    "--disable-pip-version-check",
    "--no-input",
    "--no-color",
    "--progress-bar=off",
    "--target",
    TARGET,
    "--requirement",
    "requirements.lock",
];

/// What of the builder's environment the client gets, besides `PIP_*` and proxies.
const PASSED: &[&str] = &[
    "PATH",
    // For pip's configuration and .netrc.
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "LANG",
    "LC_ALL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Variables of pip that would change what is installed, or where.
const REFUSED_SETTINGS: &[&str] = &[
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_REQUIREMENT",
    "PIP_CONSTRAINT",
    "PIP_NO_BINARY",
    "PIP_ONLY_BINARY",
    "PIP_PLATFORM",
    "PIP_PYTHON",
    "PIP_PYTHON_VERSION",
    "PIP_IMPLEMENTATION",
    "PIP_ABI",
    "PIP_LOG",
    "PIP_CACHE_DIR",
];

/// Installs the packages of a requirements lock below `python` in the project.
pub(crate) async fn install(job: &InstallJob<'_>, packages: &PythonPackages) -> Result<()> {
    let python = Path::new(PYTHON);
    if !python.exists() {
        // Tells the package; a Python elsewhere would not do.
        find_command("python3", "/usr/bin".as_ref())?;
    }
    let env = client_env(job)?;
    let lock = job.project.join("requirements.lock");
    fs::write(&lock, packages.requirements).map_err(io_error(
        job.image,
        "write requirements.lock of the installation",
    ))?;
    let pip = environment(job, python, &env).await?;
    let cause = Mutex::new(None);
    let on_line = |line: &str| {
        if let Some(found) = Cause::of(line) {
            let mut cause = cause.lock().unwrap_or_else(PoisonError::into_inner);
            *cause = (*cause).max(Some(found));
        }
        job.progress.report(Event::Output(line));
    };
    let arguments = ARGUMENTS.iter().map(OsString::from).collect();
    let ended = run(
        job,
        ("pip", &pip),
        arguments,
        env.clone(),
        job.limit,
        &on_line,
    )
    .await?;
    if !ended.status.success() {
        let cause = cause.into_inner().unwrap_or_else(PoisonError::into_inner);
        return Err(failure(job.image, cause, ended));
    }
    if packages.runs_in_box {
        compile(job, &pip, env).await?;
    }
    Ok(())
}

/// Makes an environment with pip in it: the system's own Python need not have one.
async fn environment(
    job: &InstallJob<'_>,
    python: &Path,
    env: &[(OsString, OsString)],
) -> Result<PathBuf> {
    let folder = job.staging.path().join("venv");
    let arguments = ["-m".into(), "venv".into(), folder.clone().into()].to_vec();
    let made = run(
        job,
        ("python3", python),
        arguments,
        env.to_vec(),
        PREPARE_LIMIT,
        &|_| (),
    )
    .await?;
    if made.status.success() {
        return Ok(folder.join("bin/python"));
    }
    if made.lines.iter().any(|line| line.contains("ensurepip")) {
        return Err(Error::CommandMissing {
            command: "python3 -m venv".to_owned(),
            package: "python3-venv".to_owned(),
        });
    }
    Err(Error::InstallFailed {
        client: "python3 -m venv",
        image: job.image.to_owned(),
        status: made.status.to_string(),
        output: made.lines,
    })
}

/// Compiles the modules, so that a sandbox need not at each start. Their code is found by hash and not by time: files
/// of an image have the time of its build. A module for another Python than this one stays as it is.
async fn compile(
    job: &InstallJob<'_>,
    python: &Path,
    env: Vec<(OsString, OsString)>,
) -> Result<()> {
    let arguments = [
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        "--invalidation-mode",
        "unchecked-hash",
        TARGET,
    ];
    let arguments = arguments.iter().map(OsString::from).collect();
    run(
        job,
        ("compileall", python),
        arguments,
        env,
        COMPILE_LIMIT,
        &|_| (),
    )
    .await?;
    Ok(())
}

fn client_env(job: &InstallJob<'_>) -> Result<Vec<(OsString, OsString)>> {
    let folder = |name: &str| {
        job.staging
            .subdir(name)
            .map_err(io_error(job.image, "make a folder for pip"))
    };
    Ok(plan_env(
        job.environment,
        &folder("pip-cache")?,
        &folder("pip-tmp")?,
    ))
}

/// The client's whole environment.
fn plan_env(environment: &Environment, cache: &Path, tmp: &Path) -> Vec<(OsString, OsString)> {
    let passed = environment.variables().filter(|(name, _)| {
        let name = name.to_str().unwrap_or_default();
        let setting = name.starts_with("PIP_") && !REFUSED_SETTINGS.contains(&name);
        PASSED.contains(&name) || setting || is_proxy(name)
    });
    let mut env: Vec<_> = passed
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.extend([
        ("TMPDIR".into(), tmp.into()),
        ("PIP_CACHE_DIR".into(), cache.into()),
        ("PYTHONNOUSERSITE".into(), "1".into()),
    ]);
    env
}

/// Why pip failed, as far as its words tell; a later one says more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// The index does not have it, or not for this machine.
    Refused,
    /// The index was not reached.
    Unreached,
    /// Its certificate is not trusted.
    Untrusted,
    /// A package is another one.
    Hash,
    /// The disk is full.
    Space,
}

impl Cause {
    /// The words of pip 23 to 25.
    fn of(line: &str) -> Option<Self> {
        const WORDS: &[(&str, Cause)] = &[
            ("DO NOT MATCH THE HASHES", Cause::Hash),
            ("No space left on device", Cause::Space),
            ("Disk quota exceeded", Cause::Space),
            ("CERTIFICATE_VERIFY_FAILED", Cause::Untrusted),
            ("after connection broken by", Cause::Unreached),
            ("No matching distribution found", Cause::Refused),
            ("401 Client Error", Cause::Refused),
            ("403 Client Error", Cause::Refused),
            ("404 Client Error", Cause::Refused),
        ];
        let found = WORDS.iter().find(|(words, _)| line.contains(words));
        found.map(|(_, cause)| *cause)
    }
}

fn failure(image: &str, cause: Option<Cause>, ended: Finished) -> Error {
    let (image, output) = (image.to_owned(), ended.lines);
    let settings = "pip config list";
    let code = |text: &str| text.to_owned();
    match cause {
        Some(Cause::Hash) => Error::HashMismatch {
            settings,
            image,
            output,
        },
        Some(Cause::Space) => Error::NoSpace { image },
        Some(Cause::Unreached) => Error::NoNetwork {
            settings,
            image,
            code: code("connection broken"),
            output,
        },
        Some(Cause::Untrusted) => Error::Untrusted {
            remedy: "`cert` in pip's settings",
            image,
            code: code("CERTIFICATE_VERIFY_FAILED"),
            output,
        },
        Some(Cause::Refused) => Error::RegistryRefused {
            settings,
            image,
            code: code("no matching distribution"),
            output,
        },
        None => Error::InstallFailed {
            client: "pip",
            image,
            status: ended.status.to_string(),
            output,
        },
    }
}

#[cfg(test)]
mod tests;
