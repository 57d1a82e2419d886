//! Every sandbox of the role, who answers for it, and what happens when nobody does.
//!
//! A server is an *instance*: it says its name on each of its connections. A sandbox belongs to the instance that
//! opened it last. When the last connection of an instance is gone, its sandboxes keep their policy for the grace;
//! then everything is denied to them until a server opens them again.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::EgressWorkload;
use astrabox_types::SandboxId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::EgressConfig;
use crate::control::{WorkloadState, WorkloadStatus};
use crate::credentials::Credentials;
use crate::listener::{self, Acceptor};
use crate::services::Services;
use crate::tls::InvalidRoots;
use crate::workload::{Plan, Workload};

/// The shortest time that a role without sandboxes and servers waits for a server.
const SHORTEST_VACANCY: Duration = Duration::from_secs(10);

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("the sandbox is not open")]
    NotOpen,
    #[error("{0}")]
    Listener(&'static str),
    #[error(transparent)]
    Roots(#[from] InvalidRoots),
}

/// The sandboxes of the role.
pub(crate) struct Workloads {
    services: Arc<Services>,
    /// Held by every change, so that each sees a finished state.
    changing: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    /// Something changed that [`Workloads::next_deadline`] depends on.
    pub(crate) changed: Notify,
}

struct Inner {
    held: HashMap<SandboxId, Held>,
    instances: HashMap<String, usize>,
    /// Since when there has been neither a sandbox nor a server.
    vacant_since: Option<Instant>,
    draining: bool,
}

struct Held {
    workload: Arc<Workload>,
    acceptor: Option<Acceptor>,
    owner: String,
    /// Since when the owner has been gone.
    orphaned: Option<Instant>,
}

impl Workloads {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self {
            services,
            changing: tokio::sync::Mutex::new(()),
            inner: Mutex::new(Inner {
                held: HashMap::new(),
                instances: HashMap::new(),
                vacant_since: Some(Instant::now()),
                draining: false,
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// Nothing panics while it holds the lock, and the state is whole between any two statements.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of an instance has begun.
    pub(crate) fn arrive(&self, instance: &str) {
        let mut inner = self.inner();
        *inner.instances.entry(instance.to_owned()).or_default() += 1;
        for held in inner.held.values_mut() {
            if held.owner == instance {
                held.orphaned = None;
            }
        }
        self.settle(inner);
    }

    /// A connection of an instance has ended.
    pub(crate) fn leave(&self, instance: &str) {
        let mut inner = self.inner();
        if let Some(connections) = inner.instances.get_mut(instance) {
            *connections -= 1;
            if *connections == 0 {
                inner.instances.remove(instance);
                for held in inner.held.values_mut() {
                    if held.owner == instance {
                        held.orphaned = Some(Instant::now());
                    }
                }
            }
        }
        self.settle(inner);
    }

    fn settle(&self, mut inner: MutexGuard<'_, Inner>) {
        let vacant = inner.held.is_empty() && inner.instances.is_empty();
        inner.vacant_since = match inner.vacant_since {
            since @ Some(_) if vacant => since,
            _ => vacant.then(Instant::now),
        };
        drop(inner);
        self.changed.notify_one();
    }

    /// Answers on the listener from now on, by the policy, for an instance that has arrived. Connections of a
    /// sandbox that was open go on where the policy lets them; it keeps its credentials when none are given.
    pub(crate) async fn open(
        &self,
        instance: &str,
        workload: EgressWorkload,
        policy: EgressPolicy,
        credentials: Option<Credentials>,
        descriptor: OwnedFd,
    ) -> Result<(), CommandError> {
        let listener = listener::take(descriptor).map_err(CommandError::Listener)?;
        let _changing = self.changing.lock().await;
        let known = self.inner().held.get_mut(&workload.sandbox_id).map(|held| {
            held.owner = instance.to_owned();
            (Arc::clone(&held.workload), held.acceptor.take())
        });
        let (entry, leaving) = match known {
            Some((entry, acceptor)) => {
                if let Some(acceptor) = acceptor {
                    acceptor.stop().await;
                }
                entry.set_session_id(workload.session_id);
                let leaving = entry.set(Some(Plan::Active(policy)), credentials);
                (entry, Some(leaving))
            }
            None => {
                let entry = Workload::new(workload.sandbox_id, workload.session_id, policy);
                // It has nothing open that could leave.
                drop(entry.set(None, credentials));
                (entry, None)
            }
        };
        let acceptor = Acceptor::start(listener, &entry, &self.services);
        let held = Held {
            workload: entry,
            acceptor: Some(acceptor),
            owner: instance.to_owned(),
            orphaned: None,
        };
        self.insert(workload.sandbox_id, held);
        if let Some(leaving) = leaving {
            leaving.gone().await;
        }
        Ok(())
    }

    fn insert(&self, sandbox_id: SandboxId, held: Held) {
        let mut inner = self.inner();
        inner.held.insert(sandbox_id, held);
        inner.draining = false;
        self.settle(inner);
    }

    /// Changes the policy; what it does not allow is closed when this returns.
    pub(crate) async fn update(
        &self,
        instance: &str,
        sandbox_id: SandboxId,
        policy: EgressPolicy,
    ) -> Result<(), CommandError> {
        let _changing = self.changing.lock().await;
        let workload = self.take_over(instance, sandbox_id)?;
        workload.set(Some(Plan::Active(policy)), None).gone().await;
        Ok(())
    }

    /// Changes what may be put into requests; what neither it nor the policy allows is closed when this returns.
    pub(crate) async fn set_credentials(
        &self,
        instance: &str,
        sandbox_id: SandboxId,
        credentials: Credentials,
    ) -> Result<(), CommandError> {
        let _changing = self.changing.lock().await;
        let workload = self.inner().held.get(&sandbox_id).map(|held| {
            let current = held.workload.is_active();
            (current, Arc::clone(&held.workload))
        });
        let (active, workload) = workload.ok_or(CommandError::NotOpen)?;
        if !active {
            // Without a policy they would be worth nothing; the server that opens it again brings them.
            return Ok(());
        }
        self.take_over(instance, sandbox_id)?;
        workload.set(None, Some(credentials)).gone().await;
        Ok(())
    }

    /// Whoever says what a sandbox may do answers for it from then on.
    fn take_over(
        &self,
        instance: &str,
        sandbox_id: SandboxId,
    ) -> Result<Arc<Workload>, CommandError> {
        let mut inner = self.inner();
        let held = inner
            .held
            .get_mut(&sandbox_id)
            .ok_or(CommandError::NotOpen)?;
        instance.clone_into(&mut held.owner);
        held.orphaned = None;
        Ok(Arc::clone(&held.workload))
    }

    /// Closes everything of the sandbox and forgets it; one that is unknown is closed.
    pub(crate) async fn close(&self, sandbox_id: SandboxId) {
        let _changing = self.changing.lock().await;
        let held = self.inner().held.remove(&sandbox_id);
        if let Some(held) = held {
            held.workload.close().await;
        }
        self.settle(self.inner());
    }

    /// Closes every sandbox.
    pub(crate) async fn close_all(&self) {
        let _changing = self.changing.lock().await;
        let all: Vec<Held> = self.inner().held.drain().map(|(_, held)| held).collect();
        for held in all {
            held.workload.close().await;
        }
        self.settle(self.inner());
    }

    /// Takes other settings and roots; what the settings' addresses do not allow is closed when this returns.
    pub(crate) async fn configure(
        &self,
        settings: EgressConfig,
        extra_roots: &str,
    ) -> Result<(), CommandError> {
        let _changing = self.changing.lock().await;
        self.services.interception.trust.set_extra(extra_roots)?;
        self.services.set_settings(settings);
        let settings = self.services.settings();
        for workload in self.all() {
            let leaving = workload.judge_again(|destination, candidates| {
                let target = settings
                    .static_hosts
                    .find(&destination.host, destination.port);
                let stated = !candidates.stated || target == candidates.addresses.first().copied();
                stated && candidates.judge(&settings).is_ok()
            });
            leaving.gone().await;
        }
        // The grace may be another one.
        self.settle(self.inner());
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Workload>> {
        let inner = self.inner();
        let workloads = inner.held.values().map(|held| Arc::clone(&held.workload));
        workloads.collect()
    }

    /// The role ends as soon as it has no sandbox; an `open` before that takes this back.
    pub(crate) fn drain(&self) {
        let mut inner = self.inner();
        inner.draining = true;
        self.settle(inner);
    }

    /// Every sandbox, in the order of their ids.
    pub(crate) fn list(&self) -> Vec<WorkloadStatus> {
        let inner = self.inner();
        let mut list: Vec<_> = inner
            .held
            .values()
            .map(|held| WorkloadStatus {
                sandbox_id: held.workload.sandbox_id,
                session_id: held.workload.session_id(),
                state: match (held.workload.is_active(), held.orphaned) {
                    (false, _) => WorkloadState::Expired,
                    (true, Some(_)) => WorkloadState::Orphaned,
                    (true, None) => WorkloadState::Active,
                },
                counts: held.workload.counters.read(),
                boundary: held.workload.boundary(),
            })
            .collect();
        list.sort_by_key(|status| status.sandbox_id);
        list
    }

    /// Whether the role has nothing to do any more.
    pub(crate) fn is_over(&self) -> bool {
        let vacancy = self.services.settings().orphan_grace.max(SHORTEST_VACANCY);
        let inner = self.inner();
        let vacant = inner
            .vacant_since
            .is_some_and(|since| since.elapsed() >= vacancy);
        vacant || (inner.draining && inner.held.is_empty())
    }

    /// When the next grace ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let grace = self.services.settings().orphan_grace;
        let inner = self.inner();
        let orphans = inner
            .held
            .values()
            .filter(|held| held.workload.is_active())
            .filter_map(|held| Some(held.orphaned? + grace));
        let vacancy = inner
            .vacant_since
            .map(|since| since + grace.max(SHORTEST_VACANCY));
        orphans.chain(vacancy).min()
    }

    /// Takes the policy from every sandbox whose grace has ended, and closes what it has open.
    pub(crate) async fn expire(&self) {
        let _changing = self.changing.lock().await;
        let grace = self.services.settings().orphan_grace;
        let due: Vec<Arc<Workload>> = {
            let inner = self.inner();
            let due = inner.held.values().filter(|held| {
                held.workload.is_active()
                    && held.orphaned.is_some_and(|since| since.elapsed() >= grace)
            });
            due.map(|held| Arc::clone(&held.workload)).collect()
        };
        for workload in due {
            tracing::warn!(
                sandbox = %workload.sandbox_id,
                "its server has been gone for the whole grace; everything is denied from now on"
            );
            workload
                .set(Some(Plan::Expired), Some(Credentials::default()))
                .gone()
                .await;
        }
    }
}

#[cfg(test)]
mod tests;
