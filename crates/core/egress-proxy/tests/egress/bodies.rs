//! Bodies: found however they are cut, rewritten where the owner said so, else byte for byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use astrabox_egress::BodyPlace;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::support::client::Client;
use crate::support::credentials::{CANARY, grant, in_body, placeholder, stand_for};
use crate::support::secure::{ClientTls, H1, Root, Secure};
use crate::support::{OK, Sandbox, Stand, soon, still, until};

struct Place {
    stand: Stand,
    sandbox: Sandbox,
    upstream: Secure,
    _root: Root,
}

impl Place {
    async fn new(body: BodyPlace) -> Self {
        let root = Root::new();
        let upstream = Secure::start(
            &root,
            &["good.test"],
            &[H1],
            |mut conversation| async move {
                loop {
                    conversation.head().await?;
                    if conversation.has("transfer-encoding: chunked") {
                        conversation.until("0\r\n\r\n").await?;
                        conversation.forget();
                    } else {
                        conversation.request().await?;
                    }
                    conversation.write(OK).await?;
                }
            },
        )
        .await;
        let stand = stand_for(&root, &[("good.test", &upstream)]).await;
        let sandbox = stand.sandbox(&[]).await;
        let grants = [in_body(grant("key", &["good.test"]), body)];
        stand.grant(&sandbox, &grants, CANARY).await;
        Self {
            stand,
            sandbox,
            upstream,
            _root: root,
        }
    }

    async fn client(&self) -> Client<ClientTls> {
        let trusting = self.stand.trusting(&[H1]).await;
        trusting
            .client(self.sandbox.proxy, "good.test:443", "good.test")
            .await
    }
}

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: {length}\r\n\r\n")
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn f1_b08_a_placeholder_is_found_wherever_a_body_is_cut() {
    let place = Place::new(BodyPlace::Refuse).await;
    let body = format!("before {} after", placeholder("key"));
    for cut in [1, 8, 12, 20, 40] {
        // Records, segments and chunks all at once.
        let (first, second) = body.split_at(cut);
        let mut client = place.client().await;
        client.send(post(body.len())).await;
        client.send(first).await;
        client.send(second).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (403, Some("credential_place")),
            "{cut}"
        );

        let mut client = place.client().await;
        client.send(CHUNKED).await;
        client.send(format!("{cut:x}\r\n{first}\r\n")).await;
        client
            .send(format!("{:x}\r\n{second}\r\n0\r\n\r\n", second.len()))
            .await;
        let answer = client.answer().await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (403, Some("credential_place")),
            "{cut}"
        );
    }
    assert_eq!(place.upstream.all(), "");
    // F3, F4
    for (body, reason) in [
        (body.replacen('a', "%61", 9), "credential_encoded"),
        (body.replacen('a', "\\u0061", 9), "credential_encoded"),
        (body.replacen('a', "&#97;", 9), "credential_encoded"),
    ] {
        let mut client = place.client().await;
        client.send(post(body.len())).await;
        client.send(&body).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.reason(), Some(reason), "{body}");
    }
    assert_eq!(place.upstream.all(), "");
    let events = place.stand.finish().await;
    let refused = events
        .iter()
        .filter(|event| event.reason == "credential_place");
    assert!(refused.clone().count() == 10, "{events:?}");
    assert!(refused.clone().all(|event| event.credentials == ["key"]));
}

#[tokio::test]
async fn f7_a_body_that_is_rewritten_has_a_new_length_and_its_chunks_stay_chunks() {
    let place = Place::new(BodyPlace::Replace).await;
    let body = format!("{{\"key\":\"{0}\",\"again\":\"{0}\"}}", placeholder("key"));
    let sent = body.replace(&placeholder("key"), CANARY);
    let mut client = place.client().await;
    client.send(format!("{}{body}", post(body.len()))).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    let (first, second) = body.split_at(15);
    client.send(format!("{CHUNKED}f\r\n{first}\r\n")).await;
    client
        .send(format!(
            "{:x}\r\n{second}\r\n0\r\nX-T: y\r\n\r\n",
            second.len()
        ))
        .await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    let received = place.upstream.received();
    assert_eq!(received.len(), 1, "both went over one connection");
    let whole = format!(
        "POST / HTTP/1.1\r\nhost: good.test\r\ncontent-length: {}\r\n\r\n{sent}",
        sent.len()
    );
    let chunked = received[0].strip_prefix(&whole).unwrap();
    let (head, mut rest) = chunked.split_once("\r\n\r\n").unwrap();
    assert!(head.ends_with("transfer-encoding: chunked"), "{head}");
    let mut joined = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        joined.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            break;
        }
    }
    assert_eq!((joined, rest), (sent, ""));

    // F4: what is compressed cannot be rewritten.
    let mut client = place.client().await;
    let coded = post(3).replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\nabc");
    client.send(coded).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.reason(), Some("credential_content_encoding"));
}

