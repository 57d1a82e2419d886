use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::wire::runner_service_server::{RunnerService, RunnerServiceServer};
use crate::{AttachEvent, ExitReason};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A runner that says what the test wants said.
#[derive(Clone)]
struct Scripted {
    version: u32,
    attach: Vec<Result<wire::AttachResponse, Status>>,
}

macro_rules! scripted_service {
    (unary: [$($method:ident $request:ident $response:ident),* $(,)?]) => {
        #[tonic::async_trait]
        impl RunnerService for Scripted {
            type AttachStream = Answers<wire::AttachResponse>;
            type ReadFileStream = Answers<wire::ReadFileResponse>;
            type ListFilesStream = Answers<wire::ListFilesResponse>;

            async fn hello(
                &self,
                request: Request<wire::HelloRequest>,
            ) -> Result<Response<wire::HelloResponse>, Status> {
                let request = request.into_inner();
                if !(request.min_version..=request.max_version).contains(&self.version) {
                    let kind = RunnerErrorKind::VersionMismatch;
                    return Err(crate::to_status(&RunnerError::new(kind, "hello", "too new")));
                }
                Ok(Response::new(wire::HelloResponse {
                    version: self.version,
                    sandbox_id: "sbx_test".into(),
                    ..Default::default()
                }))
            }

            async fn attach(
                &self,
                _: Request<wire::AttachRequest>,
            ) -> Result<Response<Self::AttachStream>, Status> {
                Ok(Response::new(Box::pin(futures::stream::iter(self.attach.clone()))))
            }

            async fn status(
                &self,
                _: Request<wire::StatusRequest>,
            ) -> Result<Response<wire::StatusResponse>, Status> {
                std::future::pending().await
            }

            async fn read_file(
                &self,
                _: Request<wire::ReadFileRequest>,
            ) -> Result<Response<Self::ReadFileStream>, Status> {
                Ok(Response::new(Box::pin(futures::stream::empty())))
            }

            async fn write_file(
                &self,
                _: Request<Streaming<wire::WriteFileRequest>>,
            ) -> Result<Response<wire::WriteFileResponse>, Status> {
                Err(Status::unimplemented(""))
            }

            async fn list_files(
                &self,
                _: Request<wire::ListFilesRequest>,
            ) -> Result<Response<Self::ListFilesStream>, Status> {
                Err(Status::unimplemented(""))
            }

            $(async fn $method(
                &self,
                _: Request<wire::$request>,
            ) -> Result<Response<wire::$response>, Status> {
                Err(Status::unimplemented(""))
            })*
        }
    };
}

scripted_service!(unary: [
    spawn SpawnRequest SpawnResponse,
    write_stdin WriteStdinRequest WriteStdinResponse,
    close_stdin CloseStdinRequest CloseStdinResponse,
    ack AckRequest AckResponse,
    signal SignalRequest SignalResponse,
    forget ForgetRequest ForgetResponse,
    stat StatRequest StatResponse,
    make_dir MakeDirRequest MakeDirResponse,
    remove RemoveRequest RemoveResponse,
    rename RenameRequest RenameResponse,
    freeze FreezeRequest FreezeResponse,
    thaw ThawRequest ThawResponse,
    stats StatsRequest StatsResponse,
    posture PostureRequest PostureResponse,
    shutdown ShutdownRequest ShutdownResponse,
]);

/// Serves until the set is dropped.
fn serve(socket: &Path, runner: Scripted) -> JoinSet<()> {
    let listener = UnixListener::bind(socket).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let connections = futures::stream::unfold(listener, |listener| async move {
            let connection = listener.accept().await.map(|(stream, _)| stream);
            Some((connection, listener))
        });
        tonic::transport::Server::builder()
            .add_service(RunnerServiceServer::new(runner))
            .serve_with_incoming(connections)
            .await
            .unwrap();
    });
    tasks
}

fn options(socket: &Path) -> ConnectOptions {
    let mut options = ConnectOptions::new(socket);
    options.deadlines.call = Duration::from_millis(200);
    options
}

fn output(offset: u64, data: &'static str) -> Result<wire::AttachResponse, Status> {
    Ok(AttachEvent::Output {
        stream: OutputStream::Stdout,
        offset,
        data: Bytes::from_static(data.as_bytes()),
    }
    .into())
}

fn exited() -> Result<wire::AttachResponse, Status> {
    Ok(AttachEvent::Exited(crate::ExitInfo {
        reason: ExitReason::Exited,
        status: None,
        at_ms: 0,
        stdout_end: 0,
        stderr_end: 0,
        oom_kills: 0,
        forks_refused: 0,
    })
    .into())
}

/// Attaches from offset 2 to a runner that says `script`; gives the text seen and how it ended.
async fn attached(
    script: Vec<Result<wire::AttachResponse, Status>>,
) -> (String, Option<RunnerErrorKind>) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let runner = Scripted {
        version: 1,
        attach: script,
    };
    let _server = serve(&socket, runner);
    let client = RunnerClient::connect(options(&socket)).await.unwrap();
    let mut attachment = client.attach("engine", 2, 0).await.unwrap();
    let mut text = String::new();
    let mut end = None;
    while let Some(event) = attachment.next().await {
        match event {
            Ok(AttachEvent::Output { data, .. }) => {
                text.push_str(std::str::from_utf8(&data).unwrap());
            }
            Ok(AttachEvent::Exited(_)) => {}
            Err(error) => end = Some(error.kind()),
        }
    }
    let next = attachment.next_offset(OutputStream::Stdout);
    assert_eq!(next, 2 + text.len() as u64);
    (text, end)
}

#[tokio::test]
async fn an_attachment_refuses_holes_and_repetitions_and_knows_a_cut_from_an_end() {
    let whole = vec![output(2, "ab"), output(4, "c"), exited()];
    assert_eq!(attached(whole).await, ("abc".into(), None));

    let hole = vec![output(2, "ab"), output(5, "c"), exited()];
    let expected = Some(RunnerErrorKind::Protocol);
    assert_eq!(attached(hole).await, ("ab".into(), expected));

    let repeated = vec![output(2, "ab"), output(2, "ab")];
    assert_eq!(attached(repeated).await, ("ab".into(), expected));

    let unknown = vec![Ok(wire::AttachResponse { event: None })];
    assert_eq!(attached(unknown).await, (String::new(), expected));

    let cut = vec![output(2, "ab")];
    let expected = Some(RunnerErrorKind::Unavailable);
    assert_eq!(attached(cut).await, ("ab".into(), expected));
}

#[tokio::test]
async fn a_runner_of_another_version_is_refused_with_a_typed_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let runner = Scripted {
        version: MAX_VERSION + 1,
        attach: Vec::new(),
    };
    let _server = serve(&socket, runner);
    let error = RunnerClient::connect(options(&socket)).await.unwrap_err();
    assert_eq!(error.kind(), RunnerErrorKind::VersionMismatch);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_silent_runner_times_out_and_a_missing_one_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let error = RunnerClient::connect(options(&socket)).await.unwrap_err();
    assert_eq!(error.kind(), RunnerErrorKind::Unavailable);
    assert!(!error.to_string().contains("/"), "no host path: {error}");

    let runner = Scripted {
        version: 1,
        attach: Vec::new(),
    };
    let _server = serve(&socket, runner);
    let client = RunnerClient::connect(options(&socket)).await.unwrap();
    assert_eq!(client.info().sandbox_id, "sbx_test");
    let error = client.status().await.unwrap_err();
    assert_eq!(error.kind(), RunnerErrorKind::TimedOut);
    assert!(error.is_retryable());
}
