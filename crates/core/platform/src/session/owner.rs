//! The owner: what it holds, how it begins, and its outermost loop.

use std::collections::VecDeque;
use std::sync::Arc;

use astrabox_engine::EngineAdapter;
use astrabox_store::{InputRow, InteractionRow, SessionRow, Store};
use astrabox_types::{
    Agent, Environment, ErrorReason, EventPayload, InteractionState, JournalEvent, SessionId,
    SessionState, may_go,
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
    pub(super) adapter: &'static dyn EngineAdapter,
    /// Inputs that are not settled, in order. The first is the running turn's, when an input began it.
    pub(super) queue: VecDeque<InputRow>,
    /// Interactions that are not closed, in order; at most the first is active.
    pub(super) interactions: VecDeque<InteractionRow>,
    /// The running turn is being stopped.
    pub(super) stop: Option<Stop>,
    pub(super) background: bool,
    /// When the engine last said something.
    pub(super) progress: Instant,
    /// The connection to a sandbox that runs failed this often in a row.
    pub(super) misses: u32,
    /// Commands that wait until the engine is reached.
    pub(super) deferred: Vec<Command>,
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

/// Owns the session until the server drains, the session is deleted, or another server takes it over.
pub(super) async fn run(
    manager: Arc<Manager>,
    id: SessionId,
    mut mailbox: mpsc::Receiver<Command>,
) {
    let hub = match manager.store().session(id).await {
        Ok(row) => Hub::new(id, row.session.last_seq, row.open_messages.as_deref()),
        Err(error) => {
            tracing::error!(session = %id, %error, "the session cannot be loaded");
            // Callers get a retryable error: the mailbox closes.
            mailbox.close();
            return;
        }
    };
    let mut owner = match Owner::load(&manager, id, mailbox, hub).await {
        Ok(owner) => owner,
        Err(error) => {
            tracing::error!(session = %id, %error, "the session cannot be loaded");
            return;
        }
    };
    while !owner.ended && !manager.draining.is_cancelled() {
        let mut done = if owner.wants_runtime() {
            owner.bring_up().await
        } else {
            owner.rest().await
        };
        for command in std::mem::take(&mut owner.deferred) {
            done = done.and(owner.handle(command, None).await.map(drop));
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

impl Owner {
    async fn load(
        manager: &Arc<Manager>,
        id: SessionId,
        mailbox: mpsc::Receiver<Command>,
        hub: Arc<Hub>,
    ) -> Result<Self> {
        let epoch = manager.store().claim(id).await?;
        let Stored {
            row,
            queue,
            interactions,
        } = read(manager.store(), id).await?;
        let (agent, environment) = manager.agent_of(&row.session).await?;
        let adapter = manager.adapter(&environment.spec.engine)?;
        let background = row.session.state == SessionState::BackgroundRunning;
        Ok(Self {
            manager: Arc::clone(manager),
            id,
            mailbox,
            hub,
            epoch,
            row,
            agent,
            environment,
            adapter,
            queue,
            interactions,
            stop: None,
            background,
            progress: Instant::now(),
            misses: 0,
            deferred: Vec::new(),
            ended: false,
        })
    }

    /// After a failed write the image may be ahead of the store: read it again, until the store answers.
    async fn reload(&mut self, error: &Error) {
        tracing::error!(session = %self.id, %error, source = ?std::error::Error::source(error), "a step failed");
        for pause in std::iter::successors(Some(100_u64), |pause| Some((pause * 2).min(5_000))) {
            if self.manager.draining.is_cancelled() {
                return;
            }
            match read(self.manager.store(), self.id).await {
                Ok(stored) => {
                    self.row = stored.row;
                    self.queue = stored.queue;
                    self.interactions = stored.interactions;
                    self.stop = None;
                    return;
                }
                Err(error) => {
                    if error.reason() == ErrorReason::SessionNotFound {
                        self.ended = true;
                        return;
                    }
                    tracing::warn!(session = %self.id, %error, "the session cannot be read");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_millis(pause)) => {}
                () = self.manager.draining.cancelled() => return,
            }
        }
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
        let idle_until = self.progress + self.manager.parts.settings.idle_timeout;
        let keeps_sandbox = self.row.sandbox_id.is_some() || self.row.assignment_id.is_some();
        tokio::select! {
            () = draining.cancelled() => Ok(()),
            () = tokio::time::sleep_until(idle_until), if keeps_sandbox => self.put_away(None, None).await.map(drop),
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
        let events = self.manager.store().commit(self.id, commit).await?;
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
