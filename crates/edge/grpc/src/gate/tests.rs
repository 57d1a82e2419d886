use std::sync::Mutex;

use astrabox_platform::{Actor, Evidence};
use astrabox_proto::v1;
use astrabox_proto::v1::engine_service_server::{EngineService, EngineServiceServer};
use async_trait::async_trait;

use super::*;

const LIST: &str = "/astrabox.v1.EngineService/ListEngines";
const GET: &str = "/astrabox.v1.EngineService/GetEngine";

/// Takes the token `good` and nothing else.
struct Tokens;

#[async_trait]
impl Identify for Tokens {
    async fn identify(&self, evidence: &Evidence) -> Result<OpContext> {
        match evidence.bearer.as_deref() {
            Some("good") => Ok(OpContext::of(Actor::new("token:good").expect("a subject"))),
            _ => Err(Error::new(ErrorReason::Unauthenticated, "who are you")),
        }
    }
}

/// Notes who reached it.
#[derive(Default)]
struct Engines(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl EngineService for Engines {
    async fn list_engines(
        &self,
        request: tonic::Request<v1::ListEnginesRequest>,
    ) -> std::result::Result<tonic::Response<v1::ListEnginesResponse>, Status> {
        let who = request
            .extensions()
            .get::<OpContext>()
            .map(|ctx| ctx.actor.to_string());
        self.0
            .lock()
            .expect("no panic")
            .push(who.unwrap_or_default());
        Ok(tonic::Response::new(v1::ListEnginesResponse::default()))
    }

    async fn get_engine(
        &self,
        request: tonic::Request<v1::GetEngineRequest>,
    ) -> std::result::Result<tonic::Response<v1::GetEngineResponse>, Status> {
        match request.get_ref().kind.as_str() {
            "panic" => panic!("a defect"),
            "wait" => std::future::pending().await,
            kind => Err(Status::not_found(kind.to_owned())),
        }
    }
}

struct Fixture {
    gate: Gate,
    reached: Arc<Mutex<Vec<String>>>,
}

fn fixture() -> Fixture {
    let engines = Engines::default();
    let reached = Arc::clone(&engines.0);
    let routes = Routes::new(EngineServiceServer::new(engines)).prepare();
    let gate = Gate::new(
        routes,
        Arc::new(Tokens),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    Fixture { gate, reached }
}

impl Fixture {
    async fn call(&self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Status {
        let mut request = Request::post(path).header(CONTENT_TYPE, "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let answer = self.gate.call(Peer { uid: None }, request).await;
        Status::from_header_map(answer.headers()).unwrap_or_else(|| Status::ok(""))
    }

    fn reached(&self) -> Vec<String> {
        self.reached.lock().expect("no panic").clone()
    }
}

const GOOD: (&str, &str) = ("authorization", "Bearer good");

fn message(message: &impl prost::Message) -> Bytes {
    strict::frame(&message.encode_to_vec().into())
}

fn get(kind: &str) -> Bytes {
    message(&v1::GetEngineRequest { kind: kind.into() })
}

#[tokio::test]
async fn nobody_reaches_any_method() {
    let fixture = fixture();
    let methods: Vec<_> = fixture.gate.requests.keys().cloned().collect();
    assert!(methods.len() >= 30, "{methods:?}");
    for path in methods.iter().map(String::as_str).chain([
        "/",
        "/astrabox.v1.SessionService/None",
        "/x.Y/Z",
    ]) {
        for headers in [
            &[][..],
            &[("authorization", "Bearer bad")],
            &[("authorization", "Basic good")],
        ] {
            let status = fixture.call(path, headers, message(&())).await;
            assert_eq!(status.code(), Code::Unauthenticated, "{path} {headers:?}");
        }
    }
    assert!(fixture.reached().is_empty());
}

#[tokio::test]
async fn a_known_caller_reaches_the_service_in_its_own_name() {
    let fixture = fixture();
    let status = fixture
        .call(LIST, &[GOOD], message(&v1::ListEnginesRequest {}))
        .await;
    assert_eq!(status.code(), Code::Ok);
    assert_eq!(fixture.reached(), ["token:good"]);
}

#[tokio::test]
async fn what_is_not_whole_and_known_does_not_reach_the_service() {
    let fixture = fixture();
    let unknown = strict::frame(&Bytes::from_static(&[0x08, 1]));
    for (body, code) in [
        (unknown, Code::InvalidArgument),
        (Bytes::new(), Code::InvalidArgument),
        (Bytes::from_static(&[1, 0, 0, 0, 0]), Code::InvalidArgument),
        (
            Bytes::from_static(&[0, 0, 0, 0, 0, 7]),
            Code::InvalidArgument,
        ),
        (
            Bytes::from_static(&[0, 0xff, 0, 0, 0]),
            Code::ResourceExhausted,
        ),
    ] {
        let status = fixture.call(LIST, &[GOOD], body.clone()).await;
        assert_eq!(status.code(), code, "{body:?}");
    }
    assert!(fixture.reached().is_empty());
}

#[tokio::test]
async fn a_method_that_does_not_exist_is_unimplemented() {
    let status = fixture()
        .call("/astrabox.v1.EngineService/Nothing", &[GOOD], message(&()))
        .await;
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn other_content_types_are_not_taken() {
    let fixture = fixture();
    for kind in [
        "application/json",
        "application/grpc-web",
        "application/grpc+json",
        "",
    ] {
        let request = Request::post(LIST)
            .header(CONTENT_TYPE, kind)
            .body(Full::new(Bytes::new()))
            .expect("a request");
        let answer = fixture.gate.call(Peer { uid: None }, request).await;
        assert_eq!(
            answer.status(),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_defect_in_a_handler_is_internal_and_the_gate_goes_on() {
    let fixture = fixture();
    assert_eq!(
        fixture.call(GET, &[GOOD], get("panic")).await.code(),
        Code::Internal
    );
    assert_eq!(
        fixture.call(GET, &[GOOD], get("x")).await.code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn a_call_ends_at_the_deadline_of_its_client() {
    let fixture = fixture();
    let status = fixture
        .call(GET, &[GOOD, ("grpc-timeout", "20m")], get("wait"))
        .await;
    assert_eq!(status.code(), Code::DeadlineExceeded);
    for wrong in ["", "S", "10", "10x", "-1S", "123456789S"] {
        let status = fixture
            .call(GET, &[GOOD, ("grpc-timeout", wrong)], get("x"))
            .await;
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong}");
    }
}

#[tokio::test]
async fn calls_that_come_during_the_drain_are_sent_away() {
    let fixture = fixture();
    fixture.gate.drain.cancel();
    assert_eq!(
        fixture.call(LIST, &[GOOD], message(&())).await.code(),
        Code::Unavailable
    );
    assert_eq!(
        fixture.call(LIST, &[], message(&())).await.code(),
        Code::Unauthenticated
    );
    assert!(fixture.reached().is_empty());
}

#[tokio::test]
async fn a_call_that_does_not_end_is_dropped_by_the_kill() {
    let fixture = Arc::new(fixture());
    let kill = fixture.gate.kill.clone();
    let (status, ()) = tokio::join!(fixture.call(GET, &[GOOD], get("wait")), async {
        while fixture.gate.calls.is_empty() {
            tokio::task::yield_now().await;
        }
        kill.cancel();
    });
    assert_eq!(status.code(), Code::Unavailable);
}
