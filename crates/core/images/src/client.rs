//! The package clients: what they are given, and which one installs what.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use astrabox_engine::{NpmPackage, PythonPackages};
use async_trait::async_trait;

use crate::error::io_error;
use crate::process::{self, Finished, Invocation, RunError};
use crate::staging::Staging;
use crate::{Error, Progress, Result, Step, npm, pip};

/// Installs packages from a lock file, checking each against its hash.
#[async_trait]
pub(crate) trait PackageClient: Send + Sync + 'static {
    /// Installs into `job.project`.
    async fn install(&self, job: &InstallJob<'_>) -> Result<()>;
}

/// One installation.
pub(crate) struct InstallJob<'a> {
    /// The image's name, for messages.
    pub(crate) image: &'a str,
    /// What to install.
    pub(crate) packages: Packages<'a>,
    /// The empty folder to install into.
    pub(crate) project: &'a Path,
    /// The build's folder, for everything else that the client writes.
    pub(crate) staging: &'a Staging,
    /// The environment of the builder.
    pub(crate) environment: &'a Environment,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// Where its output goes.
    pub(crate) progress: &'a dyn Progress,
}

/// What one installation installs.
#[derive(Clone, Copy)]
pub(crate) enum Packages<'a> {
    /// By npm.
    Npm(&'a NpmPackage),
    /// By pip.
    Python(&'a PythonPackages),
}

/// The environment that a store was opened with. Has no Debug: proxies and npm settings hold passwords.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

/// The real clients.
pub(crate) struct Clients;

#[async_trait]
impl PackageClient for Clients {
    async fn install(&self, job: &InstallJob<'_>) -> Result<()> {
        match job.packages {
            Packages::Npm(package) => npm::install(job, package).await,
            Packages::Python(packages) => pip::install(job, packages).await,
        }
    }
}

/// Whether a variable of this name says which proxy to use.
pub(crate) fn is_proxy(name: &str) -> bool {
    const PROXIES: &[&str] = &["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
    PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
}

/// Runs a client in the project's folder.
pub(crate) async fn run(
    job: &InstallJob<'_>,
    (client, program): (&str, &Path),
    arguments: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    limit: Duration,
    on_line: &(dyn Fn(&str) + Send + Sync),
) -> Result<Finished> {
    let doing = |what: &str| format!("{what} {client}");
    let stdin = job.staging.stdin();
    let invocation = Invocation {
        program: program.to_owned(),
        arguments,
        env,
        dir: job.project.to_owned(),
        stdin: stdin.map_err(io_error(job.image, &doing("open the input of")))?,
        limit,
    };
    process::run(invocation, on_line)
        .await
        .map_err(|error| match error {
            RunError::Limit => Error::Deadline {
                image: job.image.to_owned(),
                step: Step::Install,
                limit,
            },
            RunError::Start(error) => io_error(job.image, &doing("start"))(error),
            RunError::Io(error) => io_error(job.image, &doing("read what is said by"))(error),
        })
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_process() -> Self {
        Self(env::vars_os().collect())
    }

    #[cfg(test)]
    pub(crate) fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    pub(crate) fn search_path(&self) -> &OsStr {
        self.get("PATH").unwrap_or_default()
    }

    /// All of it.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }
}
