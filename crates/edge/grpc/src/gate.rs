//! The gate: what every request passes before a service sees it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use astrabox_platform::{Error, OpContext, Result};
use astrabox_types::ErrorReason;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body as TonicBody;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use crate::identity::{self, Identify, Peer};
use crate::{idempotency, status, strict};

/// How long a caller may take to send its request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Identifies, checks and digests requests, then runs them to their end even when the client leaves: a client that
/// goes away does not cut an operation in half.
pub(crate) struct Gate {
    routes: Routes,
    identify: Arc<dyn Identify>,
    requests: HashMap<String, MessageDescriptor>,
    calls: TaskTracker,
    /// No more calls are taken.
    drain: CancellationToken,
    /// Calls that still run are dropped.
    kill: CancellationToken,
}

impl Gate {
    /// A gate before these routes.
    ///
    /// # Panics
    /// Never: the descriptor set is generated with the code.
    pub(crate) fn new(
        routes: Routes,
        identify: Arc<dyn Identify>,
        drain: CancellationToken,
        kill: CancellationToken,
    ) -> Self {
        let pool = DescriptorPool::decode(astrabox_proto::DESCRIPTOR_SET)
            .expect("the descriptor set is generated together with the code");
        let requests = pool
            .services()
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| {
                let service = method.parent_service().full_name();
                (format!("/{service}/{}", method.name()), method.input())
            })
            .collect();
        Self {
            routes,
            identify,
            requests,
            calls: TaskTracker::new(),
            drain,
            kill,
        }
    }

    /// The calls that run.
    pub(crate) fn calls(&self) -> &TaskTracker {
        &self.calls
    }

    /// Answers one request.
    pub(crate) async fn call<B>(&self, peer: Peer, request: Request<B>) -> Response<TonicBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        if !is_grpc(request.headers()) {
            let mut answer = Response::new(TonicBody::empty());
            *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return answer;
        }
        if identity::is_open(request.uri().path()) {
            return self.pass(request.map(TonicBody::new)).await;
        }
        let path = request.uri().path().to_owned();
        match self.call_closed(peer, request).await {
            Ok(answer) => answer,
            Err(refusal) => {
                refusal.log(&path);
                refusal.status().into_http()
            }
        }
    }

    async fn call_closed<B>(
        &self,
        peer: Peer,
        request: Request<B>,
    ) -> std::result::Result<Response<TonicBody>, Refusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let evidence = identity::evidence(peer, request.headers())?;
        let ctx = self.identify.identify(&evidence).await?;
        if self.drain.is_cancelled() {
            return Err(Refusal::Draining);
        }
        let Some(descriptor) = self.requests.get(request.uri().path()) else {
            return Err(Refusal::NoMethod);
        };
        let deadline = deadline(request.headers())?;
        within(deadline, async {
            let request = tokio::time::timeout(BODY_TIMEOUT, checked(descriptor, ctx, request))
                .await
                .map_err(|_| too_slow("the request did not come whole within 30 seconds"))??;
            Ok(self.run(request).await)
        })
        .await
    }

    async fn run(&self, request: Request<TonicBody>) -> Response<TonicBody> {
        let routes = self.routes.clone();
        let kill = self.kill.clone();
        let call = self.calls.spawn(async move {
            kill.run_until_cancelled(async move {
                match routes.oneshot(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                }
            })
            .await
        });
        match call.await {
            Ok(Some(answer)) => answer,
            Ok(None) => status::draining().into_http(),
            Err(_) => status::to_status(&Error::new(
                ErrorReason::Internal,
                "the server failed in this call; its log has more",
            ))
            .into_http(),
        }
    }

    async fn pass(&self, request: Request<TonicBody>) -> Response<TonicBody> {
        match self.routes.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

/// Takes the whole message, checks it, and puts it together again for the service.
async fn checked<B>(
    descriptor: &MessageDescriptor,
    ctx: OpContext,
    request: Request<B>,
) -> Result<Request<TonicBody>>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let (mut parts, body) = request.into_parts();
    let message = strict::read_message(body).await?;
    strict::check_message(descriptor, &message)?;
    if idempotency::takes_key(descriptor) {
        parts
            .extensions
            .insert(idempotency::digest(parts.uri.path(), descriptor, &message)?);
    }
    parts.extensions.insert(ctx);
    Ok(Request::from_parts(
        parts,
        TonicBody::new(Full::new(strict::frame(&message))),
    ))
}

/// Why the gate does not let a request through.
enum Refusal {
    Platform(Error),
    Draining,
    NoMethod,
}

impl Refusal {
    fn status(&self) -> Status {
        match self {
            Self::Platform(error) => status::to_status(error),
            Self::Draining => status::draining(),
            Self::NoMethod => Status::new(Code::Unimplemented, "this server has no such method"),
        }
    }

    fn log(&self, path: &str) {
        match self {
            Self::Platform(error) => status::log(path, error),
            Self::Draining | Self::NoMethod => tracing::debug!(path, "refused"),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Platform(error)
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value == "application/grpc"
                || value.starts_with("application/grpc+proto")
                || value.starts_with("application/grpc;")
        })
}

/// The deadline that the client gives with `grpc-timeout`: at most eight digits and a unit.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let wrong = || {
        Error::new(
            ErrorReason::InvalidField,
            "grpc-timeout is not a time; it is as `10S`",
        )
    };
    let text = value.to_str().map_err(|_| wrong())?;
    let (digits, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    Ok(Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return Err(wrong()),
    }))
}

async fn within<T>(
    deadline: Option<Duration>,
    work: impl Future<Output = std::result::Result<T, Refusal>>,
) -> std::result::Result<T, Refusal> {
    match deadline {
        None => work.await,
        Some(deadline) => tokio::time::timeout(deadline, work)
            .await
            .unwrap_or_else(|_| {
                Err(too_slow(
                    "the call did not end before its deadline; it may still happen",
                ))
            }),
    }
}

fn too_slow(message: &str) -> Refusal {
    Refusal::Platform(Error::new(ErrorReason::DeadlineExceeded, message))
}

#[cfg(test)]
mod tests;
