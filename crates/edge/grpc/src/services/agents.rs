//! `astrabox.v1.AgentService`.

use astrabox_platform::Platform;
use astrabox_proto::v1::agent_service_server::AgentService;
use astrabox_proto::v1::{
    ArchiveAgentRequest, ArchiveAgentResponse, CreateAgentRequest, CreateAgentResponse,
    GetAgentRequest, GetAgentResponse, ListAgentVersionsRequest, ListAgentVersionsResponse,
    ListAgentsRequest, ListAgentsResponse, UpdateAgentRequest, UpdateAgentResponse,
};
use tonic::{Request, Response, Status};

use crate::call::answer;
use crate::convert::{from_proto, to_proto};

pub(crate) struct Agents(pub(crate) Platform);

#[async_trait::async_trait]
impl AgentService for Agents {
    async fn create_agent(
        &self,
        request: Request<CreateAgentRequest>,
    ) -> Result<Response<CreateAgentResponse>, Status> {
        answer("CreateAgent", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let draft = from_proto::agent_draft(request.spec)?;
            let agent = self.0.create_agent(&caller.ctx, key, draft).await?;
            Ok(CreateAgentResponse {
                agent: Some(to_proto::agent(agent)),
            })
        })
        .await
    }

    async fn get_agent(
        &self,
        request: Request<GetAgentRequest>,
    ) -> Result<Response<GetAgentResponse>, Status> {
        answer("GetAgent", request, async |caller, request| {
            let id = from_proto::id("agent_id", &request.agent_id)?;
            let version = from_proto::nonzero(request.version);
            let agent = self.0.get_agent(&caller.ctx, id, version).await?;
            Ok(GetAgentResponse {
                agent: Some(to_proto::agent(agent)),
            })
        })
        .await
    }

    async fn list_agents(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        answer("ListAgents", request, async |caller, request| {
            let page = from_proto::page(request.page_size, request.page_token)?;
            let page = self
                .0
                .list_agents(&caller.ctx, page, request.include_archived)
                .await?;
            Ok(ListAgentsResponse {
                agents: page.items.into_iter().map(to_proto::agent).collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn list_agent_versions(
        &self,
        request: Request<ListAgentVersionsRequest>,
    ) -> Result<Response<ListAgentVersionsResponse>, Status> {
        answer("ListAgentVersions", request, async |caller, request| {
            let id = from_proto::id("agent_id", &request.agent_id)?;
            let page = from_proto::page(request.page_size, request.page_token)?;
            let page = self.0.list_agent_versions(&caller.ctx, id, page).await?;
            Ok(ListAgentVersionsResponse {
                agents: page.items.into_iter().map(to_proto::agent).collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn update_agent(
        &self,
        request: Request<UpdateAgentRequest>,
    ) -> Result<Response<UpdateAgentResponse>, Status> {
        answer("UpdateAgent", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("agent_id", &request.agent_id)?;
            let update = from_proto::agent_update(request)?;
            let agent = self.0.update_agent(&caller.ctx, key, id, update).await?;
            Ok(UpdateAgentResponse {
                agent: Some(to_proto::agent(agent)),
            })
        })
        .await
    }

    async fn archive_agent(
        &self,
        request: Request<ArchiveAgentRequest>,
    ) -> Result<Response<ArchiveAgentResponse>, Status> {
        answer("ArchiveAgent", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("agent_id", &request.agent_id)?;
            let agent = self.0.archive_agent(&caller.ctx, key, id).await?;
            Ok(ArchiveAgentResponse {
                agent: Some(to_proto::agent(agent)),
            })
        })
        .await
    }
}
