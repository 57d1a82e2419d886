//! The role: one process, or one part of a process, that answers for the sandboxes of one root.

mod confine;
mod place;
mod user;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit::{AuditSender, AuditWriter};
use crate::config::{EgressConfig, InvalidConfig};
use crate::control::RoleInfo;
use crate::control::server::{self, Control};
use crate::resolve::{Resolver, SystemResolver};
use crate::services::Services;
use crate::tls::Interception;
use crate::workloads::Workloads;
use place::Place;

pub(crate) use place::{LOG_FILE, SOCKET};
pub use user::InvalidUser;

/// How often the role looks whether its directory is still there.
const LOOK_AROUND: Duration = Duration::from_secs(2);

/// What a role is started with. Holds no secret, so it may lie in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleConfig {
    /// Where the control socket, the lock and the role's own log are. One role per directory. It is made with mode
    /// 0700 when it is missing; its path is at most 90 bytes long, because a socket's path is.
    pub run_dir: PathBuf,
    /// Where the audit log is. It is made with mode 0700 when it is missing, and given to the role's user.
    pub audit_dir: PathBuf,
    /// Where the key and the certificate are that sign for the hosts at which TLS is ended. It is made with mode
    /// 0700 when it is missing, stays with the user that starts the role, and is read before the role gives up its
    /// rights: neither a sandbox nor the role's own user can read it.
    pub authority_dir: PathBuf,
    /// The operator's settings.
    #[serde(default)]
    pub egress: EgressConfig,
}

impl RoleConfig {
    /// Reads a file that a launcher wrote, in JSON.
    ///
    /// # Errors
    /// When it cannot be read or is not a role's configuration.
    pub fn read(path: &Path) -> Result<Self, RoleError> {
        let text = std::fs::read(path).map_err(|source| RoleError::Io {
            what: "read the role's configuration",
            source,
        })?;
        serde_json::from_slice(&text).map_err(RoleError::Unreadable)
    }

    /// Where the role listens for its servers.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join(SOCKET)
    }
}

/// Why a role cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// There is one for this directory already. It is as good as this one would be.
    #[error("an egress role is running for this directory already")]
    AlreadyRunning,
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The configuration file is wrong.
    #[error("the role's configuration is not valid")]
    Unreadable(#[source] serde_json::Error),
    /// `egress.user` is wrong.
    #[error(transparent)]
    User(#[from] InvalidUser),
    /// Others could replace the control socket.
    #[error("the {what} directory belongs to or is writable by other users; make it mode 0700")]
    Exposed {
        /// Which one.
        what: &'static str,
    },
    /// The run directory's path is too long for a socket.
    #[error("the path of the control socket is too long; choose a shorter run directory")]
    PathTooLong,
    /// Rights are dropped by thread, so there must be no other.
    #[error("the egress role must be built before the process has threads")]
    Threads,
    /// The system refuses something.
    #[error("cannot {what}")]
    Io {
        /// What it refuses.
        what: &'static str,
        /// How.
        #[source]
        source: std::io::Error,
    },
}

impl RoleError {
    /// What a role process exits with: 75 when another role has the place, as `sysexits.h` calls a failure that
    /// is no fault, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::AlreadyRunning => ALREADY_RUNNING,
            _ => 1,
        }
    }

    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// The exit code of a role that finds another one in its place.
pub(crate) const ALREADY_RUNNING: u8 = 75;

/// Why a role has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleExit {
    /// It was told to.
    Shutdown,
    /// It had neither a sandbox nor a server for the grace, or was drained.
    Idle,
    /// Its directory was removed.
    RootRemoved,
}

/// A role that is ready to serve.
pub struct EgressRole {
    place: Place,
    listener: UnixListener,
    owner: u32,
    services: Arc<Services>,
    audit: AuditWriter,
}

/// What was opened with the rights that the role gives up.
struct Opened {
    listener: UnixListener,
    audit: OwnedFd,
    interception: Interception,
    owner: u32,
}

impl Opened {
    fn open(
        config: &RoleConfig,
        place: &Place,
        identity: Option<user::Identity>,
    ) -> Result<Self, RoleError> {
        let authority = place::authority_dir(&config.authority_dir)?;
        Ok(Self {
            listener: place.listen()?,
            audit: place::audit_dir(&config.audit_dir, identity)?,
            interception: Interception::load(&authority)
                .map_err(RoleError::io("read or make the authority's key"))?,
            owner: rustix::process::geteuid().as_raw(),
        })
    }
}

