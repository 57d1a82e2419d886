//! HTTP/2 inside of a tunnel.

use std::future::poll_fn;
use std::sync::Arc;

use astrabox_egress::BodyPlace;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::support::credentials::{CANARY, grant, in_body, placeholder, stand_for};
use crate::support::secure::{ClientTls, H1, H2, Root, Secure};
use crate::support::upstream::Conversation;
use crate::support::{Sandbox, Stand, soon, still, until};

type Log = Arc<std::sync::Mutex<Vec<String>>>;

/// What an upstream of these tests does with a request, by its path.
async fn answer(
    request: Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    log: Log,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let mut text = format!("{} {}", head.method, head.uri);
    for (name, value) in &head.headers {
        text.push_str(&format!(
            "\n{name}: {}",
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    let index = {
        let mut log = log.lock().unwrap();
        log.push(text + "\n\n");
        log.len() - 1
    };
    if head.uri.path() == "/reset" {
        respond.send_reset(Reason::ENHANCE_YOUR_CALM);
        return Ok(());
    }
    if head.uri.path() == "/early" {
        respond.send_response(Response::builder().status(413).body(()).unwrap(), true)?;
        return Ok(());
    }
    let response = Response::builder()
        .header("alt-svc", "h3=\":443\"")
        .header("grpc", "yes")
        .body(())
        .unwrap();
    let mut send = respond.send_response(response, false)?;
    if head.uri.path() == "/large" {
        let piece = Bytes::from(vec![b'x'; 16 * 1024]);
        for _ in 0..LARGE / piece.len() {
            let mut left = piece.clone();
            while !left.is_empty() {
                send.reserve_capacity(left.len());
                match poll_fn(|cx| send.poll_capacity(cx)).await {
                    Some(room) => send.send_data(left.split_to(room?.min(left.len())), false)?,
                    None => return Ok(()),
                }
                log.lock().unwrap()[index].push('.');
            }
        }
    }
    while let Some(data) = body.data().await {
        let data = data?;
        let _ = body.flow_control().release_capacity(data.len());
        log.lock().unwrap()[index].push_str(&String::from_utf8_lossy(&data));
        // Back it goes, so that a client that waits for it can go on.
        send.send_data(data, false)?;
    }
    if let Some(trailers) = body.trailers().await? {
        log.lock().unwrap()[index].push_str(&format!("\ntrailers: {trailers:?}"));
    }
    log.lock().unwrap()[index].push_str("\nend");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    send.send_trailers(trailers)
}

const LARGE: usize = 64 * 1024 * 1024;

async fn serve(conversation: Conversation<crate::support::secure::ServerTls>, log: Log) {
    let mut connection = h2::server::handshake(conversation.stream).await.unwrap();
    let mut streams = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        if request.uri().path() == "/goodbye" {
            connection.graceful_shutdown();
        }
        streams.spawn(answer(request, respond, Arc::clone(&log)));
    }
}

struct Place {
    stand: Stand,
    sandbox: Sandbox,
    log: Log,
    _upstream: Secure,
    _root: Root,
}

struct Client {
    requests: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Answer {
    fn reason(&self) -> Option<&str> {
        let reason = self.headers.get("x-astrabox-egress-reason")?;
        Some(reason.to_str().unwrap())
    }
}

impl Place {
    async fn new(body: BodyPlace) -> Self {
        let root = Root::new();
        let log = Log::default();
        let kept = Arc::clone(&log);
        let upstream = Secure::start(&root, &["good.test"], &[H2, H1], move |conversation| {
            let log = Arc::clone(&log);
            async move {
                serve(conversation, log).await;
                Ok(())
            }
        })
        .await;
        let stand = stand_for(&root, &[("good.test", &upstream)]).await;
        let sandbox = stand.sandbox(&[]).await;
        let grants = [in_body(grant("key", &["good.test"]), body)];
        stand.grant(&sandbox, &grants, CANARY).await;
        Self {
            stand,
            sandbox,
            log: kept,
            _upstream: upstream,
            _root: root,
        }
    }

    async fn client(&self) -> Client {
        let trusting = self.stand.trusting(&[H2, H1]).await;
        let stream = trusting.connect(self.sandbox.proxy, "good.test:443", "good.test");
        let stream = stream.await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(H2));
        over(stream).await
    }

    fn received(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

async fn over(stream: ClientTls) -> Client {
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let _ = connection.await;
    });
    Client {
        requests,
        _connection: task,
    }
}

fn get(uri: &str) -> http::request::Builder {
    Request::builder().uri(uri)
}

impl Client {
    async fn send(&self, request: Request<()>, body: &[&[u8]]) -> Result<Answer, h2::Error> {
        let mut requests = soon("room", self.requests.clone().ready()).await?;
        let (response, mut stream) = requests.send_request(request, body.is_empty())?;
        for (number, piece) in (1..).zip(body) {
            // The window is larger than what the tests send.
            let sent = stream.send_data(Bytes::copy_from_slice(piece), number == body.len());
            if sent.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        finish(response).await
    }
}

async fn finish(response: h2::client::ResponseFuture) -> Result<Answer, h2::Error> {
    let response = soon("an answer", response).await?;
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = soon("more", body.data()).await {
        let piece = piece?;
        let _ = body.flow_control().release_capacity(piece.len());
        bytes.extend(piece);
    }
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: bytes,
        trailers: soon("trailers", body.trailers()).await?,
    })
}

#[tokio::test]
async fn a_stream_goes_up_with_its_credential_and_comes_back_with_its_trailers() {
    let place = Place::new(BodyPlace::Refuse).await;
    let client = place.client().await;
    let request = get("https://good.test/v1?a=b")
        .method("POST")
        .header("host", "Good.test:443")
        .header("authorization", format!("Bearer {}", placeholder("key")))
        .header("te", "trailers")
        .header("content-length", "5")
        .header("proxy-authorization", "Basic y")
        .body(())
        .unwrap();
    let answer = client.send(request, &[b"he", b"llo"]).await.unwrap();
    assert_eq!((answer.status, &*answer.body), (200, b"hello".as_slice()));
    assert!(!answer.headers.contains_key("alt-svc"));
    assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
    assert_eq!(
        place.received(),
        [format!(
            "POST https://good.test/v1?a=b\nauthorization: Bearer {CANARY}\nte: trailers\n\
             content-length: 5\n\nhello\nend"
        )]
    );
}

#[tokio::test]
async fn a10_each_stream_names_the_tunnels_host_or_is_refused() {
    let place = Place::new(BodyPlace::Refuse).await;
    let client = place.client().await;
    let key = placeholder("key");
    let with = |request: http::request::Builder| request.header("x", &key).body(()).unwrap();
    for (request, status, reason) in [
        (with(get("https://evil.test/")), 403, "host_mismatch"),
        (with(get("https://good.test:8443/")), 403, "host_mismatch"),
        (with(get("https://user@good.test/")), 403, "host_mismatch"),
        (
            with(get("https://good.test/").header("host", "evil.test")),
            403,
            "host_mismatch",
        ),
        (
            with(
                get("https://good.test/")
                    .header("host", "good.test")
                    .header("host", "good.test"),
            ),
            400,
            "missing_or_repeated_host",
        ),
        (
            with(get("https://good.test/").header("forwarded", "host=evil.test")),
            400,
            "forwarded_host",
        ),
        (with(get("http://good.test/")), 400, "unsupported_scheme"),
        (
            with(get("good.test:443").method("CONNECT")),
            400,
            "nested_connect",
        ),
        (
            with(get(&format!("https://good.test/{key}"))),
            403,
            "credential_place",
        ),
        (
            get("https://good.test/")
                .header("x", placeholder("stolen"))
                .body(())
                .unwrap(),
            403,
            "credential_unknown",
        ),
    ] {
        let shown = format!("{request:?}");
        let answer = client.send(request, &[]).await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (status, Some(reason)),
            "{shown}"
        );
    }
    assert!(place.received().is_empty());
    // A refused stream leaves the others be.
    let answer = client
        .send(with(get("https://good.test/")), &[])
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    assert!(place.received()[0].contains(CANARY));
}

