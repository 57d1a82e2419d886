//! A session's credentials on their way to the boundary: what its sandbox may put into requests, and the values for
//! it. The values go to the egress proxy alone.

mod model;
mod plan;

use std::time::Duration;

use astrabox_egress::{CredentialPlan, Placeholder};
use astrabox_engine::{McpHeader, SandboxRequestContext};
use astrabox_model::{ModelRequest, ResolvedModelAccess};
use astrabox_sandbox::{CredentialValues, EgressCredentials};
use astrabox_startup::{StartupError, StartupRequest};
use astrabox_types::{
    AgentSpec, CredentialSpec, EnvironmentSpec, ErrorReason, SandboxId, SessionId, SessionKind,
    VaultId,
};

use self::plan::{Planned, Uses};
use super::Manager;
use crate::session::Command;
use crate::vault::SessionCredential;
use crate::{Error, Result};

/// How often a plan is made anew because its credentials changed meanwhile.
const MOST_TRIES: usize = 5;

/// How long a change of credentials waits for the sessions that use them.
const TOLD_WITHIN: Duration = Duration::from_secs(40);

/// Whose credentials.
#[derive(Clone, Copy)]
pub(crate) struct Bearer<'a> {
    pub(crate) session_id: SessionId,
    pub(crate) kind: SessionKind,
    pub(crate) agent: &'a AgentSpec,
    pub(crate) environment: &'a EnvironmentSpec,
    /// The sandbox that is to use them.
    pub(crate) sandbox: SandboxId,
}

impl<'a> Bearer<'a> {
    /// Of a start.
    pub(crate) fn of(request: &'a StartupRequest) -> Self {
        Self {
            session_id: request.session_id,
            kind: request.session_kind,
            agent: &request.agent,
            environment: &request.environment,
            sandbox: request.attach_to.unwrap_or(request.new_sandbox_id),
        }
    }
}

/// What to do where the value of one credential cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nothing is given.
    Refuse,
    /// The others are given; requests with this one are refused at the boundary.
    LeaveOut,
}