impl EgressRole {
    /// Takes the role's place and gives up every right that the role does not need: its own session, no new
    /// privileges, no core dumps, not traceable, and when started by root the user of `egress.user`.
    ///
    /// Call it in a process of its own, before the process has a second thread (a tokio runtime has).
    ///
    /// # Errors
    /// [`RoleError::AlreadyRunning`] when the place is taken; the others name what is wrong.
    pub fn build(config: RoleConfig) -> Result<Self, RoleError> {
        config.egress.check()?;
        let identity = user::choose(config.egress.user.as_deref())?;
        confine::own_session();
        let place = Place::take(&config.run_dir)?;
        let opened = Opened::open(&config, &place, identity)?;
        confine::confine(identity)?;
        let resolver = Arc::new(SystemResolver::default());
        Self::assemble(config, place, opened, resolver)
    }

    /// A role inside a process that does other things as well, with all the rights of that process. For embedders
    /// without a program of their own for the role, and for tests: connections end with the process.
    ///
    /// # Errors
    /// As [`EgressRole::build`].
    pub fn build_embedded(
        config: RoleConfig,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, RoleError> {
        config.egress.check()?;
        let place = Place::take(&config.run_dir)?;
        let opened = Opened::open(&config, &place, None)?;
        Self::assemble(config, place, opened, resolver)
    }

    fn assemble(
        config: RoleConfig,
        place: Place,
        opened: Opened,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, RoleError> {
        let (sender, audit): (AuditSender, _) =
            AuditWriter::start(opened.audit).map_err(RoleError::io("open the audit log"))?;
        Ok(Self {
            place,
            listener: opened.listener,
            owner: opened.owner,
            services: Services::new(config.egress, resolver, sender, opened.interception),
            audit,
        })
    }

    /// Serves until `shutdown`, or until there is nothing to do any more. Everything is closed when it returns.
    ///
    /// # Errors
    /// When the control socket cannot be served.
    pub async fn run(self, shutdown: CancellationToken) -> Result<RoleExit, RoleError> {
        let Self {
            place,
            listener,
            owner,
            services,
            audit,
        } = self;
        let listener = tokio::net::UnixListener::from_std(listener)
            .map_err(RoleError::io("serve the control socket"))?;
        let workloads = Arc::new(Workloads::new(services));
        let shutdown = shutdown.child_token();
        let control = Arc::new(Control {
            workloads: Arc::clone(&workloads),
            info: RoleInfo {
                instance: uuid::Uuid::now_v7().to_string(),
                pid: std::process::id(),
                uid: rustix::process::geteuid().as_raw(),
                program: concat!("astrabox-egress-proxy/", env!("CARGO_PKG_VERSION")).to_owned(),
            },
            owner,
            shutdown: shutdown.clone(),
        });
        tracing::info!(
            pid = control.info.pid,
            uid = control.info.uid,
            "the egress role serves"
        );
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, control, stop.clone()));
        let exit = tokio::select! {
            biased;
            () = shutdown.cancelled() => RoleExit::Shutdown,
            exit = watch(&workloads, &place) => exit,
        };
        // The control connections end last: their end tells that everything is closed.
        workloads.close_all().await;
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        place.leave();
        drop(workloads);
        // The writer ends when the last sender, which the workloads held, is gone.
        if tokio::task::spawn_blocking(|| audit.join()).await.is_err() {
            tracing::error!("the audit writer was not joined");
        }
        tracing::info!(?exit, "the egress role has ended");
        Ok(exit)
    }
}

/// Ends what has no server any more, and tells when the whole role has nothing to do.
async fn watch(workloads: &Workloads, place: &Place) -> RoleExit {
    loop {
        workloads.expire().await;
        if workloads.is_over() {
            return RoleExit::Idle;
        }
        if place.is_removed() {
            return RoleExit::RootRemoved;
        }
        let look = Instant::now() + LOOK_AROUND;
        let next = workloads.next_deadline().map_or(look, |due| due.min(look));
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = workloads.changed.notified() => {}
        }
    }
}

/// The whole life of a role process: reads `config_file`, builds the role, and serves until SIGTERM or SIGINT, or
/// until there is nothing to do any more. Call it first in `main`, before there are threads.
///
/// # Errors
/// As [`EgressRole::build`]; exit with [`RoleError::exit_code`].
pub fn role_main(config_file: &Path) -> Result<RoleExit, RoleError> {
    let role = EgressRole::build(RoleConfig::read(config_file)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("egress")
        .enable_all()
        .build()
        .map_err(RoleError::io("start the runtime"))?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = RoleError::io;
        let mut terminate =
            signal(SignalKind::terminate()).map_err(listen("listen for signals"))?;
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(listen("listen for signals"))?;
        let shutdown = CancellationToken::new();
        let ask = shutdown.clone();
        let signals = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            ask.cancel();
            std::future::pending().await
        };
        tokio::select! {
            exit = role.run(shutdown) => exit,
            never = signals => never,
        }
    })
}

#[cfg(test)]
mod tests;
