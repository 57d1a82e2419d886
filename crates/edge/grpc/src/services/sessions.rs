//! `astrabox.v1.SessionService`.

use astrabox_platform::Platform;
use astrabox_proto::v1::session_service_server::SessionService;
use astrabox_proto::v1::{
    ArchiveSessionRequest, ArchiveSessionResponse, CreateSessionRequest, CreateSessionResponse,
    DeleteSessionRequest, GetSessionRequest, GetSessionResponse, InterruptSessionRequest,
    InterruptSessionResponse, ListChildRunsRequest, ListChildRunsResponse, ListEventsRequest,
    ListEventsResponse, ListFilesRequest, ListFilesResponse, ListInteractionsRequest,
    ListInteractionsResponse, ListSessionsRequest, ListSessionsResponse, ReadFileRequest,
    RecoverSessionRequest, RecoverSessionResponse, ReleaseSandboxRequest, ReleaseSandboxResponse,
    RespondInteractionRequest, RespondInteractionResponse, SendInputRequest, SendInputResponse,
    SetPermissionModeRequest, SetPermissionModeResponse, StopChildRunRequest, StopChildRunResponse,
    WatchSessionRequest,
};
use astrabox_types::ChildRunId;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::files::{self, FileStream};
use super::watch::{self, WatchStream};
use crate::call::answer;
use crate::convert::{event, from_proto, interaction, to_proto};

/// Where the files of a session are, unless a path is given.
const WORKSPACE: &str = "/workspace";

pub(crate) struct Sessions {
    pub(crate) platform: Platform,
    pub(crate) drain: CancellationToken,
}

