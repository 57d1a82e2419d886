//! Requests in, answers out: routes, vendor errors, and bodies that pause, wait and break off.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Body as _, Frame as BodyFrame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::conversation::{Conversation, Wire};
use super::gate::Gates;
use super::ids::{self, Ids};
use super::reply::Reply;
use super::requests::{self, CredentialHash, Recorded};
use super::wire::{self, Frame, Head};
use super::{beat, turn};

/// The largest request body that is read.
const MAX_BODY: usize = 64 << 20;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Script = dyn Fn(&Conversation) -> Option<Reply> + Send + Sync;
pub(crate) type Observer = dyn Fn(&Recorded) + Send + Sync;

/// Everything that the connections of one server share.
pub(crate) struct Shared {
    pub(crate) models: Vec<String>,
    pub(crate) credential: Option<CredentialHash>,
    pub(crate) script: Option<Box<Script>>,
    pub(crate) observer: Option<Box<Observer>>,
    pub(crate) queue: Mutex<VecDeque<Reply>>,
    pub(crate) asked: Mutex<HashMap<String, u32>>,
    pub(crate) log: watch::Sender<Vec<Arc<Recorded>>>,
    pub(crate) gates: Gates,
    pub(crate) cancel: CancellationToken,
}

/// What a path stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route<'a> {
    Answer(Wire),
    CountTokens(Wire),
    Models,
    Model(&'a str),
    Control,
    Release(&'a str),
    Alive,
    Unknown,
}

fn route<'a>(method: &Method, path: &'a str) -> Route<'a> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let get = matches!(*method, Method::GET | Method::HEAD);
    match (path, get, *method == Method::POST) {
        ("/messages", _, true) => Route::Answer(Wire::Messages),
        ("/messages/count_tokens", _, true) => Route::CountTokens(Wire::Messages),
        ("/responses/input_tokens", _, true) => Route::CountTokens(Wire::Responses),
        ("/responses", _, true) => Route::Answer(Wire::Responses),
        ("/chat/completions", _, true) => Route::Answer(Wire::Chat),
        ("/models", true, _) => Route::Models,
        ("/control", true, _) => Route::Control,
        ("/" | "", true, _) => Route::Alive,
        (path, get, post) => match (
            path.strip_prefix("/models/"),
            path.strip_prefix("/control/release/"),
        ) {
            (Some(id), _) if get => Route::Model(id),
            (_, Some(name)) if post => Route::Release(name),
            _ => Route::Unknown,
        },
    }
}

/// Answers one request.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let route = route(&parts.method, parts.uri.path());
    let wire = spoken(route, &parts.headers);
    let body = match read(&parts.headers, body).await {
        Ok(body) => body,
        Err(status) => return Ok(error(wire, status, "the request body cannot be read")),
    };
    if matches!(route, Route::Control | Route::Release(_)) {
        return Ok(shared.control(route));
    }
    let credential = requests::credential(&parts.headers);
    let allowed = shared.credential.is_none() || shared.credential == credential;
    let mut conversation = match route {
        Route::Answer(wire) => Some(wire::decode(wire, &body)),
        Route::CountTokens(wire) => Some(wire::decode(wire, &body)),
        _ => None,
    };
    if let (true, Route::Answer(_), Some(Ok(conversation))) = (allowed, route, &mut conversation) {
        let question = ids::question(conversation);
        conversation.attempt = shared.count(format!("{}/{question}", conversation.thread));
    }
    let usage_chunk = body["stream_options"]["include_usage"] == true;
    shared.record(Recorded {
        number: 0,
        at: Timestamp::now(),
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: requests::shown(&parts.headers),
        credential,
        wire: match route {
            Route::Answer(wire) => Some(wire),
            _ => None,
        },
        body,
        conversation: conversation.clone().and_then(Result::ok),
    });
    if !allowed {
        let why = "the credential is not the one that is required";
        return Ok(error(wire, 401, why));
    }
    Ok(match (route, conversation) {
        (_, Some(Err(why))) => error(wire, 400, &why),
        (Route::CountTokens(wire), Some(Ok(conversation))) => {
            let usage = wire::counted(&conversation, &Reply::new());
            let mut count = json!({ "input_tokens": usage.input });
            if wire == Wire::Responses {
                count["object"] = json!("response.input_tokens");
            }
            json_response(200, &count)
        }
        (_, Some(Ok(conversation))) => shared.answer(&conversation, usage_chunk),
        (Route::Models, _) => json_response(200, &shared.models_page(wire)),
        (Route::Model(id), _) => shared.model(wire, id),
        (Route::Alive, _) => json_response(200, &json!({ "status": "ok" })),
        _ => error(wire, 404, "there is nothing at this path"),
    })
}

/// The vendor in whose shape errors and lists are answered.
fn spoken(route: Route<'_>, headers: &HeaderMap) -> Wire {
    match route {
        Route::Answer(wire) | Route::CountTokens(wire) => wire,
        _ if headers.contains_key("anthropic-version") => Wire::Messages,
        _ => Wire::Responses,
    }
}

async fn read(headers: &HeaderMap, body: Incoming) -> Result<Value, u16> {
    if body.is_end_stream() {
        return Ok(Value::Null);
    }
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(415);
    }
    let bytes = Limited::new(body, MAX_BODY)
        .collect()
        .await
        .map_err(|_| 413u16)?
        .to_bytes();
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

impl Shared {
    /// How often the same was counted before.
    fn count(&self, what: String) -> u32 {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let times = asked.entry(what).or_default();
        *times += 1;
        *times - 1
    }

