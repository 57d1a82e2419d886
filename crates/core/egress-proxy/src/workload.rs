//! One sandbox: its listener, its policy, and what it has open.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_egress::{Decision, DenyReason, Destination, EgressPolicy, Scheme};
use astrabox_sandbox::BoundaryState;
use astrabox_types::{SandboxId, SessionId};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::credentials::Credentials;
use crate::meter::Counters;
use crate::resolve::Candidates;

/// How many names one sandbox may have looked up at once, so that it cannot keep the others from theirs.
const LOOKUPS: usize = 16;

/// What the sandbox may do at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// What the policy says.
    Active(EgressPolicy),
    /// Nothing: the server that set the policy has been gone for too long.
    Expired,
    /// Nothing: the sandbox is forgotten.
    Closed,
}

/// Why an exchange that was let through was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// The policy, or the operator's settings, do not allow it any more.
    PolicyChanged,
    /// The policy has expired.
    Expired,
    /// The sandbox is closed.
    Closed,
}

/// One sandbox.
pub(crate) struct Workload {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) counters: Arc<Counters>,
    /// Every task of this sandbox.
    pub(crate) tasks: TaskTracker,
    /// Ends every task of this sandbox.
    pub(crate) closing: CancellationToken,
    pub(crate) lookups: Semaphore,
    /// What may be held back of request bodies.
    pub(crate) budget: Arc<Budget>,
    state: Mutex<State>,
}

struct State {
    session_id: SessionId,
    plan: Plan,
    credentials: Credentials,
    /// Counts how often the credentials have become others.
    generation: watch::Sender<u64>,
    admissions: HashMap<u64, Admitted>,
    next_admission: u64,
}

struct Admitted {
    destination: Destination,
    way: Way,
    candidates: Option<Candidates>,
    revoke: Arc<watch::Sender<Option<Revoked>>>,
}

/// What becomes of the bytes for a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A request in the clear, which is read.
    Clear,
    /// A tunnel whose bytes are its own affair.
    Blind,
    /// A tunnel in which TLS is ended, and each request judged by the credentials.
    Intercepted,
}

/// The right to reach one destination, until it is dropped or revoked. Dropped after the sockets it was for.
pub(crate) struct Admission {
    workload: Arc<Workload>,
    key: u64,
    pub(crate) way: Way,
    revoked: watch::Receiver<Option<Revoked>>,
}

/// Revoked admissions that may still have sockets open.
#[must_use]
pub(crate) struct Leaving(Vec<Arc<watch::Sender<Option<Revoked>>>>);

impl Leaving {
    /// Waits until the last of their sockets is closed.
    pub(crate) async fn gone(self) {
        for admission in self.0 {
            admission.closed().await;
        }
    }
}

impl Workload {
    pub(crate) fn new(
        sandbox_id: SandboxId,
        session_id: SessionId,
        policy: EgressPolicy,
    ) -> Arc<Self> {
        Arc::new(Self {
            sandbox_id,
            counters: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            lookups: Semaphore::new(LOOKUPS),
            budget: Arc::default(),
            state: Mutex::new(State {
                session_id,
                plan: Plan::Active(policy),
                credentials: Credentials::default(),
                generation: watch::Sender::new(0),
                admissions: HashMap::new(),
                next_admission: 0,
            }),
        })
    }

