//! Keeps a connection to the role, and on it everything that is open.

use std::collections::HashMap;
use std::future::Future;
use std::os::fd::AsFd;
use std::time::Duration;

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{EgressListener, EgressWorkload, Result};
use astrabox_types::{SandboxId, SessionId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::GateOptions;
use super::launch::find_or_start;
use super::link::{Link, LinkError};
use crate::control::{RefusalKind, Reply, Request, WireCredentials, WorkloadStatus};
use crate::credentials::Credentials;

/// How long to wait after a failed attempt to reach the role, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A call on its way to the keeper.
pub(super) struct Command {
    pub(super) operation: &'static str,
    pub(super) action: Action,
    pub(super) answer: oneshot::Sender<Result<Done>>,
}

/// What to do.
pub(super) enum Action {
    Connect,
    Open {
        workload: EgressWorkload,
        policy: EgressPolicy,
        listener: EgressListener,
    },
    Update {
        sandbox_id: SandboxId,
        policy: EgressPolicy,
    },
    SetCredentials {
        sandbox_id: SandboxId,
        credentials: Credentials,
    },
    Authority,
    Close {
        sandbox_id: SandboxId,
    },
    List,
    Drain,
    Shutdown,
    Disconnect,
}

/// What came of it.
pub(super) enum Done {
    Plain,
    Workloads(Vec<WorkloadStatus>),
    Authority(String),
}

/// What to open again when the role was lost.
struct Kept {
    session_id: SessionId,
    policy: EgressPolicy,
    listener: EgressListener,
}

/// Whether a call may start a role.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Needed,
    /// Where no role runs, what is asked for is so already.
    IfRunning,
}

/// One task, which carries out one call after the other.
pub(super) struct Keeper {
    options: GateOptions,
    instance: String,
    commands: mpsc::Receiver<Command>,
    link: Option<Link>,
    kept: HashMap<SandboxId, Kept>,
    /// What was set for sandboxes, open or to be opened; in memory only, here as in the role.
    credentials: HashMap<SandboxId, Credentials>,
    /// When the role was reached last.
    reached: Instant,
    next_attempt: Instant,
    pause: Duration,
}