#[tokio::test]
async fn f1_a_placeholder_is_found_across_frames_and_no_stream_is_opened_for_it() {
    let place = Place::new(BodyPlace::Refuse).await;
    let client = place.client().await;
    let body = format!("before {} after", placeholder("key"));
    for cut in [1, 9, 15, 30] {
        let (first, second) = body.as_bytes().split_at(cut);
        let request = get("https://good.test/").method("POST").body(()).unwrap();
        let answer = client.send(request, &[first, second]).await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (403, Some("credential_place")),
            "{cut}"
        );
    }
    assert!(place.received().is_empty());
    let events = place.stand.finish().await;
    let refused = events
        .iter()
        .filter(|event| event.reason == "credential_place");
    assert!(
        refused.clone().count() == 4 && refused.clone().all(|event| event.credentials == ["key"])
    );
}

#[tokio::test]
async fn f7_a_rewritten_body_has_its_new_length() {
    let place = Place::new(BodyPlace::Replace).await;
    let client = place.client().await;
    let body = format!("k={}", placeholder("key"));
    for length in [true, false] {
        let mut request = get("https://good.test/").method("POST");
        if length {
            request = request.header("content-length", body.len());
        }
        let (first, second) = body.as_bytes().split_at(20);
        let answer = client
            .send(request.body(()).unwrap(), &[first, second])
            .await
            .unwrap();
        assert_eq!(answer.status, 200);
        let sent = format!("k={CANARY}");
        let last = place.received().pop().unwrap();
        assert!(last.ends_with(&format!("\n\n{sent}\nend")), "{last}");
        let stated = format!("content-length: {}\n", sent.len());
        assert_eq!(last.contains(&stated), length, "{last}");
    }
}