#[tokio::test]
async fn b07_what_holds_no_placeholder_is_the_same_to_the_byte() {
    for body_place in [BodyPlace::Refuse, BodyPlace::Replace, BodyPlace::Pass] {
        let place = Place::new(body_place).await;
        let body: Vec<u8> = (0..200_000_u32)
            .map(|number| (number * 7 % 251) as u8)
            .collect();
        let mut client = place.client().await;
        client.send(post(body.len())).await;
        for piece in body.chunks(70_001) {
            client.send(piece).await;
        }
        // A second request right behind it is a request of its own.
        client
            .send("GET /next HTTP/1.1\r\nHost: good.test\r\n\r\n")
            .await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        assert_eq!(client.answer().await.unwrap().status, 200);
        let received = place.upstream.raw();
        let next = b"GET /next HTTP/1.1\r\nhost: good.test\r\n\r\n";
        let expected = [
            format!(
                "POST / HTTP/1.1\r\nhost: good.test\r\ncontent-length: {}\r\n\r\n",
                body.len()
            )
            .as_bytes(),
            &body,
            next,
        ]
        .concat();
        assert!(received == expected, "{body_place:?}");
    }
}

#[tokio::test]
async fn b14_a_body_that_may_repeat_placeholders_passes_them_as_text() {
    let place = Place::new(BodyPlace::Pass).await;
    let body = format!("the program printed {}", placeholder("key"));
    let mut client = place.client().await;
    let head = post(body.len()).replace(
        "\r\n\r\n",
        &format!("\r\nAuthorization: Bearer {}\r\n\r\n", placeholder("key")),
    );
    client.send(format!("{head}{body}")).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    let received = place.upstream.all();
    assert!(received.contains(&format!("Authorization: Bearer {CANARY}\r\n")));
    assert!(received.ends_with(&body), "{received}");
}

#[tokio::test]
async fn a_long_body_is_broken_off_when_a_placeholder_turns_up_late() {
    let place = Place::new(BodyPlace::Refuse).await;
    let long = vec![b'x'; 3 * 1024 * 1024];
    let key = placeholder("key");
    let mut client = place.client().await;
    client.send(post(long.len() + key.len())).await;
    client.send(&long).await;
    client.send(&key).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(
        (answer.status, answer.reason()),
        (403, Some("credential_place"))
    );
    let received = place.upstream.raw();
    assert!(
        received.len() < long.len() + key.len() + 60,
        "the request was completed"
    );
    assert!(
        !received
            .windows(key.len())
            .any(|part| part == key.as_bytes())
    );
}