#[async_trait::async_trait]
impl SessionService for Sessions {
    type WatchSessionStream = WatchStream;
    type ReadFileStream = FileStream;

    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        answer("CreateSession", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let draft = from_proto::session_draft(request)?;
            let (session, input) = self
                .platform
                .create_session(&caller.ctx, key, draft)
                .await?;
            Ok(CreateSessionResponse {
                session: Some(to_proto::session(session)),
                input_id: to_proto::id(input),
            })
        })
        .await
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        answer("GetSession", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let session = self.platform.get_session(&caller.ctx, id).await?;
            Ok(GetSessionResponse {
                session: Some(to_proto::session(session)),
            })
        })
        .await
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        answer("ListSessions", request, async |caller, request| {
            let filter = from_proto::session_filter(&request)?;
            let page = from_proto::page(request.page_size, request.page_token)?;
            let page = self
                .platform
                .list_sessions(&caller.ctx, filter, page)
                .await?;
            Ok(ListSessionsResponse {
                sessions: page.items.into_iter().map(to_proto::session).collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn send_input(
        &self,
        request: Request<SendInputRequest>,
    ) -> Result<Response<SendInputResponse>, Status> {
        answer("SendInput", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let content = from_proto::content(request.content)?;
            let (input, seq) = self
                .platform
                .send_input(&caller.ctx, key, id, content)
                .await?;
            Ok(SendInputResponse {
                input_id: input.to_string(),
                seq,
            })
        })
        .await
    }

    async fn watch_session(
        &self,
        request: Request<WatchSessionRequest>,
    ) -> Result<Response<WatchStream>, Status> {
        answer("WatchSession", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let subscription = self
                .platform
                .watch(&caller.ctx, id, request.after_seq, !request.no_deltas)
                .await?;
            Ok(watch::stream(subscription, self.drain.clone()))
        })
        .await
    }

    async fn list_events(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<ListEventsResponse>, Status> {
        answer("ListEvents", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let page = from_proto::page(request.page_size, request.page_token)?;
            let (ctx, after) = (&caller.ctx, request.after_seq);
            let page = match from_proto::optional(request.child_run_id) {
                None => self.platform.list_events(ctx, id, after, page).await?,
                Some(run) => {
                    let run = ChildRunId(run);
                    self.platform
                        .list_child_run_events(ctx, id, &run, after, page)
                        .await?
                }
            };
            Ok(ListEventsResponse {
                events: page
                    .items
                    .into_iter()
                    .map(event::to_proto)
                    .collect::<Result<_, _>>()?,
                next_page_token: page.next.unwrap_or_default(),
            })
        })
        .await
    }

    async fn interrupt_session(
        &self,
        request: Request<InterruptSessionRequest>,
    ) -> Result<Response<InterruptSessionResponse>, Status> {
        answer("InterruptSession", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let turn = self.platform.interrupt(&caller.ctx, key, id).await?;
            Ok(InterruptSessionResponse {
                turn_id: to_proto::id(turn),
            })
        })
        .await
    }

    async fn list_interactions(
        &self,
        request: Request<ListInteractionsRequest>,
    ) -> Result<Response<ListInteractionsResponse>, Status> {
        answer("ListInteractions", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let all = self
                .platform
                .list_interactions(&caller.ctx, id, request.include_closed)
                .await?;
            Ok(ListInteractionsResponse {
                interactions: all.into_iter().map(interaction::record_to_proto).collect(),
            })
        })
        .await
    }

    async fn respond_interaction(
        &self,
        request: Request<RespondInteractionRequest>,
    ) -> Result<Response<RespondInteractionResponse>, Status> {
        answer("RespondInteraction", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let asked = from_proto::id("interaction_id", &request.interaction_id)?;
            let answer = interaction::answer_from_proto(request.answer)?;
            let seq = self
                .platform
                .respond(&caller.ctx, key, id, asked, answer)
                .await?;
            Ok(RespondInteractionResponse { seq })
        })
        .await
    }

    async fn set_permission_mode(
        &self,
        request: Request<SetPermissionModeRequest>,
    ) -> Result<Response<SetPermissionModeResponse>, Status> {
        answer("SetPermissionMode", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let mode = from_proto::given("permission_mode", request.permission_mode)?;
            let previous = self
                .platform
                .set_permission_mode(&caller.ctx, key, id, &mode)
                .await?;
            Ok(SetPermissionModeResponse {
                previous_permission_mode: previous.unwrap_or_default(),
            })
        })
        .await
    }

    async fn list_child_runs(
        &self,
        request: Request<ListChildRunsRequest>,
    ) -> Result<Response<ListChildRunsResponse>, Status> {
        answer("ListChildRuns", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let runs = self.platform.list_child_runs(&caller.ctx, id).await?;
            Ok(ListChildRunsResponse {
                child_runs: runs.into_iter().map(event::child_run).collect(),
            })
        })
        .await
    }

    async fn stop_child_run(
        &self,
        request: Request<StopChildRunRequest>,
    ) -> Result<Response<StopChildRunResponse>, Status> {
        answer("StopChildRun", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let run = ChildRunId(from_proto::given("child_run_id", request.child_run_id)?);
            let state = self
                .platform
                .stop_child_run(&caller.ctx, key, id, run)
                .await?;
            Ok(StopChildRunResponse {
                state: event::child_run_state(state).into(),
            })
        })
        .await
    }

    async fn release_sandbox(
        &self,
        request: Request<ReleaseSandboxRequest>,
    ) -> Result<Response<ReleaseSandboxResponse>, Status> {
        answer("ReleaseSandbox", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let sandbox = self.platform.release_sandbox(&caller.ctx, key, id).await?;
            Ok(ReleaseSandboxResponse {
                sandbox_id: to_proto::id(sandbox),
            })
        })
        .await
    }

    async fn recover_session(
        &self,
        request: Request<RecoverSessionRequest>,
    ) -> Result<Response<RecoverSessionResponse>, Status> {
        answer("RecoverSession", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let session = self.platform.recover(&caller.ctx, key, id).await?;
            Ok(RecoverSessionResponse {
                session: Some(to_proto::session(session)),
            })
        })
        .await
    }

    async fn archive_session(
        &self,
        request: Request<ArchiveSessionRequest>,
    ) -> Result<Response<ArchiveSessionResponse>, Status> {
        answer("ArchiveSession", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            let session = self.platform.archive(&caller.ctx, key, id).await?;
            Ok(ArchiveSessionResponse {
                session: Some(to_proto::session(session)),
            })
        })
        .await
    }

    async fn delete_session(
        &self,
        request: Request<DeleteSessionRequest>,
    ) -> Result<Response<()>, Status> {
        answer("DeleteSession", request, async |caller, request| {
            let key = caller.key(&request.idempotency_key)?;
            let id = from_proto::id("session_id", &request.session_id)?;
            self.platform.delete(&caller.ctx, key, id).await
        })
        .await
    }

    async fn list_files(
        &self,
        request: Request<ListFilesRequest>,
    ) -> Result<Response<ListFilesResponse>, Status> {
        answer("ListFiles", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let path = if request.path.is_empty() {
                WORKSPACE
            } else {
                &request.path
            };
            let files = self.platform.list_files(&caller.ctx, id, path).await?;
            Ok(ListFilesResponse {
                files: files.into_iter().map(to_proto::file).collect(),
            })
        })
        .await
    }

    async fn read_file(
        &self,
        request: Request<ReadFileRequest>,
    ) -> Result<Response<FileStream>, Status> {
        answer("ReadFile", request, async |caller, request| {
            let id = from_proto::id("session_id", &request.session_id)?;
            let path = from_proto::given("path", request.path)?;
            files::stream(self.platform.clone(), caller.ctx, id, path).await
        })
        .await
    }
}
