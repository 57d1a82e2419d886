//! One request and its answer, both streamed as they come, over any two connections.

mod download;
mod hold;
mod upload;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use astrabox_egress::{BodyTreatment, Refusal, Surface};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answer::{Bad, Reason};
use crate::budget::Budget;
use crate::connection::End;
use crate::http::framing::BodyLength;
use crate::http::request::Forward;
use crate::http::upstream::UpstreamHead;
use crate::inject::{Filter, Injection};
use crate::meter::Meter;
use crate::workload::Workload;
use download::{Answered, DownloadFailed, download};
use hold::hold;
pub(crate) use hold::{MOST_HELD, MOST_HOLDING, own, pause};
use upload::{UploadFailed, upload};

/// A connection, of whatever kind.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// One side of an exchange.
pub(crate) struct Side<S> {
    pub(crate) stream: S,
    /// What was read of it and not yet used.
    pub(crate) buffer: BytesMut,
}

impl<S> Side<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }
}

/// A request with its credentials in place.
pub(crate) struct Outgoing {
    pub(crate) request: Forward,
    pub(crate) injection: Injection,
    head: UpstreamHead,
    treatment: BodyTreatment,
    workload: Arc<Workload>,
    budget: Arc<Budget>,
    /// Whether another request may follow on the upstream's connection.
    persistent: bool,
}

impl Outgoing {
    /// Judges a request and puts credentials into its head.
    pub(crate) fn prepare(
        request: Forward,
        workload: &Arc<Workload>,
        persistent: bool,
    ) -> Result<Self, Refusal> {
        let mut injection = Injection::judge(
            workload.credentials(),
            &request.destination,
            &request.method,
            &request.path,
            request.fields.iter().map(|field| &field.name[..]),
        )?;
        let head = UpstreamHead::new(&request, &mut injection)?;
        let treatment = match request.body {
            BodyLength::None | BodyLength::Length(0) => BodyTreatment::Unseen,
            _ => injection.body(&request.fields.elements("content-encoding").join(","))?,
        };
        Ok(Self {
            request,
            injection,
            head,
            treatment,
            workload: Arc::clone(workload),
            budget: Arc::clone(&workload.budget),
            persistent,
        })
    }

    /// Whether the credentials that stand in it are others by now.
    fn is_stale(&self) -> bool {
        self.injection.is_stale(&self.workload, self.treatment)
    }

    fn filter(&self) -> Filter {
        self.injection.filter(self.treatment, Surface::Body)
    }
}

/// How an exchange went.
pub(crate) enum Outcome {
    /// The answer is complete.
    Done {
        /// Whether the client's connection stands at the beginning of another request.
        reusable: bool,
        /// Whether the upstream's does.
        persistent: bool,
    },
    /// The upstream has granted a WebSocket; the client has yet to get this head.
    Switched(Vec<u8>),
    /// The client has got nothing yet and is owed this answer.
    Unanswered(Reason),
    /// A placeholder in the body is refused; the client has got nothing yet.
    Refused(Refusal),
    /// The client has got a part and must see that it is one.
    Broken(End),
}

/// Sends a request with its body and returns the answer.
pub(crate) async fn exchange<C: Io, U: Io>(
    client: &mut Side<C>,
    upstream: &mut Side<U>,
    outgoing: &mut Outgoing,
    meter: &Meter,
    idle: Duration,
) -> Outcome {
    let held = tokio::select! {
        held = hold(client, outgoing, meter) => match held {
            Ok(held) => held,
            Err(failed) => return failed.into_outcome(false),
        },
        () = meter.idle(idle) => return Outcome::Unanswered(Reason::Timeout),
    };
    if outgoing.is_stale() {
        return Outcome::Unanswered(Reason::CredentialsChanged);
    }
    let progress = Progress::default();
    let outcome = {
        let (client_read, client_write) = tokio::io::split(&mut client.stream);
        let (upstream_read, upstream_write) = tokio::io::split(&mut upstream.stream);
        let upload = upload(
            client_read,
            &mut client.buffer,
            upstream_write,
            outgoing,
            held,
            meter,
            &progress,
        );
        let download = download(
            upstream_read,
            &mut upstream.buffer,
            client_write,
            outgoing,
            meter,
            &progress,
        );
        both(upload, download, meter, idle, &progress).await
    };
    let used = std::mem::take(&mut *lock(&progress.used));
    outgoing.injection.note(&used);
    outcome
}

async fn both(
    upload: impl Future<Output = UploadFailed>,
    download: impl Future<Output = Result<Answered, DownloadFailed>>,
    meter: &Meter,
    idle: Duration,
    progress: &Progress,
) -> Outcome {
    tokio::pin!(upload, download);
    let mut uploading = true;
    let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    loop {
        let (reason, end) = tokio::select! {
            failed = &mut upload, if uploading => match failed {
                // The upstream reads no more; it may have answered all the same.
                UploadFailed::Upstream => {
                    uploading = false;
                    continue;
                }
                failed => return failed.into_outcome(is(&progress.answered)),
            },
            answered = &mut download => match answered {
                Ok(Answered::Whole(passage)) => {
                    let sent = is(&progress.sent) && uploading;
                    return Outcome::Done {
                        reusable: passage.keep_alive && sent,
                        persistent: passage.persistent && sent && !is(&progress.half_closed),
                    };
                }
                Ok(Answered::Switched(head)) => return Outcome::Switched(head),
                Err(DownloadFailed::Upstream(reason)) => (reason, End::Answered(reason)),
                Err(DownloadFailed::Client) => return Outcome::Broken(End::Aborted),
            },
            () = meter.idle(idle) => (Reason::Timeout, End::Idle),
        };
        return if is(&progress.answered) {
            Outcome::Broken(end)
        } else {
            Outcome::Unanswered(reason)
        };
    }
}

/// What the two directions tell each other.
#[derive(Default)]
struct Progress {
    /// The request is wholly sent.
    sent: AtomicBool,
    /// The final answer has begun to go to the client.
    answered: AtomicBool,
    /// The client sends no more, and the upstream was told.
    half_closed: AtomicBool,
    /// The credentials that were put into the body.
    used: std::sync::Mutex<Vec<String>>,
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl UploadFailed {
    fn into_outcome(self, answered: bool) -> Outcome {
        let (outcome, end): (_, End) = match self {
            Self::Upstream => (
                Outcome::Unanswered(Reason::UpstreamClosed),
                End::Answered(Reason::UpstreamClosed),
            ),
            Self::Body(bad) => (
                Outcome::Unanswered(bad.into()),
                End::Answered(Bad::into(bad)),
            ),
            Self::Refused(refusal) => {
                let end = End::Answered(Reason::from(&refusal));
                (Outcome::Refused(refusal), end)
            }
            Self::Client => return Outcome::Broken(End::Aborted),
        };
        match answered {
            true => Outcome::Broken(end),
            false => outcome,
        }
    }
}
