//! The server's side: the egress gate over the control socket.

mod keeper;
mod launch;
mod link;
mod roots;

use std::ffi::OsString;
use std::time::Duration;

use astrabox_egress::{CredentialPlan, EgressPolicy};
use astrabox_sandbox::{
    BoundaryState, CredentialValues, EgressCredentials, EgressGate, EgressListener, EgressWorkload,
    Error, ErrorKind, Result,
};
use astrabox_types::SandboxId;
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::control::{Reply, Request, RoleInfo, WorkloadStatus};
use crate::credentials::Credentials;
use crate::role::RoleConfig;
use keeper::{Action, Command, Done, Keeper};
use link::{Link, LinkError};

/// How many calls may wait for their turn.
const QUEUE: usize = 64;

/// How the gate reaches its role.
#[derive(Debug, Clone)]
pub struct GateOptions {
    /// The role's directories, and the settings that it is given.
    pub role: RoleConfig,
    /// The program that runs the role, by its absolute path, and its first arguments; `--config-file <file>` is
    /// added. Nothing when somebody else runs the role, as an embedder does.
    pub argv: Option<Vec<OsString>>,
    /// How long things may take.
    pub deadlines: GateDeadlines,
}

impl GateOptions {
    /// The usual deadlines.
    #[must_use]
    pub fn new(role: RoleConfig, argv: Option<Vec<OsString>>) -> Self {
        Self {
            role,
            argv,
            deadlines: GateDeadlines::default(),
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct GateDeadlines {
    /// Starting a role and shaking hands with it.
    pub start: Duration,
    /// One call, to a role that runs.
    pub call: Duration,
}

impl Default for GateDeadlines {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(10),
            call: Duration::from_secs(10),
        }
    }
}

/// The egress gate over a role in a process of its own.
///
/// It keeps a connection to the role, which tells the role that the server lives. When the connection is lost it
/// connects again, starts the role again where it may, and opens again what is open; it keeps a copy of each
/// listener for that. Every call may be repeated.
pub struct EgressGateClient {
    commands: mpsc::Sender<Command>,
    keeper: tokio::sync::Mutex<JoinSet<()>>,
    patience: Duration,
}

/// Finds the role of `config`, or starts it with `argv` as [`GateOptions::argv`] says, and waits until it answers.
///
/// The role is a session of its own and goes on when the caller ends.
///
/// # Errors
/// When it cannot be started or does not answer within `deadline`.
pub async fn spawn_role(
    config: &RoleConfig,
    argv: &[OsString],
    deadline: Duration,
) -> Result<RoleInfo> {
    let start = launch::find_or_start(config, Some(argv), link::OBSERVER);
    match tokio::time::timeout(deadline, start).await {
        Ok(Ok(link)) => Ok(link.info),
        Ok(Err(error)) => Err(error.into_sandbox_error("spawn_role")),
        Err(_) => Err(LinkError::Deadline.into_sandbox_error("spawn_role")),
    }
}

/// What the role of `config` says of itself and of its sandboxes, for people who look; nothing when none runs.
/// Changes nothing.
///
/// # Errors
/// When it does not answer within `deadline`.
pub async fn inspect_role(
    config: &RoleConfig,
    deadline: Duration,
) -> Result<Option<(RoleInfo, Vec<WorkloadStatus>)>> {
    let inspect = async {
        let mut link = match Link::connect(&config.socket(), link::OBSERVER).await {
            Err(LinkError::Absent) => return Ok(None),
            link => link?,
        };
        match link.call(&Request::List {}, None).await? {
            Reply::Workloads { workloads } => Ok(Some((link.info, workloads))),
            reply => Err(link::unexpected(reply)),
        }
    };
    match tokio::time::timeout(deadline, inspect).await {
        Ok(result) => result.map_err(|error| error.into_sandbox_error("inspect_role")),
        Err(_) => Err(LinkError::Deadline.into_sandbox_error("inspect_role")),
    }
}

impl EgressGateClient {
    /// Finds or starts the role and takes the operator's settings to it.
    ///
    /// # Errors
    /// When there is no role and none can be started, or when it speaks another version.
    pub async fn connect(options: GateOptions) -> Result<Self> {
        let deadlines = options.deadlines;
        let (commands, receiver) = mpsc::channel(QUEUE);
        let mut keeper = JoinSet::new();
        keeper.spawn(Keeper::new(options, receiver).run());
        let client = Self {
            commands,
            keeper: tokio::sync::Mutex::new(keeper),
            // A call may find the role gone, start it, and be sent a second time.
            patience: 2 * (deadlines.start + deadlines.call),
        };
        client.ask("connect", Action::Connect).await?;
        Ok(client)
    }