#[tokio::test]
async fn d6_a_trailer_with_a_placeholder_is_refused_and_an_ordinary_one_passes() {
    let place = Place::new(BodyPlace::Pass).await;
    let client = place.client().await;
    for (value, passes) in [("plain".to_owned(), true), (placeholder("key"), false)] {
        let request = get("https://good.test/").method("POST").body(()).unwrap();
        let mut requests = client.requests.clone().ready().await.unwrap();
        let (response, mut stream) = requests.send_request(request, false).unwrap();
        stream.send_data(Bytes::from_static(b"x"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-trailer", value.parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        let answer = finish(response).await;
        let completed = place.received().iter().any(|text| text.ends_with("end"));
        assert_eq!(completed, passes);
        assert_eq!(answer.is_ok_and(|answer| answer.status == 200), passes);
        place.log.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn a_call_that_streams_both_ways_is_not_held_up() {
    let place = Place::new(BodyPlace::Refuse).await;
    let client = place.client().await;
    let request = get("https://good.test/").method("POST").body(()).unwrap();
    let mut requests = client.requests.clone().ready().await.unwrap();
    let (response, mut stream) = requests.send_request(request, false).unwrap();
    stream.send_data(Bytes::from_static(b"one"), false).unwrap();
    // The answer begins, and repeats what was sent, before the request has ended.
    let response = soon("the head", response).await.unwrap();
    let mut body = response.into_body();
    for (heard, said) in [("one", "two"), ("two", "three")] {
        let piece = soon("a message", body.data()).await.unwrap().unwrap();
        assert_eq!(piece, heard);
        stream.send_data(Bytes::from(said), false).unwrap();
    }
    assert_eq!(
        soon("a message", body.data()).await.unwrap().unwrap(),
        "three"
    );
    stream.send_data(Bytes::new(), true).unwrap();
    assert!(soon("the end", body.data()).await.is_none());
}

#[tokio::test]
async fn resets_and_early_answers_pass_in_both_directions() {
    let place = Place::new(BodyPlace::Pass).await;
    let client = place.client().await;
    let request = get("https://good.test/reset").body(()).unwrap();
    let error = client.send(request, &[]).await.err().unwrap();
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let request = get("https://good.test/early")
        .method("POST")
        .body(())
        .unwrap();
    let answer = client.send(request, &[b"too large"]).await.unwrap();
    assert_eq!(answer.status, 413);
    // A client that gives up takes its upstream stream with it.
    let request = get("https://good.test/").method("POST").body(()).unwrap();
    let mut requests = client.requests.clone().ready().await.unwrap();
    let (response, mut stream) = requests.send_request(request, false).unwrap();
    let response = soon("the head", response).await.unwrap();
    stream.send_reset(Reason::CANCEL);
    drop(response);
    until("the end of the exchange", async || {
        let list = place.stand.gate.list().await.unwrap();
        list[0].counts.allowed >= 3
    })
    .await;
    let answer = client
        .send(get("https://good.test/").body(()).unwrap(), &[])
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_makes_the_upstream_wait() {
    let place = Place::new(BodyPlace::Pass).await;
    let client = place.client().await;
    let request = get("https://good.test/large").body(()).unwrap();
    let mut requests = client.requests.clone().ready().await.unwrap();
    let (response, _) = requests.send_request(request, true).unwrap();
    let response = soon("the head", response).await.unwrap();
    // It stands still after what the windows have room for.
    let before = still("the upstream to wait", || {
        place.received()[0].matches('.').count() * 16 * 1024
    })
    .await;
    assert!(
        before < 16 * 1024 * 1024,
        "{before} bytes are held somewhere"
    );
    let mut body = response.into_body();
    let mut read = 0;
    while let Some(piece) = soon("more", body.data()).await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        read += piece.len();
    }
    assert_eq!(read, LARGE);
}

#[tokio::test]
async fn d11_a_flood_of_fields_or_of_resets_ends_the_connection_and_goes_nowhere() {
    let place = Place::new(BodyPlace::Pass).await;
    let client = place.client().await;
    let mut request = get("https://good.test/");
    for number in 0..2000 {
        request = request.header(format!("x-{number}"), "y".repeat(60));
    }
    let answer = client.send(request.body(()).unwrap(), &[]).await;
    let refused = answer.map_or(true, |answer| answer.status == 431);
    assert!(refused);
    assert!(place.received().is_empty());

    let get = b"\x82\x87\x84\x01\x09good.test";
    let resets = |number: u32| {
        [
            raw(1, 5, number, get),
            raw(3, 0, number, &8_u32.to_be_bytes()),
        ]
        .concat()
    };
    let continuations = |number: u32| {
        if number == 1 {
            raw(1, 1, 1, get)
        } else {
            raw(9, 0, 1, &vec![0; 8 * 1024])
        }
    };
    let flood = |frame: &dyn Fn(u32) -> Vec<u8>| {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(raw(4, 0, 0, b""));
        for number in 0..20_000 {
            bytes.extend(frame(2 * number + 1));
        }
        bytes
    };
    for bytes in [flood(&resets), flood(&continuations)] {
        let trusting = place.stand.trusting(&[H2]).await;
        let stream = trusting.connect(place.sandbox.proxy, "good.test:443", "good.test");
        let (mut read, mut write) = tokio::io::split(stream.await.unwrap());
        let both = async {
            tokio::join!(write.write_all(&bytes), async {
                let mut sink = [0; 4096];
                while read.read(&mut sink).await.is_ok_and(|read| read > 0) {}
            })
        };
        let _ = soon("the end of the connection", both).await;
    }
    assert!(place.received().len() < 1000, "{}", place.received().len());
}

/// A frame by its type, flags and stream (RFC 9113, section 4.1).
fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn the_protocol_is_the_one_that_both_ends_speak() {
    let root = Root::new();
    let old = Secure::answering(&root, &["old.test"]).await;
    let stand = stand_for(&root, &[("old.test", &old)]).await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["old.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H2, H1]).await;
    let stream = trusting
        .connect(sandbox.proxy, "old.test:443", "old.test")
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(H1));
    let mut client = crate::support::client::Client::over(stream);
    client
        .send("GET / HTTP/1.1\r\nHost: old.test\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    // A client that speaks nothing else gets to know it in its own protocol.
    let only = stand.trusting(&[H2]).await;
    let stream = only
        .connect(sandbox.proxy, "old.test:443", "old.test")
        .await
        .unwrap();
    let client = over(stream).await;
    let answer = client
        .send(get("https://old.test/").body(()).unwrap(), &[])
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.reason()),
        (502, Some("upstream_tls_failed"))
    );
    let strange = stand.trusting(&[b"spdy/3"]).await;
    assert!(
        strange
            .connect(sandbox.proxy, "old.test:443", "old.test")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a14_an_upstream_that_fails_is_a_typed_answer_in_http2_as_well() {
    let root = Root::new();
    let stranger = Root::new();
    let upstream = Secure::start(&stranger, &["good.test"], &[H2], |_| async { Ok(()) }).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H2]).await;
    let stream = trusting
        .connect(sandbox.proxy, "good.test:443", "good.test")
        .await
        .unwrap();
    let client = over(stream).await;
    let request = get("https://good.test/")
        .header("x", placeholder("key"))
        .body(())
        .unwrap();
    let answer = client.send(request, &[]).await.unwrap();
    assert_eq!(
        (answer.status, answer.reason()),
        (502, Some("upstream_certificate"))
    );
}

#[tokio::test]
async fn d11_a_length_that_lies_completes_no_request() {
    let place = Place::new(BodyPlace::Refuse).await;
    for (stated, sent) in [(3, "hello"), (9, "hello")] {
        let client = place.client().await;
        let request = get("https://good.test/")
            .method("POST")
            .header("content-length", stated)
            .body(())
            .unwrap();
        let answer = client.send(request, &[sent.as_bytes()]).await;
        assert!(answer.is_err(), "{stated}");
    }
    let received = place.received();
    assert!(
        !received.iter().any(|text| text.ends_with("end")),
        "{received:?}"
    );
}

#[tokio::test]
async fn an_upstream_that_says_goodbye_is_passed_on_and_another_tunnel_works() {
    let place = Place::new(BodyPlace::Pass).await;
    let client = place.client().await;
    let goodbye = get("https://good.test/goodbye").body(()).unwrap();
    assert_eq!(client.send(goodbye, &[]).await.unwrap().status, 200);
    // Requests that it does not take any more are told to be asked again, until the connection is gone.
    soon("the end of the connection", async {
        loop {
            let request = get("https://good.test/").body(()).unwrap();
            match client.send(request, &[]).await {
                Ok(answer) => assert_eq!(answer.status, 200),
                Err(error) => {
                    let refused = error.reason() == Some(Reason::REFUSED_STREAM);
                    assert!(refused || error.is_go_away() || error.is_io(), "{error}");
                    break;
                }
            }
        }
    })
    .await;
    let client = place.client().await;
    let request = get("https://good.test/").body(()).unwrap();
    assert_eq!(client.send(request, &[]).await.unwrap().status, 200);
}