#[tokio::test]
async fn d9_a_client_that_waits_for_continue_gets_it_also_when_its_body_is_looked_through() {
    for body_place in [BodyPlace::Refuse, BodyPlace::Replace] {
        let place = Place::new(body_place).await;
        let mut client = place.client().await;
        let head = post(5).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
        client.send(head).await;
        assert_eq!(
            client.head().await.unwrap(),
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        client.send("hello").await;
        assert_eq!(client.answer().await.unwrap().body, b"ok");
        let received = place.upstream.all();
        assert!(
            received.ends_with("content-length: 5\r\n\r\nhello"),
            "{received}"
        );
    }
}

#[tokio::test]
async fn b05_g6_each_event_of_an_intercepted_stream_arrives_as_it_is_sent() {
    let root = Root::new();
    let go_on = Arc::new(Notify::new());
    let gate = Arc::clone(&go_on);
    let upstream = Secure::start(&root, &["good.test"], &[H1], move |mut conversation| {
        let gate = Arc::clone(&gate);
        async move {
            conversation.request().await?;
            conversation
                .write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            for number in 1..=3 {
                conversation.write(format!("9\r\ndata: {number}\n\n\r\n")).await?;
                gate.notified().await;
            }
            conversation.write("0\r\n\r\n").await?;
            conversation.drain().await
        }
    })
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    let grants = [in_body(grant("key", &["good.test"]), BodyPlace::Pass)];
    stand.grant(&sandbox, &grants, CANARY).await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client
        .send("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
        .await;
    client.head().await.unwrap();
    let mut waits = Vec::new();
    for number in 1..=3 {
        let asked = Instant::now();
        // The upstream sends no more before it is told to, so nothing but this event was needed for it.
        assert_eq!(
            client.chunk().await.unwrap(),
            format!("data: {number}\n\n").as_bytes()
        );
        waits.push(asked.elapsed());
        go_on.notify_one();
    }
    let quickest = waits.iter().min().unwrap();
    assert!(*quickest < Duration::from_millis(50), "{waits:?}");
    assert!(client.chunk().await.unwrap().is_empty());
}

#[tokio::test]
async fn ep6_a_broken_answer_in_a_tunnel_is_not_taken_for_a_whole_one() {
    let root = Root::new();
    for broken in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\n\r\npart without an end that TLS vouches for",
    ] {
        let upstream = Secure::start(
            &root,
            &["good.test"],
            &[H1],
            move |mut conversation| async move {
                conversation.request().await?;
                conversation.write(broken).await
            },
        )
        .await;
        let stand = stand_for(&root, &[("good.test", &upstream)]).await;
        let sandbox = stand.sandbox(&[]).await;
        stand
            .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
            .await;
        let trusting = stand.trusting(&[H1]).await;
        let mut client = trusting
            .client(sandbox.proxy, "good.test:443", "good.test")
            .await;
        client
            .send("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
            .await;
        let result = async {
            client.head().await?;
            client.rest().await
        };
        assert!(result.await.is_err(), "{broken:?}");
    }
}

#[tokio::test]
async fn an_upstream_that_has_closed_meanwhile_is_reached_anew() {
    let root = Root::new();
    let closed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&closed);
    let upstream = Secure::start(&root, &["good.test"], &[H1], move |mut conversation| {
        let count = Arc::clone(&count);
        async move {
            conversation.request().await?;
            conversation.write(OK).await?;
            conversation.stream.shutdown().await?;
            count.fetch_add(1, Ordering::Relaxed);
            while conversation.more().await? > 0 {}
            Ok(())
        }
    })
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    for number in 0..3 {
        client
            .send("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
            .await;
        assert_eq!(client.answer().await.unwrap().body, b"ok", "{number}");
        until("the end of the upstream's side", async || {
            closed.load(Ordering::Relaxed) == number + 1
        })
        .await;
    }
    assert_eq!(upstream.received().len(), 3);
}

#[tokio::test]
async fn d_lines_hold_inside_of_a_tunnel_too() {
    let place = Place::new(BodyPlace::Refuse).await;
    let head =
        |fields: &str| format!("POST / HTTP/1.1\r\nHost: good.test\r\n{fields}\r\n\r\n0\r\n\r\n");
    for (request, reason) in [
        (
            head("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            "ambiguous_body_length",
        ),
        (
            head("Transfer-Encoding: chunked\r\nContent-Length: 5"),
            "ambiguous_body_length",
        ),
        (
            head("Content-Length: 5\r\nContent-Length: 5"),
            "ambiguous_body_length",
        ),
        (head("Content-Length: +5"), "ambiguous_body_length"),
        (
            head("Transfer-Encoding: chunked, identity"),
            "unsupported_transfer_encoding",
        ),
        (head("Transfer-Encoding:\r\n chunked"), "folded_header"),
        (head("X : y"), "malformed_header"),
        (head("X: a\0b"), "control_character"),
        (head("X: a\nY: b"), "bare_line_ending"),
        (
            head(&format!("X: {}", "a".repeat(70_000))),
            "head_too_large",
        ),
        (format!("{CHUNKED}zz\r\n"), "malformed_body"),
        (format!("{CHUNKED}3\r\nabcd\r\n0\r\n\r\n"), "malformed_body"),
    ] {
        let mut client = place.client().await;
        client.send(&request).await;
        let answer = client.answer().await.unwrap();
        let shown = &request[..request.len().min(120)];
        assert_eq!(
            (answer.status, answer.reason()),
            (400, Some(reason)),
            "{shown:?}"
        );
    }
    assert_eq!(place.upstream.all(), "");
}

#[tokio::test]
async fn a_client_that_does_not_read_makes_the_upstream_wait() {
    let root = Root::new();
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let upstream = Secure::start(&root, &["good.test"], &[H1], move |mut conversation| {
        let count = Arc::clone(&count);
        async move {
            conversation.request().await?;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
            conversation.write(head).await?;
            for _ in 0..LARGE / 16_384 {
                conversation.write([b'x'; 16_384]).await?;
                count.fetch_add(16_384, Ordering::Relaxed);
            }
            conversation.drain().await
        }
    })
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client
        .send("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
        .await;
    client.head().await.unwrap();
    // It stands still after what the sockets have room for.
    let before = still("the upstream to wait", || written.load(Ordering::Relaxed)).await;
    assert!(before < LARGE / 2, "{before} bytes are held somewhere");
    assert_eq!(client.take(LARGE).await.unwrap().len(), LARGE);
}

const LARGE: usize = 48 * 1024 * 1024;

#[tokio::test]
async fn a_client_that_gives_up_ends_the_intercepted_upstream_connection() {
    let root = Root::new();
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let upstream = Secure::start(&root, &["good.test"], &[H1], move |mut conversation| {
        let tell = Arc::clone(&tell);
        async move {
            conversation.request().await?;
            // Silent, as a model that thinks.
            while conversation.more().await.is_ok_and(|read| read > 0) {}
            tell.notify_one();
            Ok(())
        }
    })
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client
        .send("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
        .await;
    until("the request", async || !upstream.all().is_empty()).await;
    drop(client);
    soon("the end at the upstream", ended.notified()).await;
}