impl Keeper {
    pub(super) fn new(options: GateOptions, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            options,
            instance: uuid::Uuid::now_v7().to_string(),
            commands,
            link: None,
            kept: HashMap::new(),
            credentials: HashMap::new(),
            reached: Instant::now(),
            next_attempt: Instant::now(),
            pause: RETRY.0,
        }
    }

    /// Runs until the client is gone or disconnects.
    pub(super) async fn run(mut self) {
        loop {
            let lost = async {
                match &self.link {
                    Some(link) => link.lost().await,
                    None => std::future::pending().await,
                }
            };
            let wanted = self.link.is_none() && !self.kept.is_empty();
            tokio::select! {
                command = self.commands.recv() => match command {
                    None => return,
                    Some(Command { action: Action::Disconnect, answer, .. }) => {
                        let _ = answer.send(Ok(Done::Plain));
                        return;
                    }
                    Some(command) => self.carry_out(command).await,
                },
                () = lost => {
                    tracing::warn!("the egress role is gone");
                    self.link = None;
                    if self.reached.elapsed() > RETRY.1 {
                        self.pause = RETRY.0;
                        self.next_attempt = Instant::now();
                    } else {
                        // One that dies again and again is not started again and again at full speed.
                        self.wait();
                    }
                }
                () = sleep_until(self.next_attempt), if wanted => self.recover().await,
            }
        }
    }

    /// Connects again for the sake of what is open.
    async fn recover(&mut self) {
        match self.ensure_link(Role::Needed).await {
            Ok(()) => {
                tracing::info!(open = self.kept.len(), "the egress role is reached again");
            }
            Err(error) => {
                tracing::error!(%error, "the egress role cannot be reached");
                self.wait();
            }
        }
    }

    /// Puts the next attempt off, each time for longer.
    fn wait(&mut self) {
        self.next_attempt = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(RETRY.1);
    }

    async fn carry_out(&mut self, command: Command) {
        let result = self.act(command.action).await;
        let result = result.map_err(|error| error.into_sandbox_error(command.operation));
        // The caller may have given up.
        let _ = command.answer.send(result);
    }

    async fn act(&mut self, action: Action) -> std::result::Result<Done, LinkError> {
        match action {
            Action::Connect => match self.ensure_link(Role::Needed).await {
                // A role that was just ending is followed by another.
                Err(error) if error.is_lost() => self.ensure_link(Role::Needed).await,
                reached => reached,
            }
            .map(|()| Done::Plain),
            Action::Open {
                workload,
                policy,
                listener,
            } => {
                let kept = Kept {
                    session_id: workload.session_id,
                    policy,
                    listener,
                };
                let sandbox_id = workload.sandbox_id;
                let request = self.open(sandbox_id, &kept);
                self.ask(&request, Some(&kept.listener), Role::Needed)
                    .await?;
                self.kept.insert(sandbox_id, kept);
                Ok(Done::Plain)
            }
            Action::Update { sandbox_id, policy } => {
                let request = Request::Update {
                    sandbox_id,
                    policy: policy.clone(),
                };
                self.ask(&request, None, Role::Needed).await?;
                if let Some(kept) = self.kept.get_mut(&sandbox_id) {
                    kept.policy = policy;
                }
                Ok(Done::Plain)
            }
            Action::SetCredentials {
                sandbox_id,
                credentials,
            } => self.set_credentials(sandbox_id, credentials).await,
            Action::Authority => self.ask(&Request::Authority {}, None, Role::Needed).await,
            Action::Close { sandbox_id } => {
                self.kept.remove(&sandbox_id);
                self.credentials.remove(&sandbox_id);
                let request = Request::Close { sandbox_id };
                self.ask(&request, None, Role::IfRunning).await
            }
            Action::List => self.ask(&Request::List {}, None, Role::IfRunning).await,
            Action::Drain => self.ask(&Request::Drain {}, None, Role::IfRunning).await,
            Action::Shutdown => self.shut_down().await,
            Action::Disconnect => Ok(Done::Plain),
        }
    }

    /// A sandbox that is not open gets its credentials when it is opened.
    async fn set_credentials(
        &mut self,
        sandbox_id: SandboxId,
        credentials: Credentials,
    ) -> std::result::Result<Done, LinkError> {
        let request = Request::SetCredentials {
            sandbox_id,
            credentials: WireCredentials(credentials.clone()),
        };
        // Where sandboxes are open the role is started again for them, with what they had.
        let role = match self.kept.contains_key(&sandbox_id) {
            true => Role::Needed,
            false => Role::IfRunning,
        };
        // Before it is asked for: a role that is reached again must never get the old ones.
        self.credentials.insert(sandbox_id, credentials);
        match self.ask(&request, None, role).await {
            Ok(_) => Ok(Done::Plain),
            Err(LinkError::Refused {
                kind: RefusalKind::NotOpen,
                ..
            }) => Ok(Done::Plain),
            Err(error) => Err(error),
        }
    }

    fn open(&self, sandbox_id: SandboxId, kept: &Kept) -> Request {
        let credentials = self.credentials.get(&sandbox_id).cloned();
        Request::Open {
            sandbox_id,
            session_id: kept.session_id,
            policy: kept.policy.clone(),
            credentials: credentials.map(WireCredentials),
        }
    }

    /// Ends the role; the end of the connection says that everything is closed.
    async fn shut_down(&mut self) -> std::result::Result<Done, LinkError> {
        self.kept.clear();
        self.credentials.clear();
        self.ask(&Request::Shutdown {}, None, Role::IfRunning)
            .await?;
        if let Some(link) = self.link.take() {
            let lost = async {
                link.lost().await;
                Ok(())
            };
            within(self.options.deadlines.call, lost).await?;
        }
        Ok(Done::Plain)
    }

    /// Asks the role, a second time when the connection breaks: every request may be repeated.
    async fn ask(
        &mut self,
        request: &Request,
        listener: Option<&EgressListener>,
        role: Role,
    ) -> std::result::Result<Done, LinkError> {
        let mut first = true;
        loop {
            let error = match self.ask_once(request, listener, role).await {
                Ok(Reply::Workloads { workloads }) => return Ok(Done::Workloads(workloads)),
                Ok(Reply::Authority { certificate }) => return Ok(Done::Authority(certificate)),
                Ok(_) => return Ok(Done::Plain),
                Err(LinkError::Absent) if role == Role::IfRunning => return Ok(Done::Plain),
                Err(error) => error,
            };
            if !matches!(error, LinkError::Refused { .. } | LinkError::Invalid(_)) {
                // After a deadline the late answer would be taken for the next one's.
                self.link = None;
            }
            if !first || !error.is_lost() {
                return Err(error);
            }
            first = false;
        }
    }

    async fn ask_once(
        &mut self,
        request: &Request,
        listener: Option<&EgressListener>,
        role: Role,
    ) -> std::result::Result<Reply, LinkError> {
        self.ensure_link(role).await?;
        let Some(link) = &mut self.link else {
            return Err(LinkError::Absent);
        };
        let call = link.call(request, listener.map(AsFd::as_fd));
        within(self.options.deadlines.call, call).await
    }

    /// Connects where there is no connection, and opens again on it what is open.
    async fn ensure_link(&mut self, role: Role) -> std::result::Result<(), LinkError> {
        if self.link.is_some() {
            return Ok(());
        }
        let argv = match role {
            Role::Needed => self.options.argv.as_deref(),
            Role::IfRunning => None,
        };
        let find = find_or_start(&self.options.role, argv, &self.instance);
        let mut link = within(self.options.deadlines.start, find).await?;
        let configure = Request::Configure {
            config: self.options.role.egress.clone(),
            extra_roots: super::roots::read(&self.options.role.egress.extra_roots)
                .await
                .map_err(LinkError::Invalid)?,
        };
        within(self.options.deadlines.call, link.call(&configure, None)).await?;
        for (sandbox_id, kept) in &self.kept {
            let request = self.open(*sandbox_id, kept);
            let call = link.call(&request, Some(kept.listener.as_fd()));
            match within(self.options.deadlines.call, call).await {
                Ok(_) => {}
                Err(error @ LinkError::Refused { .. }) => {
                    tracing::error!(sandbox = %sandbox_id, %error, "a sandbox cannot be opened again");
                }
                Err(error) => return Err(error),
            }
        }
        self.link = Some(link);
        self.reached = Instant::now();
        Ok(())
    }
}

async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = std::result::Result<T, LinkError>>,
) -> std::result::Result<T, LinkError> {
    match timeout(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(LinkError::Deadline),
    }
}
