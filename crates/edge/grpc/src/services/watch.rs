//! The stream of `WatchSession`.

use std::pin::Pin;

use astrabox_platform::{Error, Subscription, WatchItem};
use astrabox_proto::v1::watch_session_response::Item;
use astrabox_proto::v1::{CaughtUp, WatchSessionResponse};
use futures::{Stream, stream};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::convert::event;
use crate::status;

pub(crate) type WatchStream =
    Pin<Box<dyn Stream<Item = std::result::Result<WatchSessionResponse, Status>> + Send + 'static>>;

/// What the subscription gives, as fast as the client takes it: the next item is asked for when the connection has
/// room for it. On drain the stream ends with `DRAINING`, and the client comes back with the last seq it saw.
pub(crate) fn stream(subscription: Subscription, drain: CancellationToken) -> WatchStream {
    Box::pin(stream::unfold(
        Some((subscription, drain)),
        |state| async move {
            let (mut subscription, drain) = state?;
            let item = tokio::select! {
                biased;
                () = drain.cancelled() => return Some((Err(status::draining()), None)),
                item = subscription.next() => item,
            };
            let Some(item) = item else {
                // The platform drains too; only a deleted session is the true end.
                return drain
                    .is_cancelled()
                    .then(|| (Err(status::draining()), None));
            };
            match item.and_then(encode) {
                Ok(response) => Some((Ok(response), Some((subscription, drain)))),
                Err(error) => {
                    status::log("WatchSession", &error);
                    Some((Err(status::to_status(&error)), None))
                }
            }
        },
    ))
}

fn encode(item: WatchItem) -> Result<WatchSessionResponse, Error> {
    let item = match item {
        WatchItem::Event(event) => Item::Event(event::to_proto(event)?),
        WatchItem::Delta(delta) => Item::Delta(event::delta_to_proto(delta)),
        WatchItem::CaughtUp { seq } => Item::CaughtUp(CaughtUp { seq }),
    };
    Ok(WatchSessionResponse { item: Some(item) })
}
