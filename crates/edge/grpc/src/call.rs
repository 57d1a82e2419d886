//! What every handler does around its own work.

use std::future::Future;

use astrabox_platform::{Error, IdempotencyKey, OpContext, Result};
use astrabox_types::ErrorReason;
use tonic::{Request, Response, Status};

use crate::idempotency::{self, RequestDigest};
use crate::status;

/// Who calls, and the digest of what they ask.
pub(crate) struct Caller {
    /// The first argument of every operation.
    pub(crate) ctx: OpContext,
    digest: Option<RequestDigest>,
}

impl Caller {
    /// The idempotency key that the request gives, checked.
    ///
    /// # Errors
    /// `INVALID_FIELD`.
    pub(crate) fn key(&self, key: &str) -> Result<Option<IdempotencyKey>> {
        idempotency::key(key, self.digest.as_ref())
    }
}

/// Runs a handler for an identified caller and gives its answer or its error as gRPC does.
pub(crate) async fn answer<Q, A, F>(
    method: &'static str,
    request: Request<Q>,
    handle: impl FnOnce(Caller, Q) -> F,
) -> std::result::Result<Response<A>, Status>
where
    F: Future<Output = Result<A>>,
{
    let result = match open(request) {
        Ok((caller, message)) => handle(caller, message).await,
        Err(error) => Err(error),
    };
    result.map(Response::new).map_err(|error| {
        status::log(method, &error);
        status::to_status(&error)
    })
}

fn open<Q>(request: Request<Q>) -> Result<(Caller, Q)> {
    let (_, mut extensions, message) = request.into_parts();
    // The gate puts it there; a service that somebody serves without the gate answers nobody.
    let Some(ctx) = extensions.remove::<OpContext>() else {
        return Err(Error::new(
            ErrorReason::Unauthenticated,
            "the caller is not identified",
        ));
    };
    let digest = extensions.remove::<RequestDigest>();
    Ok((Caller { ctx, digest }, message))
}
