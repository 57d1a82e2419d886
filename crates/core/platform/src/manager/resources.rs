//! Environments, agents and engines.

use astrabox_engine::EngineAdapter;
use astrabox_identity::OpContext;
use astrabox_store::EnvironmentWrite;
use astrabox_types::{
    Agent, AgentId, AgentSpec, Environment, EnvironmentId, EnvironmentSpec, ErrorReason, Timestamp,
    VaultId,
};

use super::vaults::{vault_archived, vault_error};
use super::{Manager, store_key};
use crate::{
    AgentDraft, AgentUpdate, EngineView, EnvironmentUpdate, Error, IdempotencyKey, Page,
    PageRequest, Result, validate,
};

impl Manager {
    pub(crate) async fn create_environment(
        &self,
        ctx: &OpContext,
        key: Option<IdempotencyKey>,
        spec: EnvironmentSpec,
    ) -> Result<Environment> {
        let spec = self.checked_environment(spec)?;
        let now = Timestamp::now();
        let environment = Environment {
            id: EnvironmentId::new(),
            spec,
            version: 1,
            created_at: now,
            updated_at: now,
        };
        let name = environment.spec.name.clone();
        let key = store_key(ctx, "CreateEnvironment", key);
        match self.store().insert_environment(key, environment).await {
            Err(astrabox_store::Error::Exists) => Err(Error::new(
                ErrorReason::EnvironmentNameTaken,
                format!("an environment `{name}` exists; choose another name"),
            )),
            result => Ok(result?),
        }
    }

    /// Fills in defaults and checks the whole.
    fn checked_environment(&self, mut spec: EnvironmentSpec) -> Result<EnvironmentSpec> {
        let settings = &self.parts.settings;
        if spec.sandbox.is_empty() {
            spec.sandbox.clone_from(&settings.default_sandbox);
        }
        if spec.model_provider.is_empty() {
            spec.model_provider.clone_from(&settings.default_model);
        }
        spec.limits = validate::with_defaults(spec.limits, settings.default_limits);
        validate::environment(&spec)?;
        let adapter = self.adapter(&spec.engine)?;
        self.model_provider(&spec.model_provider)?;
        let capabilities = self.sandbox_provider(&spec.sandbox)?.capabilities();
        if !capabilities
            .permission_levels
            .contains(&spec.permission_level)
        {
            return Err(Error::new(
                ErrorReason::CapabilityUnavailable,
                format!(
                    "spec.permission_level: the sandbox provider `{}` does not have it",
                    spec.sandbox
                ),
            ));
        }
        let engine = adapter.capabilities();
        validate::program(&engine, spec.program.as_ref())?;
        // A level or a program that the engine cannot work with is refused now, not at the first session.
        let context = astrabox_engine::SandboxRequestContext {
            session_kind: engine.session_kinds[0],
            permission_level: spec.permission_level,
            program: spec.program.clone(),
        };
        let field = match spec.program {
            Some(_) => "spec.program",
            None => "spec.permission_level",
        };
        adapter
            .sandbox_request(&context)
            .map_err(|error| Error::field(field, error.context()))?;
        self.image_of(&spec, adapter)?;
        Ok(spec)
    }

    /// Where the environment's image is.
    ///
    /// # Errors
    /// `IMAGE_MISSING`, with the command that builds it.
    pub(crate) fn image_of(
        &self,
        spec: &EnvironmentSpec,
        adapter: &dyn EngineAdapter,
    ) -> Result<astrabox_sandbox::ImageRef> {
        let own = self.parts.images.name_for(adapter.kind());
        let name = spec.image.clone().unwrap_or(own);
        match self.parts.images.find(&name) {
            Some(root) => Ok(astrabox_sandbox::ImageRef { name, root }),
            None => {
                let command = self.parts.images.build_command(adapter.kind());
                Err(Error::new(
                    ErrorReason::ImageMissing,
                    format!("the image `{name}` is not built; build it with: {command}"),
                )
                .with("image", name)
                .with("command", command))
            }
        }
    }

    pub(crate) async fn get_environment(
        &self,
        _ctx: &OpContext,
        name: &str,
    ) -> Result<Environment> {
        match self.store().environment(name).await {
            Err(astrabox_store::Error::NotFound) => Err(Error::new(
                ErrorReason::EnvironmentNotFound,
                "no environment has this id or name; list them with ListEnvironments",
            )),
            result => Ok(result?),
        }
    }

    pub(crate) async fn list_environments(
        &self,
        _ctx: &OpContext,
        page: PageRequest,
    ) -> Result<Page<Environment>> {
        let size = validate::page_size(&page)?;
        Ok(from_store(
            self.store()
                .environments(size, page.token.as_deref())
                .await?,
        ))
    }

