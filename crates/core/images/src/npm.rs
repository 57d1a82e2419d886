//! The package client npm: which command, with which environment, and what its failures mean.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use astrabox_engine::NpmPackage;

use crate::client::{Environment, InstallJob, is_proxy, run};
use crate::error::io_error;
use crate::process::Finished;
use crate::recipe::find_command;
use crate::{Error, Event, Result};

/// The first major version that reads lock files of version 3.
const LEAST_MAJOR: u32 = 7;
const VERSION_LIMIT: Duration = Duration::from_secs(60);
/// What shows the user where packages come from.
const SETTINGS: &str = "npm config get registry";

/// The settings on which the outcome depends, stronger than the user's own. Where packages come from, and
/// with which login, proxy and certificates, is the user's affair.
const ARGUMENTS: &[&str] = &[
    "ci",
    // Nothing of a package runs on this host, but for the recipe's own check.
    "--ignore-scripts",
    "--omit=dev",
    "--include=optional",
    "--install-strategy=hoisted",
    "--no-bin-links",
    "--no-global",
    "--prefix=.",
    "--package-lock",
    "--omit-lockfile-registry-resolved",
    "--no-dry-run",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--no-progress",
    "--no-color",
    "--loglevel=http",
];

/// What of the builder's environment the client gets, besides `npm_config_*`, proxies, and what the user's
/// npmrc names.
const PASSED: &[&str] = &[
    "PATH",
    // npmrc may say `~/`; caches and temporary files go to the staging folder all the same.
    "HOME",
    "LANG",
    "LC_ALL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_ENV_PROXY",
    "NODE_USE_SYSTEM_CA",
    // Version managers, whose `npm` is a launcher.
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "VOLTA_HOME",
];

/// npm's codes when no registry answered, as of npm 11.
const UNREACHED: &[&str] = &[
    "EAI_AGAIN",
    "ECONNABORTED",
    "ECONNECTIONTIMEOUT",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "EIDLETIMEOUT",
    "ENETUNREACH",
    "ENOTCACHED",
    "ENOTFOUND",
    "EPROTO",
    "ERESPONSETIMEOUT",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
    "ETRANSFERTIMEOUT",
    "FETCH_ERROR",
    "E500",
    "E502",
    "E503",
    "E504",
];

/// OpenSSL's codes, through node, when the registry's certificate is not trusted.
const UNTRUSTED: &[&str] = &[
    "CERT_HAS_EXPIRED",
    "CERT_NOT_YET_VALID",
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    "ERR_TLS_CERT_ALTNAME_INVALID",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "UNABLE_TO_GET_ISSUER_CERT",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
];

/// npm's codes, besides those of an HTTP status, when the registry does not give a package.
const REFUSED: &[&str] = &["ENEEDAUTH", "ENOVERSIONS", "ETARGET"];

/// Installs the packages of an npm lock file into the project.
pub(crate) async fn install(job: &InstallJob<'_>, package: &NpmPackage) -> Result<()> {
    let npm = find_command("npm", job.environment.search_path())?;
    let env = client_env(job)?;
    let version = ["--version".into()].to_vec();
    let told = run(
        job,
        ("npm", &npm),
        version,
        env.clone(),
        VERSION_LIMIT,
        &|_| (),
    )
    .await?;
    check_version(job.image, &told)?;

    let write = |name: &str, text: &str| {
        fs::write(job.project.join(name), text).map_err(io_error(
            job.image,
            &format!("write {name} of the installation"),
        ))
    };
    write("package.json", package.manifest)?;
    write("package-lock.json", package.lock)?;
    let code = Mutex::new(None);
    let on_line = |line: &str| {
        if let Some(found) = error_code(line) {
            code.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert_with(|| found.to_owned());
        }
        job.progress.report(Event::Output(line));
    };
    let arguments = ARGUMENTS.iter().map(OsString::from).collect();
    let ended = run(job, ("npm", &npm), arguments, env, job.limit, &on_line).await?;
    if ended.status.success() {
        return Ok(());
    }
    let code = code.into_inner().unwrap_or_else(PoisonError::into_inner);
    Err(failure(job.image, code, ended))
}

impl Environment {
    /// Whether npm would read this setting from here; it looks at names in any case.
    fn sets(&self, setting: &str) -> Option<&OsStr> {
        self.variables()
            .find(|(name, _)| {
                npm_setting(name).is_some_and(|name| name.eq_ignore_ascii_case(setting))
            })
            .map(|(_, value)| value.as_os_str())
    }

    /// The settings file of the user.
    fn npmrc(&self) -> Option<PathBuf> {
        match self.sets("userconfig") {
            Some(path) => Some(path.into()),
            None => self.get("HOME").map(|home| Path::new(home).join(".npmrc")),
        }
    }
}

