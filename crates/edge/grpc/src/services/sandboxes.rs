//! `astrabox.v1.SandboxService`.

use astrabox_platform::Platform;
use astrabox_proto::v1::sandbox_service_server::SandboxService;
use astrabox_proto::v1::{
    DescribeSandboxRequest, DescribeSandboxResponse, GetSecurityPostureRequest,
    GetSecurityPostureResponse, ListSandboxesRequest, ListSandboxesResponse,
};
use tonic::{Request, Response, Status};

use crate::call::answer;
use crate::convert::{from_proto, to_proto};

pub(crate) struct Sandboxes(pub(crate) Platform);

#[async_trait::async_trait]
impl SandboxService for Sandboxes {
    async fn list_sandboxes(
        &self,
        request: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesResponse>, Status> {
        answer("ListSandboxes", request, async |caller, _| {
            let sandboxes = self.0.list_sandboxes(&caller.ctx).await?;
            Ok(ListSandboxesResponse {
                sandboxes: sandboxes.into_iter().map(to_proto::sandbox).collect(),
            })
        })
        .await
    }

    async fn describe_sandbox(
        &self,
        request: Request<DescribeSandboxRequest>,
    ) -> Result<Response<DescribeSandboxResponse>, Status> {
        answer("DescribeSandbox", request, async |caller, request| {
            let id = from_proto::id("sandbox_id", &request.sandbox_id)?;
            let (sandbox, diagnostics) = self.0.describe_sandbox(&caller.ctx, id).await?;
            Ok(DescribeSandboxResponse {
                sandbox: Some(to_proto::sandbox(sandbox)),
                summary: diagnostics.summary,
                log: diagnostics.log,
            })
        })
        .await
    }

    async fn get_security_posture(
        &self,
        request: Request<GetSecurityPostureRequest>,
    ) -> Result<Response<GetSecurityPostureResponse>, Status> {
        answer("GetSecurityPosture", request, async |caller, request| {
            let id = from_proto::id("sandbox_id", &request.sandbox_id)?;
            let (posture, boundary) = self.0.security_posture(&caller.ctx, id).await?;
            Ok(GetSecurityPostureResponse {
                posture: Some(to_proto::posture(posture, boundary)),
            })
        })
        .await
    }
}
