//! Finds the role, or starts it.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::link::{Link, LinkError};
use crate::role::{ALREADY_RUNNING, LOG_FILE, RoleConfig};

/// What the role is started with.
const CONFIG_FILE: &str = "egress.json";

/// When the role's own log starts afresh, in bytes.
const MAX_LOG: u64 = 1024 * 1024;

/// How long to wait between two looks at a role that starts.
const LOOK: Duration = Duration::from_millis(5);

/// How long to wait before another attempt where a role is just ending.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection to the role, which is started when nobody listens and `argv` says how. The caller bounds the time.
pub(super) async fn find_or_start(
    config: &RoleConfig,
    argv: Option<&[OsString]>,
    instance: &str,
) -> Result<Link, LinkError> {
    let socket = config.socket();
    loop {
        match Link::connect(&socket, instance).await {
            Err(LinkError::Absent) => {}
            Err(LinkError::Broken(_)) => {
                // It was there and is about to go.
                sleep(AGAIN).await;
                continue;
            }
            result => return result,
        }
        let Some(argv) = argv else {
            return Err(LinkError::Absent);
        };
        let mut role = start(config.clone(), argv.to_vec()).await?;
        let status = match wait(&mut role, &socket, instance).await? {
            Waited::Ready(link) => return Ok(link),
            Waited::Ended(status) => status,
        };
        if status.code() != Some(i32::from(ALREADY_RUNNING)) {
            return Err(LinkError::Start(format!(
                "it ended with {status}; its {LOG_FILE} in the run directory says why"
            )));
        }
        // Another role has the place and does not answer, so it is about to go.
        sleep(AGAIN).await;
    }
}

enum Waited {
    Ready(Link),
    Ended(ExitStatus),
}

/// Waits for the role to listen, or to end.
async fn wait(role: &mut Child, socket: &Path, instance: &str) -> Result<Waited, LinkError> {
    loop {
        // Asked before the connection is tried: one that ended because another has the place finds that other.
        let ended = role.try_wait().map_err(start_error)?;
        match Link::connect(socket, instance).await {
            Ok(link) => return Ok(Waited::Ready(link)),
            Err(LinkError::Absent | LinkError::Broken(_)) => {}
            Err(error) => return Err(error),
        }
        if let Some(status) = ended {
            return Ok(Waited::Ended(status));
        }
        sleep(LOOK).await;
    }
}

fn start_error(error: io::Error) -> LinkError {
    // The kind, because the whole text may name a path of the host.
    LinkError::Start(error.kind().to_string())
}

/// Starts a role process. It is reaped when it ends, and not ended when its handle is dropped.
async fn start(config: RoleConfig, argv: Vec<OsString>) -> Result<Child, LinkError> {
    let program = argv.first().map(PathBuf::from).unwrap_or_default();
    if !program.is_absolute() {
        return Err(LinkError::Start(
            "its program must be given by an absolute path".to_owned(),
        ));
    }
    let prepare = move || prepare(&config);
    let (config_file, log) = tokio::task::spawn_blocking(prepare)
        .await
        .map_err(|_| LinkError::Start("the preparation panicked".to_owned()))?
        .map_err(start_error)?;
    let errors = log.try_clone().map_err(start_error)?;
    Command::new(program)
        .args(&argv[1..])
        .arg("--config-file")
        .arg(config_file)
        // Nothing that somebody put into the server's environment reaches the role. An empty LOCALDOMAIN turns
        // the search list off (resolv.conf(5), glibc): a name means itself, as it does in the policy.
        .env_clear()
        .env("LOCALDOMAIN", "")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .kill_on_drop(false)
        .spawn()
        .map_err(start_error)
}

/// Writes what the role reads, and opens what it writes to.
fn prepare(config: &RoleConfig) -> io::Result<(PathBuf, File)> {
    let config = RoleConfig {
        run_dir: std::path::absolute(&config.run_dir)?,
        audit_dir: std::path::absolute(&config.audit_dir)?,
        authority_dir: std::path::absolute(&config.authority_dir)?,
        egress: config.egress.clone(),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.run_dir)?;
    let config_file = config.run_dir.join(CONFIG_FILE);
    // Written aside and renamed, for a role that is started elsewhere at the same time.
    let aside = config
        .run_dir
        .join(format!("{CONFIG_FILE}.{}", uuid::Uuid::now_v7()));
    let mut file = private().create(true).truncate(true).open(&aside)?;
    file.write_all(&serde_json::to_vec(&config)?)?;
    std::fs::rename(&aside, &config_file)?;
    let log = config.run_dir.join(LOG_FILE);
    let log = private().create(true).append(true).open(log)?;
    if log.metadata()?.len() > MAX_LOG {
        log.set_len(0)?;
    }
    Ok((config_file, log))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}