fn client_env(job: &InstallJob<'_>) -> Result<Vec<(OsString, OsString)>> {
    let npmrc = job.environment.npmrc().map(fs::read);
    let npmrc = npmrc.and_then(std::result::Result::ok).unwrap_or_default();
    let npmrc = NpmrcFacts::of(&String::from_utf8_lossy(&npmrc));
    let folder = |name: &str| {
        job.staging
            .subdir(name)
            .map_err(io_error(job.image, "make a folder for npm"))
    };
    Ok(plan_env(
        job.environment,
        &npmrc,
        &folder("npm-cache")?,
        &folder("npm-tmp")?,
    ))
}

/// The client's whole environment.
fn plan_env(
    environment: &Environment,
    npmrc: &NpmrcFacts,
    cache: &Path,
    tmp: &Path,
) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<_, _> = environment
        .variables()
        .filter(|(name, _)| is_passed(name, npmrc))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.insert("TMPDIR".into(), tmp.into());
    if !npmrc.sets_cache && environment.sets("cache").is_none() {
        env.insert("npm_config_cache".into(), cache.into());
    }
    env.into_iter().collect()
}

fn is_passed(name: &OsStr, npmrc: &NpmrcFacts) -> bool {
    let Some(text) = name.to_str() else {
        return false;
    };
    PASSED.contains(&text)
        || npm_setting(name).is_some()
        || is_proxy(text)
        || npmrc.variables.iter().any(|variable| variable == text)
}

fn npm_setting(name: &OsStr) -> Option<&str> {
    const PREFIX: &str = "npm_config_";
    let name = name.to_str()?;
    let (prefix, setting) = name.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then_some(setting)
}

/// What must be known of the user's settings file so that it works in another environment.
#[derive(Debug, Default, PartialEq, Eq)]
struct NpmrcFacts {
    /// The variables that it names, as `${NAME}`.
    variables: Vec<String>,
    /// Whether it says where the cache is.
    sets_cache: bool,
}

impl NpmrcFacts {
    fn of(text: &str) -> Self {
        let mut facts = Self::default();
        for line in text.lines().map(str::trim) {
            if line.starts_with([';', '#']) {
                continue;
            }
            let key = line.split('=').next().unwrap_or_default().trim();
            facts.sets_cache |= key == "cache";
            let names = line.split("${").skip(1).filter_map(|rest| {
                let (name, _) = rest.split_once('}')?;
                name.split(['?', '-', ':']).next()
            });
            facts.variables.extend(names.map(str::to_owned));
        }
        facts
    }
}

fn check_version(image: &str, told: &Finished) -> Result<()> {
    // What env(1) says when the interpreter of npm's script is not there.
    if told.status.code() == Some(127) {
        return Err(Error::CommandMissing {
            command: "node".to_owned(),
            package: "nodejs".to_owned(),
        });
    }
    let version = told.lines.iter().rev().find_map(|line| {
        let major = line.trim().split('.').next()?.parse::<u32>().ok()?;
        Some((major, line.trim()))
    });
    match version {
        Some((major, _)) if told.status.success() && major >= LEAST_MAJOR => Ok(()),
        Some((_, found)) if told.status.success() => Err(Error::CommandTooOld {
            command: "npm",
            found: found.to_owned(),
            needed: LEAST_MAJOR,
        }),
        _ => Err(Error::InstallFailed {
            client: "npm",
            image: image.to_owned(),
            status: format!("npm --version: {}", told.status),
            output: told.lines.clone(),
        }),
    }
}

/// The code in npm's line `npm error code X`; before npm 10 it was `npm ERR! code X`.
fn error_code(line: &str) -> Option<&str> {
    line.strip_prefix("npm error code ")
        .or_else(|| line.strip_prefix("npm ERR! code "))
        .map(str::trim)
        .filter(|code| !code.is_empty())
}

fn failure(image: &str, code: Option<String>, ended: Finished) -> Error {
    let image = image.to_owned();
    let output = ended.lines;
    let Some(code) = code else {
        return Error::InstallFailed {
            client: "npm",
            image,
            status: ended.status.to_string(),
            output,
        };
    };
    match code.as_str() {
        "EINTEGRITY" => Error::HashMismatch {
            settings: SETTINGS,
            image,
            output,
        },
        "ENOSPC" | "EDQUOT" => Error::NoSpace { image },
        known if UNREACHED.contains(&known) => Error::NoNetwork {
            settings: SETTINGS,
            image,
            code,
            output,
        },
        known if UNTRUSTED.contains(&known) => Error::Untrusted {
            remedy: "`cafile` in npm's settings",
            image,
            code,
            output,
        },
        known if REFUSED.contains(&known) || is_client_error(known) => Error::RegistryRefused {
            settings: SETTINGS,
            image,
            code,
            output,
        },
        _ => Error::InstallFailed {
            client: "npm",
            image,
            status: code,
            output,
        },
    }
}

/// Whether this is npm's code of an HTTP status from 400 to 499.
fn is_client_error(code: &str) -> bool {
    let digits = code.strip_prefix("E4").unwrap_or_default();
    digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