impl Manager {
    /// The header of each MCP server of a session that has a credential.
    pub(super) async fn mcp_headers(
        &self,
        bearer: Bearer<'_>,
    ) -> std::result::Result<Vec<McpHeader>, StartupError> {
        let credentials = self.usable(bearer.agent).await?;
        if credentials.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.plan(bearer, &credentials).await?.mcp_headers)
    }

    /// Gives the boundary what a session's sandbox may put into requests, and tells the plan.
    ///
    /// # Errors
    /// When credentials contradict each other, a value cannot be had, or the boundary does not take them.
    pub(crate) async fn give_credentials(
        &self,
        bearer: Bearer<'_>,
        missing: Missing,
    ) -> std::result::Result<CredentialPlan, StartupError> {
        let given = self.try_to_give(bearer, missing).await;
        if given.is_err() && missing == Missing::LeaveOut {
            self.take_credentials_away(bearer.sandbox).await?;
        }
        given
    }

    /// Leaves a sandbox without credentials: what is not known to be right any more is taken away.
    pub(crate) async fn take_credentials_away(&self, sandbox: SandboxId) -> Result<()> {
        let Some(boundary) = &self.parts.boundary else {
            return Ok(());
        };
        let nothing = CredentialValues::default();
        let taken = boundary.set_credentials(sandbox, CredentialPlan::default(), nothing);
        Ok(taken.await?)
    }

    async fn try_to_give(
        &self,
        bearer: Bearer<'_>,
        missing: Missing,
    ) -> std::result::Result<CredentialPlan, StartupError> {
        let mut credentials = self.usable(bearer.agent).await?;
        for _ in 0..MOST_TRIES {
            let Planned { plan, .. } = self.plan(bearer, &credentials).await?;
            let nothing = plan.grants().next().is_none();
            let Some(boundary) = self.parts.boundary.as_deref() else {
                return if nothing {
                    Ok(plan)
                } else {
                    Err(without_boundary().into())
                };
            };
            if nothing && bearer.agent.vault_ids.is_empty() && !self.wants_model_credentials() {
                return Ok(plan);
            }
            self.hand_over(boundary, bearer, &plan, &credentials, missing)
                .await?;
            // What changed while the values were read is seen by whoever changed it, or here.
            let now = self.usable(bearer.agent).await?;
            if now == credentials {
                return Ok(plan);
            }
            credentials = now;
        }
        let text = "the session's credentials change too fast; retry";
        Err(Error::new(ErrorReason::VaultCredentialUnavailable, text).into())
    }

    async fn hand_over(
        &self,
        boundary: &dyn EgressCredentials,
        bearer: Bearer<'_>,
        plan: &CredentialPlan,
        credentials: &[SessionCredential],
        missing: Missing,
    ) -> std::result::Result<(), StartupError> {
        let mut values = CredentialValues::default();
        let read = plan.grants().filter_map(|grant| {
            let credential = credentials
                .iter()
                .find(|known| known.id.to_string() == grant.credential_id)?;
            Some(async move { (grant, self.value_for(bearer, credential).await) })
        });
        // At once: each may have to ask a token endpoint.
        for (grant, value) in futures::future::join_all(read).await {
            match value {
                Ok(value) => values.insert(grant.credential_id.clone(), value),
                Err(error) if missing == Missing::Refuse => return Err(error.into()),
                Err(error) => tracing::warn!(
                    session = %bearer.session_id,
                    credential = grant.credential_id,
                    %error,
                    "a credential has no value now; requests with it are refused"
                ),
            }
        }
        boundary
            .set_credentials(bearer.sandbox, plan.clone(), values)
            .await?;
        Ok(())
    }

    /// The credentials of the agent's vaults, and the one of the deployment's model endpoint.
    async fn usable(&self, agent: &AgentSpec) -> Result<Vec<SessionCredential>> {
        let mut all = self.credentials_of(&agent.vault_ids).await?;
        for credential in self.model_credentials().await? {
            if all.iter().all(|known| known.id != credential.id) {
                all.push(credential);
            }
        }
        Ok(all)
    }

    async fn plan(
        &self,
        bearer: Bearer<'_>,
        credentials: &[SessionCredential],
    ) -> std::result::Result<Planned, StartupError> {
        if credentials.is_empty() {
            return Ok(Planned::default());
        }
        let adapter = self.adapter(&bearer.environment.engine)?;
        let needs = adapter.sandbox_request(&SandboxRequestContext {
            session_kind: bearer.kind,
            permission_level: bearer.environment.permission_level,
            program: bearer.environment.program.clone(),
        })?;
        let wanted = ModelRequest {
            model: bearer.agent.model.clone(),
            wire: needs.model_wire,
        };
        let model = self
            .model_access(bearer.agent, bearer.environment, &wanted)
            .await?;
        let uses = Uses {
            model: &model,
            model_paths: &needs.model_paths,
            servers: &bearer.agent.mcp_servers,
        };
        let key = self.keeper.mint_key().await?;
        let sandbox = bearer.sandbox.to_string();
        let mint = |id: &str| Placeholder::mint(key, &sandbox, id);
        Ok(Planned::of(credentials, &uses, &mint)?)
    }

    /// Where the model of an agent is: at an endpoint of its own vaults, or where the environment's provider says.
    pub(super) async fn model_access(
        &self,
        agent: &AgentSpec,
        environment: &EnvironmentSpec,
        wanted: &ModelRequest,
    ) -> std::result::Result<ResolvedModelAccess, StartupError> {
        let own = self.model_keys_of(&agent.vault_ids).await?;
        if let Some(access) = own.iter().find_map(|known| model::of_vault(known, wanted)) {
            return Ok(access);
        }
        let provider = self.model_provider(&environment.model_provider)?;
        let access = provider.resolve(wanted).await?;
        if let Some(wanted) = &access.credential {
            // Without it every request would be refused, and nobody would know why.
            self.model_credential(wanted).await?;
        }
        Ok(access)
    }

    /// Takes changed credentials of a vault to every sandbox that uses them, and returns when they hold there.
    pub(crate) async fn credentials_changed(&self, vault: VaultId) {
        let users = match self.users_of(vault).await {
            Ok(users) => users,
            Err(error) => {
                tracing::error!(%vault, %error, "which sessions use a changed vault is not known");
                return;
            }
        };
        let told = users.into_iter().map(|session| async move {
            let handle = self.owner_of(session)?;
            handle.ask(|reply| Command::Credentials { reply }).await
        });
        let told = futures::future::join_all(told);
        let Ok(told) = tokio::time::timeout(TOLD_WITHIN, told).await else {
            tracing::warn!(%vault, "not every session has taken changed credentials yet");
            return;
        };
        for result in told {
            if let Err(error) = result {
                tracing::warn!(%vault, %error, "a session was not told of changed credentials; it is when it goes on");
            }
        }
    }

    /// The sessions with a sandbox that use a vault: by their agents, or by a model endpoint's own credential.
    async fn users_of(&self, vault: VaultId) -> Result<Vec<SessionId>> {
        let everybody = self.is_of_models(vault).await?;
        let vault = (!everybody).then_some(vault);
        Ok(self.store().sessions_with_sandbox(vault).await?)
    }

    /// Whether a session has credentials that end by themselves.
    pub(crate) async fn has_ending_credentials(&self, agent: &AgentSpec) -> Result<bool> {
        if self.issues_credentials() {
            return Ok(true);
        }
        if agent.vault_ids.is_empty() {
            return Ok(false);
        }
        let all = self.credentials_of(&agent.vault_ids).await?;
        let ends =
            |known: &SessionCredential| matches!(known.spec, CredentialSpec::McpOauth { .. });
        Ok(all.iter().any(ends))
    }
}

fn without_boundary() -> Error {
    Error::new(
        ErrorReason::CapabilityUnavailable,
        "the agent has credentials, and this server has no boundary that puts them into requests",
    )
}