    fn record(&self, mut recorded: Recorded) {
        self.log.send_modify(|log| {
            recorded.number = log.len();
            if let Some(observer) = &self.observer {
                observer(&recorded);
            }
            log.push(Arc::new(recorded));
        });
    }

    fn reply(&self, conversation: &Conversation) -> Reply {
        let queued = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        queued
            .or_else(|| self.script.as_ref().and_then(|script| script(conversation)))
            .unwrap_or_else(|| turn::reply(conversation))
    }

    fn answer(self: &Arc<Self>, conversation: &Conversation, usage_chunk: bool) -> Response<Body> {
        let reply = self.reply(conversation);
        let wire = conversation.wire;
        if let Some(status) = reply.status {
            return error(wire, status, "this error is scripted");
        }
        let question = ids::question(conversation);
        // Unlike attempts, ids differ between conversations too.
        let answers = self.count(question.clone());
        let head = Head {
            ids: Ids::new(&question, answers),
            model: conversation.model.clone(),
            usage: reply
                .usage
                .unwrap_or_else(|| wire::counted(conversation, &reply)),
            created: Timestamp::now().as_second(),
            usage_chunk,
        };
        let beats = beat::beats(&reply, conversation);
        let frames = wire::frames(wire, head, &beats, conversation.stream);
        let kind = if conversation.stream {
            "text/event-stream; charset=utf-8"
        } else {
            "application/json"
        };
        let body = match &frames[..] {
            // A whole answer goes out with its length.
            [Frame::Bytes(bytes)] => full(bytes.clone()),
            _ => played(self.clone(), frames),
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
        headers.insert(
            CACHE_CONTROL,
            hyper::header::HeaderValue::from_static("no-cache"),
        );
        response
    }

    fn models_page(&self, wire: Wire) -> Value {
        let data: Vec<Value> = self.models.iter().map(|id| model_card(wire, id)).collect();
        match wire {
            Wire::Messages => json!({
                "data": data,
                "has_more": false,
                "first_id": self.models.first(),
                "last_id": self.models.last(),
            }),
            _ => json!({ "object": "list", "data": data }),
        }
    }

    fn model(&self, wire: Wire, id: &str) -> Response<Body> {
        if self.models.iter().any(|model| model == id) {
            json_response(200, &model_card(wire, id))
        } else {
            error(wire, 404, "there is no such model")
        }
    }

    /// Releases a name if asked to, and tells how things stand.
    fn control(&self, route: Route<'_>) -> Response<Body> {
        if let Route::Release(name) = route {
            self.gates.release(name);
        }
        let state = json!({ "held": self.gates.held(), "requests": self.log.borrow().len() });
        json_response(200, &state)
    }
}

fn model_card(wire: Wire, id: &str) -> Value {
    match wire {
        Wire::Messages => json!({
            "type": "model",
            "id": id,
            "display_name": id,
            "created_at": "2026-01-01T00:00:00Z",
        }),
        _ => {
            json!({ "id": id, "object": "model", "created": 1_767_225_600, "owned_by": "scripted" })
        }
    }
}

/// A body that plays frames. It is part of its connection: when that goes, it goes.
fn played(shared: Arc<Shared>, frames: Vec<Frame>) -> Body {
    let frames = VecDeque::from(frames);
    let chunks = stream::unfold((shared, frames), |(shared, mut frames)| async {
        let chunk = next_chunk(&shared, &mut frames).await?;
        Some((chunk.map(BodyFrame::data), (shared, frames)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

async fn next_chunk(
    shared: &Shared,
    frames: &mut VecDeque<Frame>,
) -> Option<Result<Bytes, io::Error>> {
    while let Some(frame) = frames.pop_front() {
        let wait = async {
            match &frame {
                Frame::Pause(pause) => tokio::time::sleep(*pause).await,
                Frame::Hold(name) => shared.gates.pass(name).await,
                // What was written must be on its way before the cut: a pending body is flushed.
                Frame::Cut => tokio::task::yield_now().await,
                Frame::Bytes(_) => {}
            }
        };
        let cut = tokio::select! {
            biased;
            () = wait => frame == Frame::Cut,
            () = shared.cancel.cancelled() => true,
        };
        if cut {
            frames.clear();
            return Some(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Frame::Bytes(bytes) = frame {
            return Some(Ok(bytes));
        }
    }
    None
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn json_response(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(full(body.to_string().into()));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    response
}

fn error(wire: Wire, status: u16, message: &str) -> Response<Body> {
    json_response(status, &wire::error_body(wire, status, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_works_with_and_without_its_version() {
        let cases = [
            ("POST", "/v1/messages", Route::Answer(Wire::Messages)),
            ("POST", "/messages", Route::Answer(Wire::Messages)),
            (
                "POST",
                "/v1/messages/count_tokens",
                Route::CountTokens(Wire::Messages),
            ),
            (
                "POST",
                "/v1/responses/input_tokens",
                Route::CountTokens(Wire::Responses),
            ),
            ("POST", "/v1/responses", Route::Answer(Wire::Responses)),
            ("POST", "/v1/chat/completions", Route::Answer(Wire::Chat)),
            ("GET", "/v1/models", Route::Models),
            ("GET", "/v1/models/a/b", Route::Model("a/b")),
            ("GET", "/control", Route::Control),
            ("POST", "/control/release/x", Route::Release("x")),
            ("HEAD", "/", Route::Alive),
            ("GET", "/v1/responses", Route::Unknown),
            ("POST", "/v1/embeddings", Route::Unknown),
        ];
        for (method, path, expected) in cases {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(super::route(&method, path), expected, "{method} {path}");
        }
    }
}
