//! The owner: what it holds, how it begins, and its outermost loop.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::EngineAdapter;
use astrabox_store::{InputRow, InteractionRow, SessionRow, Store};
use astrabox_types::{
    Agent, Environment, ErrorReason, EventId, EventPayload, InteractionState, JournalEvent,
    SessionId, SessionState, TurnId, may_go,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Command;
use super::draft::Draft;
use crate::hub::Hub;
use crate::manager::Manager;
use crate::{Error, Result};

/// Everything that the owner of one session knows. What is durable is in the store; this is its image.
pub(super) struct Owner {
    pub(super) manager: Arc<Manager>,
    pub(super) id: SessionId,
    pub(super) mailbox: mpsc::Receiver<Command>,
    pub(super) hub: Arc<Hub>,
    pub(super) epoch: u64,
    pub(super) row: SessionRow,
    pub(super) agent: Agent,
    pub(super) environment: Environment,
    /// `None` when the engine is not linked any more: the session can be read and deleted.
    pub(super) adapter: Option<&'static dyn EngineAdapter>,
    /// Inputs that are not settled, in order. The first is the running turn's, when an input began it.
    pub(super) queue: VecDeque<InputRow>,
    /// Interactions that are not closed, in order; at most the first is active.
    pub(super) interactions: VecDeque<InteractionRow>,
    /// The running turn is being stopped.
    pub(super) stop: Option<Stop>,
    pub(super) background: bool,
    /// Tool calls whose end was not told yet, by the id of their event, and their turns. Not whole: the journal
    /// knows the others.
    pub(super) calls: HashMap<EventId, Option<TurnId>>,
    /// When the engine last said something.
    pub(super) progress: Instant,
    /// The connection to a sandbox that runs failed this often in a row.
    pub(super) misses: u32,
    /// Its engine's program ended and it is known that nothing of it runs: the sandbox is good for the next one.
    pub(super) reusable: bool,
    /// Whether the boundary may have other credentials than the session has now.
    pub(super) credentials_stale: bool,
    /// Commands that wait until the engine is reached.
    pub(super) deferred: Vec<Command>,
    /// A change that is in this image was not made durable: the image is not to be trusted.
    pub(super) torn: Option<ErrorReason>,
    /// Steps that failed in a row.
    failures: u32,
    /// The session ended; the owner does, too.
    pub(super) ended: bool,
}

/// Why and how far the running turn is being stopped.
pub(super) struct Stop {
    pub(super) cause: Cause,
    /// When the next, harder means is taken.
    pub(super) harder_at: Instant,
}

/// Why a turn is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A client asked for it.
    Asked,
    /// The engine was silent too long.
    Stalled,
    /// Nobody answered an interaction in time.
    Unanswered,
}

impl Cause {
    /// The reason with which the session's state tells it; `None` for the usual one.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Asked => None,
            Self::Stalled => Some("engine_stalled"),
            Self::Unanswered => Some("interaction_expired"),
        }
    }

    /// The cause that a state's reason tells of.
    pub(super) fn of(reason: Option<&str>) -> Self {
        [Self::Stalled, Self::Unanswered]
            .into_iter()
            .find(|cause| reason.is_some() && cause.reason() == reason)
            .unwrap_or(Self::Asked)
    }
}

/// Owns the session until the server drains, the session is deleted, or another server takes it over.
pub(super) async fn run(
    manager: Arc<Manager>,
    id: SessionId,
    mut mailbox: mpsc::Receiver<Command>,
) {
    let loaded = match load(&manager, id).await {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(session = %id, %error, "the session cannot be loaded");
            // Callers get a retryable error: the mailbox closes.
            mailbox.close();
            return;
        }
    };
    let mut owner = Owner::new(Arc::clone(&manager), id, mailbox, loaded);
    while !owner.ended && !manager.draining.is_cancelled() {
        let mut done = if owner.wants_runtime() {
            owner.bring_up().await
        } else {
            owner.rest().await
        };
        for command in std::mem::take(&mut owner.deferred) {
            if done.is_err() || command.wants_engine() && owner.still_reaching() {
                owner.deferred.push(command);
            } else {
                done = owner.handle(command, None).await.map(drop);
            }
        }
        if let Err(error) = done {
            match error.reason() {
                ErrorReason::OwnerChanged => {
                    tracing::warn!(session = %id, "another server took the session over");
                    break;
                }
                _ => owner.reload(&error).await,
            }
        }
    }
    owner.hub.close();
}