    pub(crate) async fn update_environment(
        &self,
        ctx: &OpContext,
        key: Option<IdempotencyKey>,
        name: &str,
        update: EnvironmentUpdate,
    ) -> Result<Environment> {
        let key = store_key(ctx, "UpdateEnvironment", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        let stored = self.get_environment(ctx, name).await?;
        check_version(update.version, stored.version)?;
        let mut spec = stored.spec;
        let EnvironmentUpdate {
            version: _,
            description,
            image,
            sandbox,
            model_provider,
            networking,
            permission_level,
            limits,
            program,
        } = update;
        spec.description = description.unwrap_or(spec.description);
        spec.image = image.unwrap_or(spec.image);
        spec.sandbox = sandbox.unwrap_or(spec.sandbox);
        spec.model_provider = model_provider.unwrap_or(spec.model_provider);
        spec.networking = networking.unwrap_or(spec.networking);
        spec.permission_level = permission_level.unwrap_or(spec.permission_level);
        spec.limits = limits.unwrap_or(spec.limits);
        spec.program = program.unwrap_or(spec.program);
        let spec = self.checked_environment(spec)?;
        let write = EnvironmentWrite {
            id: stored.id,
            version: stored.version,
            spec,
        };
        match self.store().update_environment(key, write).await {
            Err(astrabox_store::Error::VersionConflict { stored }) => Err(version_conflict(stored)),
            result => Ok(result?),
        }
    }

    pub(crate) async fn delete_environment(
        &self,
        ctx: &OpContext,
        key: Option<IdempotencyKey>,
        name: &str,
    ) -> Result<()> {
        let key = store_key(ctx, "DeleteEnvironment", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        let stored = self.get_environment(ctx, name).await?;
        match self.store().delete_environment(key, stored.id).await {
            Err(astrabox_store::Error::InUse) => Err(Error::new(
                ErrorReason::EnvironmentInUse,
                format!("the environment `{}` is used by an agent", stored.spec.name),
            )),
            result => Ok(result?),
        }
    }

    pub(crate) async fn create_agent(
        &self,
        ctx: &OpContext,
        key: Option<IdempotencyKey>,
        draft: AgentDraft,
    ) -> Result<Agent> {
        let spec = self.checked_agent(ctx, draft, &[]).await?;
        let now = Timestamp::now();
        let agent = Agent {
            id: AgentId::new(),
            version: 1,
            spec,
            archived: false,
            created_at: now,
            updated_at: now,
        };
        let key = store_key(ctx, "CreateAgent", key);
        self.store()
            .insert_agent(key, agent)
            .await
            .map_err(written_agent_error)
    }

    /// `known` are the vaults that the agent has already: they may have been archived since.
    async fn checked_agent(
        &self,
        ctx: &OpContext,
        draft: AgentDraft,
        known: &[VaultId],
    ) -> Result<AgentSpec> {
        validate::agent(
            &draft.name,
            &draft.description,
            &draft.model,
            &draft.system,
            &draft.metadata,
        )?;
        let environment = self.get_environment(ctx, &draft.environment).await?;
        let capabilities = self.adapter(&environment.spec.engine)?.capabilities();
        let engine_options = validate::engine_options(&capabilities, &draft.engine_options)?;
        if let Some(mode) = &draft.permission_mode {
            validate::permission_mode(&capabilities, environment.spec.permission_level, mode)?;
        }
        if let Some(repository) = &draft.repository {
            validate::repository(repository)?;
        }
        validate::mcp_servers(&draft.mcp_servers)?;
        validate::skills(&draft.skills)?;
        validate::consumed(&capabilities, &draft)?;
        validate::approval_rules(&draft.approval_rules)?;
        validate::vault_ids(&draft.vault_ids)?;
        for id in draft.vault_ids.iter().filter(|id| !known.contains(id)) {
            let vault = self.store().vault(*id).await.map_err(vault_error)?;
            if vault.archived_at.is_some() {
                return Err(vault_archived().with("vault_id", id.to_string()));
            }
        }
        Ok(AgentSpec {
            name: draft.name,
            description: draft.description,
            environment_id: environment.id,
            model: draft.model,
            system: draft.system,
            engine_options,
            permission_mode: draft.permission_mode,
            repository: draft.repository,
            mcp_servers: draft.mcp_servers,
            skills: draft.skills,
            approval_rules: draft.approval_rules,
            vault_ids: draft.vault_ids,
            metadata: draft.metadata,
        })
    }

    pub(crate) async fn get_agent(
        &self,
        _ctx: &OpContext,
        id: AgentId,
        version: Option<u32>,
    ) -> Result<Agent> {
        self.store().agent(id, version).await.map_err(agent_error)
    }

    pub(crate) async fn list_agents(
        &self,
        _ctx: &OpContext,
        page: PageRequest,
        archived: bool,
    ) -> Result<Page<Agent>> {
        let size = validate::page_size(&page)?;
        Ok(from_store(
            self.store()
                .agents(size, page.token.as_deref(), archived)
                .await?,
        ))
    }

    pub(crate) async fn list_agent_versions(
        &self,
        _ctx: &OpContext,
        id: AgentId,
        page: PageRequest,
    ) -> Result<Page<Agent>> {
        let size = validate::page_size(&page)?;
        let page = self
            .store()
            .agent_versions(id, size, page.token.as_deref())
            .await
            .map_err(agent_error)?;
        Ok(from_store(page))
    }

    pub(crate) async fn update_agent(
        &self,
        ctx: &OpContext,
        key: Option<IdempotencyKey>,
        id: AgentId,
        update: AgentUpdate,
    ) -> Result<Agent> {
        let key = store_key(ctx, "UpdateAgent", key);
        if let Some(key) = &key
            && let Some(answer) = self.store().answer_of(key).await?
        {
            return Ok(answer);
        }
        let stored = self.get_agent(ctx, id, None).await?;
        check_version(update.version, stored.version)?;
        let old = stored.spec;
        let old_options = old
            .engine_options
            .iter()
            .map(|(name, value)| (name.clone(), value.text().to_owned()));
        let draft = AgentDraft {
            name: update.name.unwrap_or(old.name),
            description: update.description.unwrap_or(old.description),
            environment: update
                .environment
                .unwrap_or_else(|| old.environment_id.to_string()),
            model: update.model.unwrap_or(old.model),
            system: update.system.unwrap_or(old.system),
            engine_options: update
                .engine_options
                .unwrap_or_else(|| old_options.collect()),
            permission_mode: update.permission_mode.unwrap_or(old.permission_mode),
            repository: update.repository.unwrap_or(old.repository),
            mcp_servers: update.mcp_servers.unwrap_or(old.mcp_servers),
            skills: update.skills.unwrap_or(old.skills),
            approval_rules: update.approval_rules.unwrap_or(old.approval_rules),
            vault_ids: update.vault_ids.unwrap_or_else(|| old.vault_ids.clone()),
            metadata: update.metadata.unwrap_or(old.metadata),
        };
        let spec = self.checked_agent(ctx, draft, &old.vault_ids).await?;
        match self
            .store()
            .update_agent(key, id, stored.version, spec)
            .await
        {
            Err(astrabox_store::Error::VersionConflict { stored }) => Err(version_conflict(stored)),
            result => result.map_err(written_agent_error),
        }
    }

    pub(crate) async fn archive_agent(
        &self,
        ctx: &OpContext,
        key: Option<IdempotencyKey>,
        id: AgentId,
    ) -> Result<Agent> {
        self.store()
            .archive_agent(store_key(ctx, "ArchiveAgent", key), id)
            .await
            .map_err(agent_error)
    }

    pub(crate) fn list_engines(&self) -> Vec<EngineView> {
        self.parts
            .engines
            .iter()
            .map(|registration| self.engine_view(registration.adapter()))
            .collect()
    }

    pub(crate) fn get_engine(&self, kind: &str) -> Result<EngineView> {
        Ok(self.engine_view(self.adapter(kind)?))
    }

    fn engine_view(&self, adapter: &'static dyn EngineAdapter) -> EngineView {
        let image = self.parts.images.name_for(adapter.kind());
        let image_built = self.parts.images.find(&image).is_some();
        let build_command = self.parts.images.build_command(adapter.kind());
        EngineView {
            kind: adapter.kind(),
            capabilities: adapter.capabilities(),
            image,
            image_built,
            build_command,
        }
    }
}

pub(crate) fn from_store<T>(page: astrabox_store::Page<T>) -> Page<T> {
    Page {
        items: page.items,
        next: page.next,
    }
}

pub(crate) fn agent_error(error: astrabox_store::Error) -> Error {
    match error {
        astrabox_store::Error::NotFound => Error::new(
            ErrorReason::AgentNotFound,
            "no agent has this id and version; list them with ListAgents",
        ),
        error => error.into(),
    }
}

/// A vault that was deleted in the same moment.
fn written_agent_error(error: astrabox_store::Error) -> Error {
    match error {
        astrabox_store::Error::NoVault => vault_error(error),
        error => error.into(),
    }
}

fn check_version(known: Option<u32>, stored: u32) -> Result<()> {
    match known {
        Some(known) if known != stored => Err(version_conflict(stored)),
        _ => Ok(()),
    }
}

fn version_conflict(stored: u32) -> Error {
    Error::new(
        ErrorReason::VersionConflict,
        format!("the stored version is {stored}; read it again and repeat"),
    )
    .with("stored_version", stored.to_string())
}
