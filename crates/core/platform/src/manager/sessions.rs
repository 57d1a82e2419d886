//! Sessions: reading from the store, changing through the session's owner.

use astrabox_identity::OpContext;
use astrabox_store::{NewSession, SessionRow};
use astrabox_types::{
    Agent, ChildRun, ChildRunId, ChildRunState, ContentPart, EngineFeature, Environment,
    ErrorReason, InputId, InteractionAnswer, InteractionId, JournalEvent, SandboxId, Session,
    SessionId, SessionKind, SessionState, Timestamp, TurnId, VolumeId,
};

use super::resources::{agent_error, from_store};
use super::{Manager, store_key};
use crate::session::Command;
use crate::{
    Error, IdempotencyKey, InteractionRecord, Page, PageRequest, Result, SessionDraft,
    SessionFilter, SessionView, Subscription, validate,
};

type Key = Option<IdempotencyKey>;

impl Manager {
    pub(crate) async fn create_session(
        &self,
        ctx: &OpContext,
        key: Key,
        draft: SessionDraft,
    ) -> Result<(SessionView, Option<InputId>)> {
        if self.draining.is_cancelled() {
            return Err(Error::new(
                ErrorReason::Draining,
                "the server is shutting down; retry",
            ));
        }
        let key = store_key(ctx, "CreateSession", key);
        let known = match &key {
            Some(key) => {
                self.store()
                    .answer_of::<(String, Option<String>)>(key)
                    .await?
            }
            None => None,
        };
        let (session, input) = match known {
            Some(known) => known,
            None => {
                self.store()
                    .insert_session(key, self.new_session(ctx, draft).await?)
                    .await?
            }
        };
        let corrupt = |_| Error::new(ErrorReason::Internal, "a stored answer cannot be read");
        let id: SessionId = session.parse().map_err(corrupt)?;
        let input = input
            .map(|input| input.parse())
            .transpose()
            .map_err(corrupt)?;
        self.owner_of(id)?;
        Ok((self.get_session(ctx, id).await?, input))
    }

    /// Checks a draft whole, so that a refused one changes nothing.
    async fn new_session(&self, ctx: &OpContext, draft: SessionDraft) -> Result<NewSession> {
        if draft.title.len() > 256 {
            return Err(Error::field("title", "has at most 256 bytes"));
        }
        validate::metadata(&draft.metadata)?;
        let agent = self
            .store()
            .agent(draft.agent_id, draft.agent_version)
            .await
            .map_err(agent_error)?;
        if agent.archived {
            return Err(Error::new(
                ErrorReason::AgentArchived,
                "the agent is archived and takes no new sessions",
            ));
        }
        let environment = self
            .store()
            .environment(&agent.spec.environment_id.to_string())
            .await?;
        let adapter = self.adapter(&environment.spec.engine)?;
        let capabilities = adapter.capabilities();
        self.image_of(&environment.spec, adapter)?;
        let mode = draft
            .permission_mode
            .or(agent.spec.permission_mode)
            .or(capabilities.default_permission_mode.map(str::to_owned));
        if let Some(mode) = &mode {
            validate::permission_mode(&capabilities, environment.spec.permission_level, mode)?;
        }
        validate::mcp_hosts(&agent.spec.mcp_servers, &environment.spec.networking)?;
        // What two vaults contradict each other about is told now, not when the sandbox starts.
        self.credentials_of(&agent.spec.vault_ids).await?;
        if !draft.content.is_empty() {
            validate::content(&capabilities, &draft.content)?;
        }
        let now = Timestamp::now();
        let session = Session {
            id: SessionId::new(),
            agent_id: agent.id,
            agent_version: agent.version,
            kind: SessionKind::AgentChat,
            title: draft.title,
            state: SessionState::Creating,
            state_reason: None,
            archived: false,
            permission_mode: mode,
            current_turn: None,
            last_seq: 0,
            metadata: draft.metadata,
            created_by: ctx.actor.subject().to_owned(),
            created_at: now,
            updated_at: now,
        };
        let input = (!draft.content.is_empty()).then(|| (InputId::new(), draft.content));
        Ok(NewSession {
            session,
            volume_id: VolumeId::new(),
            input,
        })
    }

    pub(crate) async fn session_row(&self, id: SessionId) -> Result<SessionRow> {
        match self.store().session(id).await {
            Err(astrabox_store::Error::NotFound) => Err(Error::new(
                ErrorReason::SessionNotFound,
                "no session has this id; list them with ListSessions",
            )),
            result => Ok(result?),
        }
    }

    /// The agent version and the environment of a session.
    pub(crate) async fn agent_of(&self, session: &Session) -> Result<(Agent, Environment)> {
        let agent = self
            .store()
            .agent(session.agent_id, Some(session.agent_version))
            .await?;
        let environment = self
            .store()
            .environment(&agent.spec.environment_id.to_string())
            .await?;
        Ok((agent, environment))
    }

    async fn view(&self, row: SessionRow) -> Result<SessionView> {
        let (_, environment) = self.agent_of(&row.session).await?;
        Ok(SessionView {
            session: row.session,
            engine: environment.spec.engine,
            sandbox_id: row.sandbox_id,
        })
    }

    pub(crate) async fn get_session(&self, _ctx: &OpContext, id: SessionId) -> Result<SessionView> {
        self.view(self.session_row(id).await?).await
    }

