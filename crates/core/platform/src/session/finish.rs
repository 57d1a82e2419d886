//! Ending: the sandbox, the session, what is stored of it.

use std::time::Duration;

use astrabox_sandbox::SandboxProvider;
use astrabox_startup::StartedRuntime;
use astrabox_store::Key;
use astrabox_types::{ErrorReason, SandboxId, SessionState, TurnFailure, TurnOutcome};
use tokio::time::Instant;

use super::draft::Draft;
use super::owner::{Cause, Owner, Stop};
use crate::manager::{destroy_proven, timed};
use crate::{Error, Result};

/// How long a program may take to end by itself when its sandbox is released.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

impl Owner {
    /// Ends program and sandbox in order and keeps the conversation.
    pub(super) async fn put_away(
        &mut self,
        runtime: Option<&StartedRuntime>,
        key: Option<Key>,
    ) -> Result<Option<SandboxId>> {
        self.check_owner().await?;
        let mut draft = Draft::default();
        if let Some(runtime) = runtime {
            let closed = runtime.client.close(CLOSE_WITHIN).await;
            self.to_engine(closed);
            self.read_to_end(runtime.client.as_ref(), runtime, CLOSE_WITHIN)
                .await?;
            match self.native_state(runtime).await {
                Ok(files) => draft.commit.native_state = files,
                Err(error) => {
                    tracing::warn!(session = %self.id, %error, "the native state could not be saved")
                }
            }
        }
        let sandbox = self.row.sandbox_id;
        self.destroy_or_refuse().await?;
        self.forget_engine(&mut draft, true);
        draft.answer(key, &sandbox);
        self.background = false;
        let state = self.row.session.state;
        let rested = matches!(
            state,
            SessionState::Ready | SessionState::BackgroundRunning | SessionState::Creating
        );
        // A child run may have been waiting for an answer.
        let waited = self.row.session.current_turn.is_none()
            && matches!(
                state,
                SessionState::WaitingInput | SessionState::Interrupting
            );
        if rested || waited {
            self.set_state(&mut draft, SessionState::Hibernated, None);
        }
        self.commit(draft).await?;
        Ok(sandbox)
    }

    /// Settles what is open, ends the sandbox and puts the session away.
    pub(super) async fn archive(
        &mut self,
        key: Option<Key>,
        runtime: Option<&StartedRuntime>,
    ) -> Result<()> {
        if let Some(key) = &key
            && let Some(known) = self.manager.store().answer_of(key).await?
        {
            return Ok(known);
        }
        self.check_owner().await?;
        if self.row.session.current_turn.is_some() {
            // What the program says while it ends is the end of an interrupted turn.
            self.stop = Some(Stop {
                cause: Cause::Asked,
                harder_at: Instant::now(),
            });
        }
        if let Some(runtime) = runtime {
            let closed = runtime.client.close(CLOSE_WITHIN).await;
            self.to_engine(closed);
            self.read_to_end(runtime.client.as_ref(), runtime, CLOSE_WITHIN)
                .await?;
        }
        self.settle_everything("session_archived", "the session was archived")
            .await?;
        self.put_away(runtime, None).await?;
        let mut draft = Draft::default();
        draft.answer(key, &());
        self.row.session.archived = true;
        draft.commit.session.archived = Some(true);
        self.commit(draft).await.map(drop)
    }

    /// Removes the session. Legal in every state.
    pub(super) async fn delete(
        &mut self,
        key: Option<Key>,
        runtime: Option<&StartedRuntime>,
    ) -> Result<()> {
        self.settle_everything("session_deleted", "the session was deleted")
            .await?;
        if let Some(runtime) = runtime {
            // Its last words do not matter any more.
            let closed = runtime.client.close(Duration::from_millis(200)).await;
            self.to_engine(closed);
        }
        self.destroy_or_refuse().await?;
        if let Ok(provider) = self.provider() {
            let deleting = provider.delete_volume(self.row.volume_id);
            timed("delete volume", deleting).await?;
        }
        self.manager.revoke_issued(self.id).await;
        let mut draft = Draft::default();
        self.forget_engine(&mut draft, true);
        draft.answer(key, &());
        self.set_state(&mut draft, SessionState::Deleted, None);
        self.commit(draft).await?;
        self.ended = true;
        Ok(())
    }

    /// The open turn and every waiting input get an outcome.
    async fn settle_everything(&mut self, reason: &str, message: &str) -> Result<()> {
        let mut draft = Draft::default();
        if self.row.session.current_turn.is_some() {
            self.end_turn(&mut draft, TurnOutcome::Interrupted, None);
        }
        while !self.queue.is_empty() {
            let failure = TurnFailure {
                reason: reason.to_owned(),
                message: message.to_owned(),
            };
            self.fail_first_input(&mut draft, failure);
        }
        self.expire_interactions(&mut draft, message);
        self.commit(draft).await.map(drop)
    }

    fn provider(&self) -> Result<&std::sync::Arc<dyn SandboxProvider>> {
        self.manager
            .sandbox_provider(&self.environment.spec.sandbox)
    }

    /// Destroys the session's sandbox; an error when its end is not proven.
    pub(super) async fn destroy_or_refuse(&mut self) -> Result<()> {
        if self.destroy_sandbox().await? {
            return Ok(());
        }
        Err(Error::new(
            ErrorReason::SandboxCleanupUnconfirmed,
            "the end of the sandbox is not proven yet; repeat the call",
        ))
    }

    /// Destroys whatever sandbox carries the session's assignment; tells whether none is left.
    ///
    /// # Errors
    /// When another server owns the session: its sandbox is not ours to destroy.
    pub(super) async fn destroy_sandbox(&mut self) -> Result<bool> {
        self.check_owner().await?;
        Ok(self.destroy_what_is_left().await)
    }

    async fn destroy_what_is_left(&self) -> bool {
        let Ok(provider) = self.provider().cloned() else {
            return self.row.sandbox_id.is_none() && self.row.assignment_id.is_none();
        };
        let mut doomed = Vec::from_iter(self.row.sandbox_id);
        if let Some(assignment) = &self.row.assignment_id {
            let looking = provider.find_sandbox_by_assignment(assignment);
            match timed("find sandbox", looking).await {
                Ok(found) => doomed.extend(found.filter(|id| !doomed.contains(id))),
                Err(error) => {
                    tracing::warn!(session = %self.id, %error, "the assigned sandbox could not be looked for");
                    return false;
                }
            }
        }
        for id in doomed {
            if !destroy_proven(provider.as_ref(), id).await {
                return false;
            }
        }
        true
    }
}
