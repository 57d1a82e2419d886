//! The output of one process, as a stream that checks itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};

use crate::client::protocol;
use crate::convert::Unintelligible;
use crate::{AttachEvent, OutputStream, RunnerError, RunnerErrorKind, from_status, wire};

/// The output of one process from the wanted offsets on, then its end.
///
/// Dropping it detaches; the process does not notice. A broken connection ends it with an error of kind
/// [`RunnerErrorKind::Unavailable`]; attach again from the offset after the last byte seen.
#[derive(Debug)]
pub struct Attachment {
    stream: Option<tonic::Streaming<wire::AttachResponse>>,
    next: [(OutputStream, u64); 2],
}

impl Attachment {
    pub(super) fn new(
        stream: tonic::Streaming<wire::AttachResponse>,
        next: [(OutputStream, u64); 2],
    ) -> Self {
        Self {
            stream: Some(stream),
            next,
        }
    }

    /// The next event; `None` after the end of the process or after an error.
    pub async fn next(&mut self) -> Option<Result<AttachEvent, RunnerError>> {
        StreamExt::next(self).await
    }

    /// The offset after the last byte of `stream` that was given out.
    #[must_use]
    pub fn next_offset(&self, stream: OutputStream) -> u64 {
        self.next
            .iter()
            .find(|(candidate, _)| *candidate == stream)
            .map_or(0, |(_, offset)| *offset)
    }

    /// Refuses a hole or a repetition, whoever made it.
    fn check(&mut self, event: &AttachEvent) -> Result<(), RunnerError> {
        let AttachEvent::Output {
            stream,
            offset,
            data,
        } = event
        else {
            return Ok(());
        };
        for (candidate, next) in &mut self.next {
            if candidate == stream {
                if offset != next || data.is_empty() {
                    return Err(protocol("attach", Unintelligible("offset")));
                }
                *next += data.len() as u64;
            }
        }
        Ok(())
    }

    fn accept(&mut self, response: wire::AttachResponse) -> Result<AttachEvent, RunnerError> {
        let event = AttachEvent::try_from(response).map_err(|error| protocol("attach", error))?;
        self.check(&event)?;
        Ok(event)
    }
}

impl Stream for Attachment {
    type Item = Result<AttachEvent, RunnerError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(None);
        };
        let item = match stream.poll_next_unpin(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(response))) => this.accept(response),
            Poll::Ready(Some(Err(status))) => Err(from_status("attach", &status)),
            // Without the end of the process, the end of the stream is a broken connection.
            Poll::Ready(None) => Err(RunnerError::new(
                RunnerErrorKind::Unavailable,
                "attach",
                "the runner ended the stream",
            )),
        };
        if !matches!(item, Ok(AttachEvent::Output { .. })) {
            this.stream = None;
        }
        Poll::Ready(Some(item))
    }
}