    pub(crate) async fn list_sessions(
        &self,
        _ctx: &OpContext,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionView>> {
        let size = validate::page_size(&page)?;
        let filter = astrabox_store::SessionFilter {
            agent_id: filter.agent_id,
            include_archived: filter.include_archived,
        };
        let page = self
            .store()
            .sessions(&filter, size, page.token.as_deref())
            .await?;
        let mut items = Vec::with_capacity(page.items.len());
        for row in page.items {
            items.push(self.view(row).await?);
        }
        Ok(Page {
            items,
            next: page.next,
        })
    }

    pub(crate) async fn send_input(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        content: Vec<ContentPart>,
    ) -> Result<(InputId, u64)> {
        self.session_row(id).await?;
        let key = store_key(ctx, "SendInput", key);
        self.owner_of(id)?
            .ask(|reply| Command::SendInput {
                key,
                content,
                reply,
            })
            .await
    }

    pub(crate) async fn watch(
        &self,
        _ctx: &OpContext,
        id: SessionId,
        after_seq: u64,
        deltas: bool,
    ) -> Result<Subscription> {
        let row = self.session_row(id).await?;
        if after_seq > row.session.last_seq {
            return Err(Error::new(
                ErrorReason::ForeignCursor,
                format!(
                    "after_seq: the session's journal ends at {}",
                    row.session.last_seq
                ),
            ));
        }
        let hub = self
            .owner_of(id)?
            .ask(|reply| Command::Hub { reply })
            .await?;
        Ok(hub.subscribe(self.store().clone(), after_seq, deltas))
    }

    pub(crate) async fn list_events(
        &self,
        _ctx: &OpContext,
        id: SessionId,
        (after_seq, of_child): (u64, Option<&ChildRunId>),
        page: PageRequest,
    ) -> Result<Page<JournalEvent>> {
        let size = validate::page_size(&page)?;
        self.session_row(id).await?;
        Ok(from_store(
            self.store()
                .event_page_of(id, of_child, after_seq, size, page.token.as_deref())
                .await?,
        ))
    }

    pub(crate) async fn interrupt(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
    ) -> Result<Option<TurnId>> {
        self.session_row(id).await?;
        let key = store_key(ctx, "InterruptSession", key);
        self.owner_of(id)?
            .ask(|reply| Command::Interrupt { key, reply })
            .await
    }

    pub(crate) async fn list_interactions(
        &self,
        _ctx: &OpContext,
        id: SessionId,
        include_closed: bool,
    ) -> Result<Vec<InteractionRecord>> {
        self.session_row(id).await?;
        let rows = self.store().interactions(id, include_closed).await?;
        Ok(rows
            .into_iter()
            .map(|row| InteractionRecord {
                interaction: row.interaction,
                state: row.state,
                turn_id: row.turn_id,
            })
            .collect())
    }

    pub(crate) async fn respond(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        interaction: InteractionId,
        answer: InteractionAnswer,
    ) -> Result<u64> {
        self.session_row(id).await?;
        let key = store_key(ctx, "RespondInteraction", key);
        let actor = ctx.actor.subject().to_owned();
        self.owner_of(id)?
            .ask(|reply| Command::Respond {
                key,
                actor,
                interaction,
                answer,
                reply,
            })
            .await
    }

    pub(crate) async fn set_permission_mode(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        mode: &str,
    ) -> Result<Option<String>> {
        let row = self.session_row(id).await?;
        let (_, environment) = self.agent_of(&row.session).await?;
        let capabilities = self.adapter(&environment.spec.engine)?.capabilities();
        validate::permission_mode(&capabilities, environment.spec.permission_level, mode)?;
        let key = store_key(ctx, "SetPermissionMode", key);
        let mode = mode.to_owned();
        self.owner_of(id)?
            .ask(|reply| Command::SetMode { key, mode, reply })
            .await
    }

    pub(crate) async fn list_child_runs(
        &self,
        _ctx: &OpContext,
        id: SessionId,
    ) -> Result<Vec<ChildRun>> {
        self.session_row(id).await?;
        Ok(self.store().child_runs(id).await?)
    }

    pub(crate) async fn stop_child_run(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
        run: ChildRunId,
    ) -> Result<ChildRunState> {
        let row = self.session_row(id).await?;
        let (_, environment) = self.agent_of(&row.session).await?;
        let capabilities = self.adapter(&environment.spec.engine)?.capabilities();
        if !capabilities.has(EngineFeature::ChildRunStop) {
            return Err(Error::new(
                ErrorReason::CapabilityUnavailable,
                format!(
                    "the child runs of {} cannot be stopped; interrupt the session",
                    capabilities.display_name
                ),
            ));
        }
        let key = store_key(ctx, "StopChildRun", key);
        self.owner_of(id)?
            .ask(|reply| Command::StopChild { key, run, reply })
            .await
    }

    pub(crate) async fn release_sandbox(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
    ) -> Result<Option<SandboxId>> {
        self.session_row(id).await?;
        let key = store_key(ctx, "ReleaseSandbox", key);
        self.owner_of(id)?
            .ask(|reply| Command::Release { key, reply })
            .await
    }

    pub(crate) async fn recover(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
    ) -> Result<SessionView> {
        self.session_row(id).await?;
        let key = store_key(ctx, "RecoverSession", key);
        self.owner_of(id)?
            .ask(|reply| Command::Recover { key, reply })
            .await?;
        self.get_session(ctx, id).await
    }

    pub(crate) async fn archive(
        &self,
        ctx: &OpContext,
        key: Key,
        id: SessionId,
    ) -> Result<SessionView> {
        self.session_row(id).await?;
        let key = store_key(ctx, "ArchiveSession", key);
        self.owner_of(id)?
            .ask(|reply| Command::Archive { key, reply })
            .await?;
        self.get_session(ctx, id).await
    }

    pub(crate) async fn delete(&self, ctx: &OpContext, key: Key, id: SessionId) -> Result<()> {
        let key = store_key(ctx, "DeleteSession", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        self.session_row(id).await?;
        self.owner_of(id)?
            .ask(|reply| Command::Delete { key, reply })
            .await
    }
}
