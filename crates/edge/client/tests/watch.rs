//! A watch against a server that breaks, scripted call by call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astrabox_client::v1::watch_session_response::Item;
use astrabox_client::{Client, Code, Endpoint, Link, WatchItem, WatchOptions, v1};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::task::JoinSet;

/// How a scripted call ends after its items.
#[derive(Clone, Copy)]
enum End {
    /// With this status and reason.
    Status(Code, &'static str),
    /// The connection breaks.
    Break,
}

type Script = Arc<Mutex<VecDeque<(Vec<Item>, End)>>>;

/// Answers each WatchSession call with the next part of a script, and notes from where it was asked.
struct Server {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    asked: Arc<Mutex<Vec<u64>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    fn start(script: Vec<(Vec<Item>, End)>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s.sock");
        let listener = tokio::net::UnixListener::bind(&socket).expect("it binds");
        let script: Script = Arc::new(Mutex::new(script.into()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let notes = Arc::clone(&asked);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, notes) = (Arc::clone(&script), Arc::clone(&notes));
                let service = hyper::service::service_fn(move |request| {
                    answer(request, Arc::clone(&script), Arc::clone(&notes))
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                // A broken call breaks its connection: it ends with the error.
                connections.spawn(async move {
                    connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                });
            }
        });
        Self {
            _folder: folder,
            socket,
            asked,
            _tasks: tasks,
        }
    }

    async fn client(&self) -> Client {
        Client::connect(Endpoint::unix(&self.socket))
            .await
            .expect("it listens")
    }

    fn asked(&self) -> Vec<u64> {
        self.asked.lock().expect("no panic").clone()
    }
}

type AnswerBody = http_body_util::combinators::BoxBody<Bytes, std::io::Error>;

async fn answer(
    request: Request<Incoming>,
    script: Script,
    asked: Arc<Mutex<Vec<u64>>>,
) -> Result<Response<AnswerBody>, Infallible> {
    let body = request
        .into_body()
        .collect()
        .await
        .expect("it comes whole")
        .to_bytes();
    let message = v1::WatchSessionRequest::decode(&body[5..]).expect("it is one");
    asked.lock().expect("no panic").push(message.after_seq);
    let (items, end) = script
        .lock()
        .expect("no panic")
        .pop_front()
        .expect("the script is long enough");
    let mut frames: Vec<Result<Frame<Bytes>, std::io::Error>> = items
        .into_iter()
        .map(|item| Ok(Frame::data(frame(item))))
        .collect();
    frames.push(match end {
        End::Status(code, reason) => Ok(Frame::trailers(trailers(code, reason))),
        End::Break => Err(std::io::Error::other("broken")),
    });
    let body = StreamBody::new(futures::stream::iter(frames).then(async |frame| {
        // Each frame on its own, so that what comes before a break arrives.
        tokio::task::yield_now().await;
        frame
    }));
    let answer = Response::builder().header("content-type", "application/grpc");
    Ok(answer.body(BodyExt::boxed(body)).expect("an answer"))
}

fn frame(item: Item) -> Bytes {
    let message = v1::WatchSessionResponse { item: Some(item) }.encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("it is short"));
    framed.put_slice(&message);
    framed.freeze()
}

fn trailers(code: Code, reason: &'static str) -> HeaderMap {
    use tonic_types::{ErrorDetails, StatusExt as _};
    let details =
        ErrorDetails::with_error_info(reason, "astrabox.dev", std::collections::HashMap::new());
    let status = tonic::Status::with_error_details(code, reason, details);
    let status = if code == Code::Ok {
        tonic::Status::ok("")
    } else {
        status
    };
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers).expect("it can be written");
    headers
}

fn event(seq: u64, id: &str) -> Item {
    Item::Event(v1::Event {
        seq,
        id: id.into(),
        turn_id: "turn".into(),
        ..Default::default()
    })
}

fn delta(offset: u64, text: &str) -> Item {
    let delta = v1::Delta {
        event_id: "m".into(),
        turn_id: "turn".into(),
        offset,
        text: text.into(),
        ..Default::default()
    };
    Item::Delta(delta)
}