/// What is in the store of one session.
struct Stored {
    row: SessionRow,
    queue: VecDeque<InputRow>,
    interactions: VecDeque<InteractionRow>,
}

async fn read(store: &Store, id: SessionId) -> Result<Stored> {
    let row = store.session(id).await?;
    let queue = store.open_inputs(id).await?.into();
    let interactions = store.interactions(id, false).await?.into();
    Ok(Stored {
        row,
        queue,
        interactions,
    })
}

/// What an owner begins with.
struct Loaded {
    epoch: u64,
    stored: Stored,
    agent: Agent,
    environment: Environment,
}

async fn load(manager: &Manager, id: SessionId) -> Result<Loaded> {
    let epoch = manager.store().claim(id).await?;
    let stored = read(manager.store(), id).await?;
    let (agent, environment) = manager.agent_of(&stored.row.session).await?;
    Ok(Loaded {
        epoch,
        stored,
        agent,
        environment,
    })
}

impl Owner {
    fn new(
        manager: Arc<Manager>,
        id: SessionId,
        mailbox: mpsc::Receiver<Command>,
        loaded: Loaded,
    ) -> Self {
        let Loaded {
            epoch,
            stored,
            agent,
            environment,
        } = loaded;
        let Stored {
            row,
            queue,
            interactions,
        } = stored;
        Self {
            hub: Hub::new(id, row.session.last_seq, row.open_messages.as_deref()),
            adapter: manager.adapter(&environment.spec.engine).ok(),
            background: row.background,
            manager,
            id,
            mailbox,
            epoch,
            row,
            agent,
            environment,
            queue,
            interactions,
            stop: None,
            calls: HashMap::new(),
            progress: Instant::now(),
            misses: 0,
            reusable: false,
            credentials_stale: false,
            deferred: Vec::new(),
            torn: None,
            failures: 0,
            ended: false,
        }
    }