    /// What the role says of its sandboxes; nothing when no role runs.
    ///
    /// # Errors
    /// When the role does not answer.
    pub async fn list(&self) -> Result<Vec<WorkloadStatus>> {
        match self.ask("list", Action::List).await? {
            Done::Workloads(workloads) => Ok(workloads),
            Done::Plain | Done::Authority(_) => Ok(Vec::new()),
        }
    }

    /// Lets the role end as soon as it has no sandbox.
    ///
    /// # Errors
    /// When the role does not answer.
    pub async fn drain(&self) -> Result<()> {
        self.ask("drain", Action::Drain).await.map(drop)
    }

    /// Ends the role and everything that is open.
    ///
    /// # Errors
    /// When the role does not answer.
    pub async fn shutdown_role(&self) -> Result<()> {
        self.ask("shutdown_role", Action::Shutdown).await.map(drop)
    }

    /// Ends this client and its connection; the role goes on, and its sandboxes are orphans from now on. Dropping
    /// the client does the same without waiting for it.
    pub async fn disconnect(&self) {
        // It fails when the keeper has ended already.
        let _ = self.ask("disconnect", Action::Disconnect).await;
        let mut keeper = self.keeper.lock().await;
        while keeper.join_next().await.is_some() {}
    }

    async fn ask(&self, operation: &'static str, action: Action) -> Result<Done> {
        let ended = || Error::new(ErrorKind::Detached, operation, "the gate is disconnected");
        let (answer, answered) = oneshot::channel();
        let ask = async {
            let command = Command {
                operation,
                action,
                answer,
            };
            self.commands.send(command).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())?
        };
        match tokio::time::timeout(self.patience, ask).await {
            Ok(result) => result,
            Err(_) => Err(LinkError::Deadline.into_sandbox_error(operation)),
        }
    }
}

#[async_trait]
impl EgressGate for EgressGateClient {
    async fn open(
        &self,
        workload: EgressWorkload,
        policy: EgressPolicy,
        listener: EgressListener,
    ) -> Result<()> {
        let action = Action::Open {
            workload,
            policy,
            listener,
        };
        self.ask("egress_open", action).await.map(drop)
    }

    async fn update(&self, sandbox_id: SandboxId, policy: EgressPolicy) -> Result<()> {
        let action = Action::Update { sandbox_id, policy };
        self.ask("egress_update", action).await.map(drop)
    }

    async fn close(&self, sandbox_id: SandboxId) -> Result<()> {
        let action = Action::Close { sandbox_id };
        self.ask("egress_close", action).await.map(drop)
    }
}

#[async_trait]
impl EgressCredentials for EgressGateClient {
    async fn set_credentials(
        &self,
        sandbox_id: SandboxId,
        plan: CredentialPlan,
        values: CredentialValues,
    ) -> Result<()> {
        let action = Action::SetCredentials {
            sandbox_id,
            credentials: Credentials::new(plan, values),
        };
        self.ask("set_credentials", action).await.map(drop)
    }

    async fn state(&self, sandbox_id: SandboxId) -> Result<Option<BoundaryState>> {
        let all = self.list().await?;
        let own = all
            .into_iter()
            .find(|status| status.sandbox_id == sandbox_id);
        Ok(own.map(|status| status.boundary))
    }

    async fn authority(&self) -> Result<String> {
        const OPERATION: &str = "egress_authority";
        match self.ask(OPERATION, Action::Authority).await? {
            Done::Authority(certificate) => Ok(certificate),
            Done::Plain | Done::Workloads(_) => Err(Error::new(
                ErrorKind::Internal,
                OPERATION,
                "the egress role did not name its authority",
            )),
        }
    }
}
