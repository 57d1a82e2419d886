//! Whole lists, page by page.

use crate::{Client, ClientError, v1};

const PAGE_SIZE: i32 = 500;

macro_rules! all {
    ($self:ident, $call:ident, $items:ident, $request:expr) => {{
        let mut all = Vec::new();
        let mut request = $request;
        loop {
            let page = $self.$call(request.clone()).await?;
            all.extend(page.$items);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }};
}

impl Client {
    /// All agents.
    ///
    /// # Errors
    /// As `list_agents`.
    pub async fn all_agents(&self, include_archived: bool) -> Result<Vec<v1::Agent>, ClientError> {
        all!(
            self,
            list_agents,
            agents,
            v1::ListAgentsRequest {
                page_size: PAGE_SIZE,
                include_archived,
                ..Default::default()
            }
        )
    }

    /// All versions of an agent, newest first.
    ///
    /// # Errors
    /// As `list_agent_versions`.
    pub async fn all_agent_versions(&self, agent_id: &str) -> Result<Vec<v1::Agent>, ClientError> {
        let request = v1::ListAgentVersionsRequest {
            page_size: PAGE_SIZE,
            agent_id: agent_id.to_owned(),
            ..Default::default()
        };
        all!(self, list_agent_versions, agents, request)
    }

    /// All vaults, newest first.
    ///
    /// # Errors
    /// As `list_vaults`.
    pub async fn all_vaults(&self, include_archived: bool) -> Result<Vec<v1::Vault>, ClientError> {
        let request = v1::ListVaultsRequest {
            page_size: PAGE_SIZE,
            include_archived,
            ..Default::default()
        };
        all!(self, list_vaults, vaults, request)
    }

    /// All credentials of a vault, oldest first.
    ///
    /// # Errors
    /// As `list_vault_credentials`.
    pub async fn all_vault_credentials(
        &self,
        vault_id: &str,
        include_archived: bool,
    ) -> Result<Vec<v1::VaultCredential>, ClientError> {
        let request = v1::ListVaultCredentialsRequest {
            page_size: PAGE_SIZE,
            vault_id: vault_id.to_owned(),
            include_archived,
            ..Default::default()
        };
        all!(self, list_vault_credentials, credentials, request)
    }

    /// All environments.
    ///
    /// # Errors
    /// As `list_environments`.
    pub async fn all_environments(&self) -> Result<Vec<v1::Environment>, ClientError> {
        all!(
            self,
            list_environments,
            environments,
            v1::ListEnvironmentsRequest {
                page_size: PAGE_SIZE,
                ..Default::default()
            }
        )
    }

    /// All sessions, of one agent or of all.
    ///
    /// # Errors
    /// As `list_sessions`.
    pub async fn all_sessions(
        &self,
        agent_id: Option<&str>,
        include_archived: bool,
    ) -> Result<Vec<v1::Session>, ClientError> {
        let agent_id = agent_id.unwrap_or_default().to_owned();
        all!(
            self,
            list_sessions,
            sessions,
            v1::ListSessionsRequest {
                page_size: PAGE_SIZE,
                agent_id,
                include_archived,
                ..Default::default()
            }
        )
    }

    /// The whole journal of a session after a sequence number.
    ///
    /// # Errors
    /// As `list_events`.
    pub async fn all_events(
        &self,
        session_id: &str,
        after_seq: u64,
    ) -> Result<Vec<v1::Event>, ClientError> {
        let request = v1::ListEventsRequest {
            page_size: PAGE_SIZE,
            session_id: session_id.to_owned(),
            after_seq,
            ..Default::default()
        };
        all!(self, list_events, events, request)
    }

    /// The history of one child run after a sequence number.
    ///
    /// # Errors
    /// As `list_events`.
    pub async fn child_run_events(
        &self,
        session_id: &str,
        child_run_id: &str,
        after_seq: u64,
    ) -> Result<Vec<v1::Event>, ClientError> {
        let request = v1::ListEventsRequest {
            page_size: PAGE_SIZE,
            session_id: session_id.to_owned(),
            child_run_id: child_run_id.to_owned(),
            after_seq,
            ..Default::default()
        };
        all!(self, list_events, events, request)
    }
}