    /// After a failed write the image may be ahead of the store: read it again, until the store answers.
    async fn reload(&mut self, error: &Error) {
        tracing::error!(session = %self.id, %error, source = ?std::error::Error::source(error), "a step failed");
        loop {
            self.failures += 1;
            let pause = Duration::from_millis(50 << self.failures.min(6));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.manager.draining.cancelled() => return,
            }
            match read(self.manager.store(), self.id).await {
                Ok(stored) => return self.restore(stored),
                Err(error) => {
                    if error.reason() == ErrorReason::SessionNotFound {
                        self.ended = true;
                        return;
                    }
                    tracing::warn!(session = %self.id, %error, "the session cannot be read");
                }
            }
        }
    }

    fn restore(&mut self, stored: Stored) {
        let row = stored.row;
        self.hub
            .reset(row.session.last_seq, row.open_messages.as_deref());
        self.background = row.background;
        self.row = row;
        self.queue = stored.queue;
        self.interactions = stored.interactions;
        self.stop = None;
        self.calls.clear();
        self.torn = None;
        self.reusable = false;
    }

    /// The engine's adapter.
    ///
    /// # Errors
    /// `ENGINE_UNKNOWN` when it is not linked.
    pub(super) fn adapter(&self) -> Result<&'static dyn EngineAdapter> {
        match self.adapter {
            Some(adapter) => Ok(adapter),
            None => self.manager.adapter(&self.environment.spec.engine),
        }
    }

    /// Refuses to go on when another server has taken the session over.
    pub(super) async fn check_owner(&mut self) -> Result<()> {
        let row = self.manager.store().session(self.id).await?;
        if row.epoch == self.epoch {
            return Ok(());
        }
        self.torn = Some(ErrorReason::OwnerChanged);
        Err(astrabox_store::Error::OwnerChanged.into())
    }

    /// Whether a running turn's engine is still to be reached again.
    fn still_reaching(&self) -> bool {
        self.wants_runtime() && self.may_run_already() && self.row.session.current_turn.is_some()
    }

    /// Whether an engine should run now.
    pub(super) fn wants_runtime(&self) -> bool {
        let state = self.row.session.state;
        if self.row.session.archived || !state.takes_input() {
            return false;
        }
        state == SessionState::Creating || !self.queue.is_empty() || self.may_run_already()
    }

    /// Whether the store says that an engine runs.
    pub(super) fn may_run_already(&self) -> bool {
        let state = self.row.session.state;
        !matches!(state, SessionState::Hibernated | SessionState::Creating) && state.takes_input()
    }

    /// Waits for a command while no engine runs.
    async fn rest(&mut self) -> Result<()> {
        let draining = self.manager.draining.clone();
        let put_away_at = if self.reusable {
            self.progress + self.manager.parts.settings.idle_timeout
        } else {
            // Nobody knows what runs in it: it is for no one. It may have been tried before.
            Instant::now() + Duration::from_millis(50 << self.failures.min(6))
        };
        let keeps_sandbox = self.row.sandbox_id.is_some() || self.row.assignment_id.is_some();
        tokio::select! {
            () = draining.cancelled() => Ok(()),
            () = tokio::time::sleep_until(put_away_at), if keeps_sandbox => self.put_away(None, None).await.map(drop),
            command = self.mailbox.recv() => match command {
                Some(command) => self.handle(command, None).await.map(drop),
                // The manager keeps a sender, so this is its end.
                None => {
                    self.ended = true;
                    Ok(())
                }
            },
        }
    }

    /// Makes a draft durable, tells watchers, and returns its events.
    pub(super) async fn commit(&mut self, draft: Draft) -> Result<Vec<JournalEvent>> {
        let Draft { mut commit, deltas } = draft;
        commit.epoch = self.epoch;
        commit.runtime.background = Some(self.background);
        let events = match self.manager.store().commit(self.id, commit).await {
            Ok(events) => events,
            Err(error) => {
                let error = Error::from(error);
                self.torn = Some(error.reason());
                return Err(error);
            }
        };
        self.failures = 0;
        if let Some(last) = events.last() {
            self.row.session.last_seq = last.seq;
        }
        self.hub.publish(events.clone(), deltas);
        Ok(events)
    }

    /// Moves the session to a state, with its event. A move that the table does not have is a defect; it is
    /// logged and made, so that nobody is stuck.
    pub(super) fn set_state(
        &mut self,
        draft: &mut Draft,
        state: SessionState,
        reason: Option<String>,
    ) {
        let session = &mut self.row.session;
        if session.state == state && session.state_reason == reason {
            return;
        }
        if session.state != state && !may_go(session.state, state) {
            tracing::error!(session = %self.id, from = ?session.state, to = ?state, "a move that is not in the table");
            debug_assert!(
                false,
                "{:?} -> {state:?} is not in the table",
                session.state
            );
        }
        session.state = state;
        session.state_reason.clone_from(&reason);
        draft.commit.session.state = Some((state, reason.clone()));
        draft.event(
            session.current_turn,
            EventPayload::SessionStatus { state, reason },
        );
    }

    /// The interaction that can be answered.
    pub(super) fn active_interaction(&self) -> Option<&InteractionRow> {
        self.interactions
            .front()
            .filter(|row| row.state == InteractionState::Active)
    }
}