fn caught_up(seq: u64) -> Item {
    Item::CaughtUp(v1::CaughtUp { seq })
}

/// What a watch gave, shortly.
async fn all(
    client: &Client,
    options: WatchOptions,
) -> (Vec<String>, Option<astrabox_client::ClientError>) {
    let mut watch = client.watch("sesn_1", options).await.expect("it begins");
    let mut told = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match watch.next().await {
                Ok(Some(WatchItem::Event(event))) => told.push(format!("event {}", event.seq)),
                Ok(Some(WatchItem::Delta(delta))) => {
                    told.push(format!("delta {} {}", delta.offset, delta.text))
                }
                Ok(Some(WatchItem::CaughtUp { seq })) => told.push(format!("caught up {seq}")),
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    });
    let end = end.await.expect("it ends");
    (told, end)
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_event_and_says_nothing_twice() {
    let server = Server::start(vec![
        (
            vec![event(1, "a"), caught_up(1), event(2, "b"), delta(0, "Hel")],
            End::Break,
        ),
        (
            vec![caught_up(2), delta(0, "Hello"), delta(5, " you")],
            End::Status(Code::Unavailable, "DRAINING"),
        ),
        (
            vec![
                caught_up(2),
                delta(0, "Hello you"),
                event(3, "m"),
                event(3, "m"),
                event(4, "c"),
            ],
            End::Status(Code::Ok, ""),
        ),
    ]);
    let client = server.client().await;
    let (told, error) = all(&client, WatchOptions::default()).await;
    let expected = [
        "event 1",
        "caught up 1",
        "event 2",
        "delta 0 Hel",
        "delta 3 lo",
        "delta 5  you",
        "event 3",
        "event 4",
    ];
    assert_eq!(told, expected);
    assert_eq!(error, None);
    assert_eq!(server.asked(), [0, 2, 2]);
}

#[tokio::test]
async fn a_servers_own_error_ends_the_watch() {
    let server = Server::start(vec![(
        vec![event(1, "a")],
        End::Status(Code::Unavailable, "STORE_FAILED"),
    )]);
    let (told, error) = all(&server.client().await, WatchOptions::default()).await;
    assert_eq!(told, ["event 1"]);
    assert_eq!(error.expect("it is told").reason, "STORE_FAILED");
}

#[tokio::test]
async fn a_session_that_was_deleted_meanwhile_is_the_end() {
    let server = Server::start(vec![
        (vec![event(1, "a")], End::Break),
        (Vec::new(), End::Status(Code::NotFound, "SESSION_NOT_FOUND")),
    ]);
    let (told, error) = all(
        &server.client().await,
        WatchOptions {
            after_seq: 0,
            ..WatchOptions::default()
        },
    )
    .await;
    assert_eq!((told, error), (vec!["event 1".to_owned()], None));
}

#[tokio::test]
async fn without_patience_a_broken_connection_is_told() {
    let server = Server::start(vec![(vec![event(8, "a")], End::Break)]);
    let options = WatchOptions {
        after_seq: 7,
        reconnect_for: Duration::ZERO,
        ..WatchOptions::default()
    };
    let (told, error) = all(&server.client().await, options).await;
    assert_eq!(told, ["event 8"]);
    assert!(error.expect("it is told").is_unreachable());
    assert_eq!(server.asked(), [7]);
}

#[tokio::test]
async fn a_watch_tells_while_it_waits_whether_its_server_is_there() {
    let server = Server::start(vec![
        (vec![event(1, "a")], End::Break),
        (vec![event(2, "b")], End::Status(Code::Ok, "")),
    ]);
    let client = server.client().await;
    let watch = client.watch("sesn_1", WatchOptions::default()).await;
    let mut watch = watch.expect("it begins");
    let mut link = watch.link();
    let mut told = vec![*link.borrow_and_update()];
    let followed = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            tokio::select! {
                biased;
                Ok(()) = link.changed() => told.push(*link.borrow_and_update()),
                item = watch.next() => if item.expect("it goes on").is_none() { return },
            }
        }
    });
    followed.await.expect("it ends");
    assert_eq!(told, [Link::Up, Link::Down, Link::Up]);
}
