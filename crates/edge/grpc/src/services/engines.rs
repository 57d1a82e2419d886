//! `astrabox.v1.EngineService`.

use astrabox_platform::Platform;
use astrabox_proto::v1::engine_service_server::EngineService;
use astrabox_proto::v1::{
    GetEngineRequest, GetEngineResponse, ListEnginesRequest, ListEnginesResponse,
};
use tonic::{Request, Response, Status};

use crate::call::answer;
use crate::convert::{from_proto, to_proto};

pub(crate) struct Engines(pub(crate) Platform);

#[async_trait::async_trait]
impl EngineService for Engines {
    async fn list_engines(
        &self,
        request: Request<ListEnginesRequest>,
    ) -> Result<Response<ListEnginesResponse>, Status> {
        answer("ListEngines", request, async |caller, _| {
            let engines = self.0.list_engines(&caller.ctx);
            Ok(ListEnginesResponse {
                engines: engines.into_iter().map(to_proto::engine).collect(),
            })
        })
        .await
    }

    async fn get_engine(
        &self,
        request: Request<GetEngineRequest>,
    ) -> Result<Response<GetEngineResponse>, Status> {
        answer("GetEngine", request, async |caller, request| {
            let kind = from_proto::given("kind", request.kind)?;
            let engine = self.0.get_engine(&caller.ctx, &kind)?;
            Ok(GetEngineResponse {
                engine: Some(to_proto::engine(engine)),
            })
        })
        .await
    }
}
