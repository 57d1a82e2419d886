//! One stream: its verdict, its way up and its way down.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use astrabox_egress::{BodyLength, BodyTreatment, Destination, Surface};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason as Code, RecvStream, SendStream};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HeaderValue};
use http::{Request, Response, StatusCode};

use super::super::Tunnel;
use super::transfer::{Failed, Held, down, hold, up};
use super::{Fate, head};
use crate::answer::Reason;
use crate::budget::{Budget, Share};
use crate::connection::End;
use crate::exchange::MOST_HELD;
use crate::inject::{Filter, Injection};
use crate::meter::Meter;
use crate::record::{Asked, Ledger, Record, deny};
use crate::workload::Workload;

/// How a stream went.
enum Outcome {
    Done,
    /// The client has got nothing yet and is owed this answer.
    Unanswered(Reason),
    /// The client has got a part, or has given up, and sees this code.
    Broken(End, Code),
    /// The upstream takes no more streams and has not looked at this one: the client may ask again elsewhere.
    NotTaken,
}

impl Outcome {
    /// Tells the client what it has to know; what the audit log says, and what the connection makes of it.
    fn conclude(
        self,
        answered: bool,
        respond: &mut SendResponse<Bytes>,
        destination: &Destination,
    ) -> (End, Fate) {
        // A client that is gone needs no answer.
        match self {
            Self::Done => (End::Completed, Fate::Served),
            Self::Unanswered(reason) => {
                if answered {
                    respond.send_reset(Code::CANCEL);
                } else {
                    let _ = head::answer(respond, reason, destination);
                }
                (End::Answered(reason), Fate::Served)
            }
            Self::Broken(End::Idle, _) if !answered => {
                let _ = head::answer(respond, Reason::Timeout, destination);
                (End::Idle, Fate::Served)
            }
            Self::Broken(end, code) => {
                respond.send_reset(code);
                let given_up = end == End::Aborted;
                (
                    end,
                    if given_up {
                        Fate::GivenUp
                    } else {
                        Fate::Served
                    },
                )
            }
            Self::NotTaken => {
                respond.send_reset(Code::REFUSED_STREAM);
                (End::Answered(Reason::UpstreamClosed), Fate::NotTaken)
            }
        }
    }
}

/// Serves a stream until it ends.
pub(super) async fn serve(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    requests: SendRequest<Bytes>,
    address: Option<SocketAddr>,
    tunnel: &Tunnel<'_>,
    ledger: &Ledger,
) -> Fate {
    let (method, destination) = (request.method().clone(), &tunnel.destination);
    let asked = Asked::of(method.as_str(), destination);
    let (mut injection, outgoing) = match judge(&request, tunnel) {
        Ok(judged) => judged,
        Err((reason, credential)) => {
            let credential = credential.as_deref();
            deny(tunnel.workload, tunnel.services, reason, asked, credential).await;
            let _ = head::answer(&mut respond, reason, destination);
            return Fate::Served;
        }
    };
    let used = &injection.used;
    let mut record = Record::begin(tunnel.workload, tunnel.services, asked, used).await;
    record.at(address);
    let meter = Arc::clone(&record.meter);
    let number = ledger.enter(record);
    let idle = tunnel.services.settings().idle_timeout;
    let mut answered = false;
    let outcome = {
        let exchange = Exchange {
            respond: &mut respond,
            requests,
            workload: tunnel.workload,
            injection: &mut injection,
            meter: &meter,
            budget: &tunnel.workload.budget,
            answered: &mut answered,
        };
        tokio::select! {
            outcome = exchange.run(request, outgoing) => outcome,
            () = meter.idle(idle) => Outcome::Broken(End::Idle, Code::CANCEL),
        }
    };
    let (end, fate) = outcome.conclude(answered, &mut respond, destination);
    if let Some(mut record) = ledger.leave(number) {
        record.with(&injection.used);
        record.end(end, tunnel.services).await;
    }
    fate
}

type Judged = (Injection, Request<()>);