    /// Nothing panics while it holds the lock, and the state is whole between any two statements.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session_id(&self) -> SessionId {
        self.state().session_id
    }

    pub(crate) fn set_session_id(&self, session_id: SessionId) {
        self.state().session_id = session_id;
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state().plan, Plan::Active(_))
    }

    /// What it may do, for people.
    pub(crate) fn boundary(&self) -> BoundaryState {
        let state = self.state();
        let Plan::Active(policy) = &state.plan else {
            return BoundaryState::default();
        };
        BoundaryState {
            in_force: true,
            unrestricted: policy.unrestricted,
            allowed: policy.allowed.iter().map(ToString::to_string).collect(),
            credentials: state.credentials.told(),
        }
    }

    /// Decides on a destination; the decision and its registration are one step, so no change of the plan can
    /// come between them.
    pub(crate) fn admit(
        self: &Arc<Self>,
        destination: &Destination,
    ) -> Result<Admission, DenyReason> {
        let mut state = self.state();
        match &state.plan {
            Plan::Active(policy) => {
                if let Decision::Deny(reason) = decide(policy, &state.credentials, destination) {
                    return Err(reason);
                }
            }
            Plan::Expired | Plan::Closed => return Err(DenyReason::NoPlan),
        }
        let way = match destination.scheme {
            Scheme::Tunnel if state.credentials.reach(&destination.host, destination.port) => {
                Way::Intercepted
            }
            Scheme::Tunnel => Way::Blind,
            _ => Way::Clear,
        };
        let (revoke, revoked) = watch::channel(None);
        let key = state.next_admission;
        state.next_admission += 1;
        let admitted = Admitted {
            destination: destination.clone(),
            way,
            candidates: None,
            revoke: Arc::new(revoke),
        };
        state.admissions.insert(key, admitted);
        Ok(Admission {
            workload: Arc::clone(self),
            key,
            way,
            revoked,
        })
    }

    /// The plan and values of this moment; each request takes them anew.
    pub(crate) fn credentials(&self) -> Credentials {
        self.state().credentials.clone()
    }

    /// Returns when the credentials are others than these.
    pub(crate) fn credentials_change(
        &self,
        since: &Credentials,
    ) -> impl Future<Output = Revoked> + use<> {
        let state = self.state();
        let same = state.credentials.same_as(since);
        let mut generation = state.generation.subscribe();
        async move {
            if !same {
                return Revoked::PolicyChanged;
            }
            // The sender lives as long as the workload, which outlives its connections.
            let _ = generation.changed().await;
            Revoked::PolicyChanged
        }
    }

    /// Changes the plan, the credentials or both, and revokes what they do not allow.
    pub(crate) fn set(&self, plan: Option<Plan>, credentials: Option<Credentials>) -> Leaving {
        let mut state = self.state();
        if let Some(plan) = plan {
            state.plan = plan;
        }
        if let Some(credentials) = credentials {
            if !credentials.same_as(&state.credentials) {
                state.generation.send_modify(|generation| *generation += 1);
            }
            state.credentials = credentials;
        }
        let (plan, credentials) = (state.plan.clone(), state.credentials.clone());
        state.revoke(|admitted| {
            let Destination { host, port, .. } = &admitted.destination;
            match &plan {
                Plan::Active(policy) => match decide(policy, &credentials, &admitted.destination) {
                    // What goes through unseen could carry what is now to be looked for.
                    Decision::Allow
                        if admitted.way == Way::Blind && credentials.reach(host, *port) =>
                    {
                        Some(Revoked::PolicyChanged)
                    }
                    Decision::Allow => None,
                    Decision::Deny(_) => Some(Revoked::PolicyChanged),
                },
                Plan::Expired => Some(Revoked::Expired),
                Plan::Closed => Some(Revoked::Closed),
            }
        })
    }

    /// Revokes what has one of the addresses that `allowed` refuses.
    pub(crate) fn judge_again(
        &self,
        allowed: impl Fn(&Destination, &Candidates) -> bool,
    ) -> Leaving {
        self.state().revoke(|admitted| {
            let candidates = admitted.candidates.as_ref()?;
            (!allowed(&admitted.destination, candidates)).then_some(Revoked::PolicyChanged)
        })
    }

    /// Takes a place for a connection, when there is one.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<Place> {
        let place = Place(Arc::clone(self));
        // A place that is refused gives itself back by its drop.
        let before = self.counters.open.fetch_add(1, Ordering::Relaxed);
        (before < most).then_some(place)
    }

    /// Ends everything and waits for the end.
    pub(crate) async fn close(&self) {
        let leaving = self.set(Some(Plan::Closed), Some(Credentials::default()));
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        leaving.gone().await;
    }
}

/// A credential grants its destinations, and nothing else that the policy denies.
fn decide(policy: &EgressPolicy, credentials: &Credentials, destination: &Destination) -> Decision {
    match policy.decide(destination) {
        Decision::Deny(DenyReason::HostNotAllowed)
            if credentials.allow(&destination.host, destination.port) =>
        {
            Decision::Allow
        }
        decision => decision,
    }
}

impl State {
    fn revoke(&mut self, verdict: impl Fn(&Admitted) -> Option<Revoked>) -> Leaving {
        let mut leaving = Vec::new();
        for admitted in self.admissions.values() {
            if let Some(why) = verdict(admitted) {
                // The first reason stays.
                admitted.revoke.send_if_modified(|revoked| {
                    let first = revoked.is_none();
                    revoked.get_or_insert(why);
                    first
                });
                leaving.push(Arc::clone(&admitted.revoke));
            }
        }
        Leaving(leaving)
    }
}

impl Admission {
    /// Returns when the destination is not allowed any more.
    pub(crate) async fn revoked(&self) -> Revoked {
        let mut revoked = self.revoked.clone();
        let why = match revoked.wait_for(Option::is_some).await {
            Ok(why) => *why,
            Err(_) => None,
        };
        // The sender lives as long as the admission is registered, so it is never gone before.
        why.unwrap_or(Revoked::Closed)
    }

    /// States which addresses stand for the destination, so that a change of the settings reaches them.
    pub(crate) fn pin(&self, candidates: &Candidates) {
        if let Some(admitted) = self.workload.state().admissions.get_mut(&self.key) {
            admitted.candidates = Some(candidates.clone());
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.workload.state().admissions.remove(&self.key);
    }
}

/// A place among the connections that a sandbox may have.
pub(crate) struct Place(Arc<Workload>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}
