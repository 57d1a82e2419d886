//! `astrabox.v1.EnvironmentService`.

use astrabox_platform::Platform;
use astrabox_proto::v1::environment_service_server::EnvironmentService;
use astrabox_proto::v1::{
    CreateEnvironmentRequest, CreateEnvironmentResponse, DeleteEnvironmentRequest,
    GetEnvironmentRequest, GetEnvironmentResponse, ListEnvironmentsRequest,
    ListEnvironmentsResponse, UpdateEnvironmentRequest, UpdateEnvironmentResponse,
};
use tonic::{Request, Response, Status};

use crate::call::answer;
use crate::convert::{from_proto, to_proto};

pub(crate) struct Environments(pub(crate) Platform);

#[async_trait::async_trait]
impl EnvironmentService for Environments {
    async fn create_environment(
        &self,
        request: Request<CreateEnvironmentRequest>,
    ) -> Result<Response<CreateEnvironmentResponse>, Status> {
        answer("CreateEnvironment", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let spec = from_proto::environment_spec(request.spec)?;
            let environment = self.0.create_environment(&caller.ctx, key, spec).await?;
            Ok(CreateEnvironmentResponse {
                environment: Some(to_proto::environment(environment)),
            })
        })
        .await
    }

    async fn get_environment(
        &self,
        request: Request<GetEnvironmentRequest>,
    ) -> Result<Response<GetEnvironmentResponse>, Status> {
        answer("GetEnvironment", request, async |caller, request| {
            let name = from_proto::given("environment", request.environment)?;
            let environment = self.0.get_environment(&caller.ctx, &name).await?;
            Ok(GetEnvironmentResponse {
                environment: Some(to_proto::environment(environment)),
            })
        })
        .await
    }

    async fn list_environments(
        &self,
        request: Request<ListEnvironmentsRequest>,
    ) -> Result<Response<ListEnvironmentsResponse>, Status> {
        answer("ListEnvironments", request, async |caller, request| {
            let page = from_proto::page(request.page_size, request.page_token)?;
            let page = self.0.list_environments(&caller.ctx, page).await?;
            Ok(ListEnvironmentsResponse {
                environments: page.items.into_iter().map(to_proto::environment).collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn update_environment(
        &self,
        request: Request<UpdateEnvironmentRequest>,
    ) -> Result<Response<UpdateEnvironmentResponse>, Status> {
        answer("UpdateEnvironment", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let name = from_proto::given("environment", request.environment.clone())?;
            let update = from_proto::environment_update(request)?;
            let environment = self
                .0
                .update_environment(&caller.ctx, key, &name, update)
                .await?;
            Ok(UpdateEnvironmentResponse {
                environment: Some(to_proto::environment(environment)),
            })
        })
        .await
    }

    async fn delete_environment(
        &self,
        request: Request<DeleteEnvironmentRequest>,
    ) -> Result<Response<()>, Status> {
        answer("DeleteEnvironment", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let name = from_proto::given("environment", request.environment)?;
            self.0.delete_environment(&caller.ctx, key, &name).await
        })
        .await
    }
}