/// The verdict on a stream; a refusal comes with the credential that it is for.
fn judge(
    request: &Request<RecvStream>,
    tunnel: &Tunnel<'_>,
) -> Result<Judged, (Reason, Option<String>)> {
    let destination = &tunnel.destination;
    let path = head::check(request, destination).map_err(|reason| (reason, None))?;
    let mut injection = Injection::judge(
        tunnel.workload.credentials(),
        destination,
        request.method().as_str(),
        &path,
        request
            .headers()
            .keys()
            .map(|name| name.as_str().as_bytes()),
    )
    .map_err(|refusal| (Reason::from(&refusal), refusal.credential_id))?;
    match head::outgoing(request, &mut injection, destination) {
        Ok(outgoing) => Ok((injection, outgoing)),
        Err(reason) => Err((reason, injection.used.pop())),
    }
}

struct Exchange<'a> {
    respond: &'a mut SendResponse<Bytes>,
    requests: SendRequest<Bytes>,
    workload: &'a Workload,
    injection: &'a mut Injection,
    meter: &'a Meter,
    budget: &'a Arc<Budget>,
    answered: &'a mut bool,
}

impl Exchange<'_> {
    async fn run(mut self, request: Request<RecvStream>, mut outgoing: Request<()>) -> Outcome {
        let (head, mut body) = request.into_parts();
        let prepared = self.prepare(&head, &mut body, &mut outgoing);
        let (mut filter, held, treatment) = match prepared.await {
            Ok(prepared) => prepared,
            Err(failed) => return self.failed(failed),
        };
        if self.injection.is_stale(self.workload, treatment) {
            return Outcome::Unanswered(Reason::CredentialsChanged);
        }
        let bodiless = held.complete && held.ready.is_empty() && body.is_end_stream();
        let sent = match self.requests.clone().ready().await {
            Ok(mut requests) => requests.send_request(outgoing, bodiless),
            Err(error) => Err(error),
        };
        let (response, mut to) = match sent {
            Ok(sent) => sent,
            Err(_) => return Outcome::NotTaken,
        };
        if bodiless {
            return self.answer(response, None).await;
        }
        let upload = Upload {
            body: &mut body,
            to: &mut to,
            held,
            filter: &mut filter,
        };
        let outcome = self.answer(response, Some(upload)).await;
        self.injection.note(filter.used());
        if !matches!(outcome, Outcome::Done) {
            to.send_reset(Code::CANCEL);
        }
        outcome
    }

    /// Looks through the beginning of the body, and states its length as it will be.
    async fn prepare(
        &mut self,
        head: &http::request::Parts,
        body: &mut RecvStream,
        outgoing: &mut Request<()>,
    ) -> Result<(Filter, Held, BodyTreatment), Failed> {
        if head.headers.contains_key(EXPECT) && !body.is_end_stream() {
            let mut go_on = Response::new(());
            *go_on.status_mut() = StatusCode::CONTINUE;
            let _ = self.respond.send_informational(go_on);
        }
        let stated = head.headers.get(CONTENT_LENGTH).cloned();
        let encodings: Vec<_> = head.headers.get_all(CONTENT_ENCODING).iter().collect();
        let encodings: Vec<_> = encodings.iter().map(|value| value.to_str()).collect();
        let treatment = if body.is_end_stream() {
            BodyTreatment::Unseen
        } else {
            // What cannot be read names no coding that is known.
            let joined = encodings
                .into_iter()
                .map(|value| value.unwrap_or("?"))
                .collect::<Vec<_>>()
                .join(",");
            self.injection.body(&joined)?
        };
        let mut filter = self.injection.filter(treatment, Surface::Body);
        let length = stated
            .as_ref()
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let told = treatment.length(length, MOST_HELD as u64);
        let share = Share::of(self.budget);
        let held = if treatment == BodyTreatment::Unseen {
            Held {
                ready: Vec::new(),
                complete: body.is_end_stream(),
                share,
            }
        } else {
            let to_the_end = told == BodyLength::Collect;
            hold(body, &mut filter, to_the_end, share, self.meter).await?
        };
        let new = match told {
            BodyLength::Keep => stated,
            BodyLength::Collect if held.complete => Some(HeaderValue::from(held.length())),
            BodyLength::Collect if treatment == BodyTreatment::Scan => stated,
            BodyLength::Collect | BodyLength::Stream => None,
        };
        if let Some(new) = new {
            outgoing.headers_mut().insert(CONTENT_LENGTH, new);
        }
        Ok((filter, held, treatment))
    }

    /// Sends the rest of the request and returns the answer, each as far as the other lets it.
    async fn answer(&mut self, response: ResponseFuture, upload: Option<Upload<'_>>) -> Outcome {
        let meter = self.meter;
        let injection = &*self.injection;
        let up = async {
            match upload {
                Some(Upload {
                    body,
                    to,
                    held,
                    filter,
                }) => up(body, to, held, filter, injection, meter).await,
                None => Ok(()),
            }
        };
        tokio::pin!(up);
        tokio::pin!(response);
        let mut uploading = true;
        let response = loop {
            tokio::select! {
                sent = &mut up, if uploading => match sent {
                    Ok(()) => uploading = false,
                    // It may have answered before it stopped reading.
                    Err(Failed::To) => uploading = false,
                    Err(failed) => return failure(failed),
                },
                response = &mut response => match response {
                    Ok(response) => break response,
                    Err(error) => return unanswered(&error),
                },
                code = poll_fn(|cx| self.respond.poll_reset(cx)) => {
                    return Outcome::Broken(End::Aborted, code.unwrap_or(Code::CANCEL));
                }
            }
        };
        meter.touch();
        let (head, mut body) = response.into_parts();
        let head = head::returned(Response::from_parts(head, ()));
        *self.answered = true;
        let ended = body.is_end_stream();
        let Ok(mut to) = self.respond.send_response(head, ended) else {
            return Outcome::Broken(End::Aborted, Code::CANCEL);
        };
        if ended {
            return Outcome::Done;
        }
        let down = down(&mut body, &mut to, meter);
        tokio::pin!(down);
        loop {
            tokio::select! {
                sent = &mut up, if uploading => match sent {
                    Ok(()) | Err(Failed::To) => uploading = false,
                    Err(failed) => return failure(failed),
                },
                returned = &mut down => return match returned {
                    Ok(()) => Outcome::Done,
                    Err(Failed::From(code)) => Outcome::Broken(End::Answered(Reason::UpstreamClosed), code),
                    Err(_) => Outcome::Broken(End::Aborted, Code::CANCEL),
                },
            }
        }
    }

    fn failed(&mut self, failed: Failed) -> Outcome {
        if let Failed::Refused(refusal) = &failed {
            self.injection.note(refusal.credential_id.as_slice());
        }
        failure(failed)
    }
}

struct Upload<'a> {
    body: &'a mut RecvStream,
    to: &'a mut SendStream<Bytes>,
    held: Held,
    filter: &'a mut Filter,
}

fn failure(failed: Failed) -> Outcome {
    match failed {
        Failed::Refused(refusal) => Outcome::Unanswered(Reason::from(&refusal)),
        Failed::From(code) => Outcome::Broken(End::Aborted, code),
        Failed::To => Outcome::Unanswered(Reason::UpstreamClosed),
    }
}

/// An upstream that resets a stream says so to the client; one that goes away is a typed answer.
fn unanswered(error: &h2::Error) -> Outcome {
    match error.reason() {
        Some(Code::NO_ERROR) if error.is_go_away() => Outcome::NotTaken,
        Some(Code::REFUSED_STREAM) => Outcome::NotTaken,
        Some(code) if error.is_reset() => {
            Outcome::Broken(End::Answered(Reason::UpstreamClosed), code)
        }
        _ => Outcome::Unanswered(Reason::UpstreamClosed),
    }
}
