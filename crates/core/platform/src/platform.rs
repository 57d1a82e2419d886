//! The platform's public face: one method an operation, each with the caller's context first.

use std::sync::Arc;
use std::time::Duration;

use astrabox_identity::{Evidence, OpContext};
use astrabox_sandbox::{BoundaryState, Diagnostics, FileInfo, Posture};
use astrabox_types::{
    Agent, AgentId, ChildRun, ChildRunId, ChildRunState, ContentPart, Environment, EnvironmentSpec,
    InputId, InteractionAnswer, InteractionId, JournalEvent, SandboxId, SessionId, TurnId,
};
use bytes::Bytes;

use crate::manager::Manager;
use crate::parts::PlatformParts;
use crate::{
    AgentDraft, AgentUpdate, EngineView, EnvironmentUpdate, IdempotencyKey, InteractionRecord,
    Page, PageRequest, Result, SandboxView, SessionDraft, SessionFilter, SessionView, Subscription,
};

type Key = Option<IdempotencyKey>;

/// The whole product behind its edges. Cheap to clone.
#[derive(Clone)]
pub struct Platform {
    pub(crate) manager: Arc<Manager>,
}

impl Platform {
    /// Starts the platform: adopts what runs, removes what nobody owns, goes on with open turns.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(parts: PlatformParts) -> Result<Self> {
        Ok(Self {
            manager: Manager::start(parts).await?,
        })
    }

    /// Takes no more work and ends every task. Running turns go on in their sandboxes and are adopted by the
    /// next start.
    pub async fn drain(&self, within: Duration) {
        self.manager.drain(within).await;
    }

    /// Who the caller is.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`.
    pub async fn identify(&self, evidence: &Evidence) -> Result<OpContext> {
        self.manager.identify(evidence).await
    }

    /// Makes an environment. Empty names of providers and zero limits mean the server's defaults.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `ENGINE_UNKNOWN`, `SANDBOX_PROVIDER_UNKNOWN`, `MODEL_PROVIDER_UNKNOWN`,
    /// `ENVIRONMENT_NAME_TAKEN`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn create_environment(
        &self,
        ctx: &OpContext,
        key: Key,
        spec: EnvironmentSpec,
    ) -> Result<Environment> {
        self.manager.create_environment(ctx, key, spec).await
    }

    /// One environment, by id or name.
    ///
    /// # Errors
    /// `ENVIRONMENT_NOT_FOUND`.
    pub async fn get_environment(&self, ctx: &OpContext, name: &str) -> Result<Environment> {
        self.manager.get_environment(ctx, name).await
    }

    /// Environments in name order.
    ///
    /// # Errors
    /// `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_environments(
        &self,
        ctx: &OpContext,
        page: PageRequest,
    ) -> Result<Page<Environment>> {
        self.manager.list_environments(ctx, page).await
    }

    /// Changes an environment.
    ///
    /// # Errors
    /// As `create_environment`, and `VERSION_CONFLICT`.
    pub async fn update_environment(
        &self,
        ctx: &OpContext,
        key: Key,
        name: &str,
        update: EnvironmentUpdate,
    ) -> Result<Environment> {
        self.manager
            .update_environment(ctx, key, name, update)
            .await
    }

    /// Removes an environment that no agent uses.
    ///
    /// # Errors
    /// `ENVIRONMENT_NOT_FOUND`, `ENVIRONMENT_IN_USE`.
    pub async fn delete_environment(&self, ctx: &OpContext, key: Key, name: &str) -> Result<()> {
        self.manager.delete_environment(ctx, key, name).await
    }

    /// Makes an agent.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `ENVIRONMENT_NOT_FOUND`, `PERMISSION_MODE_UNKNOWN`, `IDEMPOTENCY_KEY_REUSED`.
    pub async fn create_agent(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: AgentDraft,
    ) -> Result<Agent> {
        self.manager.create_agent(ctx, key, draft).await
    }

    /// One agent, in its latest version or another.
    ///
    /// # Errors
    /// `AGENT_NOT_FOUND`.
    pub async fn get_agent(
        &self,
        ctx: &OpContext,
        id: AgentId,
        version: Option<u32>,
    ) -> Result<Agent> {
        self.manager.get_agent(ctx, id, version).await
    }

    /// Agents in their latest versions, newest first.
    ///
    /// # Errors
    /// `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_agents(
        &self,
        ctx: &OpContext,
        page: PageRequest,
        archived: bool,
    ) -> Result<Page<Agent>> {
        self.manager.list_agents(ctx, page, archived).await
    }

    /// The versions of an agent, newest first.
    ///
    /// # Errors
    /// `AGENT_NOT_FOUND`, `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_agent_versions(
        &self,
        ctx: &OpContext,
        id: AgentId,
        page: PageRequest,
    ) -> Result<Page<Agent>> {
        self.manager.list_agent_versions(ctx, id, page).await
    }

    /// Changes an agent: a new version, or the same one when nothing changes.
    ///
    /// # Errors
    /// As `create_agent`, and `AGENT_NOT_FOUND`, `VERSION_CONFLICT`.
    pub async fn update_agent(
        &self,
        ctx: &OpContext,
        key: Key,
        id: AgentId,
        update: AgentUpdate,
    ) -> Result<Agent> {
        self.manager.update_agent(ctx, key, id, update).await
    }

    /// Takes no new sessions of this agent from now on.
    ///
    /// # Errors
    /// `AGENT_NOT_FOUND`.
    pub async fn archive_agent(&self, ctx: &OpContext, key: Key, id: AgentId) -> Result<Agent> {
        self.manager.archive_agent(ctx, key, id).await
    }

    /// The linked engines, in name order.
    #[must_use]
    pub fn list_engines(&self, _ctx: &OpContext) -> Vec<EngineView> {
        self.manager.list_engines()
    }

    /// One engine.
    ///
    /// # Errors
    /// `ENGINE_UNKNOWN`.
    pub fn get_engine(&self, _ctx: &OpContext, kind: &str) -> Result<EngineView> {
        self.manager.get_engine(kind)
    }

    /// Makes a session, with its first input if the draft has content, and begins to start its engine.
    ///
    /// # Errors
    /// `AGENT_NOT_FOUND`, `AGENT_ARCHIVED`, `INVALID_FIELD`, `TOO_LARGE`, `PERMISSION_MODE_UNKNOWN`,
    /// `IMAGE_MISSING`, `IDEMPOTENCY_KEY_REUSED`, `DRAINING`.
    pub async fn create_session(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: SessionDraft,
    ) -> Result<(SessionView, Option<InputId>)> {
        self.manager.create_session(ctx, key, draft).await
    }

    /// One session.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`.
    pub async fn get_session(&self, ctx: &OpContext, id: SessionId) -> Result<SessionView> {
        self.manager.get_session(ctx, id).await
    }

    /// Sessions, last changed first.
    ///
    /// # Errors
    /// `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_sessions(
        &self,
        ctx: &OpContext,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionView>> {
        self.manager.list_sessions(ctx, filter, page).await
    }

    /// Stores an input and returns its id and the seq of its event; the engine gets it in its order.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `SESSION_ARCHIVED`, `SESSION_STATE_WRONG`, `RECOVERY_REQUIRED`, `INPUT_QUEUE_FULL`,
    /// `INVALID_FIELD`, `TOO_LARGE`, `IDEMPOTENCY_KEY_REUSED`, `DRAINING`.
    pub async fn send_input(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        content: Vec<ContentPart>,
    ) -> Result<(InputId, u64)> {
        self.manager.send_input(ctx, key, id, content).await
    }

    /// Watches a session: what is durable after `after_seq`, then what happens.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `FOREIGN_CURSOR` when `after_seq` is beyond the journal.
    pub async fn watch(
        &self,
        ctx: &OpContext,
        id: SessionId,
        after_seq: u64,
        deltas: bool,
    ) -> Result<Subscription> {
        self.manager.watch(ctx, id, after_seq, deltas).await
    }

    /// A page of the journal.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_events(
        &self,
        ctx: &OpContext,
        id: SessionId,
        after_seq: u64,
        page: PageRequest,
    ) -> Result<Page<JournalEvent>> {
        let from = (after_seq, None);
        self.manager.list_events(ctx, id, from, page).await
    }

    /// A page of one child run's history.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `FOREIGN_CURSOR`, `INVALID_FIELD`.
    pub async fn list_child_run_events(
        &self,
        ctx: &OpContext,
        id: SessionId,
        run: &ChildRunId,
        after_seq: u64,
        page: PageRequest,
    ) -> Result<Page<JournalEvent>> {
        let from = (after_seq, Some(run));
        self.manager.list_events(ctx, id, from, page).await
    }

    /// The child runs of a session, each as it stands, in the order in which they began.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`.
    pub async fn list_child_runs(&self, ctx: &OpContext, id: SessionId) -> Result<Vec<ChildRun>> {
        self.manager.list_child_runs(ctx, id).await
    }

    /// Asks the engine to stop a child run; returns where it stood. That it stopped is told by the journal.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `CHILD_RUN_NOT_FOUND`, `CAPABILITY_UNAVAILABLE`, `SESSION_STATE_WRONG` when no engine is
    /// there.
    pub async fn stop_child_run(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        run: ChildRunId,
    ) -> Result<ChildRunState> {
        self.manager.stop_child_run(ctx, key, id, run).await
    }

    /// Stops the running turn; returns it, or `None` when none runs.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`.
    pub async fn interrupt(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
    ) -> Result<Option<TurnId>> {
        self.manager.interrupt(ctx, key, id).await
    }

    /// The interactions of a session, oldest first.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`.
    pub async fn list_interactions(
        &self,
        ctx: &OpContext,
        id: SessionId,
        include_closed: bool,
    ) -> Result<Vec<InteractionRecord>> {
        self.manager
            .list_interactions(ctx, id, include_closed)
            .await
    }

    /// Answers an interaction; returns the seq of its event.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `INTERACTION_NOT_FOUND`, `INTERACTION_CLOSED`, `INTERACTION_ANSWER_INVALID`.
    pub async fn respond(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        interaction: InteractionId,
        answer: InteractionAnswer,
    ) -> Result<u64> {
        self.manager
            .respond(ctx, key, id, interaction, answer)
            .await
    }

    /// Sets the permission mode for the turns that follow; returns the mode before.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `PERMISSION_MODE_UNKNOWN`, `CAPABILITY_UNAVAILABLE`.
    pub async fn set_permission_mode(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        mode: &str,
    ) -> Result<Option<String>> {
        self.manager.set_permission_mode(ctx, key, id, mode).await
    }

    /// Ends the session's sandbox, proven; returns it, or `None` when there was none.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `SESSION_STATE_WRONG` while a turn runs, `SANDBOX_CLEANUP_UNCONFIRMED`.
    pub async fn release_sandbox(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
    ) -> Result<Option<SandboxId>> {
        self.manager.release_sandbox(ctx, key, id).await
    }

    /// Tries again to start a session that needs recovery or is terminated.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `SESSION_STATE_WRONG`.
    pub async fn recover(&self, ctx: &OpContext, key: Key, id: SessionId) -> Result<SessionView> {
        self.manager.recover(ctx, key, id).await
    }

    /// Ends the sandbox and puts the session away.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `SANDBOX_CLEANUP_UNCONFIRMED`.
    pub async fn archive(&self, ctx: &OpContext, key: Key, id: SessionId) -> Result<SessionView> {
        self.manager.archive(ctx, key, id).await
    }

    /// Removes the session, its sandbox and its workspace. Legal in every state.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `SANDBOX_CLEANUP_UNCONFIRMED`.
    pub async fn delete(&self, ctx: &OpContext, key: Key, id: SessionId) -> Result<()> {
        self.manager.delete(ctx, key, id).await
    }

    /// What is in a directory of the session's running sandbox.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `SESSION_STATE_WRONG` without a sandbox, `FILE_NOT_FOUND`, `INVALID_FIELD`.
    pub async fn list_files(
        &self,
        ctx: &OpContext,
        id: SessionId,
        path: &str,
    ) -> Result<Vec<FileInfo>> {
        self.manager.list_files(ctx, id, path).await
    }

    /// At most `limit` bytes of a file of the session's running sandbox; empty at the end.
    ///
    /// # Errors
    /// As `list_files`.
    pub async fn read_file(
        &self,
        ctx: &OpContext,
        id: SessionId,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<Bytes> {
        self.manager.read_file(ctx, id, path, offset, limit).await
    }

    /// All sandboxes of all providers.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE`.
    pub async fn list_sandboxes(&self, ctx: &OpContext) -> Result<Vec<SandboxView>> {
        self.manager.list_sandboxes(ctx).await
    }

    /// One sandbox, with diagnostics.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND`.
    pub async fn describe_sandbox(
        &self,
        ctx: &OpContext,
        id: SandboxId,
    ) -> Result<(SandboxView, Diagnostics)> {
        self.manager.describe_sandbox(ctx, id).await
    }

    /// What a running sandbox enforces, asked of the sandbox, and what the boundary lets it do, asked of the boundary.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND`, `SANDBOX_UNAVAILABLE`.
    pub async fn security_posture(
        &self,
        ctx: &OpContext,
        id: SandboxId,
    ) -> Result<(Posture, Option<BoundaryState>)> {
        self.manager.security_posture(ctx, id).await
    }
}
