//! A gateway that answers as LiteLLM 1.108.7 with a database does, as far as this provider asks: the shapes are
//! recorded, what is kept is in memory.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const GENERATED: &str = include_str!("../recorded/key_generate.json");

/// The gateway. A clone is the same one.
#[derive(Clone)]
pub(crate) struct Gateway {
    /// Its own key.
    pub(crate) master: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Values by id.
    keys: BTreeMap<String, String>,
    /// The bodies of `POST /key/generate`.
    asked: Vec<Value>,
    issued: u64,
}

impl Gateway {
    /// A gateway at a free port of the loopback, with the task that serves it; it ends when that is dropped.
    pub(crate) async fn start(master: &str) -> (Self, SocketAddr, JoinSet<()>) {
        let gateway = Self {
            master: master.to_owned(),
            state: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let served = gateway.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let gateway = served.clone();
                let service = service_fn(move |request| {
                    let gateway = gateway.clone();
                    async move { gateway.answer(request).await }
                });
                connections
                    .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        (gateway, address, serving)
    }

    /// Whether a model request with this key is answered.
    pub(crate) fn accepts(&self, key: &[u8]) -> bool {
        let known = |value: &String| value.as_bytes() == key;
        known(&self.master) || self.state().keys.values().any(known)
    }

    /// What was asked of `POST /key/generate`.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.state().asked.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let shown = parts.headers.get("authorization");
        let shown = shown.and_then(|value| value.to_str().ok());
        let (status, answer) = match shown.and_then(|value| value.strip_prefix("Bearer ")) {
            None => refusal(
                401,
                "auth_error",
                "Authentication Error, No api key passed in.",
            ),
            Some(key) if key != self.master => {
                let text = format!(
                    "Authentication Error, Invalid proxy server token passed. Received API Key = {key}"
                );
                refusal(401, "token_not_found_in_db", &text)
            }
            Some(_) => self.allowed(parts.method.as_str(), parts.uri.path(), body),
        };
        let mut response = Response::new(Full::new(answer.to_string().into()));
        *response.status_mut() = status.try_into().expect("a status");
        Ok(response)
    }

    fn allowed(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        match (method, path) {
            ("GET", "/v1/models") => {
                let card = |id| json!({"id": id, "object": "model", "created": 1_677_610_602, "owned_by": "openai"});
                (
                    200,
                    json!({"data": [card("scripted"), card("other")], "object": "list"}),
                )
            }
            ("POST", "/key/generate") => (200, self.generate(body)),
            ("POST", "/key/delete") => {
                let ids = body["keys"].clone();
                let id = ids[0].as_str().unwrap_or_default();
                match self.state().keys.remove(id) {
                    Some(_) => (200, json!({ "deleted_keys": ids })),
                    None => refusal(404, "internal_server_error", "{'error': 'No keys found'}"),
                }
            }
            _ => (404, json!({"detail": "Not Found"})),
        }
    }

    fn generate(&self, body: Value) -> Value {
        let mut state = self.state();
        state.issued += 1;
        let (key, id) = (
            format!("sk-generated-{:0>16}", state.issued),
            format!("{:0>64x}", state.issued),
        );
        let seconds = body["duration"]
            .as_str()
            .and_then(|text| text.strip_suffix('s'));
        let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(0);
        let expires = astrabox_types::Timestamp::now() + std::time::Duration::from_secs(seconds);
        let mut answer: Value = serde_json::from_str(GENERATED).expect("the recording is JSON");
        answer["key"] = json!(key);
        answer["token"] = json!(id);
        answer["token_id"] = json!(id);
        answer["expires"] = json!(expires.to_string());
        state.keys.insert(id, key);
        state.asked.push(body);
        answer
    }
}

fn refusal(status: u16, kind: &str, message: &str) -> (u16, Value) {
    let code = status.to_string();
    (
        status,
        json!({"error": {"message": message, "type": kind, "param": "key", "code": code}}),
    )
}
